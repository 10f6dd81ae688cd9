//! Server-sent events: chunks as `data:` lines, errors after the start, `[DONE]`.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use futures_util::{Stream, StreamExt};
use serde::Serialize;

use crate::api::response::{Chunk, ChunkKind, ChunkUsage, Rides};
use crate::pipeline::assemble::Delta;
use crate::pipeline::deliver::Generation;
use crate::request::{Endpoint, StreamFields};

const DONE: &str = "data: [DONE]\n\n";
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// The streamed answer. Dropping the body cancels what still runs.
pub fn respond(generation: Generation, options: StreamFields) -> Response {
    let seen = vec![false; generation.answer().choices()];
    let stream = EventWriter {
        generation,
        options,
        seen,
    };
    let frames = futures_util::stream::unfold(Some(stream), |stream| async {
        let mut stream = stream?;
        let (frame, more) = stream.frame().await;
        Some((frame, more.then_some(stream)))
    });
    response(frames)
}

/// An answer of server-sent events that leaves in the given frames.
pub fn response(frames: impl Stream<Item = String> + Send + 'static) -> Response {
    let frames = frames.map(|frame| Ok::<_, Infallible>(Bytes::from(frame)));
    let mut response = Response::new(Body::from_stream(frames));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

/// Writes the events of one answer; every frame holds whole events.
struct EventWriter {
    generation: Generation,
    options: StreamFields,
    /// Choices that had their first chunk.
    seen: Vec<bool>,
}

impl EventWriter {
    /// The next events, at least one, and whether more may follow.
    async fn frame(&mut self) -> (String, bool) {
        let mut frame = String::new();
        while frame.is_empty() {
            match self.generation.next().await {
                Some(Ok(delta)) => self.delta(&delta, &mut frame),
                Some(Err(error)) => {
                    event(&error.body(), &mut frame);
                    frame.push_str(DONE);
                    return (frame, false);
                }
                None => {
                    let usage = self.generation.finish();
                    if self.options.include_usage {
                        event(&Chunk::last(self.generation.answer(), usage), &mut frame);
                    }
                    frame.push_str(DONE);
                    return (frame, false);
                }
            }
        }
        (frame, true)
    }

    /// The chunks of one delta: the role before the first text, the reason after the last.
    fn delta(&mut self, delta: &Delta, frame: &mut String) {
        if !delta.is_visible() {
            return;
        }
        let first = !std::mem::replace(&mut self.seen[delta.index], true);
        let chat = self.generation.answer().endpoint == Endpoint::Chat;
        if first && chat {
            self.chunk(delta, ChunkKind::Role, true, frame);
        }
        let mut first = first && !chat;
        if !delta.text.is_empty() {
            self.chunk(delta, ChunkKind::Text(&delta.text), first, frame);
            first = false;
        }
        if let Some(reason) = delta.finish {
            self.chunk(delta, ChunkKind::Finish(reason), first, frame);
        }
    }

    fn chunk(&self, delta: &Delta, kind: ChunkKind<'_>, first: bool, frame: &mut String) {
        let usage = match self.options {
            StreamFields {
                continuous: true, ..
            } => ChunkUsage::Totals(self.generation.running_usage()),
            StreamFields {
                include_usage: true,
                ..
            } => ChunkUsage::Null,
            StreamFields { .. } => ChunkUsage::Absent,
        };
        // Tokens ride on the text; without any text, on the end.
        let tokens = match kind {
            ChunkKind::Text(_) => true,
            ChunkKind::Finish(_) => delta.text.is_empty(),
            ChunkKind::Role => false,
        };
        let rides = match tokens {
            true => Rides {
                token_ids: Some(&delta.token_ids),
                scored: &delta.scored,
                prompt: first,
            },
            false => Rides {
                prompt: first,
                ..Rides::default()
            },
        };
        let answer = self.generation.answer();
        event(&Chunk::new(answer, delta.index, kind, rides, usage), frame);
    }
}

/// Appends the data of one event, and its end. Characters that some line readers split at are escaped.
pub fn event(value: &impl Serialize, frame: &mut String) {
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
