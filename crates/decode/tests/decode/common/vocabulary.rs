//! A small vocabulary and its token classes.

use std::sync::Arc;

use asynclane_decode::{TokenClass, TokenClasses, TokenId};

pub const EOS: TokenId = 1;
pub const EOT: TokenId = 2;
/// The stop set E of every test.
pub const STOPS: &[TokenId] = &[EOS, EOT];

/// The text of every token; its id is its index. Id 0 is the mask, never proposed.
pub const TEXTS: &[&str] = &[
    "<mask>", "<eos>", "<eot>", "a", " b", "7", " 42", ".", " .", ").", "5.", ".\n", "\n", "\n\n",
    "(", ")", ":", " ", "```", " =", "。", ":\n", ")\n", "c",
];

/// The id of a text.
pub fn id(text: &str) -> TokenId {
    let found = TEXTS.iter().position(|known| *known == text);
    found.unwrap_or_else(|| panic!("{text:?} is not in the vocabulary")) as TokenId
}

/// The text of an id.
pub fn text(token: TokenId) -> &'static str {
    TEXTS[token as usize]
}

/// The classes of all tokens.
pub fn classes() -> Arc<TokenClasses> {
    Arc::new(TokenClasses::new(TEXTS.iter().map(|text| class(text)).collect()))
}

/// The class of a token with this text, as the documentation of [`TokenClass`] defines it.
pub fn class(text: &str) -> TokenClass {
    if text.starts_with('<') {
        return TokenClass::default();
    }
    let trimmed = text.trim();
    let body = trimmed.strip_suffix(['.', '。']);
    let line = text.split('\n').next().unwrap_or("").trim_end();
    let count = |brackets: &str| text.chars().filter(|c| brackets.contains(*c)).count() as i8;
    TokenClass {
        period: body.is_some(),
        starts_with_digit: text.starts_with(|c: char| c.is_ascii_digit()),
        ends_with_digit: text.ends_with(|c: char| c.is_ascii_digit()),
        digit_before_period: body.is_some_and(|b| b.ends_with(|c: char| c.is_ascii_digit())),
        newline: text.contains('\n'),
        line_feed: text == "\n",
        blank: trimmed.is_empty(),
        brackets: count("([{") - count(")]}"),
        continues_line: line.ends_with([':', ',', '\\', '=', '+', '-', '*', '/', '(']),
        fence: text.contains("```"),
    }
}
