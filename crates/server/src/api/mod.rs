//! The paths of the server.

mod generate;
mod health;
mod loads;
mod metrics;
mod models;
mod playground;
mod response;
mod stream;
mod tokens;
pub mod trace;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{ALLOW, CONNECTION};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowHeaders, CorsLayer};

use crate::error::{ApiError, ErrorCode, clip};

use crate::http::shutdown::Phase;
use crate::http::{keys, origin, request_id};
use crate::request::Route;
use crate::state::AppState;

const READ: &str = "GET, HEAD, OPTIONS";
const WRITE: &str = "POST, OPTIONS";

/// The whole server as a service.
pub fn router(state: AppState) -> Router {
    let mut routes = keyed(&state).merge(open());
    if state.settings().playground {
        routes = routes.merge(page());
    }
    let routes = routes.fallback(unknown);
    let routes = if state.settings().cors {
        // A wildcard would not cover the authorization header.
        routes.layer(CorsLayer::permissive().allow_headers(AllowHeaders::mirror_request()))
    } else {
        routes
    };
    routes
        .layer(CatchPanicLayer::custom(|_| {
            ApiError::internal().into_response()
        }))
        .layer(from_fn_with_state(state.clone(), origin::check))
        .layer(from_fn_with_state(state.clone(), close_after_signal))
        .layer(from_fn_with_state(state.clone(), request_id::attach))
        .with_state(state)
}

/// Paths that need a key, if keys are configured.
fn keyed(state: &AppState) -> Router<AppState> {
    let generation = |route: Route| {
        let handler = move |state: State<AppState>, request: Request| {
            generate::generate(route, state, request)
        };
        only(post(handler), WRITE)
    };
    Router::new()
        .route(Route::Completions.path(), generation(Route::Completions))
        .route(Route::Chat.path(), generation(Route::Chat))
        .route(Route::Trace.path(), generation(Route::Trace))
        .route("/v1/models", only(get(models::list), READ))
        .route("/v1/models/{*id}", only(get(models::one), READ))
        .route("/tokenize", only(post(tokens::tokenize), WRITE))
        .route("/detokenize", only(post(tokens::detokenize), WRITE))
        .route("/tokenizer_info", only(get(tokens::info), READ))
        .route_layer(from_fn_with_state(state.clone(), keys::check))
}

/// Paths for everybody: probes, and what load balancers read.
fn open() -> Router<AppState> {
    Router::new()
        .route("/v1/loads", only(get(loads::loads), READ))
        .route("/health", only(get(health::health), READ))
        .route("/ping", only(get(health::health), READ))
        .route("/ready", only(get(health::ready), READ))
        .route("/version", only(get(health::version), READ))
        .route("/load", only(get(health::load), READ))
        .route("/metrics", only(get(metrics::metrics), READ))
}

/// The playground and its parts, for everybody: what it asks of the other paths needs their key.
fn page() -> Router<AppState> {
    playground::FILES
        .iter()
        .fold(Router::new(), |routes, file| {
            routes.route(
                file.path,
                only(get(move || async move { file.respond() }), READ),
            )
        })
}

/// From the shutdown signal on every answer is the last of its connection, so that nobody sends a
/// request on one that is about to close.
async fn close_after_signal(
    State(state): State<AppState>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = next.run(request).await;
    if state.shutdown().phase() > Phase::Serving {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
    response
}

/// Answers OPTIONS with the methods of the path, and all others with 405.
fn only(routes: MethodRouter<AppState>, methods: &'static str) -> MethodRouter<AppState> {
    let options = move || async move {
        (
            StatusCode::NO_CONTENT,
            [(ALLOW, HeaderValue::from_static(methods))],
        )
    };
    let refused = move || async move {
        let message = format!("the method is not allowed here; allowed are {methods}");
        let error = ApiError::new(ErrorCode::MethodNotAllowed, message);
        ApiError {
            allow: Some(methods),
            ..error
        }
    };
    routes.options(options).fallback(refused)
}

async fn unknown(uri: Uri) -> Response {
    let message = format!("unknown path {}", clip(uri.path()));
    ApiError::new(ErrorCode::UnknownUrl, message).into_response()
}
