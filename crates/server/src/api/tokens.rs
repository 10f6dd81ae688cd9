//! `POST /tokenize`, `POST /detokenize`, `GET /tokenizer_info`.

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use step::TokenId;

use super::chat::{ChatCompletions, check_continuation, conversation};
use super::completions::Completions;
use super::endpoint::{Endpoint, name_ignored};
use super::fields::body::JsonBody;
use super::fields::conversation::EffortField;
use super::fields::messages::Messages;
use super::fields::numbers::TokenNumber;
use super::fields::promises;
use super::fields::prompt::{PromptKind, token_ids};
use super::fields::shared::check_model;
use super::fields::table::Fields;
use super::fields::tools::ToolFields;
use super::fields::types::{List, Required};
use super::route::{About, Route};
use crate::backend::Backend;
use crate::error::ApiError;
use crate::http::body;
use crate::metrics::PathRequest;
use crate::pipeline::admit::off_thread;
use crate::pipeline::chat_text::Ending;
use crate::pipeline::encode::{self, ChatPrompt};
use crate::state::AppState;

/// The answer of `/tokenize`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Tokenized {
    count: usize,
    max_model_len: u32,
    tokens: Vec<TokenId>,
    /// The tokens as the vocabulary writes them, if they are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    token_strs: Option<Vec<String>>,
}

