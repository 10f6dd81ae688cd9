//! Splits an answer into its parts.

use crate::{CallStream, Part, ReasoningStream};

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

    /// True if an answer that ends here ends inside a call. Call it before the last push.
    pub fn is_inside_call(&self) -> bool {
        self.calls.as_ref().is_some_and(CallStream::is_inside)
    }
}
