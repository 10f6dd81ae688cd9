//! Reads the reasoning of an answer, which comes before its text.

use crate::{Part, TokenId, Tokenizer};

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// The marks of reasoning of a family of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasoningFormat {
    /// `<think>` and `</think>` before the text.
    Think,
}

impl ReasoningFormat {
    /// The formats by their names.
    pub const NAMES: [(&'static str, Self); 1] = [("think", Self::Think)];

    /// The format called `name`.
    pub fn named(name: &str) -> Option<Self> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, format)| *format)
    }

    /// The special tokens of `tokenizer` that mark reasoning: an answer with reasoning shows them.
    pub fn special_tokens(self, tokenizer: &Tokenizer) -> Vec<TokenId> {
        let ids = [OPEN, CLOSE].into_iter();
        let ids = ids.filter_map(|text| tokenizer.token_to_id(text));
        ids.filter(|id| tokenizer.is_special(*id)).collect()
    }

    /// True if a prompt ends inside of reasoning, because its template opened it.
    pub fn is_open(self, prompt: &str) -> bool {
        prompt.trim_end().ends_with(OPEN)
    }
}

/// The reasoning, without its marks and the white space around it, and the text of one answer. The
/// joined parts do not depend on how the text was split.
#[derive(Clone, Debug)]
pub struct ReasoningStream {
    state: State,
    held: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Only white space and the beginning of the mark have arrived.
    Start,
    /// In the reasoning; nothing of it was delivered.
    Opened,
    /// In the reasoning.
    Inside,
    /// After the reasoning, before the first character of the text.
    Closed,
    Text,
}

impl ReasoningStream {
    /// The stream of an answer; `is_open` if its prompt ends inside of reasoning.
    pub fn new(is_open: bool) -> Self {
        Self {
            state: match is_open {
                true => State::Opened,
                false => State::Start,
            },
            held: String::new(),
        }
    }

    /// True after the opening mark and before the closing one.
    pub fn is_inside(&self) -> bool {
        matches!(self.state, State::Opened | State::Inside)
    }

    /// Takes more text.
    pub fn push(&mut self, text: &str) -> Vec<Part> {
        let mut parts = Vec::new();
        self.held.push_str(text);
        while self.step(&mut parts) {}
        parts
    }

    /// Ends the answer: what was held back.
    pub fn finish(&mut self) -> Vec<Part> {
        let held = std::mem::take(&mut self.held);
        let part = match self.state {
            State::Inside => Part::Reasoning(held.trim_end().to_owned()),
            State::Opened => Part::Reasoning(held.trim().to_owned()),
            State::Closed => return Vec::new(),
            State::Start | State::Text => Part::Text(held),
        };
        match &part {
            Part::Reasoning(text) | Part::Text(text) if text.is_empty() => Vec::new(),
            _ => vec![part],
        }
    }

    /// Decides about some of the held text; false if that needs more of it.
    fn step(&mut self, parts: &mut Vec<Part>) -> bool {
        if self.held.is_empty() {
            return false;
        }
        match self.state {
            State::Start => {
                let text = self.held.trim_start();
                if let Some(rest) = text.strip_prefix(OPEN) {
                    return self.turn(State::Opened, rest.len());
                }
                !OPEN.starts_with(text) && self.turn(State::Text, self.held.len())
            }
            State::Opened => {
                let rest = self.held.trim_start().len();
                rest > 0 && self.turn(State::Inside, rest)
            }
            State::Inside => self.reason(parts),
            State::Closed => {
                let rest = self.held.trim_start().len();
                rest > 0 && self.turn(State::Text, rest)
            }
            State::Text => {
                parts.push(Part::Text(std::mem::take(&mut self.held)));
                false
            }
        }
    }

    /// Keeps the last `rest` bytes and goes on in `state`.
    fn turn(&mut self, state: State, rest: usize) -> bool {
        self.held.drain(..self.held.len() - rest);
        self.state = state;
        true
    }

    fn reason(&mut self, parts: &mut Vec<Part>) -> bool {
        let end = self.held.find(CLOSE);
        let partial = (1..CLOSE.len())
            .rev()
            .find(|length| self.held.ends_with(&CLOSE[..*length]))
            .unwrap_or(0);
        let before = &self.held[..end.unwrap_or(self.held.len() - partial)];
        // White space before the closing mark is no reasoning.
        let before = before.trim_end();
        let length = before.len();
        if length > 0 {
            parts.push(Part::Reasoning(before.to_owned()));
        }
        match end {
            Some(end) => self.turn(State::Closed, self.held.len() - end - CLOSE.len()),
            None => {
                self.held.drain(..length);
                false
            }
        }
    }
}
