//! `/v1/diffusion/trace`: the answer of one sequence as named events, step by step.

mod lanes;
mod steps;

use std::fmt::Write;

use axum::response::Response;
use engine::FinishReason;
use serde::Serialize;
use serde_json::json;

pub use lanes::Lanes;
use steps::Steps;

use crate::api::stream;
use crate::pipeline::assemble::Delta;
use crate::pipeline::deliver::Generation;
use crate::record::reason_name;

/// The streamed trace. Dropping the body cancels the sequence.
pub fn respond(generation: Generation) -> Response {
    let lanes = generation.lanes().clone();
    let trace = Trace {
        generation,
        steps: Steps::new(lanes),
        text: String::new(),
        reason: FinishReason::Stop,
        opened: false,
    };
    let frames = futures_util::stream::unfold(Some(trace), |trace| async {
        let mut trace = trace?;
        let (frame, more) = trace.frame().await;
        Some((frame, more.then_some(trace)))
    });
    stream::response(frames)
}

/// Writes the events of one sequence; every frame holds whole events.
struct Trace {
    generation: Generation,
    steps: Steps,
    /// Text of the steps that are still collected.
    text: String,
    reason: FinishReason,
    opened: bool,
}

impl Trace {
    /// The next events, at least one, and whether more may follow.
    async fn frame(&mut self) -> (String, bool) {
        let mut frame = String::new();
        if !std::mem::replace(&mut self.opened, true) {
            self.open(&mut frame);
            return (frame, true);
        }
        while frame.is_empty() {
            match self.generation.next().await {
                Some(Ok(delta)) => self.delta(&delta, &mut frame),
                Some(Err(error)) => {
                    event("error", &error.body(), &mut frame);
                    return (frame, false);
                }
                None => {
                    self.flush_text(&mut frame);
                    let done = json!({
                        "finish_reason": reason_name(self.reason),
                        "usage": self.generation.finish(),
                    });
                    event("done", &done, &mut frame);
                    return (frame, false);
                }
            }
        }
        (frame, true)
    }

    fn open(&self, frame: &mut String) {
        let answer = self.generation.answer();
        let open = json!({
            "id": answer.id,
            "object": "diffusion.trace",
            "model": answer.model,
            "prompt_tokens": self.generation.running_usage().prompt_tokens,
            "budget": answer.budget,
        });
        event("open", &open, frame);
    }

    /// A step, then the text that it set free; the engine tells them the other way round.
    fn delta(&mut self, delta: &Delta, frame: &mut String) {
        delta.steps.iter().for_each(|step| self.steps.push(step));
        self.text.push_str(&delta.text);
        self.reason = delta.finish.unwrap_or(self.reason);
        if let Some(step) = self.steps.take(&self.generation.answer().tokenizer) {
            event("step", &step, frame);
            self.flush_text(frame);
        }
    }

    fn flush_text(&mut self, frame: &mut String) {
        if !self.text.is_empty() {
            let text = std::mem::take(&mut self.text);
            event("text", &json!({ "text": text }), frame);
        }
    }
}

fn event(name: &str, data: &impl Serialize, frame: &mut String) {
    writeln!(frame, "event: {name}").expect("writing to a string succeeds");
    stream::event(data, frame);
}
