//! What boundary rules need to know of a token's text, decided once at load.

use alloc::vec::Vec;

use crate::TokenId;
use crate::coordinates::as_index;

/// Facts about the decoded text of one token, as boundary rules use them
/// (AsyncLane §3.2, eq. 4). Built once per tokenizer by the crate `text`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenClass {
    /// The text, trimmed, ends in a full stop (`.` or `。`), as in `.`, ` .` or `).`.
    pub period: bool,
    /// The first character that is not blank is a digit *and* no blank precedes it.
    pub starts_with_digit: bool,
    /// The last character is a digit.
    pub ends_with_digit: bool,
    /// For a token whose text ends in a full stop: the character before it is a digit (`5.`).
    pub digit_before_period: bool,
    /// The text holds a line feed.
    pub newline: bool,
    /// Only white space (line feeds included).
    pub blank: bool,
    /// Opening minus closing brackets, of `()[]{}`.
    pub brackets: i8,
    /// The text before its first line feed, right-trimmed, is not empty and ends in one of
    /// `: , \ = + - * / (`: the line goes on.
    pub continues_line: bool,
    /// The text opens or closes a fenced code region (holds three backticks).
    pub fence: bool,
}

/// The class of every token of a vocabulary.
#[derive(Clone, Debug, Default)]
pub struct TokenClasses(Vec<TokenClass>);

impl TokenClasses {
    /// One entry per token id, in order.
    pub fn new(classes: Vec<TokenClass>) -> Self {
        Self(classes)
    }

    /// The class of `token`; an id outside the table has no class at all.
    pub fn get(&self, token: TokenId) -> TokenClass {
        self.0.get(as_index(token)).copied().unwrap_or_default()
    }
}
