//! Where a generate lane forks: the delimiter rules of AsyncLane §3, case by case.

use asynclane_decode::{AsyncLaneConfig, Boundary, Effect, NumericPeriod};

use crate::common::{Bench, asynclane, with_schedule};

const NEXT: Boundary = Boundary::Sentence(NumericPeriod::Next);
const STRICT: Boundary = Boundary::Sentence(NumericPeriod::Strict);
const AUTO: Boundary = Boundary::Auto(NumericPeriod::Next);

/// Where a lane of these texts forks in its first step, if it does; `_` is a mask. A mask at the
/// start keeps the lane from being complete.
fn split(boundary: Boundary, texts: &[&str]) -> Option<u32> {
    split_after(boundary, texts, false)
}

fn split_after(boundary: Boundary, texts: &[&str], code_prompt: bool) -> Option<u32> {
    let config = AsyncLaneConfig {
        block_length: texts.len() as u32,
        fork: Some(boundary),
        ..asynclane()
    };
    let schedule = crate::common::lanes(&config);
    let mut bench = Bench::after(&with_schedule(schedule), texts.len() as u32, code_prompt);
    let known = (0..).zip(texts).filter(|(_, text)| **text != "_");
    let said: Vec<_> = known.map(|(offset, text)| (offset, *text, 1.0)).collect();
    let effects = bench.step(&said);
    effects.iter().find_map(|effect| match effect {
        Effect::Fork { split, .. } => Some(*split),
        _ => None,
    })
}

#[test]
fn a_full_stop_ends_a_sentence() {
    for stop in [".", " .", ".\n", ").", "。"] {
        assert_eq!(split(NEXT, &["_", "a", stop, "_"]), Some(3), "{stop:?}");
        assert_eq!(split(STRICT, &["_", "a", stop, "_"]), Some(3), "{stop:?}");
    }
    assert_eq!(split(NEXT, &["_", "a", "c", "_"]), None);
    assert_eq!(
        split(NEXT, &["_", "a", "\n", "_"]),
        None,
        "a line feed ends no sentence"
    );
}

#[test]
fn the_last_delimiter_counts() {
    assert_eq!(split(NEXT, &["_", ".", "a", ".", "_", "a"]), Some(4));
    assert_eq!(split(NEXT, &[".", ".", ".", "_"]), Some(3));
}

#[test]
fn a_mask_on_the_left_counts_as_no_digit() {
    assert_eq!(split(NEXT, &["_", ".", "_"]), Some(2));
    assert_eq!(split(STRICT, &["_", ".", "_"]), Some(2));
}

#[test]
fn a_period_behind_a_digit_waits_for_its_right_neighbour() {
    assert_eq!(split(NEXT, &["_", "7", ".", "_"]), None);
    assert_eq!(split(NEXT, &["_", "7", ".", "a"]), Some(3));
    assert_eq!(split(NEXT, &["_", "7", ".", " b"]), Some(3));
    assert_eq!(split(NEXT, &["_", "7", ".", "7"]), None, "7.7 is a number");
    assert_eq!(
        split(NEXT, &["_", "7", ".", " 42"]),
        Some(3),
        "a blank lies between"
    );
    assert_eq!(split(NEXT, &["_", "7", ".", "<eos>"]), Some(3));
    assert_eq!(split(NEXT, &["_", " 42", "."]), Some(3), "the canvas ends");
}

#[test]
fn a_token_may_hold_digit_and_period() {
    assert_eq!(split(NEXT, &["_", "5.", "_"]), None);
    assert_eq!(split(NEXT, &["_", "5.", "a"]), Some(2));
    assert_eq!(split(NEXT, &["_", "5.", "7"]), None);
    assert_eq!(split(STRICT, &["_", "5.", "a"]), None);
}

#[test]
fn strict_never_splits_behind_a_digit() {
    for texts in [
        &["_", "7", ".", "a"],
        &["_", "7", ".", "_"],
        &["_", "7", ".", "<eos>"],
    ] {
        assert_eq!(split(STRICT, texts), None, "{texts:?}");
    }
    assert_eq!(split(STRICT, &["_", "7", "a", "."]), Some(4));
}

