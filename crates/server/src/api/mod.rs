//! The endpoints: one file each. [`router`] is the table of paths.

pub(crate) mod chat;
pub(crate) mod completions;
pub mod endpoint;
pub mod fields;
mod health;
mod loads;
mod messages;
mod metrics;
mod models;
mod openai;
mod playground;
mod responses;
mod stream;
mod tokens;
mod trace;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{ALLOW, CONNECTION};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowHeaders, CorsLayer};

use self::chat::Chat;
use self::completions::Completions;
use self::endpoint::Route;
use self::messages::{Messages, envelope};
use self::responses::Responses;
use self::trace::Trace;
use crate::error::{ApiError, ErrorCode, clip};
use crate::http::shutdown::Phase;
use crate::http::{authorization, origin, request_id};
use crate::state::AppState;

const READ: &str = "GET, HEAD, OPTIONS";
const WRITE: &str = "POST, OPTIONS";

/// The endpoints that generate.
fn generating() -> [Route; 5] {
    [
        Route::of::<Completions>(),
        Route::of::<Chat>(),
        Route::of::<Responses>(),
        Route::of::<Messages>(),
        Route::of::<Trace>(),
    ]
}

/// The server as a service.
pub fn router(state: AppState) -> Router {
    router_with(state, [])
}

/// The server with `more` endpoints, which need the same keys and have the same limits.
///
/// # Panics
/// Two routes have the same path.
pub fn router_with(state: AppState, more: impl IntoIterator<Item = Route>) -> Router {
    let generating: Vec<Route> = generating().into_iter().chain(more).collect();
    let counted = generating.iter().map(|route| route.path);
    state.count_requests_to(counted.chain([messages::COUNT_PATH]));
    let mut routes = keyed(&state, generating).merge(open());
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
        .layer(from_fn(envelope::shape))
        .layer(from_fn_with_state(state.clone(), request_id::attach))
        .with_state(state)
}

/// Paths that need an API key, if keys are configured.
fn keyed(state: &AppState, generating: Vec<Route>) -> Router<AppState> {
    let routes = generating.into_iter().fold(Router::new(), |routes, route| {
        routes.route(route.path, route.handler)
    });
    routes
        .route("/v1/models", only(get(models::list), READ))
        .route("/v1/models/{*id}", only(get(models::one), READ))
        .route(
            messages::COUNT_PATH,
            only(post(messages::count_tokens), WRITE),
        )
        .route("/tokenize", only(post(tokens::tokenize), WRITE))
        .route("/detokenize", only(post(tokens::detokenize), WRITE))
        .route("/tokenizer_info", only(get(tokens::info), READ))
        .route_layer(from_fn_with_state(state.clone(), authorization::check))
}

/// Paths without a key: probes, and paths for load balancers.
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

/// Whether `path` is answered while every connection is in use.
pub(crate) fn is_probe(path: &str) -> bool {
    const PROBES: [&str; 6] = [
        "/health",
        "/ping",
        "/ready",
        "/metrics",
        "/load",
        "/v1/loads",
    ];
    PROBES.contains(&path)
}

/// The playground's files, without a key; its requests to other paths need theirs.
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

/// After the shutdown signal, closes every connection with its next answer, so that clients send
/// no request on a connection that is about to close.
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

/// Answers OPTIONS with the allowed methods, and other methods than those of `routes` with 405.
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
