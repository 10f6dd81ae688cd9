//! Names of control tokens in the texts of a chat, encoded as plain text.
//!
//! The texts of a chat are marked inside such names before its template puts them together, so that
//! the names that the template itself writes stay tokens. The mark is a token of a copy of the
//! tokenizer, which finds no name around it; its id is dropped.

use std::borrow::Cow;

use aho_corasick::{AhoCorasick, Input, MatchKind};
use serde_json::{Map, Value};
use tokenizers::{AddedToken, Tokenizer as HfTokenizer};

use crate::{Conversation, Message, PastCall, TextError, TokenId};

/// The mark: of ASCII, so that templates leave it as it is; its first character occurs once.
const MARK: &str = "~^`^`^`^`";

/// The searchers of names and marks.
#[derive(Debug)]
pub(crate) struct Cuts {
    names: AhoCorasick,
    /// The tokenizer with the mark as a token.
    pub(crate) tokenizer: HfTokenizer,
    /// The mark's id.
    pub(crate) mark: TokenId,
}

impl Cuts {
    /// Cuts the `names` of control tokens for `tokenizer`.
    ///
    /// # Errors
    /// If the tokenizer cannot hold the mark.
    pub(crate) fn new(
        tokenizer: &HfTokenizer,
        names: impl Iterator<Item = String>,
    ) -> Result<Self, TextError> {
        let failed = |reason: String| TextError::malformed("tokenizer.json", reason);
        let names = names.filter(|name| name.chars().nth(1).is_some());
        let names = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(names.chain([MARK.to_owned()]))
            .map_err(|error| failed(error.to_string()))?;
        let mut tokenizer = tokenizer.clone();
        tokenizer
            .add_special_tokens([AddedToken::from(MARK, true)])
            .map_err(|error| failed(error.to_string()))?;
        let mark = tokenizer.token_to_id(MARK);
        let mark = mark.ok_or_else(|| failed("no room for another token".to_owned()))?;
        Ok(Self { names, tokenizer, mark })
    }

    /// `text` with marks inside of names.
    fn text(&self, text: &str) -> String {
        let (mut made, mut start) = (String::with_capacity(text.len()), 0);
        // A name may begin inside of another one.
        while let Some(found) = self.names.find(Input::new(text).range(start..)) {
            let first = text[found.start()..].chars().next().map_or(1, char::len_utf8);
            let cut = found.start() + first;
            made.push_str(&text[start..cut]);
            made.push_str(MARK);
            start = cut;
        }
        made.push_str(&text[start..]);
        made
    }

    /// The texts of `value`, names of members included. Recurses as deeply as the value.
    fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::Object(members) => Value::Object(self.members(members)),
            other => other.clone(),
        }
    }

    fn members(&self, members: &Map<String, Value>) -> Map<String, Value> {
        let members = members.iter();
        let cut = |(name, value): (&String, &Value)| (self.text(name), self.value(value));
        members.map(cut).collect()
    }

    fn message(&self, message: &Message) -> Message {
        let text = |text: &Option<String>| text.as_deref().map(|text| self.text(text));
        let call = |call: &PastCall| PastCall {
            id: self.text(&call.id),
            name: self.text(&call.name),
            arguments: self.value(&call.arguments),
        };
        Message {
            role: self.text(&message.role),
            content: self.text(&message.content),
            reasoning: text(&message.reasoning),
            calls: message.calls.iter().map(call).collect(),
            call_id: text(&message.call_id),
            name: text(&message.name),
        }
    }

    /// `chat` with marks in all of its texts.
    pub(crate) fn chat(&self, chat: &Conversation) -> Conversation {
        Conversation {
            messages: chat.messages.iter().map(|one| self.message(one)).collect(),
            tools: chat.tools.iter().map(|tool| self.value(tool)).collect(),
            variables: self.members(&chat.variables),
        }
    }
}

/// `text` without marks.
pub(crate) fn unmarked(text: &str) -> Cow<'_, str> {
    match text.contains(MARK) {
        true => Cow::Owned(text.replace(MARK, "")),
        false => Cow::Borrowed(text),
    }
}
