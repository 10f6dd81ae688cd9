//! A chat as an endpoint reads it, and its hints to the chat template about thinking.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use text::{ChatTemplate, Conversation, Message};

use super::tools::Tools;
use super::types::Object;
use crate::backend::Backend;

/// Efforts that switch thinking off.
const EFFORTS_WITHOUT_THINKING: [&str; 2] = ["none", "minimal"];

/// `reasoning_effort`, of any value.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct EffortField {
    /// Sets the switch of the chat template, where it has one: `none` and `minimal` switch thinking
    /// off.
    pub reasoning_effort: Option<Value>,
}

/// A hint about thinking.
#[derive(Clone, Copy, Debug)]
pub enum Thinking<'a> {
    /// Thinking is on or off.
    Switch(bool),
    /// A level by its name.
    Effort(&'a str),
    /// A value that no template knows.
    Unknown,
}

impl<'a> Thinking<'a> {
    /// The effort that a field has as `value`.
    pub fn effort(value: &'a Value) -> Self {
        value.as_str().map_or(Self::Unknown, Self::Effort)
    }

    /// The variables of published templates for the hint.
    fn variables(self) -> Vec<(&'static str, Value)> {
        let switch = |thinks: bool| {
            let value = json!(thinks);
            vec![("enable_thinking", value.clone()), ("thinking", value)]
        };
        match self {
            Self::Switch(thinks) => switch(thinks),
            Self::Effort(effort) => {
                let mut variables = switch(!EFFORTS_WITHOUT_THINKING.contains(&effort));
                variables.push(("reasoning_effort", json!(effort)));
                variables
            }
            Self::Unknown => Vec::new(),
        }
    }
}

/// A chat with its tools.
#[derive(Clone, Debug)]
pub struct Chat {
    /// Messages, tools and variables of the template.
    pub conversation: Conversation,
    /// The functions that the answer may call.
    pub tools: Tools,
    /// The hints that the template cannot follow.
    pub ignored: Vec<&'static str>,
}

impl Chat {
    /// A chat of `messages` with further `variables` of the template.
    pub fn new(
        messages: Vec<Message>,
        tools: Tools,
        variables: Option<Object<Map<String, Value>>>,
    ) -> Self {
        let conversation = Conversation {
            messages,
            tools: tools.listed.clone(),
            variables: variables.map(|Object(given)| given).unwrap_or_default(),
        };
        Self { conversation, tools, ignored: Vec::new() }
    }

    /// Follows the hint `thinking` of the field `field`, if it is given, as far as the template of
    /// `backend` can. The request's own variables stay as they are.
    pub fn follow(
        &mut self,
        backend: &Backend,
        field: &'static str,
        thinking: Option<Thinking<'_>>,
    ) {
        let Some(thinking) = thinking else {
            return;
        };
        let mut is_followed = false;
        if let Ok(template) = backend.tokenizer.chat_template() {
            let has_tools = !self.conversation.tools.is_empty();
            for (name, value) in thinking.variables() {
                if template.reads(name, has_tools) {
                    is_followed |= self.set(template, name, value);
                }
            }
        }
        if !is_followed {
            self.ignored.push(field);
        }
    }

    /// Sets the variable `name`, unless it is set or the template refuses the value; whether it has
    /// the value then.
    fn set(&mut self, template: &ChatTemplate, name: &'static str, value: Value) -> bool {
        if let Some(given) = self.conversation.variables.get(name) {
            return *given == value;
        }
        let trial = Conversation {
            tools: self.conversation.tools.clone(),
            variables: Map::from_iter([(name.to_owned(), value.clone())]),
            ..Conversation::new(vec![Message::new("user", "Hi")])
        };
        let is_known = template.render_conversation(&trial, true).is_ok();
        if is_known {
            let variables = &mut self.conversation.variables;
            variables.insert(name.to_owned(), value);
        }
        is_known
    }
}
