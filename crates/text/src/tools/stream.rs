//! Reads calls from the text of an answer as it arrives.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use super::gemma::ToJson;
use super::head::{self, Head};
use super::tags::{self, Signatures};
use super::{Marks, ToolFormat};
use crate::Part;

/// The calls and the text of one answer. The joined parts do not depend on how the text was split.
/// White space before a call is left out.
#[derive(Clone, Debug)]
pub struct CallStream {
    format: ToolFormat,
    signatures: Signatures,
    /// The ids of the calls are hashes of this number and their index.
    seed: u64,
    /// Number of calls that began.
    count: usize,
    state: State,
    /// Text that is not decided yet.
    held: String,
}

#[derive(Clone, Debug)]
enum State {
    /// Outside calls.
    Text,
    /// After the mark of a call, or where a call without a mark may begin.
    Head,
    /// In the arguments of a call.
    Arguments(Arguments),
    /// After the arguments.
    Tail,
    /// After a call without a mark: another one, or text.
    Between,
    /// Text to the end.
    Rest,
}

/// The place in the arguments of a call.
#[derive(Clone, Debug)]
enum Arguments {
    Json(Nesting),
    Gemma(ToJson),
    Tags(tags::ToJson),
}

/// Open brackets of JSON.
#[derive(Clone, Debug, Default)]
struct Nesting {
    depth: usize,
    in_text: bool,
    escaped: bool,
}

impl Nesting {
    /// Takes one byte; whether the outermost object ends with it.
    fn ends(&mut self, byte: u8) -> bool {
        if self.in_text {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_text = false,
                _ => {}
            }
            return false;
        }
        match byte {
            b'"' => self.in_text = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                return self.depth == 0;
            }
            _ => {}
        }
        false
    }
}

impl CallStream {
    /// The stream of an answer whose calls have `format`.
    pub fn new(format: ToolFormat) -> Self {
        let state = match format.marks().open {
            Some(_) => State::Text,
            None => State::Head,
        };
        Self {
            format,
            signatures: Signatures::default(),
            seed: 0,
            count: 0,
            state,
            held: String::new(),
        }
    }

