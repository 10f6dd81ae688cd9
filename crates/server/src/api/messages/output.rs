//! The answer: its content blocks, built part by part, and the message around them.

use engine::FinishReason;
use serde_json::{Value, json};
use text::Part;

use crate::pipeline::assemble::Delta;
use crate::pipeline::deliver::Answer;
use crate::pipeline::usage::Usage;

/// The facts of an answer that do not change.
#[derive(Clone, Debug)]
pub struct Facts {
    id: String,
    model: String,
    stops: Vec<String>,
}

/// Why an answer ended.
#[derive(Clone, Debug)]
pub struct End {
    /// `stop_reason`.
    pub reason: &'static str,
    /// The stop string that ended it.
    pub stop: Option<String>,
}

impl Facts {
    /// The facts of `answer`, whose stop strings are `stops`.
    pub fn new(answer: &Answer, stops: Vec<String>) -> Self {
        Self {
            id: answer.id.clone(),
            model: answer.model.clone(),
            stops,
        }
    }

    /// Why the choice of `delta` ended, if it did.
    pub fn stop(&self, delta: &Delta) -> Option<End> {
        let stop = delta.stop_string.and_then(|stop| self.stops.get(stop));
        let reason = match delta.finish? {
            FinishReason::Length => "max_tokens",
            FinishReason::Stop if delta.called => "tool_use",
            FinishReason::Stop if stop.is_some() => "stop_sequence",
            FinishReason::Stop => "end_turn",
        };
        Some(End {
            reason,
            stop: stop.filter(|_| reason == "stop_sequence").cloned(),
        })
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

/// The content blocks so far.
#[derive(Clone, Debug, Default)]
pub struct Blocks {
    /// Complete blocks.
    pub done: Vec<Value>,
    open: Option<Open>,
}

/// The block that is being written.
#[derive(Clone, Debug)]
struct Open {
    kind: Kind,
    text: String,
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Text,
    Thinking,
    Call { id: String, name: String },
}

/// An event: its type and its object.
pub type Event = (&'static str, Value);

impl Blocks {
    /// Takes `parts`; adds the events that a stream sends of them.
    pub fn take(&mut self, parts: Vec<Part>, events: &mut Vec<Event>) {
        for part in parts {
            match part {
                Part::Text(text) => self.text(Kind::Text, &text, events),
                Part::Reasoning(text) => self.text(Kind::Thinking, &text, events),
                Part::Call { id, name, .. } => {
                    let id = id.replacen("call_", "toolu_", 1);
                    self.begin(Kind::Call { id, name }, events);
                }
                Part::Arguments { text, .. } => self.append(&text, events),
            }
        }
    }

    /// Ends the last block; an answer without any has an empty text.
    pub fn end(&mut self, events: &mut Vec<Event>) {
        if self.open.is_none() && self.done.is_empty() {
            self.begin(Kind::Text, events);
        }
        self.close(events);
    }

    fn text(&mut self, kind: Kind, text: &str, events: &mut Vec<Event>) {
        if self.open.as_ref().is_none_or(|open| open.kind != kind) {
            self.begin(kind, events);
        }
        self.append(text, events);
    }

    fn begin(&mut self, kind: Kind, events: &mut Vec<Event>) {
        self.close(events);
        let open = Open {
            kind,
            text: String::new(),
        };
        let (name, index) = ("content_block_start", self.done.len());
        let event = json!({"type": name, "index": index, "content_block": open.block()});
        events.push((name, event));
        self.open = Some(open);
    }

    fn append(&mut self, text: &str, events: &mut Vec<Event>) {
        let index = self.done.len();
        let Some(open) = &mut self.open else {
            return;
        };
        open.text.push_str(text);
        let delta = match open.kind {
            Kind::Text => json!({"type": "text_delta", "text": text}),
            Kind::Thinking => json!({"type": "thinking_delta", "thinking": text}),
            Kind::Call { .. } => json!({"type": "input_json_delta", "partial_json": text}),
        };
        let name = "content_block_delta";
        events.push((name, json!({"type": name, "index": index, "delta": delta})));
    }

    fn close(&mut self, events: &mut Vec<Event>) {
        if let Some(open) = self.open.take() {
            let name = "content_block_stop";
            events.push((name, json!({"type": name, "index": self.done.len()})));
            self.done.push(open.block());
        }
    }
}

impl Open {
    /// The block. An input that the budget cut has no JSON and is left empty.
    fn block(&self) -> Value {
        match &self.kind {
            Kind::Text => json!({"type": "text", "text": self.text}),
            Kind::Thinking => json!({"type": "thinking", "thinking": self.text, "signature": ""}),
            Kind::Call { id, name } => {
                let input: Value = serde_json::from_str(&self.text).unwrap_or_else(|_| json!({}));
                json!({"type": "tool_use", "id": id, "name": name, "input": input})
            }
        }
    }
}
