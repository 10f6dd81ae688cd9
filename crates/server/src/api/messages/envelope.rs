//! Anthropic's shape of errors, for every answer of the paths below `/v1/messages`.

use axum::Json;
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderName, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::http::request_id::RequestId;

/// The field of a stored conversation, which is refused.
pub const THREAD: &str = "thread";
/// The request's id under Anthropic's name.
const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// Gives errors of the paths below `/v1/messages` their shape, and answers their request id.
pub async fn shape(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if path != "/v1/messages" && !path.starts_with("/v1/messages/") {
        return next.run(request).await;
    }
    let id = request.extensions().get::<RequestId>().cloned();
    let mut response = next.run(request).await;
    if let Some(error) = response.extensions().get::<ApiError>() {
        let body = Json(body(error, id.as_ref().map(RequestId::as_str)));
        let mut shaped = (response.status(), body).into_response();
        for (name, value) in response.headers() {
            if *name != CONTENT_TYPE && *name != CONTENT_LENGTH {
                shaped.headers_mut().append(name, value.clone());
            }
        }
        response = shaped;
    }
    if let Some(id) = id {
        response.headers_mut().insert(REQUEST_ID, id.value());
    }
    response
}

/// The object of an error.
pub fn body(error: &ApiError, request_id: Option<&str>) -> Value {
    let (status, _, _) = error.code.row();
    let kind = match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::REQUEST_TIMEOUT => "timeout_error",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        StatusCode::INTERNAL_SERVER_ERROR => "api_error",
        _ => "invalid_request_error",
    };
    let mut object = json!({"type": kind, "message": error.message});
    if error.param.as_deref() == Some(THREAD) {
        // By this word Anthropic's clients know that they have to send the whole history.
        object["details"] = json!({"error_code": "thread_unsupported_request", "unsupported": []});
    }
    json!({"type": "error", "error": object, "request_id": request_id})
}

/// The schema of [`body`].
pub fn schema() -> Value {
    json!({
        "type": "object",
        "required": ["type", "error", "request_id"],
        "properties": {
            "type": {"const": "error"},
            "error": {
                "type": "object",
                "required": ["type", "message"],
                "properties": {
                    "type": {"type": "string"},
                    "message": {"type": "string"},
                    "details": {"type": "object"},
                },
            },
            "request_id": {"type": ["string", "null"]},
        },
    })
}
