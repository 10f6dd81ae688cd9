//! `POST /v1/responses/input_tokens`: the tokens of the input of a response.

use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::post;
use schemars::JsonSchema;
use serde::Serialize;

use super::{ResponseFields, Responses};
use crate::api::endpoint::Endpoint;
use crate::api::fields::shared::ModelField;
use crate::api::fields::table::Fields;
use crate::api::route::{About, Route};
use crate::api::tokens::counted;
use crate::error::ApiError;
use crate::pipeline::chat_text::Ending;
use crate::pipeline::encode::ChatPrompt;
use crate::state::AppState;

/// The path.
pub const COUNT_PATH: &str = "/v1/responses/input_tokens";

/// The answer.
#[derive(Debug, Serialize, JsonSchema)]
pub struct InputTokens {
    object: &'static str,
    input_tokens: usize,
}

/// The route. Fields of a generation are accepted there, without effect.
pub fn count_route() -> Route {
    let fields = Fields::new::<ResponseFields>().and::<ModelField>();
    let about = About::post("Counts the tokens of the input of a response.", fields);
    Route::new(COUNT_PATH, post(count), about.answer::<InputTokens>())
}

/// The tokens of the input, the same as in a generation.
///
/// # Errors
/// Faults of the fields; `model_not_found`.
async fn count(State(state): State<AppState>, request: Request) -> Result<Response, ApiError> {
    counted(&state, COUNT_PATH, request, Responses::fields(), |backend, body| {
        let fields: ResponseFields = body.read()?;
        fields.support()?;
        let chat = fields.chat(backend)?;
        body.read::<ModelField>()?.check(backend)?;
        let prompt = ChatPrompt {
            chat: &chat.conversation,
            calls: backend.tool_format(),
            ending: Ending::Answer,
            field: "input",
        };
        let ids = prompt.ids(&backend.tokenizer, backend.engine.limits())?;
        let answer = InputTokens { object: "response.input_tokens", input_tokens: ids.len() };
        Ok((answer, chat.ignored))
    })
    .await
}
