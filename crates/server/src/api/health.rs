//! Probes: `/health`, `/ping`, `/ready`, `/version`, `/load`.

use axum::Json;
use axum::extract::State;
use axum::routing::get;
use serde_json::{Value, json};

use super::route::{About, Route};
use crate::error::ApiError;
use crate::http::shutdown::Phase;
use crate::state::AppState;

/// The routes.
pub fn routes() -> [Route; 5] {
    let alive = About::get("200 while the engine works; 503 while the model loads.");
    let taking = About::get("200 while requests are taken.");
    let named = About::get("The server's version.");
    let in_flight = About::get("Generation requests in flight.");
    [
        Route::new("/health", get(health), alive.clone()),
        Route::new("/ping", get(health), alive),
        Route::new("/ready", get(ready), taking),
        Route::new("/version", get(version), named),
        Route::new("/load", get(load), in_flight),
    ]
}

/// 200 while the engine works; 503 while the model loads, and once the engine's thread has ended or its
/// step has made no progress for too long. The status is `degraded` while a pool of threads takes no
/// work, because too many of its threads are stuck: what needs that pool gets 503, all else is served.
async fn health(State(state): State<AppState>) -> Result<Json<Value>, ApiError> {
    let age = state.engine_age()?.as_secs_f64();
    let all = state.pool_loads();
    let is_degraded = all.iter().any(|(_, load)| load.is_exhausted());
    let pools = all.into_iter().map(|(name, load)| {
        let counts = json!({
            "running": load.running,
            "waiting": load.waiting,
            "stuck": load.stuck,
        });
        (name.to_owned(), counts)
    });
    Ok(Json(json!({
        "status": if is_degraded { "degraded" } else { "ok" },
        "engine_age_seconds": age,
        "pools": Value::Object(pools.collect()),
    })))
}

/// 200 while requests are accepted, the engine works and no shutdown has begun.
async fn ready(State(state): State<AppState>) -> Result<Json<Value>, ApiError> {
    let age = state.engine_age()?.as_secs_f64();
    if state.shutdown().phase() != Phase::Serving {
        return Err(ApiError::shutting_down());
    }
    Ok(Json(json!({ "status": "ready", "engine_age_seconds": age })))
}

/// The server's version.
async fn version() -> Json<Value> {
    Json(json!({ "version": env!("CARGO_PKG_VERSION") }))
}

/// Generation requests in flight.
async fn load(State(state): State<AppState>) -> Json<Value> {
    Json(json!({ "server_load": state.shutdown().in_flight() }))
}
