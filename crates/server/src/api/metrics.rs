//! `GET /metrics`.

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::route::{About, Route, TEXT};
use crate::error::ApiError;
use crate::metrics;
use crate::state::AppState;

/// The route.
pub fn route() -> Route {
    let about = About::get("All metrics in the Prometheus text format.").answers(&[TEXT]);
    Route::new("/metrics", get(self::metrics), about)
}

/// All metrics in the Prometheus text format. Never waits for the engine thread.
async fn metrics(State(state): State<AppState>) -> Result<Response, ApiError> {
    let backend = state.backend()?;
    let text =
        backend.metrics.render(backend.engine.load(), backend.engine.pulse(), &state.pool_loads());
    Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response())
}
