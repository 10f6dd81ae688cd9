//! Where a generate lane forks: the delimiter rules of AsyncLane §3, case by case.

use asynclane_decode::{Effect, Input};

use crate::common::{Bench, STOPS, asynclane, with_schedule};

/// A fork rule, the texts of a lane, and where it forks in its first step; `_` is a mask. A mask at the
/// start keeps the lane from being complete.
type Case = (&'static str, &'static [&'static str], Option<u32>);

/// `rule` is a value of `fork`; `strict` stands for sentences with strict numeric periods, and `code`
/// for `auto` after a prompt of code.
fn split(rule: &'static str, texts: &[&str]) -> Option<u32> {
    let (fork, numeric) = match rule {
        "strict" => ("sentence", "strict"),
        "code" => ("auto", "next"),
        other => (other, "next"),
    };
    let length = texts.len() as u32;
    let schedule = asynclane().with("block_length", length);
    let schedule = schedule.with("fork", fork).with("numeric", numeric);
    let input = Input { code_prompt: rule == "code", ..Input::new(length, STOPS) };
    let mut bench = Bench::born(&with_schedule(schedule), input);
    let known = (0..).zip(texts).filter(|(_, text)| **text != "_");
    let said: Vec<_> = known.map(|(offset, text)| (offset, *text, 1.0)).collect();
    let effects = bench.step(&said);
    effects.iter().find_map(|effect| match effect {
        Effect::Fork { split, .. } => Some(*split),
        _ => None,
    })
}

fn check(cases: &[Case]) {
    for (rule, texts, expected) in cases {
        assert_eq!(split(rule, texts), *expected, "{rule}: {texts:?}");
    }
}

#[test]
fn full_stops_end_sentences() {
    for stop in [".", " .", ".\n", ").", "。"] {
        assert_eq!(split("sentence", &["_", "a", stop, "_"]), Some(3));
        assert_eq!(split("strict", &["_", "a", stop, "_"]), Some(3));
    }
    check(&[
        ("sentence", &["_", "a", "c", "_"], None),
        // A line feed ends no sentence.
        ("sentence", &["_", "a", "\n", "_"], None),
        // The last delimiter counts.
        ("sentence", &["_", ".", "a", ".", "_", "a"], Some(4)),
        ("sentence", &[".", ".", ".", "_"], Some(3)),
        // A mask on the left counts as no digit.
        ("sentence", &["_", ".", "_"], Some(2)),
        ("strict", &["_", ".", "_"], Some(2)),
        // A stop token ends the scan.
        ("sentence", &["_", "<eos>", "a", "."], None),
        ("sentence", &["_", ".", "<eot>", "."], Some(2)),
    ]);
}

#[test]
fn a_period_behind_a_digit_waits_for_its_right_neighbour() {
    check(&[
        ("sentence", &["_", "7", ".", "_"], None),
        ("sentence", &["_", "7", ".", "a"], Some(3)),
        ("sentence", &["_", "7", ".", " b"], Some(3)),
        // 7.7 is a number; with a blank between it is none.
        ("sentence", &["_", "7", ".", "7"], None),
        ("sentence", &["_", "7", ".", " 42"], Some(3)),
        ("sentence", &["_", "7", ".", "<eos>"], Some(3)),
        // The canvas ends.
        ("sentence", &["_", " 42", "."], Some(3)),
        // One token holds digit and period.
        ("sentence", &["_", "5.", "_"], None),
        ("sentence", &["_", "5.", "a"], Some(2)),
        ("sentence", &["_", "5.", "7"], None),
        // An invalid delimiter leaves the one before it.
        ("sentence", &["_", ".", "7", ".", "_"], Some(2)),
        ("sentence", &["_", ".", "7", ".", "7"], Some(2)),
        // Strict periods never end a sentence behind a digit.
        ("strict", &["_", "5.", "a"], None),
        ("strict", &["_", "7", ".", "a"], None),
        ("strict", &["_", "7", ".", "_"], None),
        ("strict", &["_", "7", ".", "<eos>"], None),
        ("strict", &["_", "7", "a", "."], Some(4)),
    ]);
}

#[test]
fn a_settled_line_of_code_ends_at_its_line_feed() {
    check(&[
        ("newline", &["a", "\n", "_"], Some(2)),
        // Blanks at the end do not matter.
        ("newline", &["a", " ", "\n", "_"], Some(3)),
        ("newline", &["a", "\n\n", "_"], Some(2)),
        ("newline", &["(", "a", ")\n", "_"], Some(3)),
        // The last line counts, and another line may be open.
        ("newline", &["a", "\n", "c", "\n", "_"], Some(4)),
        ("newline", &["_", "\n", "c", "\n"], Some(4)),
        // A full stop ends no line.
        ("newline", &["a", ".", "_"], None),
        // A mask on the line keeps it open.
        ("newline", &["_", "a", "\n", "c"], None),
        ("newline", &["a", "_", "\n", "c"], None),
        ("newline", &["a", "\n", "_", "\n"], Some(2)),
        // A blank line is no boundary.
        ("newline", &["\n", "_"], None),
        ("newline", &["a", "\n", "\n", "_"], Some(2)),
        ("newline", &["a", "\n", " ", "\n", "_"], Some(2)),
        // A line that goes on is no boundary.
        ("newline", &["a", ":", "\n", "_"], None),
        ("newline", &["a", ":\n", "_"], None),
        ("newline", &["a", " =", " ", "\n", "_"], None),
        ("newline", &["a", " =", "c", "\n", "_"], Some(4)),
        // Open brackets keep a line open.
        ("newline", &["(", "a", "\n", "_"], None),
        ("newline", &["(", "a", "\n", ")", "\n", "_"], Some(5)),
        // A closing bracket whose opening one is still a mask counts nothing.
        ("newline", &["a", ")", "\n", "_"], Some(3)),
        ("newline", &["_", "\n", ")", "(", "\n"], None),
        ("newline", &["_", "\n", ")", "(", ")\n"], Some(5)),
    ]);
}

#[test]
fn auto_reads_prose_by_sentences_and_code_by_lines() {
    const INSIDE: &[&str] = &["a", ".", "\n", "```", "\n", "a", "\n", "c", ".", "_"];
    const BEHIND: &[&str] = &["```", "\n", "a", "\n", "```", "\n", "a", ".", "c", "\n", "_"];
    check(&[
        ("auto", &["a", ".", "c", "\n", "_"], Some(2)),
        ("code", &["a", ".", "c", "\n", "_"], Some(4)),
        // In a fence lines count, behind it sentences do, also after a prompt of code.
        ("auto", INSIDE, Some(7)),
        ("auto", BEHIND, Some(8)),
        ("code", BEHIND, Some(8)),
    ]);
}
