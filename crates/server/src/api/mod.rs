//! The endpoints: one file each. [`router`] is the table of paths.

pub(crate) mod chat;
pub(crate) mod completions;
mod decisions;
pub mod endpoint;
pub mod fields;
mod health;
mod items;
mod loads;
mod messages;
mod metrics;
mod models;
mod openai;
mod openapi;
mod playground;
mod responses;
pub mod route;
mod stream;
mod tokens;
mod trace;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Uri};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowHeaders, CorsLayer};

use self::chat::ChatCompletions;
use self::completions::Completions;
use self::messages::{Messages, envelope};
use self::responses::Responses;
use self::route::Route;
use self::trace::Trace;
use crate::error::{ApiError, ErrorCode, clip};
use crate::http::shutdown::Phase;
use crate::http::{authorization, origin, request_id};
use crate::state::AppState;

/// The endpoints that generate.
fn generating() -> [Route; 5] {
    [
        Route::endpoint::<Completions>(),
        Route::endpoint::<ChatCompletions>(),
        Route::endpoint::<Responses>(),
        Route::endpoint::<Messages>(),
        Route::endpoint::<Trace>(),
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
    let others = [messages::COUNT_PATH, responses::COUNT_PATH].into_iter().chain(decisions::PATHS);
    state.count_requests_to(counted.chain(others));
    let keyed: Vec<Route> = generating.into_iter().chain(keyed()).collect();
    let mut others = open();
    if state.settings().playground {
        others.extend(playground::routes());
    }
    let document = openapi::route(&keyed, &others, !state.keys().get().is_empty());
    others.push(document);
    let check = from_fn_with_state(state.clone(), authorization::check);
    let routes = paths(keyed).route_layer(check).merge(paths(others));
    let routes = routes.fallback(unknown);
    let routes = if state.settings().cors {
        // A wildcard would not cover the authorization header.
        routes.layer(CorsLayer::permissive().allow_headers(AllowHeaders::mirror_request()))
    } else {
        routes
    };
    routes
        .layer(CatchPanicLayer::custom(|_| ApiError::internal().into_response()))
        .layer(from_fn_with_state(state.clone(), origin::check))
        .layer(from_fn_with_state(state.clone(), close_after_signal))
        .layer(from_fn(envelope::shape))
        .layer(from_fn_with_state(state.clone(), request_id::attach))
        .with_state(state)
}

fn paths(routes: Vec<Route>) -> Router<AppState> {
    routes.into_iter().fold(Router::new(), |paths, route| paths.route(route.path, route.handler))
}

/// Paths beside the generating ones that need an API key, if keys are configured.
fn keyed() -> Vec<Route> {
    let routes = models::routes().into_iter();
    let counts = [messages::count_route(), responses::count_route()];
    routes.chain(decisions::routes()).chain(counts).chain(tokens::routes()).collect()
}

/// Paths without a key: probes, and paths for load balancers.
fn open() -> Vec<Route> {
    let routes = health::routes().into_iter();
    routes.chain([loads::route()]).chain([metrics::route()]).collect()
}

/// True if `path` is answered while every connection is in use.
pub(crate) fn is_probe(path: &str) -> bool {
    const PROBES: [&str; 6] = ["/health", "/ping", "/ready", "/metrics", "/load", "/v1/loads"];
    PROBES.contains(&path)
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

async fn unknown(uri: Uri) -> Response {
    let message = format!("unknown path {}", clip(uri.path()));
    ApiError::new(ErrorCode::UnknownUrl, message).into_response()
}
