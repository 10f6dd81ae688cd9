//! Probes: `/health`, `/ping`, `/ready`, `/version`, `/load`.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::http::shutdown::Phase;
use crate::state::AppState;

/// 200 while the model is loading or the engine thread runs.
pub async fn health(State(state): State<AppState>) -> Result<Json<Value>, ApiError> {
    if state.is_healthy() {
        Ok(Json(json!({ "status": "ok" })))
    } else {
        Err(ApiError::engine_stopped())
    }
}

/// 200 while requests are accepted and no shutdown has begun.
pub async fn ready(State(state): State<AppState>) -> Result<Json<Value>, ApiError> {
    state.backend()?;
    if !state.is_healthy() {
        return Err(ApiError::engine_stopped());
    }
    if state.shutdown().phase() != Phase::Serving {
        return Err(ApiError::shutting_down());
    }
    Ok(Json(json!({ "status": "ready" })))
}

/// The server's version.
pub async fn version() -> Json<Value> {
    Json(json!({ "version": env!("CARGO_PKG_VERSION") }))
}

/// Generation requests in flight.
pub async fn load(State(state): State<AppState>) -> Json<Value> {
    Json(json!({ "server_load": state.shutdown().in_flight() }))
}
