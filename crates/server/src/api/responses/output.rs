//! The answer: its output items, built part by part, and the object around them.

use engine::FinishReason;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use text::Part;

use crate::pipeline::deliver::Answer;
use crate::pipeline::usage::Usage;

/// What the answer repeats of its request.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Echo {
    instructions: Option<Value>,
    max_output_tokens: Option<Value>,
    /// Is repeated in the answer.
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
        Self {
            id: answer.id.clone(),
            created: answer.created,
            model: answer.model.clone(),
            echo,
        }
    }

    /// The object `response`: in progress without a `usage`, then completed or incomplete.
    pub fn response(
        &self,
        items: &Items,
        reason: Option<FinishReason>,
        usage: Option<&Usage>,
    ) -> Value {
        let is_cut = reason == Some(FinishReason::Length);
        let status = match usage {
            None => "in_progress",
            Some(_) if is_cut => "incomplete",
            Some(_) => "completed",
        };
        let details = (usage.is_some() && is_cut).then(|| json!({"reason": "max_output_tokens"}));
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
            "output": items.done,
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
    json!({
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": cached.map_or(0, |details| details.cached_tokens),
            "cache_write_tokens": 0,
        },
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.total_tokens,
        "diffusion": usage.diffusion,
    })
}

/// The output items so far.
#[derive(Clone, Debug)]
pub struct Items {
    /// The ids of items are made from the answer's.
    id: String,
    /// Complete items.
    pub done: Vec<Value>,
    open: Option<Open>,
}

/// The item that is being written.
#[derive(Clone, Debug)]
struct Open {
    kind: Kind,
    id: String,
    text: String,
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Message,
    Reasoning,
    Call { call_id: String, name: String },
}

/// An event without its type's number in the sequence: type and members.
pub type Event = (&'static str, Map<String, Value>);

impl Items {
    /// No item of the answer `id`.
    pub fn new(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            done: Vec::new(),
            open: None,
        }
    }

    /// Takes `parts`; adds the events that a stream sends of them.
    pub fn take(&mut self, parts: Vec<Part>, events: &mut Vec<Event>) {
        for part in parts {
            match part {
                Part::Text(text) => self.text(Kind::Message, &text, events),
                Part::Reasoning(text) => self.text(Kind::Reasoning, &text, events),
                Part::Call { id, name, .. } => {
                    let call_id = id;
                    self.begin(Kind::Call { call_id, name }, events);
                }
                Part::Arguments { text, .. } => self.append(&text, events),
            }
        }
    }

    /// Ends the last item; an answer without any has an empty message.
    pub fn end(&mut self, reason: Option<FinishReason>, events: &mut Vec<Event>) {
        if self.open.is_none() && self.done.is_empty() {
            self.begin(Kind::Message, events);
        }
        self.close(reason == Some(FinishReason::Length), events);
    }

    fn text(&mut self, kind: Kind, text: &str, events: &mut Vec<Event>) {
        if self.open.as_ref().is_none_or(|open| open.kind != kind) {
            self.begin(kind, events);
        }
        self.append(text, events);
    }

    fn begin(&mut self, kind: Kind, events: &mut Vec<Event>) {
        self.close(false, events);
        let prefix = match kind {
            Kind::Message => "msg",
            Kind::Reasoning => "rs",
            Kind::Call { .. } => "fc",
        };
        let number = self.done.len();
        let open = Open {
            id: format!("{prefix}_{}_{number}", self.id.trim_start_matches("resp-")),
            kind,
            text: String::new(),
        };
        let item = open.item("in_progress", false);
        events.push(self.event("response.output_item.added", [("item", item)]));
        if let Some(part) = open.part("") {
            let members = [
                ("item_id", json!(open.id)),
                ("content_index", json!(0)),
                ("part", part),
            ];
            events.push(self.event("response.content_part.added", members));
        }
        self.open = Some(open);
    }

    fn append(&mut self, text: &str, events: &mut Vec<Event>) {
        let Some(mut open) = self.open.take() else {
            return;
        };
        open.text.push_str(text);
        let mut members = vec![("item_id", json!(open.id)), ("delta", json!(text))];
        let name = match open.kind {
            Kind::Message => {
                members.push(("logprobs", json!([])));
                "response.output_text.delta"
            }
            Kind::Reasoning => "response.reasoning_text.delta",
            Kind::Call { .. } => "response.function_call_arguments.delta",
        };
        if !matches!(open.kind, Kind::Call { .. }) {
            members.push(("content_index", json!(0)));
        }
        events.push(self.event(name, members));
        self.open = Some(open);
    }

    fn close(&mut self, is_cut: bool, events: &mut Vec<Event>) {
        let Some(open) = self.open.take() else {
            return;
        };
        let (id, text) = (json!(open.id), json!(open.text));
        match &open.kind {
            Kind::Call { name, .. } => {
                let members = [("item_id", id), ("name", json!(name)), ("arguments", text)];
                events.push(self.event("response.function_call_arguments.done", members));
            }
            kind => {
                let mut members = vec![
                    ("item_id", id.clone()),
                    ("content_index", json!(0)),
                    ("text", text),
                ];
                let name = match kind {
                    Kind::Reasoning => "response.reasoning_text.done",
                    _ => {
                        members.push(("logprobs", json!([])));
                        "response.output_text.done"
                    }
                };
                events.push(self.event(name, members));
                let part = open.part(&open.text).unwrap_or_default();
                let members = [("item_id", id), ("content_index", json!(0)), ("part", part)];
                events.push(self.event("response.content_part.done", members));
            }
        }
        let status = if is_cut { "incomplete" } else { "completed" };
        let item = open.item(status, true);
        events.push(self.event("response.output_item.done", [("item", item.clone())]));
        self.done.push(item);
    }

    /// An event of the open item.
    fn event<'a>(
        &self,
        name: &'static str,
        members: impl IntoIterator<Item = (&'a str, Value)>,
    ) -> Event {
        let mut event = Map::new();
        event.insert("output_index".to_owned(), json!(self.done.len()));
        for (key, value) in members {
            event.insert(key.to_owned(), value);
        }
        (name, event)
    }
}

impl Open {
    /// The item; with its content if it `is_whole`.
    fn item(&self, status: &str, is_whole: bool) -> Value {
        let text = if is_whole { self.text.as_str() } else { "" };
        let content: Vec<Value> = self.part(text).filter(|_| is_whole).into_iter().collect();
        match &self.kind {
            Kind::Message => json!({
                "type": "message", "id": self.id, "status": status, "role": "assistant",
                "content": content,
            }),
            Kind::Reasoning => json!({
                "type": "reasoning", "id": self.id, "status": status, "summary": [],
                "content": content,
            }),
            Kind::Call { call_id, name } => json!({
                "type": "function_call", "id": self.id, "status": status, "call_id": call_id,
                "name": name, "arguments": text,
            }),
        }
    }

    /// The part of its content with `text`; a call has none.
    fn part(&self, text: &str) -> Option<Value> {
        match self.kind {
            Kind::Message => Some(json!({
                "type": "output_text", "text": text, "annotations": [], "logprobs": [],
            })),
            Kind::Reasoning => Some(json!({"type": "reasoning_text", "text": text})),
            Kind::Call { .. } => None,
        }
    }
}
