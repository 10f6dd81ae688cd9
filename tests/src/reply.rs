//! The content of an answer: plain or streamed, completion or chat.
use serde_json::Value;

/// `body` with more fields.
pub fn with(mut body: Value, fields: &Value) -> Value {
    for (field, value) in fields.as_object().into_iter().flatten() {
        body[field] = value.clone();
    }
    body
}

/// The choices and the usage of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The choices in order.
    pub choices: Vec<Choice>,
    /// The final usage.
    pub usage: Value,
}

/// One choice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    /// Its text.
    pub text: String,
    /// Its ids, if requested.
    pub token_ids: Vec<u32>,
    /// Its finish reason.
    pub finish_reason: String,
}

impl Reply {
    /// Parses a plain answer.
    pub fn of_answer(answer: &Value) -> Self {
        let choices = answer["choices"].as_array();
        let choices = choices.unwrap_or_else(|| panic!("no choices in {answer}"));
        let mut reply = Self { choices: Vec::new(), usage: answer["usage"].clone() };
        for choice in choices {
            reply.take(choice);
        }
        reply
    }

    /// Joins a stream whose last event has the usage. Panics if the order of its chunks is wrong.
    pub fn of_events(events: impl Iterator<Item = Value>) -> Self {
        let mut reply = Self { choices: Vec::new(), usage: Value::Null };
        for event in events {
            assert!(event["error"].is_null(), "{event}");
            assert!(reply.usage.is_null(), "the usage comes last: {event}");
            let choices = event["choices"].as_array();
            let choices = choices.unwrap_or_else(|| panic!("no choices in {event}"));
            for choice in choices {
                reply.take(choice);
            }
            if choices.is_empty() {
                reply.usage = event["usage"].clone();
            }
        }
        assert!(!reply.usage.is_null(), "no usage came");
        reply
    }

    /// A field of `usage.diffusion`, or of `usage` if it is not there.
    pub fn count(&self, field: &str) -> u64 {
        let value = self.usage["diffusion"].get(field);
        let value = value.or_else(|| self.usage.get(field));
        let count = value.and_then(Value::as_u64);
        count.unwrap_or_else(|| panic!("no {field} in {}", self.usage))
    }

    /// Adds a choice of an answer or of a chunk.
    fn take(&mut self, part: &Value) {
        let index = part["index"].as_u64().expect("choices have an index") as usize;
        if self.choices.len() <= index {
            self.choices.resize_with(index + 1, Choice::default);
        }
        let choice = &mut self.choices[index];
        assert!(choice.finish_reason.is_empty(), "{part} after the end");
        let text = [&part["text"], &part["message"]["content"], &part["delta"]["content"]];
        if let Some(text) = text.into_iter().find_map(Value::as_str) {
            choice.text.push_str(text);
        }
        for id in part["token_ids"].as_array().into_iter().flatten() {
            let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
            choice.token_ids.push(id.expect("ids are integers"));
        }
        if let Some(reason) = part["finish_reason"].as_str() {
            choice.finish_reason = reason.to_owned();
        }
    }
}
