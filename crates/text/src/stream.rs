//! The text of one choice: detokenizer and stop strings in one.

use crate::detokenizer::Decoded;
use crate::{Detokenizer, SpecialTokens, StopMatcher, TokenId, Tokenizer};

/// How the text of a choice is made; the default shows no special tokens and never stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// Leave special tokens out of the text; the mask token never shows.
    pub skip_special_tokens: bool,
    /// Stop strings.
    pub stop: Vec<String>,
    /// Keep the stop string in the text.
    pub include_stop_str_in_output: bool,
    /// No stop string ends the text before this many tokens.
    pub min_tokens: usize,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            skip_special_tokens: true,
            stop: Vec::new(),
            include_stop_str_in_output: false,
            min_tokens: 0,
        }
    }
}

/// What a push adds to the text of a choice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Text to show now, possibly none.
    pub text: String,
    /// Tokens that belong to the answer, of all pushed so far: all of them, or up to the one
    /// that completed a stop string.
    pub tokens_used: usize,
    /// A stop string has completed: nothing follows.
    pub stopped: bool,
}

/// Makes the text of one choice from its tokens as they come.
///
/// The texts of all pieces, joined, are the same however the tokens were cut; so is
/// `tokens_used` of the last one.
#[derive(Clone, Debug)]
pub struct TextStream {
    detokenizer: Detokenizer,
    matcher: StopMatcher,
    min_tokens: usize,
    /// Number of the token that completed a stop string.
    stopped_at: Option<usize>,
}

impl TextStream {
    /// An empty stream.
    pub fn new(tokenizer: &Tokenizer, options: &StreamOptions) -> Self {
        let specials = if options.skip_special_tokens {
            SpecialTokens::Skip
        } else {
            SpecialTokens::KeepButMask
        };
        Self {
            detokenizer: tokenizer.detokenizer(specials),
            matcher: StopMatcher::new(&options.stop, options.include_stop_str_in_output),
            min_tokens: options.min_tokens,
            stopped_at: None,
        }
    }

    /// Takes the next tokens of the choice; those behind a stop string are dropped.
    pub fn push(&mut self, tokens: &[TokenId]) -> Piece {
        let mut text = String::new();
        for &token in tokens {
            if self.stopped_at.is_some() {
                break;
            }
            let mut decoded = Decoded::default();
            self.detokenizer.push_token(token, &mut decoded);
            self.watch(&decoded, &mut text);
        }
        self.piece(text)
    }

    /// The choice has ended: what was held back. It may still complete a stop string.
    pub fn finish(&mut self) -> Piece {
        let mut text = String::new();
        if self.stopped_at.is_none() {
            let mut decoded = Decoded::default();
            self.detokenizer.flush(&mut decoded);
            self.watch(&decoded, &mut text);
        }
        text.push_str(&self.matcher.finish());
        self.piece(text)
    }

    /// Passes decoded text through the stop matcher, part by part.
    fn watch(&mut self, decoded: &Decoded, text: &mut String) {
        let mut start = 0;
        for &(end, token) in &decoded.parts {
            self.matcher.arm(token >= self.min_tokens);
            let released = self.matcher.push(&decoded.text[start..end]);
            text.push_str(&released.text);
            if released.matched.is_some() {
                self.stopped_at = Some(token);
                return;
            }
            start = end;
        }
    }

    fn piece(&self, text: String) -> Piece {
        Piece {
            text,
            tokens_used: self.stopped_at.unwrap_or(self.detokenizer.pushed()),
            stopped: self.stopped_at.is_some(),
        }
    }
}
