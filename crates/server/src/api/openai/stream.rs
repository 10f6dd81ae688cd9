//! Streamed answers: chunks as server-sent events, errors after the start, `[DONE]`.

use std::marker::PhantomData;

use axum::response::Response;

use super::{Choice, Chunk, ChunkKind, ChunkUsage, Shape, answer_logprobs};
use crate::api::fields::shared::{AnswerOptions, StreamOptions};
use crate::api::stream::{self, WriteEvents};
use crate::error::ApiError;
use crate::http::sse;
use crate::pipeline::assemble::Delta;
use crate::pipeline::deliver::Delivery;
use crate::pipeline::usage::Usage;

const DONE: &str = "data: [DONE]\n\n";

/// The streamed answer in the shape `S`.
pub fn respond<S: Shape>(options: AnswerOptions, delivery: Delivery) -> Response {
    let writer = ChunkWriter::<S> {
        has_begun: vec![false; delivery.answer().choices()],
        return_token_ids: options.return_token_ids,
        stream: options.stream.unwrap_or_default(),
        shape: PhantomData,
    };
    stream::respond(writer, delivery)
}

/// The ids that a chunk carries with its content.
#[derive(Clone, Copy, Debug, Default)]
struct ChunkIds {
    /// The ids of the prompt: the first chunk of a choice.
    prompt: bool,
    /// The tokens of the delta: its first chunk with content, or the last of the choice.
    tokens: bool,
}

/// Writes the chunks of one answer.
struct ChunkWriter<S> {
    return_token_ids: bool,
    stream: StreamOptions,
    /// Choices that had their first chunk.
    has_begun: Vec<bool>,
    shape: PhantomData<fn() -> S>,
}

impl<S: Shape> WriteEvents for ChunkWriter<S> {
    /// The chunks of one delta: the role before the first text, the reason after the last.
    fn delta(&mut self, delta: &Delta, delivery: &Delivery, frame: &mut String) {
        if !delta.is_visible() {
            return;
        }
        let mut carried = ChunkIds {
            prompt: !std::mem::replace(&mut self.has_begun[delta.index], true),
            tokens: false,
        };
        if carried.prompt && S::NAMES_ROLE {
            frame.push_str(&self.chunk(delta, ChunkKind::Role, carried, delivery));
            carried.prompt = false;
        }
        let text = Some(ChunkKind::Text(&delta.text)).filter(|_| !delta.text.is_empty());
        let kinds: Vec<ChunkKind<'_>> = match &delta.parts {
            Some(parts) => parts.iter().map(ChunkKind::Part).collect(),
            None => text.into_iter().collect(),
        };
        // Tokens are sent with their first part; without any, with the last chunk.
        carried.tokens = true;
        for kind in kinds {
            frame.push_str(&self.chunk(delta, kind, carried, delivery));
            carried = ChunkIds::default();
        }
        if delta.finish.is_some() {
            frame.push_str(&self.chunk(delta, ChunkKind::Finish, carried, delivery));
        }
    }

    fn finish(&mut self, usage: Usage, delivery: &Delivery, frame: &mut String) {
        if self.stream.include_usage {
            let usage = ChunkUsage::Totals(Box::new(usage));
            let last = Chunk::<()>::new::<S>(delivery.answer(), vec![], usage);
            sse::data(&last, frame);
        }
        frame.push_str(DONE);
    }

    fn fail(&mut self, error: &ApiError, frame: &mut String) {
        sse::data(&error.body(), frame);
        frame.push_str(DONE);
    }
}

impl<S: Shape> ChunkWriter<S> {
    /// One chunk; the first one of a choice carries the prompt's ids, one of a delta its tokens.
    fn chunk(
        &self,
        delta: &Delta,
        kind: ChunkKind<'_>,
        carried: ChunkIds,
        delivery: &Delivery,
    ) -> String {
        let answer = delivery.answer();
        let usage = match self.stream {
            StreamOptions { continuous: true, .. } => {
                ChunkUsage::Totals(Box::new(delivery.running_usage()))
            }
            StreamOptions { include_usage: true, .. } => ChunkUsage::Null,
            StreamOptions { .. } => ChunkUsage::Absent,
        };
        let has_ids = self.return_token_ids;
        let logprobs = match carried.tokens && !delta.scored.is_empty() {
            true => answer_logprobs(answer, &delta.scored),
            false => None,
        };
        let is_last = matches!(kind, ChunkKind::Finish);
        let choice = Choice {
            index: delta.index,
            content: S::chunk(kind),
            logprobs: logprobs.map(S::Logprobs::from),
            finish_reason: is_last.then(|| delta.finish_name()).flatten(),
            stop_reason: is_last.then(|| answer.stop_reason(delta)),
            token_ids: (has_ids && carried.tokens).then_some(&delta.token_ids[..]),
            prompt_token_ids: (has_ids && carried.prompt).then(|| answer.prompt_ids(delta.index)),
        };
        let mut event = String::new();
        sse::data(&Chunk::new::<S>(answer, vec![choice], usage), &mut event);
        event
    }
}
