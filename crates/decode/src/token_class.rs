//! Facts about token texts that boundary rules read, computed once per tokenizer.

use alloc::vec::Vec;

use crate::TokenId;
use crate::coordinates::as_index;

/// Facts about the decoded text of one token, as boundary rules use them
/// (AsyncLane §3.2, eq. 4). Built once per tokenizer by the crate `text`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenClass {
    /// The text, trimmed, ends in a full stop (`.` or `。`), as in `.`, ` .` or `).`.
    pub period: bool,
    /// The text begins with a digit, without a blank before it.
    pub starts_with_digit: bool,
    /// The last character is a digit.
    pub ends_with_digit: bool,
    /// The text ends in a full stop after a digit, as in `5.`.
    pub digit_before_period: bool,
    /// The text holds a line feed.
    pub newline: bool,
    /// The text is one line feed and nothing else.
    pub line_feed: bool,
    /// The text is white space only, line feeds included.
    pub blank: bool,
    /// Number of opening minus number of closing brackets, of `()[]{}`.
    pub brackets: i8,
    /// The text before its first line feed, right-trimmed, ends in one of
    /// `: , \ = + - * / (`: the statement continues on the next line.
    pub continues_line: bool,
    /// The text holds three backticks: it opens or closes a fenced code region.
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

    /// The class of `token`; the default class for an id outside the table.
    pub fn get(&self, token: TokenId) -> TokenClass {
        self.0.get(as_index(token)).copied().unwrap_or_default()
    }
}
