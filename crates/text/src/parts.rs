//! The parts of an answer: reasoning, text and calls of functions.

use crate::{CallStream, ReasoningStream};

/// A part of an answer. The joined parts are the whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// More text.
    Text(String),
    /// More reasoning.
    Reasoning(String),
    /// The beginning of a call.
    Call {
        /// Index among the calls of the answer.
        index: usize,
        /// The id, unique.
        id: String,
        /// The function.
        name: String,
    },
    /// More arguments of the last call, a piece of a JSON object.
    Arguments {
        /// Index of the call.
        index: usize,
        /// The piece.
        text: String,
    },
}

/// Splits the text of one answer into its parts.
#[derive(Clone, Debug)]
pub struct PartStream {
    /// Present where answers have reasoning.
    pub reasoning: Option<ReasoningStream>,
    /// Present where answers have calls.
    pub calls: Option<CallStream>,
}

impl PartStream {
    /// The parts that `text` completes; all that were held back if it `is_last`.
    pub fn push(&mut self, text: &str, is_last: bool) -> Vec<Part> {
        let mut read = match &mut self.reasoning {
            Some(reasoning) => reasoning.push(text),
            None if text.is_empty() => Vec::new(),
            None => vec![Part::Text(text.to_owned())],
        };
        if let Some(reasoning) = self.reasoning.as_mut().filter(|_| is_last) {
            read.extend(reasoning.finish());
        }
        let Some(calls) = &mut self.calls else {
            return read;
        };
        let mut parts = Vec::new();
        for part in read {
            match part {
                Part::Text(text) => parts.extend(calls.push(&text)),
                other => parts.push(other),
            }
        }
        if is_last {
            parts.extend(calls.finish());
        }
        parts
    }
}
