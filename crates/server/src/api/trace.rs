//! `POST /v1/diffusion/trace`: the answer of one sequence as named events, step by step.

mod merged;
mod steps;

use axum::response::Response;
use decode::Pin;
use serde_json::{Value, json};
use text::Part;

use self::merged::{End, Merged, News};
use super::chat::ChatCompletions;
use super::completions::Completions;
use super::endpoint::Endpoint;
use super::fields::body::JsonBody;
use super::fields::prompt::PromptKind;
use super::fields::table::Fields;
use super::route::EVENTS;
use crate::backend::Backend;
use crate::error::{ApiError, ErrorCode};
use crate::http::sse;
use crate::pipeline::deliver::Delivery;
use crate::pipeline::generation::Generation;

/// The endpoint. Its body is a chat's or a completion's, for one sequence.
#[derive(Clone, Copy, Debug)]
pub struct Trace;

impl Endpoint for Trace {
    const PATH: &'static str = "/v1/diffusion/trace";
    const ID_PREFIX: &'static str = "trace";
    const SUMMARY: &'static str = "Answers a chat or a completion as events, step by step.";
    const ANSWERS: &'static [&'static str] = &[EVENTS];

    fn fields() -> Fields {
        ChatCompletions::fields().or(Completions::fields())
    }

    fn read(body: &JsonBody<'_>, backend: &Backend) -> Result<(Self, Generation), ApiError> {
        let generation = match PromptKind::find(body)? {
            PromptKind::Messages => ChatCompletions::read(body, backend)?.1,
            PromptKind::Prompt => Completions::read(body, backend)?.1,
        };
        let counts = [
            ("prompt", generation.prompts.input.prompts()),
            ("n", generation.choices.n as usize),
            ("best_of", generation.choices.best_of as usize),
        ];
        if let Some((param, count)) = counts.into_iter().find(|(_, count)| *count != 1) {
            let rest = format!("must ask for one sequence, got {count}");
            return Err(ApiError::field(ErrorCode::InvalidValue, param, rest));
        }
        if generation.logprobs.is_some() {
            let rest = "is not supported here: cells have the probability of their token";
            let code = ErrorCode::UnsupportedParameter;
            return Err(ApiError::field(code, "logprobs", rest));
        }
        let generation = Generation { trace: true, ..generation };
        Ok((Self, generation))
    }

    /// Dropping the body cancels the sequence.
    async fn respond(self, delivery: Delivery) -> Response {
        let open = open(&delivery);
        let writer = TraceWriter { open: Some(open), merged: Merged::new(delivery) };
        let frames = futures_util::stream::unfold(Some(writer), |writer| async {
            let mut writer = writer?;
            let (frame, more) = writer.frame().await;
            Some((frame, more.then_some(writer)))
        });
        sse::response(frames)
    }
}

/// The first event.
fn open(delivery: &Delivery) -> String {
    let answer = delivery.answer();
    let shown = |pin: &Pin| (pin.offset.get(), pin.token, answer.tokenizer.token_text(pin.token));
    let open = json!({
        "id": answer.id,
        "object": "diffusion.trace",
        "model": answer.model,
        "prompt_tokens": delivery.running_usage().prompt_tokens,
        "budget": answer.canvas.budget,
        "pins": answer.canvas.pins.iter().map(shown).collect::<Vec<_>>(),
        "has_parts": answer.has_parts,
    });
    let mut frame = String::new();
    sse::event("open", &open, &mut frame);
    frame
}

/// A part as an object.
fn shown(part: &Part) -> Value {
    match part {
        Part::Text(text) => json!({"type": "text", "text": text}),
        Part::Reasoning(text) => json!({"type": "reasoning", "text": text}),
        Part::Call { index, id, name } => {
            json!({"type": "call", "index": index, "id": id, "name": name})
        }
        Part::Arguments { index, text } => {
            json!({"type": "arguments", "index": index, "text": text})
        }
    }
}

/// Writes the events of one sequence; every frame holds whole events.
struct TraceWriter {
    /// The first frame, until it is written.
    open: Option<String>,
    merged: Merged,
}

impl TraceWriter {
    /// The next events, at least one, and whether more may follow.
    async fn frame(&mut self) -> (String, bool) {
        if let Some(open) = self.open.take() {
            return (open, true);
        }
        let mut frame = String::new();
        loop {
            let News { step, text, parts, end } = self.merged.next().await;
            let has_step = step.is_some();
            if let Some(step) = step {
                sse::event("step", &step, &mut frame);
            }
            // A step comes before the text that it released.
            if !text.is_empty() {
                sse::event("text", &json!({ "text": text }), &mut frame);
            }
            if !parts.is_empty() {
                let parts: Vec<Value> = parts.iter().map(shown).collect();
                sse::event("parts", &json!({ "parts": parts }), &mut frame);
            }
            match end {
                None if has_step => return (frame, true),
                None => {}
                Some(End::Failed(error)) => {
                    sse::event("error", &error.body(), &mut frame);
                    return (frame, false);
                }
                Some(End::Done { reason, usage }) => {
                    let done = json!({"finish_reason": reason, "usage": usage});
                    sse::event("done", &done, &mut frame);
                    return (frame, false);
                }
            }
        }
    }
}
