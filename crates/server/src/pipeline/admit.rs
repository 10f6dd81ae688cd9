//! Admission: a request becomes prompts of token ids within all limits, and its grammar compiles.

use decode::Constraint;

use crate::backend::Backend;
use crate::error::ApiError;
use crate::pipeline::encode::{self, Prompt};
use crate::pipeline::generation::Generation;
use crate::state::AppState;

/// A request with its prompts as ids, within all limits.
#[derive(Debug)]
pub struct Admitted {
    /// The request.
    pub generation: Generation,
    /// One per prompt.
    pub prompts: Vec<Prompt>,
    /// The grammar of every choice, at its start.
    pub constraint: Option<Box<dyn Constraint>>,
}

/// Reads a request with `read`, encodes its prompts and compiles its grammar. Work on a body of
/// more than [`crate::Settings::inline_encode_bytes`] bytes runs off the async threads.
///
/// # Errors
/// Those of `read`; prompts that cannot be encoded or do not fit the context; a grammar that is
/// refused.
pub async fn admit<T: Send + 'static>(
    state: &AppState,
    bytes: usize,
    read: impl FnOnce(&Backend) -> Result<(T, Generation), ApiError> + Send + 'static,
) -> Result<(T, Admitted), ApiError> {
    let backend = state.backend()?.clone();
    let encoding = backend.clone();
    let encode = move || {
        let (own, generation) = read(&encoding)?;
        let limits = encoding.engine.limits();
        let prompts = encode::prompts(&encoding.tokenizer, &generation, limits)?;
        let admitted = Admitted {
            generation,
            prompts,
            constraint: None,
        };
        Ok((own, admitted))
    };
    let (own, admitted) = off_thread(state, bytes, encode).await?;
    let Some(structured) = admitted.generation.structured.clone() else {
        return Ok((own, admitted));
    };
    let grammars = state.grammars().clone();
    let compile = move || grammars.compile(&backend, &structured);
    let constraint = Some(blocking(state, compile).await?);
    Ok((
        own,
        Admitted {
            constraint,
            ..admitted
        },
    ))
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

/// Runs `work` off the async threads, on at most one thread per core.
async fn blocking<T: Send + 'static>(
    state: &AppState,
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let permit = state
        .encoders()
        .acquire()
        .await
        .map_err(|_| ApiError::internal())?;
    let done = tokio::task::spawn_blocking(work).await;
    drop(permit);
    done.map_err(|_| ApiError::internal())?
}
