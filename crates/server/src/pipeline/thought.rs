//! The number of tokens of an answer's reasoning.

use step::TokenId;
use text::{Detokenizer, ReasoningStream};

/// Counts the tokens up to the closing mark of the reasoning, the marks included. It reads tokens one by
/// one, where the text of an answer may wait for a stop string.
#[derive(Clone, Debug)]
pub struct ThoughtCount {
    detokenizer: Detokenizer,
    stream: ReasoningStream,
    seen: usize,
    count: usize,
}

impl ThoughtCount {
    /// The count of an answer whose reasoning `stream` finds in the text of `detokenizer`.
    pub fn new(detokenizer: Detokenizer, stream: ReasoningStream) -> Self {
        Self { detokenizer, stream, seen: 0, count: 0 }
    }

    /// Takes more tokens of the answer.
    pub fn push(&mut self, tokens: &[TokenId]) {
        for token in tokens {
            let was_inside = self.stream.is_inside();
            if self.count > 0 && !was_inside {
                return;
            }
            self.seen += 1;
            self.stream.push(&self.detokenizer.push(&[*token]));
            if was_inside || self.stream.is_inside() {
                self.count = self.seen;
            }
        }
    }

    /// Tokens of the reasoning up to now.
    pub fn count(&self) -> usize {
        self.count
    }
}
