//! `POST /tokenize`, `POST /detokenize`, `GET /tokenizer_info`.

use axum::Json;
use axum::extract::{Request, State};
use serde::Serialize;
use serde_json::{Value, json};
use step::TokenId;

use crate::error::ApiError;
use crate::http::body;
use crate::pipeline::admit::off_thread;
use crate::pipeline::encode;
use crate::request;
use crate::state::{AppState, Backend};

/// The answer of `/tokenize`.
#[derive(Debug, Serialize)]
pub struct Tokenized {
    count: usize,
    max_model_len: u32,
    tokens: Vec<TokenId>,
}

/// The ids of a text or chat, exactly those that generation would see.
pub async fn tokenize(
    State(state): State<AppState>,
    request: Request,
) -> Result<Json<Tokenized>, ApiError> {
    with_body(&state, request, |backend, body| {
        let request = request::tokenize(body, &backend.model.id)?;
        let tokens = encode::one(&backend.tokenizer, &request)?;
        Ok(Json(Tokenized {
            count: tokens.len(),
            max_model_len: backend.engine.limits().max_model_len,
            tokens,
        }))
    })
    .await
}

/// The text of ids, special tokens included.
pub async fn detokenize(
    State(state): State<AppState>,
    request: Request,
) -> Result<Json<Value>, ApiError> {
    with_body(&state, request, |backend, body| {
        let vocab_size = backend.engine.limits().vocab_size;
        let tokens = request::detokenize(body, &backend.model.id, vocab_size)?;
        Ok(Json(
            json!({ "prompt": backend.tokenizer.decode(&tokens, false) }),
        ))
    })
    .await
}

/// Special tokens and the chat template as they stand in the checkpoint; null where absent.
pub async fn info(State(state): State<AppState>) -> Result<Json<Value>, ApiError> {
    let tokenizer = &state.backend()?.tokenizer;
    let template = tokenizer.chat_template().ok();
    Ok(Json(json!({
        "bos_token": tokenizer.bos_token(),
        "eos_token": tokenizer.eos_token(),
        "pad_token": tokenizer.pad_token(),
        "chat_template": template.map(text::ChatTemplate::source),
    })))
}

/// Reads the body and hands it to `work`, off the async threads unless it is short.
async fn with_body<T: Send + 'static>(
    state: &AppState,
    request: Request,
    work: impl FnOnce(&Backend, &[u8]) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let backend = state.backend()?.clone();
    let _in_flight = state
        .shutdown()
        .enter()
        .ok_or_else(ApiError::shutting_down)?;
    let body = body::read(request, state.settings()).await?;
    off_thread(state, body.len(), move || work(&backend, &body)).await
}
