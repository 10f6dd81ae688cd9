//! Authorization: requests need one of the configured API keys.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderName, Method};
use axum::middleware::Next;
use axum::response::Response;

use super::refusal::refuse;
use crate::error::{ApiError, ErrorCode};
use crate::state::AppState;

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The name of a request's API key, in its extensions.
#[derive(Clone, Debug)]
pub struct KeyName(pub Arc<str>);

/// Passes requests with a known key on and refuses others before their body is read.
pub async fn check(State(state): State<AppState>, mut request: Request, next: Next) -> Response {
    let keys = state.keys().get();
    // Browsers send preflight requests (OPTIONS) without a key.
    if keys.is_empty() || request.method() == Method::OPTIONS {
        return next.run(request).await;
    }
    let headers = request.headers();
    let key = match headers.contains_key(AUTHORIZATION) {
        true => bearer(headers),
        false => api_key(headers),
    };
    match key.and_then(|key| keys.name_of(key)) {
        Some(name) => {
            let name = KeyName(Arc::from(name));
            request.extensions_mut().insert(name);
            next.run(request).await
        }
        None => {
            let message = match key {
                Some(_) => "the API key is wrong: it is none of this server's",
                None => "an API key is required: authorization: Bearer KEY",
            };
            let error = ApiError::new(ErrorCode::InvalidApiKey, message);
            refuse(&state, &request, error, "no valid API key")
        }
    }
}

/// The key of `x-api-key: KEY`, Anthropic's form, if the request has exactly one such header.
fn api_key(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(API_KEY).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => Some(value.as_bytes().trim_ascii()),
        _ => None,
    }
}

/// The key of `authorization: Bearer KEY`, if the request has exactly one such header.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let value = value.as_bytes().trim_ascii();
    let blank = value.iter().position(|byte| *byte == b' ')?;
    let (scheme, key) = value.split_at(blank);
    let key = key.trim_ascii_start();
    (scheme.eq_ignore_ascii_case(b"bearer") && !key.is_empty()).then_some(key)
}
