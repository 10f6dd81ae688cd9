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
use axum::routing::{get, post};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowHeaders, CorsLayer};

use self::chat::Chat;
use self::completions::Completions;
use self::messages::{Messages, envelope};
use self::responses::Responses;
use self::route::{About, Route, TEXT};
use self::trace::Trace;
use crate::error::{ApiError, ErrorCode, clip};
use crate::http::shutdown::Phase;
use crate::http::{authorization, origin, request_id};
use crate::state::AppState;

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
    let keyed: Vec<Route> = generating.into_iter().chain(keyed()).collect();
    let mut others = Vec::from(open());
    if state.settings().playground {
        others.extend(page());
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
        .layer(CatchPanicLayer::custom(|_| {
            ApiError::internal().into_response()
        }))
        .layer(from_fn_with_state(state.clone(), origin::check))
        .layer(from_fn_with_state(state.clone(), close_after_signal))
        .layer(from_fn(envelope::shape))
        .layer(from_fn_with_state(state.clone(), request_id::attach))
        .with_state(state)
}

fn paths(routes: Vec<Route>) -> Router<AppState> {
    routes.into_iter().fold(Router::new(), |paths, route| {
        paths.route(route.path, route.handler)
    })
}

/// Paths beside the generating ones that need an API key, if keys are configured.
fn keyed() -> [Route; 6] {
    let list =
        About::get("The served model, with its presets, schedules, commit rules and caches.");
    let one = About::get("The served model; its id may have slashes.");
    let count = About::post("Counts the tokens of a chat.", messages::count_fields());
    let tokenize = About::post(
        "The token ids of a text or chat.",
        tokens::tokenize_fields(),
    );
    let tokenize = tokenize.answer::<tokens::Tokenized>();
    let detokenize = About::post("The text of token ids.", tokens::detokenize_fields());
    let info = About::get("Special tokens and chat template of the tokenizer.");
    [
        Route::new("/v1/models", get(models::list), list),
        Route::new("/v1/models/{*id}", get(models::one), one),
        Route::new(messages::COUNT_PATH, post(messages::count_tokens), count),
        Route::new("/tokenize", post(tokens::tokenize), tokenize),
        Route::new("/detokenize", post(tokens::detokenize), detokenize),
        Route::new("/tokenizer_info", get(tokens::info), info),
    ]
}

/// Paths without a key: probes, and paths for load balancers.
fn open() -> [Route; 7] {
    let loads = About::get("The engine's load, for load-aware routers.");
    let health = About::get("200 while the process works, also while it loads.");
    let ready = About::get("200 while requests are taken.");
    let version = About::get("The server's version.");
    let load = About::get("Generation requests in flight.");
    let metrics = About::get("All metrics in the Prometheus text format.").answers(&[TEXT]);
    [
        Route::new("/v1/loads", get(loads::loads), loads),
        Route::new("/health", get(health::health), health.clone()),
        Route::new("/ping", get(health::health), health),
        Route::new("/ready", get(health::ready), ready),
        Route::new("/version", get(health::version), version),
        Route::new("/load", get(health::load), load),
        Route::new("/metrics", get(metrics::metrics), metrics),
    ]
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
fn page() -> impl Iterator<Item = Route> {
    playground::FILES.iter().map(|file| {
        let about = About::get("A file of the playground.").answers(file.media());
        Route::new(file.path, get(move || async move { file.respond() }), about)
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

async fn unknown(uri: Uri) -> Response {
    let message = format!("unknown path {}", clip(uri.path()));
    ApiError::new(ErrorCode::UnknownUrl, message).into_response()
}
