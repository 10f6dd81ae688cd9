//! From an admitted request to sequences in the engine.

use engine::{EventStream, Refusal, SubmitError};
use step::{Bias, Sampling, TokenId};
use text::{StreamOptions, TextStream};

use crate::api::trace::Lanes;
use crate::error::{ApiError, ErrorCode};
use crate::pipeline::admit::Prepared;
use crate::pipeline::assemble::ChoiceAssembler;
use crate::pipeline::choice::Choice;
use crate::pipeline::encode::Prompt;
use crate::pipeline::ids::choice_seed;
use crate::pipeline::logprobs::Scorer;
use crate::request::GenerationRequest;
use crate::state::{AppState, Backend};

/// Temperatures below this are greedy.
const TINY_TEMPERATURE: f64 = 1e-5;

/// A request that the engine has taken.
#[derive(Debug)]
pub struct Submitted {
    /// Its choices.
    pub choices: Vec<Choice>,
    /// The lanes that a traced sequence begins with; none for others.
    pub lanes: Lanes,
}

/// The sequences of a submitted request, in order: index = prompt × best_of + i.
///
/// # Errors
/// `overloaded`, or a sequence that can never be served.
pub fn submit(
    state: &AppState,
    backend: &Backend,
    prepared: &Prepared,
    seed: i64,
) -> Result<Submitted, ApiError> {
    let request = &prepared.request;
    let mut requests = Vec::new();
    for prompt in &prepared.prompts {
        for choice in 0..request.best_of {
            let seed = choice_seed(seed, choice);
            requests.push(sequence(backend, prepared, prompt, seed));
        }
    }
    let lanes = match requests.first() {
        Some(first) if first.trace => Lanes::new(first),
        _ => Lanes::default(),
    };
    let streams = backend
        .engine
        .submit(requests)
        .map_err(|error| refuse(backend, error, request))?;
    let options = StreamOptions {
        skip_special_tokens: request.output.skip_special_tokens,
        stop: request.stops.strings.clone(),
        include_stop_str_in_output: request.output.include_stop,
        min_tokens: request.stops.min_tokens as usize,
    };
    let text = TextStream::new(&backend.tokenizer, &options);
    let scorer = logprobs(request).map(|_| {
        let specials = request.output.special_tokens();
        Scorer::new(backend.tokenizer.detokenizer(specials))
    });
    let choice = |(index, events): (usize, EventStream)| {
        let prompt = &prepared.prompts[index / request.best_of as usize];
        let assembler = ChoiceAssembler::new(index, text.clone(), prompt.echo.clone())
            .traced(request.trace)
            .scored(scorer.clone());
        let waiting = state.waiting_tokens().enter(prompt.tokens());
        Choice::new(events, assembler, waiting)
    };
    let choices = streams.into_iter().enumerate().map(choice).collect();
    Ok(Submitted { choices, lanes })
}

/// The log-probabilities that the engine has to give: those asked for, and those that tell the
/// best sequences.
fn logprobs(request: &GenerationRequest) -> Option<u8> {
    let ranked = (request.best_of > request.n).then_some(0);
    request.output.logprobs.or(ranked)
}

fn sequence(backend: &Backend, prepared: &Prepared, prompt: &Prompt, seed: u64) -> engine::Request {
    let (request, model) = (&prepared.request, &backend.model);
    let (fields, defaults) = (request.sampling, model.defaults);
    let temperature = fields.temperature.unwrap_or(defaults.temperature);
    let top_k = fields
        .top_k
        .map_or(defaults.top_k, |k| u32::try_from(k).unwrap_or(0));
    let sampling = Sampling {
        temperature: if temperature < TINY_TEMPERATURE {
            0.0
        } else {
            temperature as f32
        },
        top_p: fields.top_p.unwrap_or(defaults.top_p) as f32,
        min_p: fields.min_p.unwrap_or(defaults.min_p) as f32,
        top_k,
        seed,
        clock: 0,
    };
    // With ignore_eos the model's own stop ids never come up, those of the request still stop.
    let stops = &request.stops;
    let ban = |token: &TokenId| Bias::ban(*token);
    let mut biases = request.biases.clone();
    let own = if stops.ignore_eos {
        biases.extend(model.stop_tokens.iter().map(ban));
        &[][..]
    } else {
        &model.stop_tokens[..]
    };
    let mut stop_tokens = own.to_vec();
    for token in &stops.tokens {
        if !stop_tokens.contains(token) {
            stop_tokens.push(*token);
        }
    }
    let decoding = request.decoding.clone();
    engine::Request {
        sampling,
        stop_tokens,
        min_tokens: stops.min_tokens.min(prompt.max_tokens),
        biases,
        suffix: prompt.suffix.to_vec(),
        penalties: request.penalties,
        logprobs: logprobs(request),
        constraint: prepared.constraint.clone(),
        code_prompt: prompt.code,
        trace: request.trace,
        ..engine::Request::new(prompt.ids.to_vec(), prompt.max_tokens, decoding)
    }
}

fn refuse(backend: &Backend, error: SubmitError, request: &GenerationRequest) -> ApiError {
    match error {
        SubmitError::Overloaded { waiting } => {
            let running = backend.engine.limits().max_running.max(1);
            ApiError::overloaded(waiting / running)
        }
        SubmitError::Stopped => ApiError::internal(),
        SubmitError::Refused(
            refusal @ (Refusal::TooLong { .. } | Refusal::TooManyPages { .. }),
        ) => {
            let rest = format!("does not fit: {refusal}");
            ApiError::field(
                ErrorCode::ContextLengthExceeded,
                request.max_tokens_field,
                rest,
            )
        }
        SubmitError::Refused(refusal @ Refusal::UnknownToken { .. }) => {
            let field = request.endpoint.prompt_field();
            ApiError::field(
                ErrorCode::InvalidValue,
                field,
                format!("is refused: {refusal}"),
            )
        }
        SubmitError::Refused(Refusal::Rule { field, message }) => ApiError::field(
            ErrorCode::InvalidValue,
            format!("diffusion.{field}"),
            message,
        ),
        SubmitError::Refused(Refusal::Field { field, message }) => {
            ApiError::field(ErrorCode::InvalidValue, field.to_owned(), message)
        }
    }
}
