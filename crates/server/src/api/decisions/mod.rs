//! `POST /v1/decisions`, OpenAI's Decisions, and `POST /v1/systemone`, TypeSafe's: the probabilities of the
//! options of questions about an input.

mod content;
mod input;
mod openai;
mod output;
mod systemone;
mod value;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::openai::Decisions;
use self::output::ReadUsage;
use self::systemone::SystemOne;
use super::endpoint::{name_ignored, record};
use super::fields::body::JsonBody;
use super::fields::conversation::{Chat, Thinking};
use super::fields::numbers::{Int, ReadTemperature};
use super::fields::promises;
use super::fields::schema::named;
use super::fields::table::Fields;
use super::fields::tools::Tools;
use super::fields::types::Object;
use super::route::{About, Route};
use crate::backend::Backend;
use crate::error::{ApiError, ErrorCode};
use crate::http::body::{self, RequestBody};
use crate::http::shutdown::Phase;
use crate::pipeline::decide::{
    Decide, Distribution, Manner, Plan, Planner, ReadSettings, plan, read,
};
use crate::pipeline::pools::{Interest, Origin};
use crate::pipeline::record::Record;
use crate::pipeline::usage::{Usage, UsageSum};
use crate::state::AppState;
use text::{Conversation, Message};

/// The paths.
pub const PATHS: [&str; 2] = [Decisions::PATH, SystemOne::PATH];

/// Most questions of a request.
const MAX_QUESTIONS: usize = 400;
/// Options of a choice.
const CHOICES: std::ops::RangeInclusive<usize> = 2..=255;
/// Levels of a score.
const LEVELS: std::ops::RangeInclusive<usize> = 2..=10;

/// The routes.
pub fn routes() -> [Route; 2] {
    [route::<Decisions>(), route::<SystemOne>()]
}

fn route<F: Form>() -> Route {
    let about = About { is_promised: true, ..About::post(F::SUMMARY, F::fields()) };
    Route::new(F::PATH, post(decide::<F>), about.answer::<F::Answer>())
}

/// A form of requests and answers.
trait Form: Sized + Send + 'static {
    const PATH: &'static str;
    const SUMMARY: &'static str;
    /// The request field of the input.
    const INPUT: &'static str;
    type Answer: Serialize + JsonSchema;

    fn fields() -> Fields;

    /// Reads a request.
    ///
    /// # Errors
    /// Every fault of the fields; `model_not_found`.
    fn read(body: &JsonBody<'_>, backend: &Backend) -> Result<(Self, Decide), ApiError>;

    /// The answer with the probabilities of its questions.
    fn answer(self, found: Vec<Distribution>, facts: Facts) -> Self::Answer;
}

/// The facts of an answer beside its probabilities.
struct Facts {
    model: String,
    usage: Usage,
    read: ReadUsage,
}

/// `diffusion` of a decision.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "DecisionSettings")]
struct SettingsFields {
    /// `joint`: all questions in one canvas, the default where the weights allow; `apart`: each in its own.
    read: Option<MannerName>,
    /// Orders of the options whose probabilities are averaged; 1 by default.
    orders: Option<Int<1, 8>>,
    /// Canvases of noise whose probabilities are averaged, for weights trained on noise; 4 by default.
    draws: Option<Int<1, 64>>,
    /// Divides log-probabilities; 1 by default.
    temperature: Option<ReadTemperature>,
    /// The seed of the noise; 0 by default.
    seed: Option<Int<0, { (1 << 53) - 1 }>>,
}

#[derive(Clone, Copy, Debug)]
struct MannerName(Manner);

named!(MannerName { "joint" => Self(Manner::Joint), "apart" => Self(Manner::Apart) });

impl SettingsFields {
    fn settings(given: Option<Object<Self>>) -> ReadSettings {
        let Object(given) = given.unwrap_or(Object(Self::default()));
        ReadSettings {
            manner: given.read.map(|MannerName(manner)| manner),
            orders: given.orders.map_or(1, Int::count),
            draws: given.draws.map_or(4, Int::count),
            temperature: given.temperature.map_or(1.0, |ReadTemperature(temperature)| temperature),
            seed: given.seed.map_or(0, Int::get),
        }
    }
}

