//! `POST /v1/diffusion/trace`: the answer of one sequence as named events, step by step.

mod steps;

use axum::response::Response;
use engine::FinishReason;
use serde_json::json;

use self::steps::Steps;
use super::chat::Chat;
use super::completions::Completions;
use super::endpoint::Endpoint;
use super::fields::body::JsonBody;
use super::fields::prompt::PromptKind;
use crate::backend::Backend;
use crate::error::{ApiError, ErrorCode};
use crate::http::sse;
use crate::pipeline::assemble::Delta;
use crate::pipeline::deliver::Delivery;
use crate::pipeline::generation::Generation;
use crate::pipeline::record::reason_name;

/// The endpoint. Its body is that of a chat or of a completion, for one sequence.
#[derive(Clone, Copy, Debug)]
pub struct Trace;

impl Endpoint for Trace {
    const PATH: &'static str = "/v1/diffusion/trace";
    const ID_PREFIX: &'static str = "trace";

    fn read(body: &JsonBody<'_>, backend: &Backend) -> Result<(Self, Generation), ApiError> {
        let generation = match PromptKind::of(body)? {
            PromptKind::Messages => Chat::read(body, backend)?.1,
            PromptKind::Prompt => Completions::read(body, backend)?.1,
        };
        let counts = [
            ("prompt", generation.input.prompts()),
            ("n", generation.n as usize),
            ("best_of", generation.best_of as usize),
        ];
        if let Some((param, count)) = counts.into_iter().find(|(_, count)| *count != 1) {
            let rest = format!("must ask for one sequence to be traced, got {count}");
            return Err(ApiError::field(ErrorCode::InvalidValue, param, rest));
        }
        if generation.logprobs.is_some() {
            let rest = "is not supported here: cells have the probability of their token";
            let code = ErrorCode::UnsupportedParameter;
            return Err(ApiError::field(code, "logprobs", rest));
        }
        let generation = Generation {
            trace: true,
            ..generation
        };
        Ok((Self, generation))
    }

    /// Dropping the body cancels the sequence.
    async fn respond(self, delivery: Delivery) -> Response {
        let lanes = delivery.lanes().clone();
        let writer = TraceWriter {
            delivery,
            steps: Steps::new(lanes),
            text: String::new(),
            reason: FinishReason::Stop,
            has_begun: false,
        };
        let frames = futures_util::stream::unfold(Some(writer), |writer| async {
            let mut writer = writer?;
            let (frame, more) = writer.frame().await;
            Some((frame, more.then_some(writer)))
        });
        sse::response(frames)
    }
}

/// Writes the events of one sequence; every frame holds whole events.
struct TraceWriter {
    delivery: Delivery,
    steps: Steps,
    /// Text of the steps that are not written yet.
    text: String,
    reason: FinishReason,
    has_begun: bool,
}

impl TraceWriter {
    /// The next events, at least one, and whether more may follow.
    async fn frame(&mut self) -> (String, bool) {
        let mut frame = String::new();
        if !std::mem::replace(&mut self.has_begun, true) {
            self.open(&mut frame);
            return (frame, true);
        }
        while frame.is_empty() {
            match self.delivery.next().await {
                Some(Ok(delta)) => self.delta(&delta, &mut frame),
                Some(Err(error)) => {
                    sse::event("error", &error.body(), &mut frame);
                    return (frame, false);
                }
                None => {
                    self.flush_text(&mut frame);
                    let done = json!({
                        "finish_reason": reason_name(self.reason),
                        "usage": self.delivery.finish(),
                    });
                    sse::event("done", &done, &mut frame);
                    return (frame, false);
                }
            }
        }
        (frame, true)
    }

    fn open(&self, frame: &mut String) {
        let answer = self.delivery.answer();
        let open = json!({
            "id": answer.id,
            "object": "diffusion.trace",
            "model": answer.model,
            "prompt_tokens": self.delivery.running_usage().prompt_tokens,
            "budget": answer.budget,
        });
        sse::event("open", &open, frame);
    }

    /// A step, then the text that it released. (The engine sends the text first.)
    fn delta(&mut self, delta: &Delta, frame: &mut String) {
        delta.steps.iter().for_each(|step| self.steps.push(step));
        self.text.push_str(&delta.text);
        self.reason = delta.finish.unwrap_or(self.reason);
        if let Some(step) = self.steps.take(&self.delivery.answer().tokenizer) {
            sse::event("step", &step, frame);
            self.flush_text(frame);
        }
    }

    fn flush_text(&mut self, frame: &mut String) {
        if !self.text.is_empty() {
            let text = std::mem::take(&mut self.text);
            sse::event("text", &json!({ "text": text }), frame);
        }
    }
}
