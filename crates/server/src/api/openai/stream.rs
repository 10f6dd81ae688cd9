//! Streamed answers: chunks as server-sent events, errors after the start, `[DONE]`.

use axum::response::Response;

use super::{Chunk, ChunkExtras, ChunkKind, ChunkUsage, Shape, scores};
use crate::api::fields::shared::{AnswerOptions, StreamOptions};
use crate::http::sse;
use crate::pipeline::assemble::Delta;
use crate::pipeline::deliver::Delivery;

const DONE: &str = "data: [DONE]\n\n";

/// The streamed answer. Dropping the body cancels the sequences that still run.
pub fn respond<S: Shape>(options: AnswerOptions, delivery: Delivery) -> Response {
    let writer = EventWriter {
        has_begun: vec![false; delivery.answer().choices()],
        delivery,
        return_token_ids: options.return_token_ids,
        stream: options.stream.unwrap_or_default(),
    };
    let frames = futures_util::stream::unfold(Some(writer), |writer| async {
        let mut writer = writer?;
        let (frame, more) = writer.frame::<S>().await;
        Some((frame, more.then_some(writer)))
    });
    sse::response(frames)
}

/// What a chunk carries besides its content.
#[derive(Clone, Copy, Debug, Default)]
struct Carried {
    /// The ids of the prompt: the first chunk of a choice.
    prompt: bool,
    /// The tokens of the delta: its first chunk with content, or the last of the choice.
    tokens: bool,
}

/// Writes the events of one answer; every frame holds whole events.
struct EventWriter {
    delivery: Delivery,
    return_token_ids: bool,
    stream: StreamOptions,
    /// Choices that had their first chunk.
    has_begun: Vec<bool>,
}

impl EventWriter {
    /// The next events, at least one, and whether more may follow.
    async fn frame<S: Shape>(&mut self) -> (String, bool) {
        let mut frame = String::new();
        while frame.is_empty() {
            match self.delivery.next().await {
                Some(Ok(delta)) => self.delta::<S>(&delta, &mut frame),
                Some(Err(error)) => {
                    sse::data(&error.body(), &mut frame);
                    frame.push_str(DONE);
                    return (frame, false);
                }
                None => {
                    let usage = self.delivery.finish();
                    if self.stream.include_usage {
                        let usage = ChunkUsage::Totals(usage);
                        let answer = self.delivery.answer();
                        let last = Chunk::<S::ChunkChoice<'_>>::new::<S>(answer, vec![], usage);
                        sse::data(&last, &mut frame);
                    }
                    frame.push_str(DONE);
                    return (frame, false);
                }
            }
        }
        (frame, true)
    }

    /// The chunks of one delta: the role before the first text, the reason after the last.
    fn delta<S: Shape>(&mut self, delta: &Delta, frame: &mut String) {
        if !delta.is_visible() {
            return;
        }
        let mut carried = Carried {
            prompt: !std::mem::replace(&mut self.has_begun[delta.index], true),
            tokens: false,
        };
        if carried.prompt && S::NAMES_ROLE {
            self.chunk::<S>(delta, ChunkKind::Role, carried, frame);
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
            self.chunk::<S>(delta, kind, carried, frame);
            carried = Carried::default();
        }
        if delta.finish.is_some() {
            self.chunk::<S>(delta, ChunkKind::Finish, carried, frame);
        }
    }

    /// One chunk; the first one of a choice carries the prompt's ids, one of a delta its tokens.
    fn chunk<S: Shape>(
        &self,
        delta: &Delta,
        kind: ChunkKind<'_>,
        carried: Carried,
        frame: &mut String,
    ) {
        let answer = self.delivery.answer();
        let usage = match self.stream {
            StreamOptions {
                continuous: true, ..
            } => ChunkUsage::Totals(self.delivery.running_usage()),
            StreamOptions {
                include_usage: true,
                ..
            } => ChunkUsage::Null,
            StreamOptions { .. } => ChunkUsage::Absent,
        };
        let has_ids = self.return_token_ids;
        let extras = ChunkExtras {
            logprobs: match carried.tokens && !delta.scored.is_empty() {
                true => scores(answer, &delta.scored),
                false => None,
            },
            finish_reason: match kind {
                ChunkKind::Finish => delta.finish_name(),
                ChunkKind::Role | ChunkKind::Text(_) | ChunkKind::Part(_) => None,
            },
            token_ids: (has_ids && carried.tokens).then_some(&delta.token_ids[..]),
            prompt_token_ids: (has_ids && carried.prompt).then(|| answer.prompt_ids(delta.index)),
        };
        let choice = S::chunk(delta.index, kind, extras);
        sse::data(&Chunk::new::<S>(answer, vec![choice], usage), frame);
    }
}
