//! Reading a request body: media type, size and time limits, the budget of bytes in flight.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use engine::ClientId;
use futures_util::StreamExt;
use tokio::time::Instant;

use super::bytes::Share;
use super::client::client_of;
use super::settings::Settings;
use crate::error::{ApiError, ErrorCode};
use crate::state::AppState;

/// A body of which less than [`MIN_PROGRESS_BYTES`] bytes arrive in this time, and not its end, gets 408, so that
/// a stalled one does not hold its bytes for the whole time limit.
const STALL_TIMEOUT: Duration = Duration::from_secs(10);
const MIN_PROGRESS_BYTES: usize = 1 << 10;

/// A request body, and what it holds of the budget of bytes in flight.
#[derive(Debug)]
pub struct RequestBody {
    /// The body.
    pub bytes: Vec<u8>,
    /// Held until the request is admitted.
    pub share: Share,
    /// The client that sent it.
    pub client: ClientId,
}

/// The bytes of a JSON body.
///
/// # Errors
/// `unsupported_media_type`, `request_too_large`, `request_timeout`, `overloaded` if too many bytes
/// are in flight, or `invalid_json` for an incomplete body.
pub async fn read(request: Request, state: &AppState) -> Result<RequestBody, ApiError> {
    let settings = state.settings();
    check_media_type(request.headers())?;
    let declared = request.headers().get(CONTENT_LENGTH);
    let declared = declared.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if declared.is_some_and(|length| length > settings.limits.max_body_bytes) {
        return Err(too_large(settings));
    }
    let client = client_of(request.extensions());
    let share = state.bytes().share(client);
    let all = collect(request.into_body(), settings, declared, share, client);
    tokio::time::timeout(settings.timeouts.body, all).await.unwrap_or_else(|_| {
        let seconds = settings.timeouts.body.as_secs_f64();
        let message = format!("the body did not arrive within {seconds} s");
        Err(ApiError::new(ErrorCode::RequestTimeout, message))
    })
}

/// The body, with its `declared` length and its share of the budget.
async fn collect(
    body: Body,
    settings: &Settings,
    declared: Option<usize>,
    mut share: Share,
    client: ClientId,
) -> Result<RequestBody, ApiError> {
    let mut frames = body.into_data_stream();
    let mut bytes = Vec::new();
    let (mut until, mut least) = (Instant::now() + STALL_TIMEOUT, MIN_PROGRESS_BYTES);
    loop {
        let frame = tokio::time::timeout_at(until, frames.next()).await;
        let Some(frame) = frame.map_err(|_| stalled())? else {
            return Ok(RequestBody { bytes, share, client });
        };
        let frame = frame.map_err(|_| {
            ApiError::new(ErrorCode::InvalidJson, "the body ended before it was complete")
        })?;
        if bytes.len() + frame.len() > settings.limits.max_body_bytes {
            return Err(too_large(settings));
        }
        share.grow(frame.len()).await?;
        if bytes.is_empty() {
            // Room at once: a growing copy would take up to three times the body.
            bytes.reserve_exact(declared.unwrap_or(0).max(frame.len()));
        }
        bytes.extend_from_slice(&frame);
        if bytes.len() >= least {
            (until, least) = (Instant::now() + STALL_TIMEOUT, bytes.len() + MIN_PROGRESS_BYTES);
        }
    }
}

fn stalled() -> ApiError {
    let seconds = STALL_TIMEOUT.as_secs();
    let message =
        format!("less than {MIN_PROGRESS_BYTES} bytes of the body arrived in {seconds} s");
    ApiError::new(ErrorCode::RequestTimeout, message)
}

fn check_media_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let plain = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    if !headers.get_all(CONTENT_ENCODING).iter().all(plain) {
        let message = "the content-encoding must be identity";
        return Err(ApiError::new(ErrorCode::UnsupportedMediaType, message));
    }
    let json = |value: &str| {
        let essence = value.split(';').next().unwrap_or_default();
        essence.trim().eq_ignore_ascii_case("application/json")
    };
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    if types.all(|value| value.to_str().is_ok_and(json)) {
        return Ok(());
    }
    let message = "the content-type must be application/json";
    Err(ApiError::new(ErrorCode::UnsupportedMediaType, message))
}

fn too_large(settings: &Settings) -> ApiError {
    let message = format!("the body must have at most {} bytes", settings.limits.max_body_bytes);
    ApiError::new(ErrorCode::RequestTooLarge, message)
}
