//! The body of `/v1/diffusion/trace`: that of either generation endpoint, for one sequence.

use super::{Checks, Endpoint, GenerationRequest};
use crate::error::{ApiError, ErrorCode};
use crate::fields::Fields;
use crate::json::Object;

/// Checks the body as a chat if it has messages, as a completion if not.
///
/// # Errors
/// Those of the endpoint, and requests for more than one sequence.
pub fn check(object: &Object, checks: Checks<'_>) -> Result<GenerationRequest, ApiError> {
    let fields = Fields::new(object, "");
    let is_chat = fields.get("messages").is_some();
    if is_chat && fields.get("prompt").is_some() {
        let rest = "must not be given together with prompt";
        let code = ErrorCode::InvalidValue;
        return Err(ApiError::field(code, "messages", rest));
    }
    let endpoint = if is_chat {
        Endpoint::Chat
    } else {
        Endpoint::Completions
    };
    let request = super::check(endpoint, object, checks)?;
    let counts = [
        ("prompt", request.input.prompts()),
        ("n", request.n as usize),
        ("best_of", request.best_of as usize),
    ];
    for (param, count) in counts {
        if count != 1 {
            let rest = format!("must ask for one sequence to be traced, got {count}");
            return Err(ApiError::field(ErrorCode::InvalidValue, param, rest));
        }
    }
    if request.output.logprobs.is_some() {
        let rest = "is not supported here: cells have the probability of their token";
        let code = ErrorCode::UnsupportedParameter;
        return Err(ApiError::field(code, "logprobs", rest));
    }
    Ok(GenerationRequest {
        trace: true,
        ..request
    })
}