    /// The stream of calls of these functions with their schemas, which say of a value in tags
    /// whether it is a text.
    #[must_use]
    pub fn with_schemas<'a>(self, functions: impl Iterator<Item = (&'a str, &'a Value)>) -> Self {
        Self { signatures: Signatures::new(functions), ..self }
    }

    /// The stream whose calls have ids made from `seed`.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Takes more text.
    pub fn push(&mut self, text: &str) -> Vec<Part> {
        let mut parts = Vec::new();
        self.held.push_str(text);
        while self.step(&mut parts) {}
        parts
    }

    /// Ends the answer: what was held back. A call whose name is not complete is left out.
    pub fn finish(&mut self) -> Vec<Part> {
        let mut parts = Vec::new();
        let is_inside = self.is_inside();
        let held = std::mem::take(&mut self.held);
        match self.state {
            // A head without a call is a text that only began like one without a mark.
            State::Text | State::Rest | State::Head if !is_inside => deliver(held, &mut parts),
            _ => {}
        }
        parts
    }

    /// True if a call has begun whose arguments are not complete. Call it before [`Self::finish`].
    pub fn is_inside(&self) -> bool {
        let has_mark = self.format.marks().open.is_some();
        match self.state {
            State::Arguments(_) => true,
            State::Head => has_mark || self.held.trim_start().starts_with("{\"name\""),
            State::Text | State::Tail | State::Between | State::Rest => false,
        }
    }

    /// Decides about some of the held text; false if that needs more of it.
    fn step(&mut self, parts: &mut Vec<Part>) -> bool {
        if self.held.is_empty() {
            return false;
        }
        let marks = self.format.marks();
        match &mut self.state {
            State::Text => self.find_mark(marks, parts),
            State::Head => self.read_head(marks, parts),
            State::Arguments(arguments) => {
                let (taken, made, ended) = arguments.read(&self.held);
                self.held.drain(..taken);
                if !made.is_empty() {
                    parts.push(Part::Arguments { index: self.count.saturating_sub(1), text: made });
                }
                if ended {
                    self.state = State::Tail;
                }
                ended
            }
            State::Tail => self.read_tail(marks),
            State::Between => {
                if marks.between.starts_with(&self.held) {
                    return self.held == marks.between && self.turn(State::Head, self.held.len());
                }
                match self.held.starts_with(marks.between) {
                    true => self.turn(State::Head, marks.between.len()),
                    false => self.turn(State::Rest, 0),
                }
            }
            State::Rest => {
                let held = std::mem::take(&mut self.held);
                deliver(held, parts);
                false
            }
        }
    }

    /// Drops `taken` bytes and goes on in `state`.
    fn turn(&mut self, state: State, taken: usize) -> bool {
        self.held.drain(..taken);
        self.state = state;
        true
    }

    /// Delivers the text before the next mark.
    fn find_mark(&mut self, marks: Marks, parts: &mut Vec<Part>) -> bool {
        let open = marks.open.unwrap_or_default();
        if let Some(start) = self.held.find(open) {
            let before = self.held[..start].trim_end().to_owned();
            deliver(before, parts);
            return self.turn(State::Head, start + open.len());
        }
        // White space before a mark, and the beginning of one, wait for what follows.
        let partial =
            (1..open.len()).rev().find(|length| self.held.ends_with(&open[..*length])).unwrap_or(0);
        let kept = self.held[..self.held.len() - partial].trim_end().len();
        let rest = self.held.split_off(kept);
        let before = std::mem::replace(&mut self.held, rest);
        deliver(before, parts);
        false
    }

    fn read_head(&mut self, marks: Marks, parts: &mut Vec<Part>) -> bool {
        let head = match self.format {
            ToolFormat::Gemma => head::gemma(&self.held),
            ToolFormat::Qwen3Coder => head::function(&self.held),
            _ => head::json(&self.held, marks.arguments),
        };
        match head {
            Head::Open => false,
            Head::Call(name, taken) => {
                let arguments = match self.format {
                    ToolFormat::Gemma => Arguments::Gemma(ToJson::default()),
                    ToolFormat::Qwen3Coder => {
                        Arguments::Tags(tags::ToJson::new(&name, &self.signatures))
                    }
                    _ => Arguments::Json(Nesting::default()),
                };
                let mut hasher = DefaultHasher::new();
                (self.seed, self.count).hash(&mut hasher);
                parts.push(Part::Call {
                    index: self.count,
                    id: format!("call_{:016x}", hasher.finish()),
                    name,
                });
                self.count += 1;
                self.turn(State::Arguments(arguments), taken)
            }
            // No grammar enforced this text: it is delivered as it is.
            Head::Other => {
                let text = format!("{}{}", marks.open.unwrap_or_default(), self.held);
                self.held.clear();
                self.state = match marks.open {
                    Some(_) => State::Text,
                    None => State::Rest,
                };
                deliver(text, parts);
                false
            }
        }
    }

    /// Skips the end of a call.
    fn read_tail(&mut self, marks: Marks) -> bool {
        let end = match self.format {
            ToolFormat::Gemma | ToolFormat::Qwen3Coder => marks.close.trim_start().to_owned(),
            _ => format!("}}{}", marks.close),
        };
        let held = self.held.trim_start();
        let skipped = self.held.len() - held.len();
        let next = match marks.open {
            Some(_) => State::Text,
            None => State::Between,
        };
        if held.starts_with(&end) {
            self.turn(next, skipped + end.len())
        } else if end.starts_with(held) {
            false
        } else {
            self.turn(State::Rest, 0)
        }
    }
}

impl Arguments {
    /// Reads from `text`: the bytes taken, the JSON made, whether the arguments end.
    fn read(&mut self, text: &str) -> (usize, String, bool) {
        match self {
            Self::Json(nesting) => {
                let end = text.bytes().position(|byte| nesting.ends(byte));
                let taken = end.map_or(text.len(), |index| index + 1);
                (taken, text[..taken].to_owned(), end.is_some())
            }
            Self::Gemma(reader) => reader.read(text),
            Self::Tags(reader) => reader.read(text),
        }
    }
}

/// Adds `text`, if there is any.
fn deliver(text: String, parts: &mut Vec<Part>) {
    if !text.is_empty() {
        parts.push(Part::Text(text));
    }
}
