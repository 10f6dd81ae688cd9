//! Incremental conversion of tokens to text that never splits a character.

use std::sync::Arc;

use crate::TokenId;
use crate::token_decoder::{Assembly, fallback_byte};
use crate::utf8::Utf8Tail;
use crate::vocabulary::{Vocabulary, apply};

/// The special tokens that are included in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialTokens {
    /// All of them.
    Keep,
    /// All except the mask token.
    KeepButMask,
    /// None.
    Skip,
}

/// Converts one sequence of tokens to text, in amortised constant time per token.
///
/// The concatenated results of all `push` calls and of `finish` equal the text of the complete
/// sequence ([`Tokenizer::decode`](crate::Tokenizer::decode)), independent of how it was split.
/// The detokenizer holds back only: an incomplete UTF-8 character; the current run of
/// byte-fallback tokens, because a later ill-formed byte changes the text of the whole run; and
/// blanks that the format strips from the end of a text.
#[derive(Clone, Debug)]
pub struct Detokenizer {
    vocabulary: Arc<Vocabulary>,
    specials: SpecialTokens,
    mask: Option<TokenId>,
    /// Special tokens that are included in any case.
    shown: Arc<[TokenId]>,
    /// Tokens pushed, including skipped ones.
    pushed: usize,
    /// True if a token (before assembly) and an item (after assembly) have been seen.
    token_seen: bool,
    item_seen: bool,
    tail: Utf8Tail,
    /// The current run of byte-fallback tokens: byte, and index of the token (from 1).
    run: Vec<(u8, usize)>,
    strips: Vec<EdgeStrip>,
}

/// Decoded text, and the token that completed each segment of it.
#[derive(Debug, Default)]
pub(crate) struct Decoded {
    pub(crate) text: String,
    /// Per segment: its end in `text` (bytes), and the index (from 1) of its last token.
    pub(crate) segments: Vec<(usize, usize)>,
}

impl Detokenizer {
    pub(crate) fn new(
        vocabulary: Arc<Vocabulary>,
        specials: SpecialTokens,
        mask: Option<TokenId>,
    ) -> Self {
        let strip = |s: &tokenizers::decoders::strip::Strip| EdgeStrip {
            content: s.content,
            start: s.start,
            stop: s.stop,
            held: 0,
        };
        Self {
            specials,
            mask,
            shown: Arc::default(),
            pushed: 0,
            token_seen: false,
            item_seen: false,
            tail: Utf8Tail::default(),
            run: Vec::new(),
            strips: vocabulary.decoder.strips.iter().map(strip).collect(),
            vocabulary,
        }
    }

    /// Includes the special tokens `shown` in any case.
    #[must_use]
    pub fn showing(self, shown: Arc<[TokenId]>) -> Self {
        Self { shown, ..self }
    }

    /// Returns the text that `tokens` complete, possibly empty.
    pub fn push(&mut self, tokens: &[TokenId]) -> String {
        let mut out = Decoded::default();
        for &token in tokens {
            self.push_token(token, &mut out);
        }
        out.text
    }

    /// Returns the text still held back; an incomplete character becomes U+FFFD.
    pub fn finish(&mut self) -> String {
        let mut out = Decoded::default();
        self.flush(&mut out);
        out.text
    }

    /// Number of pushed tokens, including skipped ones.
    pub fn pushed(&self) -> usize {
        self.pushed
    }

    pub(crate) fn push_token(&mut self, token: TokenId, out: &mut Decoded) {
        self.pushed += 1;
        if self.skips(token) {
            return;
        }
        let vocabulary = Arc::clone(&self.vocabulary);
        let Some(piece) = vocabulary.piece(token, !self.token_seen) else {
            return;
        };
        self.token_seen = true;
        match vocabulary.decoder.assembly {
            Assembly::Plain => self.emit(&String::from_utf8_lossy(piece), self.pushed, out),
            Assembly::ByteLevel => {
                let mut text = String::new();
                self.tail.push(piece, &mut text);
                self.emit(&text, self.pushed, out);
            }
            Assembly::ByteFallback => match fallback_byte(piece) {
                Some(byte) => self.run.push((byte, self.pushed)),
                None => {
                    self.flush_run(out);
                    self.emit_item(String::from_utf8_lossy(piece).into_owned(), self.pushed, out);
                }
            },
        }
    }

    pub(crate) fn flush(&mut self, out: &mut Decoded) {
        self.flush_run(out);
        let mut text = String::new();
        self.tail.finish(&mut text);
        self.emit(&text, self.pushed, out);
    }

    fn skips(&self, token: TokenId) -> bool {
        let mask = self.mask == Some(token);
        match self.specials {
            SpecialTokens::Keep => false,
            SpecialTokens::KeepButMask => mask,
            SpecialTokens::Skip => {
                mask || self.vocabulary.is_special(token) && !self.shown.contains(&token)
            }
        }
    }

    /// Ends the run of byte tokens: its text if it is valid UTF-8, otherwise one U+FFFD per byte.
    fn flush_run(&mut self, out: &mut Decoded) {
        let run = std::mem::take(&mut self.run);
        let Some(&(_, last)) = run.last() else { return };
        match String::from_utf8(run.iter().map(|(byte, _)| *byte).collect()) {
            Ok(text) if self.vocabulary.decoder.after.is_empty() => {
                for (start, c) in text.char_indices() {
                    let end = start + c.len_utf8();
                    self.emit(&text[start..end], run[end - 1].1, out);
                }
                self.item_seen = true;
            }
            Ok(text) => self.emit_item(text, last, out),
            Err(_) => {
                for (_, token) in run {
                    self.emit_item(char::REPLACEMENT_CHARACTER.to_string(), token, out);
                }
            }
        }
    }

    /// Maps an assembled item and emits it.
    fn emit_item(&mut self, item: String, token: usize, out: &mut Decoded) {
        let item = apply(&self.vocabulary.decoder.after, item, !self.item_seen);
        self.item_seen = true;
        self.emit(&item, token, out);
    }

    fn emit(&mut self, text: &str, token: usize, out: &mut Decoded) {
        let before = out.text.len();
        match self.strips.as_mut_slice() {
            [] => out.text.push_str(text),
            strips => {
                let strip = |text: String, strip: &mut EdgeStrip| strip.push(&text);
                out.text.push_str(&strips.iter_mut().fold(text.to_owned(), strip));
            }
        }
        if out.text.len() > before {
            out.segments.push((out.text.len(), token));
        }
    }
}

/// Strips a character from both ends of a text that arrives in pieces.
#[derive(Clone, Debug)]
struct EdgeStrip {
    content: char,
    /// Number of characters that may still be cut at the start; 0 after another character.
    start: usize,
    /// Number of characters to cut at the end.
    stop: usize,
    /// Characters held back because they may have to be cut: at most `stop`.
    held: usize,
}

impl EdgeStrip {
    /// Returns the text that is certain to stay. Characters held back when the text ends are
    /// never released.
    fn push(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len() + self.held);
        for c in text.chars() {
            if c != self.content {
                self.start = 0;
                out.extend(std::iter::repeat_n(self.content, self.held));
                self.held = 0;
                out.push(c);
            } else if self.start > 0 {
                self.start -= 1;
            } else if self.held < self.stop {
                self.held += 1;
            } else {
                out.push(c);
            }
        }
        out
    }
}
