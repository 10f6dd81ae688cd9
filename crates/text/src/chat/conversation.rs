//! A chat as its template sees it: messages, tools and further variables.

use minijinja::Value as Variable;
use minijinja::value::Serde;
use serde_json::{Map, Value};

/// One message of a chat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// `system`, `user`, `assistant`, `tool`, or another role that the template supports.
    pub role: String,
    /// The text of the message.
    pub content: String,
    /// The reasoning before the text of an assistant's message.
    pub reasoning: Option<String>,
    /// The calls of an assistant's message.
    pub calls: Vec<PastCall>,
    /// The call that a message of the role `tool` answers.
    pub call_id: Option<String>,
    /// The function that a message of the role `tool` answers for, or the name of a speaker.
    pub name: Option<String>,
}

/// A call in the history of a chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastCall {
    /// Its id.
    pub id: String,
    /// The function.
    pub name: String,
    /// The arguments by name; a text where they are no JSON object, such as one that was cut.
    pub arguments: Value,
}

/// A chat with the tools that its answer may call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conversation {
    /// The messages in their order.
    pub messages: Vec<Message>,
    /// Tools as objects of OpenAI's form: `type` and `function`.
    pub tools: Vec<Value>,
    /// Further variables of the template; `messages`, `tools`, `documents` and
    /// `add_generation_prompt` among them have no effect.
    pub variables: Map<String, Value>,
}

impl Message {
    /// A message with text only.
    pub fn new(role: &str, content: &str) -> Self {
        Self { role: role.to_owned(), content: content.to_owned(), ..Self::default() }
    }

    /// The bytes of its texts.
    pub(super) fn bytes(&self) -> usize {
        let texts = [&self.reasoning, &self.call_id, &self.name];
        let texts = texts.into_iter().flatten().map(String::len).sum::<usize>();
        let calls = self
            .calls
            .iter()
            .map(|call| call.id.len() + call.name.len() + call.arguments.to_string().len());
        self.role.len() + self.content.len() + texts + calls.sum::<usize>()
    }

    /// The message under the names that templates of Hugging Face use.
    pub(super) fn variable(&self) -> Variable {
        let mut pairs = vec![
            ("role", Variable::from(self.role.as_str())),
            ("content", Variable::from(self.content.as_str())),
        ];
        let optional = [
            ("reasoning_content", &self.reasoning),
            ("tool_call_id", &self.call_id),
            ("name", &self.name),
        ];
        for (name, text) in optional {
            if let Some(text) = text {
                pairs.push((name, Variable::from(text.as_str())));
            }
        }
        if !self.calls.is_empty() {
            let calls: Vec<Variable> = self.calls.iter().map(PastCall::variable).collect();
            pairs.push(("tool_calls", Variable::from(calls)));
        }
        Variable::from_pairs(pairs)
    }
}

impl PastCall {
    fn variable(&self) -> Variable {
        let function = Variable::from_pairs([
            ("name", Variable::from(self.name.as_str())),
            ("arguments", Variable::from(Serde(&self.arguments))),
        ]);
        Variable::from_pairs([
            ("type", Variable::from("function")),
            ("id", Variable::from(self.id.as_str())),
            ("function", function),
        ])
    }
}

impl Conversation {
    /// A chat of `messages` without tools.
    pub fn new(messages: Vec<Message>) -> Self {
        Self { messages, ..Self::default() }
    }
}

/// Borrowed parts of a conversation.
#[derive(Clone, Copy)]
pub(super) struct Scene<'a> {
    pub(super) messages: &'a [Message],
    pub(super) tools: &'a [Value],
    pub(super) variables: &'a [(&'a str, &'a Value)],
}

impl Scene<'_> {
    /// The bytes of all texts, as JSON where they are JSON.
    pub(super) fn bytes(&self) -> usize {
        let messages = self.messages.iter().map(Message::bytes).sum::<usize>();
        let json = |value: &Value| value.to_string().len();
        let tools = self.tools.iter().map(json).sum::<usize>();
        let variables = self.variables.iter().map(|(_, value)| json(value));
        messages + tools + variables.sum::<usize>()
    }
}
