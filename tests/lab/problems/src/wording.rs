//! The wordings of an answer: a sequence of segments, each with its allowed alternatives.

use crate::rng::Rng;

/// The allowed alternatives of each part of an answer, in order. A text is a valid answer exactly
/// when it is one alternative of every part, joined without anything between them.
pub(crate) type Wording = Vec<Vec<String>>;

/// One valid answer; the alternatives of a part are equally likely.
pub(crate) fn write(wording: &Wording, rng: &mut Rng) -> String {
    wording
        .iter()
        .map(|alternatives| alternatives[rng.below(alternatives.len() as u32) as usize].as_str())
        .collect()
}

/// True if the whole text is one of the valid answers.
pub(crate) fn accepts(wording: &[Vec<String>], text: &str) -> bool {
    match wording.split_first() {
        None => text.is_empty(),
        Some((alternatives, rest)) => alternatives.iter().any(|alternative| {
            text.strip_prefix(alternative.as_str()).is_some_and(|tail| accepts(rest, tail))
        }),
    }
}
