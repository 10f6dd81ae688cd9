//! Requests that are refused for who sent them, before anything of them is read.

use axum::extract::Request;
use axum::response::{IntoResponse, Response};

use crate::error::ApiError;
use crate::http::request_id::RequestId;
use crate::metrics::Outcome;
use crate::request::Route;
use crate::state::AppState;

/// Says no, in the log, as `why`, and in the metrics too.
pub fn refuse(state: &AppState, request: &Request, error: ApiError, why: &'static str) -> Response {
    let request_id = request.extensions().get::<RequestId>();
    let request_id = request_id.map_or("", RequestId::as_str);
    let path = request.uri().path();
    let route = Route::ALL.into_iter().find(|route| route.path() == path);
    if let (Some(route), Ok(backend)) = (route, state.backend()) {
        backend.metrics.edge().ended(route, Outcome::Invalid);
    }
    let route = route.map(Route::path);
    let status = error.code.row().0.as_u16();
    tracing::info!(request_id, route, status, "{why}");
    error.into_response()
}
