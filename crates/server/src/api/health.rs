//! Probes: `/health`, `/ping`, `/ready`, `/version`, `/load`.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::http::shutdown::Phase;
use crate::state::AppState;

/// 200 while the model is loading or the engine works; 503 once its thread has ended or a step takes
/// too long.
pub async fn health(State(state): State<AppState>) -> Result<Json<Value>, ApiError> {
    let age = state.engine_age()?.as_secs_f64();
    Ok(Json(json!({ "status": "ok", "engine_age_seconds": age })))
}

/// 200 while requests are accepted, the engine works and no shutdown has begun.
pub async fn ready(State(state): State<AppState>) -> Result<Json<Value>, ApiError> {
    state.backend()?;
    let age = state.engine_age()?.as_secs_f64();
    if state.shutdown().phase() != Phase::Serving {
        return Err(ApiError::shutting_down());
    }
    Ok(Json(
        json!({ "status": "ready", "engine_age_seconds": age }),
    ))
}

/// The server's version.
pub async fn version() -> Json<Value> {
    Json(json!({ "version": env!("CARGO_PKG_VERSION") }))
}

/// Generation requests in flight.
pub async fn load(State(state): State<AppState>) -> Json<Value> {
    Json(json!({ "server_load": state.shutdown().in_flight() }))
}