/// The chat of `messages`, whose answer begins at once where the template has a switch for thinking.
fn chat(messages: Vec<Message>, backend: &Backend) -> Conversation {
    let mut chat = Chat::new(messages, Tools::default(), None);
    chat.follow(backend, "thinking", Some(Thinking::Switch(false)));
    chat.conversation
}

/// Checks the number of questions.
fn check_count(count: usize) -> Result<(), ApiError> {
    match (1..=MAX_QUESTIONS).contains(&count) {
        true => Ok(()),
        false => Err(sized("questions", &(1..=MAX_QUESTIONS), count)),
    }
}

/// The error of a list of `count` members.
fn sized(param: &str, allowed: &std::ops::RangeInclusive<usize>, count: usize) -> ApiError {
    let (least, most) = (allowed.start(), allowed.end());
    invalid(param, format!("must have {least} to {most} members, got {count}"))
}

fn invalid(param: &str, rest: impl AsRef<str>) -> ApiError {
    ApiError::field(ErrorCode::InvalidValue, param, rest)
}

/// Answers a request.
async fn decide<F: Form>(State(state): State<AppState>, request: Request) -> Response {
    let backend = match state.backend() {
        Ok(backend) => backend.clone(),
        Err(error) => return error.into_response(),
    };
    let mut record = record(&backend, &request, F::PATH, "decision");
    let answered = tokio::select! {
        answered = answer::<F>(&state, &backend, request, &mut record) => answered,
        () = state.shutdown().reached(Phase::Ending) => Err(ApiError::shutting_down()),
    };
    match answered {
        Ok((answer, unknown)) => {
            let mut response = Json(answer).into_response();
            name_ignored(&unknown, &mut response);
            response
        }
        Err(error) => {
            record.fail(&error);
            error.into_response()
        }
    }
}

/// The answer, and the fields that were ignored.
async fn answer<F: Form>(
    state: &AppState,
    backend: &Backend,
    request: Request,
    record: &mut Record,
) -> Result<(F::Answer, Vec<String>), ApiError> {
    record.hold(state.shutdown().enter().ok_or_else(ApiError::shutting_down)?);
    let received = body::read(request, state).await?;
    let Planned { form, plan, settings, unknown } = planned::<F>(state, backend, received).await?;
    let label = plan.readings.first().map(|first| first.request.decoding.label.clone());
    let prompt_tokens = plan.readings.iter().map(|reading| reading.tokens()).sum();
    record.accepted(plan.readings.len(), prompt_tokens);
    let mut usage = UsageSum::new(label.unwrap_or_default(), settings.seed, prompt_tokens);
    let manner = plan.manner;
    let found = read(backend, state.waiting_tokens(), plan, record, &mut usage).await?;
    let usage = usage.last();
    record.succeed(&usage);
    let masses = found.iter().map(|distribution| distribution.mass).collect();
    let read = ReadUsage::new(manner, &settings, &usage, masses);
    let facts = Facts { model: backend.model.id.clone(), usage, read };
    Ok((form.answer(found, facts), unknown))
}

/// A request whose sequences are planned.
struct Planned<F> {
    form: F,
    plan: Plan,
    settings: ReadSettings,
    unknown: Vec<String>,
}

/// Reads and plans a request off the async threads.
async fn planned<F: Form>(
    state: &AppState,
    backend: &Backend,
    received: RequestBody,
) -> Result<Planned<F>, ApiError> {
    let pool = state.pools().for_body(received.bytes.len());
    let origin = Origin { client: received.client, field: None };
    let (state, backend) = (state.clone(), backend.clone());
    let work = move |interest: &Interest| {
        let body = JsonBody::new(&received.bytes)?;
        let (form, decide) = F::read(&body, &backend)?;
        let rejects = state.settings().reject_unknown_fields;
        let unknown = promises::unknown(&body, &F::fields().names(), rejects)?;
        let planner = Planner {
            tokenizer: &backend.tokenizer,
            labels: state.labels()?,
            calls: backend.tool_format(),
            limits: backend.engine.limits(),
            most: state.settings().limits,
            input: F::INPUT,
        };
        let plan = plan(planner, &decide, received.client, interest)?;
        Ok((Planned { form, plan, settings: decide.settings, unknown }, received.share))
    };
    let (planned, _share) = pool.run(origin, work).await?;
    Ok(planned)
}
