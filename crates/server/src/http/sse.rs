//! Server-sent events.

use std::convert::Infallible;
use std::fmt::Write;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use futures_util::{Stream, StreamExt};
use serde::Serialize;

const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// A response of server-sent events; every frame is sent as soon as it comes.
pub fn response(frames: impl Stream<Item = String> + Send + 'static) -> Response {
    let frames = frames.map(|frame| Ok::<_, Infallible>(Bytes::from(frame)));
    let mut response = Response::new(Body::from_stream(frames));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

/// Appends one event of the type `name` with the data `value`.
pub fn event(name: &str, value: &impl Serialize, frame: &mut String) {
    writeln!(frame, "event: {name}").expect("writing to a string succeeds");
    data(value, frame);
}

/// Appends one event with the data `value`, a shape whose object keys are strings. Escapes the
/// characters at which some clients split lines.
pub fn data(value: &impl Serialize, frame: &mut String) {
    let json = serde_json::to_string(value).expect("these shapes have string keys only");
    frame.push_str("data: ");
    for character in json.chars() {
        match character {
            '\u{85}' => frame.push_str("\\u0085"),
            '\u{2028}' => frame.push_str("\\u2028"),
            '\u{2029}' => frame.push_str("\\u2029"),
            other => frame.push(other),
        }
    }
    frame.push_str("\n\n");
}
