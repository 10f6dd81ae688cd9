//! Admission: a request becomes prompts of token ids within all limits, and its grammar compiles.

use decode::Constraint;
use engine::ClientId;

use crate::backend::Backend;
use crate::error::ApiError;
use crate::http::body::RequestBody;
use crate::pipeline::caps::Caps;
use crate::pipeline::encode::{self, Prompt};
use crate::pipeline::generation::{Generation, Input};
use crate::pipeline::pools::{self, Interest, Origin};
use crate::state::AppState;

/// A request with its prompts as ids, within all limits.
#[derive(Debug)]
pub struct AdmittedRequest {
    /// The request, without its prompts.
    pub generation: Generation,
    /// One per prompt.
    pub prompts: Vec<Prompt>,
    /// The grammar of every choice, at its start.
    pub constraint: Option<Box<dyn Constraint>>,
    /// The parts of tool schemas that calls do not follow, by path.
    pub unenforced: Vec<String>,
}

/// Reads a request with `read`, encodes its prompts and compiles its grammar. Work on a body of
/// more than [`inline_encode_bytes`](crate::RequestLimits::inline_encode_bytes) bytes, chat templates and grammars run off
/// the async threads. The body's share of the bytes in flight is held until the end, or, if the
/// client leaves, until the work that runs then ends.
///
/// # Errors
/// The errors of `read`; prompts that cannot be encoded or do not fit the context; more sequences or
/// tokens than a request may have; a grammar that is refused; `overloaded`.
pub async fn admit<T: Send + 'static>(
    state: &AppState,
    body: RequestBody,
    read: impl FnOnce(&[u8], &Backend) -> Result<(T, Generation), ApiError> + Send + 'static,
) -> Result<(T, AdmittedRequest), ApiError> {
    let backend = state.backend()?;
    let caps = Caps::new(state.settings(), backend.engine.limits());
    let RequestBody { bytes, share, client } = body;
    let origin = Origin { client, field: None };
    let length = bytes.len();
    let pool = state.pools().for_body(length);
    let (reader, encoder) = (backend.clone(), backend.clone());
    let read = move || {
        let (own, generation) = read(&bytes, &reader)?;
        caps.check_sequences(&generation)?;
        Ok((own, generation))
    };
    let encode =
        move |generation, interest: &Interest| encoded(&encoder, caps, generation, interest);
    let (own, admitted, share) = if length > state.settings().limits.inline_encode_bytes {
        let work = move |interest: &Interest| {
            let (own, generation) = read()?;
            interest.check()?;
            Ok((own, encode(generation, interest)?, share))
        };
        pool.run(origin, work).await?
    } else {
        let (own, generation) = read()?;
        let admitted = match generation.prompts.input {
            Input::Chat(_) => {
                pool.run(origin, move |interest| encode(generation, interest)).await?
            }
            _ => encode(generation, &Interest::new().1)?,
        };
        (own, admitted, share)
    };
    let admitted = compiled(state, client, admitted).await?;
    drop(share);
    Ok((own, admitted))
}

/// The request with encoded prompts; their texts are dropped.
fn encoded(
    backend: &Backend,
    caps: Caps,
    mut generation: Generation,
    interest: &Interest,
) -> Result<AdmittedRequest, ApiError> {
    let limits = backend.engine.limits();
    let prompts = encode::prompts(&backend.tokenizer, &generation, limits, interest)?;
    caps.check_tokens(&generation, &prompts)?;
    generation.prompts.input = Input::Texts(Vec::new());
    Ok(AdmittedRequest { generation, prompts, constraint: None, unenforced: Vec::new() })
}

/// The request with its grammar, if it has one.
async fn compiled(
    state: &AppState,
    client: ClientId,
    admitted: AdmittedRequest,
) -> Result<AdmittedRequest, ApiError> {
    let Some(structured) = admitted.generation.format.structured.clone() else {
        return Ok(admitted);
    };
    let (grammars, backend) = (state.grammars().clone(), state.backend()?.clone());
    pools::check("grammar", backend.engine.grammar_threads())?;
    let origin = Origin { client, field: Some(structured.field) };
    let compile = move |_: &Interest| grammars.compile(&backend, &structured);
    let (constraint, unenforced) = state.pools().compile.run(origin, compile).await?;
    Ok(AdmittedRequest { constraint: Some(constraint), unenforced, ..admitted })
}

/// Runs `work` on a body off the async threads; its share of the bytes in flight is held until the
/// work ends.
///
/// # Errors
/// The errors of `work`; `overloaded`.
pub async fn off_thread<T: Send + 'static>(
    state: &AppState,
    body: RequestBody,
    work: impl FnOnce(&[u8]) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let pool = state.pools().for_body(body.bytes.len());
    let origin = Origin { client: body.client, field: None };
    let (done, _share) = pool.run(origin, move |_| Ok((work(&body.bytes)?, body.share))).await?;
    Ok(done)
}
