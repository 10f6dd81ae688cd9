//! Reading a request body: media type, size and time limits.

use axum::body::Body;
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use futures_util::StreamExt;

use super::settings::Settings;
use crate::error::{ApiError, ErrorCode};

/// The bytes of a JSON body.
///
/// # Errors
/// `unsupported_media_type`, `request_too_large`, `request_timeout`, or `invalid_json` for an
/// incomplete body.
pub async fn read(request: Request, settings: &Settings) -> Result<Vec<u8>, ApiError> {
    check_media_type(request.headers())?;
    let declared = request.headers().get(CONTENT_LENGTH);
    let declared = declared.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if declared.is_some_and(|length| length > settings.max_body_bytes) {
        return Err(too_large(settings));
    }
    let all = collect(request.into_body(), settings);
    tokio::time::timeout(settings.body_timeout, all)
        .await
        .unwrap_or_else(|_| {
            let seconds = settings.body_timeout.as_secs_f64();
            let message = format!("the body did not arrive within {seconds} s");
            Err(ApiError::new(ErrorCode::RequestTimeout, message))
        })
}

async fn collect(body: Body, settings: &Settings) -> Result<Vec<u8>, ApiError> {
    let mut frames = body.into_data_stream();
    let mut bytes = Vec::new();
    while let Some(frame) = frames.next().await {
        let frame = frame.map_err(|_| {
            ApiError::new(
                ErrorCode::InvalidJson,
                "the body ended before it was complete",
            )
        })?;
        if bytes.len() + frame.len() > settings.max_body_bytes {
            return Err(too_large(settings));
        }
        bytes.extend_from_slice(&frame);
    }
    Ok(bytes)
}

fn check_media_type(headers: &HeaderMap) -> Result<(), ApiError> {
    if headers.contains_key(CONTENT_ENCODING) {
        let message = "a body with a content-encoding is not read here";
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
    let message = format!(
        "the body must have at most {} bytes",
        settings.max_body_bytes
    );
    ApiError::new(ErrorCode::RequestTooLarge, message)
}
