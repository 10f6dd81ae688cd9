//! Admission: a request body becomes prompts of token ids within all limits.

use decode::Constraint;

use crate::error::ApiError;
use crate::pipeline::encode::{self, Prompt};
use crate::request::{self, Checks, GenerationRequest, Route};
use crate::state::{AppState, Backend};

/// A request with its prompts as ids, within all limits.
#[derive(Debug)]
pub struct Prepared {
    /// The request.
    pub request: GenerationRequest,
    /// One per prompt.
    pub prompts: Vec<Prompt>,
    /// The grammar of every choice, at its start.
    pub constraint: Option<Box<dyn Constraint>>,
}

/// Parses and encodes `body`, off the async threads unless it is short, and compiles its grammar.
///
/// # Errors
/// Every fault of the request.
pub async fn prepare(state: &AppState, route: Route, body: Vec<u8>) -> Result<Prepared, ApiError> {
    let backend = state.backend()?.clone();
    let bytes = body.len();
    let parsing = backend.clone();
    let prepared = off_thread(state, bytes, move || prepare_now(&parsing, route, &body)).await?;
    let Some(structured) = prepared.request.structured.clone() else {
        return Ok(prepared);
    };
    let grammars = state.grammars().clone();
    let compile = move || grammars.compile(&backend, &structured);
    Ok(Prepared {
        constraint: Some(blocking(state, compile).await?),
        ..prepared
    })
}

/// Runs `work` on a body of `bytes` bytes: here if it is short, else off the async threads.
///
/// # Errors
/// Those of `work`.
pub async fn off_thread<T: Send + 'static>(
    state: &AppState,
    bytes: usize,
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    if bytes <= state.settings().inline_encode_bytes {
        return work();
    }
    blocking(state, work).await
}

/// Runs `work` off the async threads.
async fn blocking<T: Send + 'static>(
    state: &AppState,
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    // A bound on the work at hand: short bodies overtake those that wait here.
    let permit = state
        .encoders()
        .acquire()
        .await
        .map_err(|_| ApiError::internal())?;
    let done = tokio::task::spawn_blocking(work).await;
    drop(permit);
    done.map_err(|_| ApiError::internal())?
}

fn prepare_now(backend: &Backend, route: Route, body: &[u8]) -> Result<Prepared, ApiError> {
    let (model, limits) = (&backend.model, backend.engine.limits());
    let checks = Checks {
        model: &model.id,
        vocab_size: limits.vocab_size,
        decoding: &model.decoding,
    };
    let request = request::parse(route, body, checks)?;
    let prompts = encode::prompts(&backend.tokenizer, &request, limits)?;
    Ok(Prepared {
        request,
        prompts,
        constraint: None,
    })
}