/// The fields of `/tokenize` without its prompt.
#[derive(Debug, Deserialize, JsonSchema)]
struct TokenizeFields {
    /// The served model's name.
    model: Option<String>,
    /// Adds the tokens that the tokenizer puts around a text; true by default.
    add_special_tokens: Option<bool>,
    /// Adds the tokens as the vocabulary writes them.
    return_token_strs: Option<bool>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct PromptField {
    /// The text.
    prompt: Required<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct MessagesField {
    /// The chat, at least one message.
    messages: Required<Messages>,
    /// Continues the last message, which must be the assistant's.
    continue_final_message: Option<bool>,
    /// Opens the assistant's turn at the end; true by default.
    add_generation_prompt: Option<bool>,
}

/// The body of `/detokenize`.
#[derive(Debug, Deserialize, JsonSchema)]
struct DetokenizeFields {
    /// The served model's name.
    model: Option<String>,
    /// The token ids.
    tokens: Required<List<TokenNumber>>,
}

/// The fields of `/tokenize`.
fn tokenize_fields() -> Fields {
    let chat = Fields::new::<MessagesField>()
        .and::<ToolFields>()
        .and::<EffortField>()
        .and::<TokenizeFields>();
    Fields::new::<PromptField>().and::<TokenizeFields>().or(chat)
}

/// The routes. Fields of a generation are accepted by `/tokenize`, without effect.
pub fn routes() -> [Route; 3] {
    let fields = tokenize_fields();
    let encoding = About::post("The token ids of a text or chat.", fields).answer::<Tokenized>();
    let tokens = Fields::new::<DetokenizeFields>();
    let decoding = About::post("The text of token ids.", tokens);
    let about = About::get("Special tokens and chat template of the tokenizer.");
    [
        Route::new("/tokenize", post(tokenize), encoding),
        Route::new("/detokenize", post(detokenize), decoding),
        Route::new("/tokenizer_info", get(info), about),
    ]
}

/// The ids of a text or chat, the same as in a generation.
async fn tokenize(State(state): State<AppState>, request: Request) -> Result<Response, ApiError> {
    let generating = ChatCompletions::fields().or(Completions::fields());
    let known = tokenize_fields().or(generating);
    with_body(&state, request, known, |backend, body| {
        let kind = PromptKind::find(body)?;
        let fields: TokenizeFields = body.read()?;
        let (model, tokenizer) = (fields.model.as_deref(), &backend.tokenizer);
        let limits = backend.engine.limits();
        let mut ignored = Vec::new();
        let tokens = match kind {
            PromptKind::Messages => {
                let given: MessagesField = body.read()?;
                let chat = conversation(given.messages.0, body, backend)?;
                ignored = chat.ignored;
                let chat = chat.conversation;
                let continued = given.continue_final_message.unwrap_or(false);
                check_continuation(continued, &chat.messages)?;
                check_model(model, backend)?;
                let ending = match continued {
                    true => Ending::Continued,
                    false if given.add_generation_prompt == Some(false) => Ending::Closed,
                    false => Ending::Answer,
                };
                let calls = backend.tool_format();
                let chat = ChatPrompt { chat: &chat, calls, ending, field: "messages" };
                chat.ids(tokenizer, limits)?
            }
            PromptKind::Prompt => {
                let PromptField { prompt } = body.read()?;
                check_model(model, backend)?;
                let add_special_tokens = fields.add_special_tokens.unwrap_or(true);
                encode::text(tokenizer, limits, &prompt.0, add_special_tokens)?
            }
        };
        let text = |token: &TokenId| tokenizer.id_to_token(*token).unwrap_or_default();
        let asks = fields.return_token_strs == Some(true);
        let token_strs = asks.then(|| tokens.iter().map(text).collect());
        let (count, max_model_len) = (tokens.len(), limits.max_model_len);
        Ok((Tokenized { count, max_model_len, tokens, token_strs }, ignored))
    })
    .await
}

/// The text of ids, special tokens included.
async fn detokenize(State(state): State<AppState>, request: Request) -> Result<Response, ApiError> {
    with_body(&state, request, Fields::new::<DetokenizeFields>(), |backend, body| {
        let fields: DetokenizeFields = body.read()?;
        let vocab_size = backend.engine.limits().vocab_size;
        let tokens = token_ids(&fields.tokens.0.0, vocab_size, "tokens")?;
        check_model(fields.model.as_deref(), backend)?;
        let text = backend.tokenizer.decode(&tokens, false);
        Ok((json!({ "prompt": text }), Vec::new()))
    })
    .await
}

/// The checkpoint's special tokens and chat template; null if absent.
async fn info(State(state): State<AppState>) -> Result<Json<Value>, ApiError> {
    let tokenizer = &state.backend()?.tokenizer;
    let template = tokenizer.chat_template().ok();
    Ok(Json(json!({
        "bos_token": tokenizer.bos_token(),
        "eos_token": tokenizer.eos_token(),
        "pad_token": tokenizer.pad_token(),
        "chat_template": template.map(text::ChatTemplate::source),
    })))
}

/// An answer, and the hints of its request that have no effect.
pub(super) type Counted<T> = (T, Vec<&'static str>);

/// As [`with_body`], for a request to `path` that is counted.
pub(super) async fn counted<T: Serialize + Send + 'static>(
    state: &AppState,
    path: &'static str,
    request: Request,
    known: Fields,
    work: impl FnOnce(&Backend, &JsonBody<'_>) -> Result<Counted<T>, ApiError> + Send + 'static,
) -> Result<Response, ApiError> {
    let followed = PathRequest::new(state.backend()?.metrics.clone(), path);
    let answer = with_body(state, request, known, work).await;
    followed.end(&answer);
    answer
}

/// Reads the body and answers what `work` makes of it, off the async threads. Fields that are not
/// `known` are named or refused.
async fn with_body<T: Serialize + Send + 'static>(
    state: &AppState,
    request: Request,
    known: Fields,
    work: impl FnOnce(&Backend, &JsonBody<'_>) -> Result<Counted<T>, ApiError> + Send + 'static,
) -> Result<Response, ApiError> {
    let backend = state.backend()?.clone();
    let in_flight = state.shutdown().enter().ok_or_else(ApiError::shutting_down)?;
    let body = body::read(request, state).await?;
    let rejects = state.settings().reject_unknown_fields;
    let work = move |body: &[u8]| {
        let _in_flight = in_flight;
        let body = JsonBody::new(body)?;
        let (answer, ignored) = work(&backend, &body)?;
        let mut unknown = promises::unknown(&body, &known.names(), rejects)?;
        unknown.extend(ignored.into_iter().map(str::to_owned));
        Ok((answer, unknown))
    };
    let (answer, unknown) = off_thread(state, body, work).await?;
    let mut response = Json(answer).into_response();
    name_ignored(&unknown, &mut response);
    Ok(response)
}
