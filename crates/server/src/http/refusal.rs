//! Requests that are refused because of their sender, before their body is read.

use axum::extract::Request;
use axum::response::{IntoResponse, Response};

use crate::error::ApiError;
use crate::http::request_id::RequestId;
use crate::metrics::Outcome;
use crate::state::AppState;

/// The response of `error`; logs `why` and counts the request as invalid.
pub fn refuse(state: &AppState, request: &Request, error: ApiError, why: &'static str) -> Response {
    let request_id = request.extensions().get::<RequestId>();
    let request_id = request_id.map_or("", RequestId::as_str);
    let route = state.counted_path(request.uri().path());
    if let (Some(route), Ok(backend)) = (route, state.backend()) {
        backend.metrics.requests().ended(route, Outcome::Invalid);
    }
    let status = error.code.row().0.as_u16();
    tracing::info!(request_id, route, status, "{why}");
    error.into_response()
}
