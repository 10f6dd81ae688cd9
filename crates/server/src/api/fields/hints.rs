//! Hints: how much a model shall think, as far as its chat template can tell it.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use text::{ChatTemplate, Conversation, Message};

use crate::backend::Backend;

/// Efforts that switch thinking off.
const OFF: [&str; 2] = ["none", "minimal"];

/// `reasoning_effort`, of any value.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct EffortField {
    /// Sets the switch of the chat template, where it has one: `none` and `minimal` switch thinking
    /// off.
    pub reasoning_effort: Option<Value>,
}

/// How much the model shall think.
#[derive(Clone, Copy, Debug)]
pub enum Thinking<'a> {
    /// It thinks, or not.
    Switch(bool),
    /// By a name.
    Effort(&'a str),
    /// By a value that no template knows.
    Unknown,
}

impl<'a> Thinking<'a> {
    /// The effort that a field has as `value`.
    pub fn effort(value: &'a Value) -> Self {
        value.as_str().map_or(Self::Unknown, Self::Effort)
    }

    /// The variables of published templates that say so.
    fn variables(self) -> Vec<(&'static str, Value)> {
        let switch = |thinks: bool| {
            let value = json!(thinks);
            vec![("enable_thinking", value.clone()), ("thinking", value)]
        };
        match self {
            Self::Switch(thinks) => switch(thinks),
            Self::Effort(effort) => {
                let mut variables = switch(!OFF.contains(&effort));
                variables.push(("reasoning_effort", json!(effort)));
                variables
            }
            Self::Unknown => Vec::new(),
        }
    }
}

/// Sets the switches of a chat's template.
#[derive(Debug)]
pub struct Switches<'a> {
    chat: &'a mut Conversation,
    /// Absent where the model has none.
    template: Option<&'a ChatTemplate>,
    /// The hints that the template cannot follow.
    pub ignored: Vec<&'static str>,
}

impl<'a> Switches<'a> {
    /// The switches of the template of `backend` in the variables of `chat`.
    pub fn new(chat: &'a mut Conversation, backend: &'a Backend) -> Self {
        Self {
            chat,
            template: backend.tokenizer.chat_template().ok(),
            ignored: Vec::new(),
        }
    }

    /// Follows the hint `wanted` of the field `field`. The request's own variables stay as they are.
    pub fn follow(&mut self, field: &'static str, wanted: Option<Thinking<'_>>) {
        let Some(wanted) = wanted else {
            return;
        };
        let mut is_followed = false;
        let tools = !self.chat.tools.is_empty();
        for (name, value) in wanted.variables() {
            if self
                .template
                .is_some_and(|template| template.reads(name, tools))
            {
                is_followed |= self.set(name, value);
            }
        }
        if !is_followed {
            self.ignored.push(field);
        }
    }

    /// Sets the variable `name`, unless it is set or the template refuses the value; whether it has
    /// the value then.
    fn set(&mut self, name: &'static str, value: Value) -> bool {
        if let Some(given) = self.chat.variables.get(name) {
            return *given == value;
        }
        let trial = Conversation {
            tools: self.chat.tools.clone(),
            variables: Map::from_iter([(name.to_owned(), value.clone())]),
            ..Conversation::new(vec![Message::new("user", "Hi")])
        };
        let renders = |template: &ChatTemplate| template.render_conversation(&trial, true).is_ok();
        let is_known = self.template.is_some_and(renders);
        if is_known {
            self.chat.variables.insert(name.to_owned(), value);
        }
        is_known
    }
}