#[test]
fn an_invalid_delimiter_leaves_the_one_before_it() {
    assert_eq!(split(NEXT, &["_", ".", "7", ".", "_"]), Some(2));
    assert_eq!(split(NEXT, &["_", ".", "7", ".", "7"]), Some(2));
}

#[test]
fn a_stop_token_ends_the_scan() {
    assert_eq!(split(NEXT, &["_", "<eos>", "a", "."]), None);
    assert_eq!(split(NEXT, &["_", ".", "<eot>", "."]), Some(2));
}

#[test]
fn a_settled_line_of_code_ends_at_its_line_feed() {
    let newline = Boundary::Newline;
    assert_eq!(split(newline, &["a", "\n", "_"]), Some(2));
    assert_eq!(
        split(newline, &["a", " ", "\n", "_"]),
        Some(3),
        "blanks at the end do not matter"
    );
    assert_eq!(split(newline, &["a", "\n\n", "_"]), Some(2));
    assert_eq!(split(newline, &["(", "a", ")\n", "_"]), Some(3));
    assert_eq!(
        split(newline, &["a", "\n", "c", "\n", "_"]),
        Some(4),
        "the last line counts"
    );
    assert_eq!(
        split(newline, &["_", "\n", "c", "\n"]),
        Some(4),
        "another line may be open"
    );
    assert_eq!(
        split(newline, &["a", ".", "_"]),
        None,
        "a full stop ends no line"
    );
}

#[test]
fn a_mask_on_the_line_keeps_it_open() {
    assert_eq!(split(Boundary::Newline, &["_", "a", "\n", "c"]), None);
    assert_eq!(split(Boundary::Newline, &["a", "_", "\n", "c"]), None);
    assert_eq!(split(Boundary::Newline, &["a", "\n", "_", "\n"]), Some(2));
}

#[test]
fn a_blank_line_is_no_boundary() {
    assert_eq!(split(Boundary::Newline, &["\n", "_"]), None);
    assert_eq!(split(Boundary::Newline, &["a", "\n", "\n", "_"]), Some(2));
    assert_eq!(
        split(Boundary::Newline, &["a", "\n", " ", "\n", "_"]),
        Some(2)
    );
}

#[test]
fn a_line_that_goes_on_is_no_boundary() {
    assert_eq!(split(Boundary::Newline, &["a", ":", "\n", "_"]), None);
    assert_eq!(split(Boundary::Newline, &["a", ":\n", "_"]), None);
    assert_eq!(split(Boundary::Newline, &["a", " =", " ", "\n", "_"]), None);
    assert_eq!(
        split(Boundary::Newline, &["a", " =", "c", "\n", "_"]),
        Some(4)
    );
}

#[test]
fn open_brackets_keep_a_line_open() {
    assert_eq!(split(Boundary::Newline, &["(", "a", "\n", "_"]), None);
    assert_eq!(
        split(Boundary::Newline, &["(", "a", "\n", ")", "\n", "_"]),
        Some(5)
    );
}

#[test]
fn a_closing_bracket_whose_opening_one_is_still_a_mask_counts_nothing() {
    let newline = Boundary::Newline;
    assert_eq!(split(newline, &["a", ")", "\n", "_"]), Some(3));
    assert_eq!(split(newline, &["_", "\n", ")", "(", "\n"]), None);
    assert_eq!(split(newline, &["_", "\n", ")", "(", ")\n"]), Some(5));
}

#[test]
fn auto_reads_prose_by_sentences_and_code_by_lines() {
    let texts = ["a", ".", "c", "\n", "_"];
    assert_eq!(split_after(AUTO, &texts, false), Some(2));
    assert_eq!(split_after(AUTO, &texts, true), Some(4));
}

#[test]
fn auto_knows_fences() {
    let inside = ["a", ".", "\n", "```", "\n", "a", "\n", "c", ".", "_"];
    assert_eq!(split(AUTO, &inside), Some(7), "in the fence lines count");
    let behind = [
        "```", "\n", "a", "\n", "```", "\n", "a", ".", "c", "\n", "_",
    ];
    assert_eq!(split(AUTO, &behind), Some(8), "behind it sentences do");
    assert_eq!(
        split_after(AUTO, &behind, true),
        Some(8),
        "also after a prompt of code"
    );
}
