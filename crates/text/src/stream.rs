//! The text of one answer: detokenizer and stop strings combined.

use std::sync::Arc;

use crate::detokenizer::Decoded;
use crate::{Detokenizer, SpecialTokens, StopMatcher, TokenId, Tokenizer};

/// Options for the text of an answer. The default omits special tokens and has no stop strings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// Omit special tokens from the text; the mask token is always omitted.
    pub skip_special_tokens: bool,
    /// Special tokens that are kept in any case.
    pub shown: Arc<[TokenId]>,
    /// Stop strings.
    pub stop: Vec<String>,
    /// Keep the stop string in the text.
    pub include_stop_str_in_output: bool,
    /// A stop string that a token below this count completes does not end the text.
    pub min_tokens: usize,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            skip_special_tokens: true,
            shown: Arc::default(),
            stop: Vec::new(),
            include_stop_str_in_output: false,
            min_tokens: 0,
        }
    }
}

/// The text that a push adds to an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Text to send now, possibly empty.
    pub text: String,
    /// Number of tokens of the answer: all pushed tokens, or the tokens up to and including the
    /// one that completed a stop string.
    pub tokens_used: usize,
    /// The stop string that was completed, by its place in the options; no text follows.
    pub stop: Option<usize>,
}

impl Piece {
    /// True if a stop string was completed.
    pub fn stopped(&self) -> bool {
        self.stop.is_some()
    }
}

/// Converts the tokens of one answer to text incrementally.
///
/// The concatenated text of all pieces does not depend on how the tokens were split, nor does
/// `tokens_used` of the last piece.
#[derive(Clone, Debug)]
pub struct TextStream {
    detokenizer: Detokenizer,
    matcher: StopMatcher,
    min_tokens: usize,
    /// Index (from 1) of the token that completed a stop string, and the string's place.
    stopped_at: Option<(usize, usize)>,
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
            detokenizer: tokenizer.detokenizer(specials).showing(Arc::clone(&options.shown)),
            matcher: StopMatcher::new(&options.stop, options.include_stop_str_in_output),
            min_tokens: options.min_tokens,
            stopped_at: None,
        }
    }

    /// Takes the next tokens of the answer; tokens after a stop string are dropped.
    pub fn push(&mut self, tokens: &[TokenId]) -> Piece {
        let mut text = String::new();
        for &token in tokens {
            if self.stopped_at.is_some() {
                break;
            }
            let mut decoded = Decoded::default();
            self.detokenizer.push_token(token, &mut decoded);
            self.match_stops(&decoded, &mut text);
        }
        self.piece(text)
    }

    /// Ends the answer and returns what was held back, which may still complete a stop string.
    pub fn finish(&mut self) -> Piece {
        let mut text = String::new();
        if self.stopped_at.is_none() {
            let mut decoded = Decoded::default();
            self.detokenizer.flush(&mut decoded);
            self.match_stops(&decoded, &mut text);
        }
        text.push_str(&self.matcher.finish());
        self.piece(text)
    }

    /// Passes decoded text through the stop matcher, segment by segment.
    fn match_stops(&mut self, decoded: &Decoded, text: &mut String) {
        let mut start = 0;
        for &(end, token) in &decoded.segments {
            self.matcher.arm(token >= self.min_tokens);
            let released = self.matcher.push(&decoded.text[start..end]);
            text.push_str(&released.text);
            if let Some(matched) = released.matched {
                self.stopped_at = Some((token, matched.stop));
                return;
            }
            start = end;
        }
    }

    fn piece(&self, text: String) -> Piece {
        Piece {
            text,
            tokens_used: self.stopped_at.map_or(self.detokenizer.pushed(), |(token, _)| token),
            stop: self.stopped_at.map(|(_, stop)| stop),
        }
    }
}
