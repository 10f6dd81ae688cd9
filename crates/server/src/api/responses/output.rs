//! The answer: its output items, and the object around them.

use engine::FinishReason;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::items::{Event, Form, Kind, Open};
use crate::pipeline::assemble::Delta;
use crate::pipeline::deliver::Answer;
use crate::pipeline::usage::Usage;

/// The cause of an incomplete answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The budget.
    Budget,
    /// A stop inside a call.
    Stop,
}

impl Cut {
    /// The cause if `delta` ends a choice that is not complete.
    pub fn of(delta: &Delta) -> Option<Self> {
        match delta.finish? {
            FinishReason::Length => Some(Self::Budget),
            FinishReason::Stop => delta.cut_call.then_some(Self::Stop),
        }
    }
}

/// Request fields that the answer repeats.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Echo {
    instructions: Option<Value>,
    max_output_tokens: Option<Value>,
    /// Repeated in the answer.
    metadata: Option<Value>,
    parallel_tool_calls: Option<Value>,
    reasoning: Option<Value>,
    temperature: Option<Value>,
    text: Option<Value>,
    tool_choice: Option<Value>,
    tools: Option<Value>,
    top_p: Option<Value>,
    user: Option<Value>,
}

/// The facts of an answer that do not change.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Its id.
    pub id: String,
    created: u64,
    model: String,
    echo: Echo,
}

impl Facts {
    /// The facts of `answer`.
    pub fn new(echo: Echo, answer: &Answer) -> Self {
        Self { id: answer.id.clone(), created: answer.created, model: answer.model.clone(), echo }
    }

    /// The object `response`: in progress without a `usage`, then completed or incomplete.
    pub fn response(&self, items: &[Value], cut: Option<Cut>, usage: Option<&Usage>) -> Value {
        let status = match usage {
            None => "in_progress",
            Some(_) if cut.is_some() => "incomplete",
            Some(_) => "completed",
        };
        let details = cut.filter(|_| usage.is_some()).map(|cut| match cut {
            Cut::Budget => json!({"reason": "max_output_tokens"}),
            // OpenAI has no name of this reason, which it may leave out.
            Cut::Stop => json!({}),
        });
        let echo = &self.echo;
        json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "background": false,
            "error": null,
            "incomplete_details": details,
            "instructions": echo.instructions,
            "max_output_tokens": echo.max_output_tokens,
            "metadata": echo.metadata.clone().unwrap_or_else(|| json!({})),
            "model": self.model,
            "output": items,
            "parallel_tool_calls": echo.parallel_tool_calls.clone().unwrap_or(Value::Bool(true)),
            "previous_response_id": null,
            "reasoning": echo.reasoning,
            "service_tier": "default",
            "store": false,
            "temperature": echo.temperature,
            "text": echo.text.clone().unwrap_or_else(|| json!({"format": {"type": "text"}})),
            "tool_choice": echo.tool_choice.clone().unwrap_or_else(|| json!("auto")),
            "tools": echo.tools.clone().unwrap_or_else(|| json!([])),
            "top_p": echo.top_p,
            "truncation": "disabled",
            "usage": usage.map(usage_of),
            "user": echo.user,
        })
    }
}

/// `usage` under the names of this endpoint.
fn usage_of(usage: &Usage) -> Value {
    let cached = usage.prompt_tokens_details.as_ref();
    let details = usage.completion_tokens_details.as_ref();
    let reasoning = details.map_or(0, |details| details.reasoning_tokens);
    json!({
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": cached.map_or(0, |details| details.cached_tokens),
            "cache_write_tokens": 0,
        },
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": usage.total_tokens,
        "diffusion": usage.diffusion,
    })
}

/// The form of output items.
#[derive(Clone, Debug)]
pub struct OutputItems {
    /// The ids of items are made from the answer's.
    answer_id: String,
}

impl OutputItems {
    /// Items of the answer `id`.
    pub fn new(id: &str) -> Self {
        Self { answer_id: id.trim_start_matches("resp-").to_owned() }
    }

    fn id(&self, open: &Open) -> String {
        let prefix = match open.kind {
            Kind::Text => "msg",
            Kind::Reasoning => "rs",
            Kind::Call { .. } => "fc",
        };
        format!("{prefix}_{}_{}", self.answer_id, open.index)
    }

    /// The item; with its content if it `is_whole`.
    fn item(&self, open: &Open, status: &str, is_whole: bool) -> Value {
        let (id, text) = (self.id(open), if is_whole { &*open.text } else { "" });
        let content: Vec<Value> = part(open, text).filter(|_| is_whole).into_iter().collect();
        match &open.kind {
            Kind::Text => json!({
                "type": "message", "id": id, "status": status, "role": "assistant",
                "content": content,
            }),
            Kind::Reasoning => json!({
                "type": "reasoning", "id": id, "status": status, "summary": [],
                "content": content,
            }),
            Kind::Call { id: call_id, name } => json!({
                "type": "function_call", "id": id, "status": status, "call_id": call_id,
                "name": name, "arguments": text,
            }),
        }
    }
}

impl Form for OutputItems {
    fn begin(&self, open: &Open, events: &mut Vec<Event>) {
        let item = self.item(open, "in_progress", false);
        let index = open.index;
        let added = json!({"output_index": index, "item": item});
        events.push(("response.output_item.added", added));
        if let Some(part) = part(open, "") {
            let id = self.id(open);
            let added = json!({
                "output_index": index, "item_id": id, "content_index": 0, "part": part,
            });
            events.push(("response.content_part.added", added));
        }
    }

    fn append(&self, open: &Open, text: &str, events: &mut Vec<Event>) {
        let mut event =
            json!({"output_index": open.index, "item_id": self.id(open), "delta": text});
        let name = match open.kind {
            Kind::Text => {
                event["logprobs"] = json!([]);
                "response.output_text.delta"
            }
            Kind::Reasoning => "response.reasoning_text.delta",
            Kind::Call { .. } => "response.function_call_arguments.delta",
        };
        if !matches!(open.kind, Kind::Call { .. }) {
            event["content_index"] = json!(0);
        }
        events.push((name, event));
    }

    fn close(&self, open: &Open, is_cut: bool, events: &mut Vec<Event>) -> Value {
        let mut event = json!({"output_index": open.index, "item_id": self.id(open)});
        if let Kind::Call { name, .. } = &open.kind {
            event["name"] = json!(name);
            event["arguments"] = json!(open.text);
            events.push(("response.function_call_arguments.done", event));
        } else {
            event["content_index"] = json!(0);
            let mut part_done = event.clone();
            part_done["part"] = part(open, &open.text).unwrap_or_default();
            event["text"] = json!(open.text);
            let name = match open.kind {
                Kind::Reasoning => "response.reasoning_text.done",
                _ => {
                    event["logprobs"] = json!([]);
                    "response.output_text.done"
                }
            };
            events.push((name, event));
            events.push(("response.content_part.done", part_done));
        }
        let status = if is_cut { "incomplete" } else { "completed" };
        let item = self.item(open, status, true);
        let done = json!({"output_index": open.index, "item": item});
        events.push(("response.output_item.done", done));
        item
    }
}

/// The content part of an item with `text`; a call has none.
fn part(open: &Open, text: &str) -> Option<Value> {
    match open.kind {
        Kind::Text => Some(json!({
            "type": "output_text", "text": text, "annotations": [], "logprobs": [],
        })),
        Kind::Reasoning => Some(json!({"type": "reasoning_text", "text": text})),
        Kind::Call { .. } => None,
    }
}
