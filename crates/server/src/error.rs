//! The errors of the API: the only table of status codes, error types and codes.

use std::time::Duration;

use axum::Json;
use axum::http::header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use text::TextError;

/// Maximum characters of a message.
const MAX_MESSAGE_CHARS: usize = 500;
/// Maximum characters that a message quotes from the request.
const MAX_QUOTE_CHARS: usize = 64;
/// Maximum characters of a sentence of which only parts are quoted.
const MAX_REASON_CHARS: usize = 400;

/// The kinds of error; each is one row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// The body is not one JSON object.
    InvalidJson,
    /// A required field is absent.
    MissingRequiredParameter,
    /// A field has the wrong JSON type.
    InvalidType,
    /// A value is outside its range or conflicts with another field.
    InvalidValue,
    /// An unknown key of an object that accepts known keys only, such as `diffusion`.
    UnknownParameter,
    /// A known field that the server or the model does not support.
    UnsupportedParameter,
    /// A known field with a value that the server does not support.
    UnsupportedValue,
    /// Prompt and budget exceed the model's context.
    ContextLengthExceeded,
    /// No API key, or an unknown one.
    InvalidApiKey,
    /// Without API keys: `Host` or `Origin` is foreign, so a page of another site may have sent it.
    Forbidden,
    /// The model is not served here.
    ModelNotFound,
    /// The path does not exist.
    UnknownUrl,
    /// The path exists, the method does not.
    MethodNotAllowed,
    /// The body did not arrive in time.
    RequestTimeout,
    /// The body is too large.
    RequestTooLarge,
    /// The content type or content encoding is not supported.
    UnsupportedMediaType,
    /// The queue is full.
    Overloaded,
    /// The server failed.
    InternalError,
    /// The model is not loaded yet.
    Loading,
    /// The server is shutting down and accepts no requests.
    ShuttingDown,
    /// The engine thread has ended.
    EngineStopped,
    /// The engine has made no progress for too long.
    EngineStalled,
    /// Too many threads of a pool do work that does not end.
    ThreadsStuck,
}

impl ErrorCode {
    /// HTTP status, error type and code string.
    pub fn row(self) -> (StatusCode, &'static str, &'static str) {
        const INVALID: &str = "invalid_request_error";
        const SERVER: &str = "server_error";
        let bad = |code| (StatusCode::BAD_REQUEST, INVALID, code);
        match self {
            Self::InvalidJson => bad("invalid_json"),
            Self::MissingRequiredParameter => bad("missing_required_parameter"),
            Self::InvalidType => bad("invalid_type"),
            Self::InvalidValue => bad("invalid_value"),
            Self::UnknownParameter => bad("unknown_parameter"),
            Self::UnsupportedParameter => bad("unsupported_parameter"),
            Self::UnsupportedValue => bad("unsupported_value"),
            Self::ContextLengthExceeded => bad("context_length_exceeded"),
            Self::InvalidApiKey => (StatusCode::UNAUTHORIZED, INVALID, "invalid_api_key"),
            Self::Forbidden => (StatusCode::FORBIDDEN, INVALID, "forbidden"),
            Self::ModelNotFound => (StatusCode::NOT_FOUND, INVALID, "model_not_found"),
            Self::UnknownUrl => (StatusCode::NOT_FOUND, INVALID, "unknown_url"),
            Self::MethodNotAllowed => {
                (StatusCode::METHOD_NOT_ALLOWED, INVALID, "method_not_allowed")
            }
            Self::RequestTimeout => (StatusCode::REQUEST_TIMEOUT, INVALID, "request_timeout"),
            Self::RequestTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, INVALID, "request_too_large"),
            Self::UnsupportedMediaType => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, INVALID, "unsupported_media_type")
            }
            Self::Overloaded => (StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", "overloaded"),
            Self::InternalError => (StatusCode::INTERNAL_SERVER_ERROR, SERVER, "internal_error"),
            Self::Loading => (StatusCode::SERVICE_UNAVAILABLE, SERVER, "loading"),
            Self::ShuttingDown => (StatusCode::SERVICE_UNAVAILABLE, SERVER, "shutting_down"),
            Self::EngineStopped => (StatusCode::SERVICE_UNAVAILABLE, SERVER, "internal_error"),
            Self::EngineStalled => (StatusCode::SERVICE_UNAVAILABLE, SERVER, "engine_stalled"),
            Self::ThreadsStuck => (StatusCode::SERVICE_UNAVAILABLE, SERVER, "threads_stuck"),
        }
    }
}

/// One error, as the client sees it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// The row of the table.
    pub code: ErrorCode,
    /// One readable line.
    pub message: String,
    /// The field that caused it.
    pub param: Option<String>,
    /// `retry-after`, in seconds.
    pub retry_after: Option<u32>,
    /// The allowed methods, for [`ErrorCode::MethodNotAllowed`].
    pub allow: Option<&'static str>,
}

