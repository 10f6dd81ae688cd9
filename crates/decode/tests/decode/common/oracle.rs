//! A second implementation of the delimiter rules, on plain text instead of token classes.

use asynclane_decode::{Boundary, Canvas, NumericPeriod, Offset};

use super::text;

/// Stands for a mask in a canvas rendered as text.
const MASK: char = '\u{1}';

/// True if the token at `offset` is a valid delimiter by the text of AsyncLane §3.
pub fn is_valid_delimiter(canvas: &Canvas, offset: Offset, boundary: Boundary, code: bool) -> bool {
    if canvas.is_mask(offset) {
        return false;
    }
    match boundary {
        Boundary::Sentence(numeric) => sentence(canvas, offset, numeric),
        Boundary::Newline => newline(canvas, offset),
        Boundary::Prose(numeric) => {
            !in_code(canvas, offset, code) && sentence(canvas, offset, numeric)
        }
        Boundary::Auto(numeric) => match in_code(canvas, offset, code) {
            true => newline(canvas, offset),
            false => sentence(canvas, offset, numeric),
        },
    }
}

/// Inside a fence, or without one after a prompt of code.
fn in_code(canvas: &Canvas, offset: Offset, code: bool) -> bool {
    let fences = known(canvas, Offset::ZERO, offset).matches("```").count();
    fences % 2 == 1 || (fences == 0 && code)
}

/// A full stop; after a digit only if what follows is known and no digit.
fn sentence(canvas: &Canvas, offset: Offset, numeric: NumericPeriod) -> bool {
    let all = known(canvas, Offset::ZERO, offset.next());
    let Some(before) = all.trim_end().strip_suffix(['.', '。']) else {
        return false;
    };
    let own = text(canvas.get(offset).expect("not a mask"));
    if own.trim().is_empty() {
        return false;
    }
    let numeric_period = before.ends_with(|c: char| c.is_ascii_digit());
    let right = offset.next();
    let ended = right >= canvas.end() || canvas.is_stop_at(right);
    let next = known(canvas, right, right.next());
    let goes_on = next.starts_with(|c: char| c == MASK || c.is_ascii_digit());
    !numeric_period || (numeric == NumericPeriod::Next && (ended || !goes_on))
}

/// The end of a settled, balanced, finished line of code.
fn newline(canvas: &Canvas, offset: Offset) -> bool {
    let own = text(canvas.get(offset).expect("not a mask"));
    let Some(head) = own.find('\n').map(|end| &own[..end]) else {
        return false;
    };
    let before = known(canvas, Offset::ZERO, offset);
    let line = format!("{}{head}", before.rsplit('\n').next().unwrap_or_default());
    let end = line.trim_end().chars().last();
    !line.contains(MASK)
        && end.is_some_and(|c| !":,\\=+-*/(".contains(c))
        && open_brackets(&format!("{before}{own}")) == 0
}

/// Number of open brackets at the end; a closing bracket without a known opening one is ignored.
fn open_brackets(text: &str) -> u32 {
    text.chars().fold(0, |open: u32, c| match c {
        '(' | '[' | '{' => open + 1,
        ')' | ']' | '}' => open.saturating_sub(1),
        _ => open,
    })
}

/// The tokens and masks of `start..end` as text.
fn known(canvas: &Canvas, start: Offset, end: Offset) -> String {
    let offsets = start.to(end).clip(canvas.end());
    offsets
        .iter()
        .map(|offset| canvas.get(offset).map_or(MASK.to_string(), |token| text(token).to_owned()))
        .collect()
}
