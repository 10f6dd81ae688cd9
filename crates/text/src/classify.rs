//! Classifies the text of a token for the boundary rules.

use decode::TokenClass;

/// Characters at the end of a line after which the statement continues on the next line.
const CONTINUATIONS: [char; 9] = [':', ',', '\\', '=', '+', '-', '*', '/', '('];

/// The class of a token whose decoded text is `text`. Only ASCII digits count as digits. An
/// empty text has no class.
pub fn classify(text: &str) -> TokenClass {
    let trimmed = text.trim();
    let before_period = trimmed.strip_suffix(['.', '。']);
    let line = text.split('\n').next().unwrap_or_default().trim_end();
    TokenClass {
        period: before_period.is_some(),
        starts_with_digit: text.starts_with(is_digit),
        ends_with_digit: text.ends_with(is_digit),
        digit_before_period: before_period.is_some_and(|before| before.ends_with(is_digit)),
        newline: text.contains('\n'),
        line_feed: text == "\n",
        blank: !text.is_empty() && trimmed.is_empty(),
        brackets: brackets(text),
        continues_line: line.ends_with(CONTINUATIONS),
        fence: text.contains("```"),
    }
}

fn is_digit(c: char) -> bool {
    c.is_ascii_digit()
}

/// Opening minus closing brackets.
fn brackets(text: &str) -> i8 {
    text.chars().fold(0, |balance: i8, c| match c {
        '(' | '[' | '{' => balance.saturating_add(1),
        ')' | ']' | '}' => balance.saturating_sub(1),
        _ => balance,
    })
}