impl ApiError {
    /// An error without a field.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if message.chars().count() > MAX_MESSAGE_CHARS {
            message = message.chars().take(MAX_MESSAGE_CHARS - 3).collect();
            message.push_str("...");
        }
        Self { code, message, param: None, retry_after: None, allow: None }
    }

    /// An error of the field `param`; the message is the field's name followed by `rest`.
    pub fn field(code: ErrorCode, param: impl Into<String>, rest: impl AsRef<str>) -> Self {
        let param = param.into();
        let error = Self::new(code, format!("{param} {}", rest.as_ref()));
        Self { param: Some(param), ..error }
    }

    /// No model is called `id`.
    pub fn model_not_found(id: &str) -> Self {
        let message = format!("the model '{}' does not exist", clip(id));
        Self { param: Some("model".to_owned()), ..Self::new(ErrorCode::ModelNotFound, message) }
    }

    /// The model is not loaded yet.
    pub fn loading() -> Self {
        let error = Self::new(ErrorCode::Loading, "the model is still loading");
        Self { retry_after: Some(2), ..error }
    }

    /// The server is shutting down and accepts no requests.
    pub fn shutting_down() -> Self {
        let error = Self::new(ErrorCode::ShuttingDown, "the server is shutting down");
        Self { retry_after: Some(5), ..error }
    }

    /// The queue is full; `seconds` is clamped to 1..=30.
    pub fn overloaded(seconds: u32) -> Self {
        let error = Self::new(ErrorCode::Overloaded, "too many sequences are waiting, retry later");
        Self { retry_after: Some(seconds.clamp(1, 30)), ..error }
    }

    /// A part of the server other than the engine's queue is full; `seconds` is clamped to 1..=30.
    pub fn busy(message: impl Into<String>, seconds: u32) -> Self {
        Self {
            retry_after: Some(seconds.clamp(1, 30)),
            ..Self::new(ErrorCode::Overloaded, message)
        }
    }

    /// An internal error; only the log has the details.
    pub fn internal() -> Self {
        Self::new(ErrorCode::InternalError, "the server failed to process the request")
    }

    /// The error of a text in `field` that cannot be encoded.
    pub fn from_text(error: TextError, field: &str) -> Self {
        match error {
            TextError::NoChatTemplate => {
                let rest = "needs a chat template, which this model does not have";
                Self::field(ErrorCode::UnsupportedParameter, field, rest)
            }
            TextError::Refused(why) => {
                let rest = format!("was refused by the chat template: {why}");
                Self::field(ErrorCode::InvalidValue, field, rest)
            }
            TextError::Encode(_) => {
                Self::field(ErrorCode::InvalidValue, field, "cannot be encoded by this model")
            }
            TextError::Render(why) => {
                tracing::warn!(reason = %why, "the chat template failed");
                let rest = format!("cannot be put into the chat template: {why}");
                Self::field(ErrorCode::InvalidValue, field, rest)
            }
            TextError::Io { .. } | TextError::Malformed { .. } | TextError::Value { .. } => {
                tracing::error!(%error, "the tokenizer is unusable");
                Self::internal()
            }
        }
    }

    /// The engine thread has ended; the server must be restarted.
    pub fn engine_stopped() -> Self {
        Self::new(ErrorCode::EngineStopped, "the engine has stopped")
    }

    /// The engine has made no progress for `age`.
    pub fn engine_stalled(age: Duration) -> Self {
        let message = format!("the engine has made no progress for {} s", age.as_secs());
        Self { retry_after: Some(5), ..Self::new(ErrorCode::EngineStalled, message) }
    }

    /// `stuck` threads of `pool` do work that does not end.
    pub fn threads_stuck(pool: &str, stuck: u32) -> Self {
        let message =
            format!("{stuck} threads of the pool `{pool}` are stuck, it takes no more work");
        Self { retry_after: Some(30), ..Self::new(ErrorCode::ThreadsStuck, message) }
    }

    /// The object `{"error": {..}}` of every error answer and of errors inside a stream.
    pub fn body(&self) -> ErrorBody<'_> {
        let (_, kind, code) = self.code.row();
        let param = self.param.as_deref();
        ErrorBody { error: ErrorObject { message: &self.message, kind, param, code } }
    }
}

/// `{"error": {..}}`.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[schemars(rename = "ErrorBody")]
pub struct ErrorBody<'a> {
    error: ErrorObject<'a>,
}

/// An error in OpenAI's shape.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Error")]
struct ErrorObject<'a> {
    /// One readable line; begins with the field's name where a field is at fault.
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    /// The field, with its index or key.
    param: Option<&'a str>,
    /// The cause, one word.
    code: &'static str,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, _, _) = self.code.row();
        let mut response = (status, Json(self.body())).into_response();
        // Endpoints of another API give errors their own shape.
        response.extensions_mut().insert(self.clone());
        let headers = response.headers_mut();
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(methods) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(methods));
        }
        response
    }
}

/// The words of a sentence that may quote the request: the first 64 characters of each, the first 400
/// of all.
pub fn clip_words(sentence: &str) -> String {
    let cut = |text: &str, most: usize| match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    };
    let words = sentence.split(' ').map(|word| cut(word, MAX_QUOTE_CHARS));
    cut(&words.collect::<Vec<_>>().join(" "), MAX_REASON_CHARS)
}

/// The first 64 characters of `text`, for a message.
pub fn clip(text: &str) -> String {
    text.chars().take(MAX_QUOTE_CHARS).collect()
}
