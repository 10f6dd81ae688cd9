//! Generation endpoints: one trait, one handler, one path from request to answer.

use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::routing::post;

use super::fields::body::JsonBody;
use super::fields::promises;
use super::fields::table::Fields;
use super::route::{About, AnswerSchema, JSON, Route};
use crate::backend::Backend;
use crate::error::ApiError;
use crate::http::authorization::KeyName;
use crate::http::body;
use crate::http::client::client_of;
use crate::http::request_id::RequestId;
use crate::http::shutdown::Phase;
use crate::pipeline::admit::admit;
use crate::pipeline::deliver::Delivery;
use crate::pipeline::generation::Generation;
use crate::pipeline::record::Record;
use crate::pipeline::spans::Caller;
use crate::pipeline::submit::submit;
use crate::state::AppState;

/// Names the fields of the request that were ignored.
const IGNORED: HeaderName = HeaderName::from_static("x-ignored-fields");
/// Names the parts of the schemas of tools that calls do not follow: function, then path.
const UNENFORCED: HeaderName = HeaderName::from_static("x-unenforced");

/// An endpoint that generates: reads its request, and answers in its shape.
///
/// A value of the type belongs to one request: it keeps the data of the request that the answer
/// needs. [`Route::endpoint`] gives it a path; the server handles limits, keys, metrics, logs and
/// cancellation.
pub trait Endpoint: Sized + Send + 'static {
    /// Its path; the label `endpoint` of its metrics and `route` of its log lines.
    const PATH: &'static str;
    /// The ids of its answers begin with this and a hyphen.
    const ID_PREFIX: &'static str;
    /// OpenTelemetry's `gen_ai.operation.name`.
    const OPERATION: &'static str = "text_completion";

    /// A summary for the document of the API.
    const SUMMARY: &'static str = "Generates.";
    /// The media types of its answers.
    const ANSWERS: &'static [&'static str] = &[JSON];
    /// The schema of an answer in JSON; none = an object.
    const ANSWER: Option<AnswerSchema> = None;

    /// The fields that it reads. Other fields are told as unknown; without any here, no field is.
    fn fields() -> Fields {
        Fields::default()
    }

    /// Reads a request for the model of `backend`. Called before anything is encoded, on a
    /// blocking thread if the body is long.
    ///
    /// # Errors
    /// Every fault of the fields; `model_not_found`.
    fn read(body: &JsonBody<'_>, backend: &Backend) -> Result<(Self, Generation), ApiError>;

    /// Answers with the text of `delivery`. Dropping `delivery` cancels the sequences that still
    /// run.
    fn respond(self, delivery: Delivery) -> impl Future<Output = Response> + Send;
}

impl Route {
    /// The route of the endpoint `E`.
    pub fn endpoint<E: Endpoint>() -> Self {
        let fields = E::fields();
        let about = About {
            answers: E::ANSWERS,
            answer: E::ANSWER,
            is_promised: !fields.is_empty(),
            ..About::post(E::SUMMARY, fields)
        };
        Self::new(E::PATH, post(generate::<E>), about)
    }
}

/// Answers one generation request.
async fn generate<E: Endpoint>(State(state): State<AppState>, request: Request) -> Response {
    let backend = match state.backend() {
        Ok(backend) => backend.clone(),
        Err(error) => return error.into_response(),
    };
    let record = record(&backend, &request, E::PATH, E::OPERATION);
    match accept::<E>(&state, &backend, request, record).await {
        Ok((endpoint, delivery, left)) => {
            let mut response = endpoint.respond(delivery).await;
            name_ignored(&left.unknown, &mut response);
            name_left(UNENFORCED, &left.unenforced, &mut response);
            response
        }
        Err(error) => error.into_response(),
    }
}

/// Starts the record of a request to `path`.
pub(super) fn record(
    backend: &Backend,
    request: &Request,
    path: &'static str,
    operation: &'static str,
) -> Record {
    let id = request.extensions().get::<RequestId>();
    let key = request.extensions().get::<KeyName>();
    let caller = Caller {
        request_id: id.map_or("", RequestId::as_str),
        path,
        operation,
        key: key.map(|name| &*name.0),
        client: client_of(request.extensions()),
        model: &backend.model.id,
        headers: request.headers(),
    };
    Record::new(backend.metrics.clone(), &caller)
}

/// Reads, admits and submits the request.
async fn accept<E: Endpoint>(
    state: &AppState,
    backend: &Backend,
    request: Request,
    mut record: Record,
) -> Result<(E, Delivery, Omissions), ApiError> {
    let Some(in_flight) = state.shutdown().enter() else {
        let error = ApiError::shutting_down();
        record.fail(&error);
        return Err(error);
    };
    record.hold(in_flight);
    let read = async {
        let body = body::read(request, state).await?;
        let rejects = state.settings().reject_unknown_fields;
        admit(state, body, move |body, backend| {
            let body = JsonBody::new(body)?;
            let (endpoint, generation) = E::read(&body, backend)?;
            let names = E::fields().names();
            let mut unknown = match names.as_slice() {
                [] => Vec::new(),
                names => promises::unknown(&body, names, rejects)?,
            };
            unknown.extend(generation.ignored.iter().map(|name| (*name).to_owned()));
            Ok(((endpoint, unknown), generation))
        })
        .await
    };
    let admitted = tokio::select! {
        admitted = read => admitted,
        () = state.shutdown().reached(Phase::Ending) => Err(ApiError::shutting_down()),
    };
    let ((endpoint, unknown), admitted) = admitted.inspect_err(|error| record.fail(error))?;
    let unenforced = admitted.unenforced.clone();
    let delivery = submit(state, backend, E::ID_PREFIX, admitted, record)?;
    let left = Omissions { unknown, unenforced };
    Ok((endpoint, delivery, left))
}

/// The parts of a request that its answer does not follow.
struct Omissions {
    /// Fields that were ignored.
    unknown: Vec<String>,
    /// Parts of the schemas of tools.
    unenforced: Vec<String>,
}

/// Names ignored fields in a header of the answer.
pub(super) fn name_ignored(unknown: &[String], response: &mut Response) {
    name_left(IGNORED, unknown, response);
}

/// Names what was left in a header of the answer. The log has the number only: a name may hold text of a
/// prompt.
fn name_left(header: HeaderName, left: &[String], response: &mut Response) {
    let names = promises::header(left);
    if let Some(value) = HeaderValue::from_str(&names).ok().filter(|_| !names.is_empty()) {
        tracing::debug!(%header, count = left.len(), "not followed");
        response.headers_mut().insert(header, value);
    }
}
