//! The reader of server-sent events of the benchmark: a stream has the same events in whatever
//! portions it comes.

use lab::bench::Lines;

use super::{Outcome, Target};
use crate::random::Random;

/// The target.
pub const TARGET: Target = Target {
    name: "sse",
    run,
    words: &["data:", "data: ", "\n\n", "\r\n", ": ", "[DONE]", "\r"],
    memory: 100,
    accepted: 200,
};

/// Most portions of a stream.
const MOST_PORTIONS: usize = 2_000;

/// `data` is a stream.
pub fn run(data: &[u8]) -> Outcome {
    let mut random = Random::new(data.len() as u64);
    let expected = events(data);
    let least = 1 + data.len() / MOST_PORTIONS;
    for most in [least, 9 * least, usize::MAX] {
        let (mut lines, mut found, mut rest) = (Lines::default(), Vec::new(), data);
        while !rest.is_empty() {
            let (part, behind) = rest.split_at(1 + random.below(most.min(rest.len())));
            rest = behind;
            lines
                .push(part)
                .expect("inputs are shorter than the longest line");
            found.extend(std::iter::from_fn(|| lines.next_data()));
        }
        assert_eq!(found, expected, "portions of up to {most} bytes");
    }
    match expected.is_empty() {
        true => Outcome::Refused,
        false => Outcome::Accepted,
    }
}

/// The data of the complete lines, found in the whole text.
fn events(data: &[u8]) -> Vec<Vec<u8>> {
    let mut lines: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    // What follows the last end of a line is no line yet.
    lines.pop();
    let lines = lines.into_iter();
    let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let data = lines.filter_map(|line| line.strip_prefix(b"data:"));
    data.map(|data| data.trim_ascii_start().to_vec()).collect()
}
