//! The answer: its content blocks, and the message around them.

use engine::FinishReason;
use serde_json::{Value, json};

use crate::api::items::{Event, Form, Kind, Open};
use crate::pipeline::assemble::Delta;
use crate::pipeline::deliver::Answer;
use crate::pipeline::usage::Usage;

/// The facts of an answer that do not change.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The request's id.
    pub request_id: String,
    id: String,
    model: String,
    stops: Vec<String>,
}

/// The end of an answer.
#[derive(Clone, Debug)]
pub struct End {
    /// `stop_reason`.
    pub reason: &'static str,
    /// The stop string that ended it.
    pub stop: Option<String>,
}

impl Facts {
    /// The facts of `answer`.
    pub fn new(answer: &Answer) -> Self {
        let (request_id, stops) = (answer.request_id.clone(), answer.stops.strings.clone());
        Self { request_id, id: answer.id.clone(), model: answer.model.clone(), stops }
    }

    /// The end of the choice of `delta`, if it ended.
    pub fn stop(&self, delta: &Delta) -> Option<End> {
        let stop = delta.stop_string.and_then(|stop| self.stops.get(stop));
        let reason = match delta.finish? {
            FinishReason::Length => "max_tokens",
            FinishReason::Stop if delta.has_called() => "tool_use",
            FinishReason::Stop if stop.is_some() => "stop_sequence",
            FinishReason::Stop => "end_turn",
        };
        Some(End { reason, stop: stop.filter(|_| reason == "stop_sequence").cloned() })
    }

    /// The object `message`.
    pub fn message(&self, content: Vec<Value>, end: Option<&End>, usage: &Usage) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": end.map(|end| end.reason),
            "stop_sequence": end.and_then(|end| end.stop.clone()),
            "usage": usage_of(usage),
        })
    }
}

/// `usage` under the names of this endpoint. Tokens whose keys and values were cached count apart.
pub fn usage_of(usage: &Usage) -> Value {
    let cached = usage.prompt_tokens_details.as_ref();
    let cached = cached.map_or(0, |details| details.cached_tokens);
    let mut object = json!({
        "input_tokens": usage.prompt_tokens.saturating_sub(cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.completion_tokens,
    });
    if let Some(diffusion) = &usage.diffusion {
        object["diffusion"] = json!(diffusion);
    }
    object
}

/// The form of content blocks.
#[derive(Clone, Copy, Debug)]
pub struct Blocks;

impl Form for Blocks {
    fn begin(&self, open: &Open, events: &mut Vec<Event>) {
        let name = "content_block_start";
        let event = json!({"type": name, "index": open.index, "content_block": block(open)});
        events.push((name, event));
    }

    fn append(&self, open: &Open, text: &str, events: &mut Vec<Event>) {
        let delta = match open.kind {
            Kind::Text => json!({"type": "text_delta", "text": text}),
            Kind::Reasoning => json!({"type": "thinking_delta", "thinking": text}),
            Kind::Call { .. } => json!({"type": "input_json_delta", "partial_json": text}),
        };
        let name = "content_block_delta";
        events.push((name, json!({"type": name, "index": open.index, "delta": delta})));
    }

    fn close(&self, open: &Open, _: bool, events: &mut Vec<Event>) -> Value {
        let name = "content_block_stop";
        events.push((name, json!({"type": name, "index": open.index})));
        block(open)
    }
}

/// The block. The input of a call that was cut has no JSON and is left empty; the message's stop reason tells it.
fn block(open: &Open) -> Value {
    let text = &open.text;
    match &open.kind {
        Kind::Text => json!({"type": "text", "text": text}),
        Kind::Reasoning => json!({"type": "thinking", "thinking": text, "signature": ""}),
        Kind::Call { id, name } => {
            let id = id.replacen("call_", "toolu_", 1);
            let input: Value = serde_json::from_str(text).unwrap_or_else(|_| json!({}));
            json!({"type": "tool_use", "id": id, "name": name, "input": input})
        }
    }
}
