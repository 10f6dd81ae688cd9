//! `asynclane generate`: the answer on standard output, the lane tree on standard error.

use std::process::{Command, Stdio};

use asynclane_tests::process::{binary, run, stderr, stdout};
use problems::{grade, is_strict};

use crate::sum;

#[test]
fn answers_a_sum() {
    let problem = sum();
    let output = run(&["generate", &problem.prompt]);
    let answer = stdout(&output);
    assert!(
        grade(&problem, answer.trim_end())
            .expect("no code runs")
            .end,
        "{answer}"
    );
    assert_eq!(stderr(&output), "", "nothing but the answer");
}

#[test]
fn reference_decoder_answers_word_for_word() {
    let problem = sum();
    let output = run(&["generate", &problem.prompt, "--decoder", "vanilla"]);
    let answer = stdout(&output);
    assert!(is_strict(&problem, answer.trim_end()), "{answer}");
}

#[test]
fn a_terminal_shows_the_canvas_and_keeps_the_answer() {
    let problem = sum();
    let decoder = ["--decoder", "asynclane"];
    let plain = stdout(&run(&["generate", &problem.prompt, decoder[0], decoder[1]]));
    let line = format!(
        "'{}' generate '{}' {}",
        binary().display(),
        problem.prompt,
        decoder.join(" ")
    );
    // Runs the program on a terminal of 24 lines and 80 columns, and copies its output.
    let terminal = Command::new("script")
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .stdin(Stdio::null())
        .output()
        .expect("util-linux has it");
    let seen = stdout(&terminal).replace("\r\n", "\n");
    assert!(seen.contains('░'), "masks were drawn: {seen}");
    assert!(seen.contains('▓'), "a refine lane's, denser: {seen}");
    assert!(seen.trim_end().ends_with(plain.trim_end()), "{seen:?}");
}

#[test]
fn trace_draws_the_lane_tree() {
    let problem = sum();
    let plain = stdout(&run(&["generate", &problem.prompt]));
    let output = run(&["generate", &problem.prompt, "--trace"]);
    assert_eq!(stdout(&output), plain, "a trace changes no token");
    let trace = stderr(&output);
    let (steps, rest) = trace.split_once("\nlane tree").expect("a lane tree");
    let tree: Vec<&str> = rest.lines().skip(1).collect();
    let (cost, tree) = tree.split_last().expect("the cost comes last");

    let forwards: usize = number_before(cost, " forwards");
    let forks: usize = number_before(cost, " forks");
    assert_eq!(steps.lines().count(), forwards, "one line per forward");
    assert!(tree[0].starts_with("generate 0 [0, "), "{trace}");
    let forked = tree.iter().filter(|line| line.contains(": forked at "));
    assert_eq!(forked.count(), forks, "{trace}");
    assert!(forks > 0, "{trace}");
    // The order of the answer is depth-first, refine children first.
    let leaves = tree.iter().filter(|line| !line.contains(": forked at "));
    let text: String = leaves
        .map(|line| line.split_once("): ").or_else(|| line.split_once(": ")))
        .map(|parts| parts.expect("a lane has text").1.replace('⏎', "\n"))
        .collect();
    assert_eq!(text.trim_end(), plain.trim_end());
}

#[test]
fn what_the_api_refuses_is_refused_with_the_flags_name() {
    let cases: [(&[&str], &str); 9] = [
        (
            &["--temperature", "2.5"],
            "'--temperature <TEMPERATURE>': must be in 0..2, got 2.5",
        ),
        (
            &["--temperature", "-1"],
            "'--temperature <TEMPERATURE>': must be in 0..2, got -1",
        ),
        (
            &["--temperature", "nan"],
            "'--temperature <TEMPERATURE>': must be a number",
        ),
        (
            &["--temperature", "hot"],
            "'--temperature <TEMPERATURE>': must be a number",
        ),
        (
            &["--max-tokens", "0"],
            "'--max-tokens <MAX_TOKENS>': must be an integer of at least 1, got 0",
        ),
        (&["--max-tokens", "100000"], "--max-tokens must be at most "),
        (
            &["--seed", "9223372036854775808"],
            "'--seed <SEED>': must be a 64-bit integer",
        ),
        (&["--seed", "1.5"], "'--seed <SEED>': "),
        (&["--raw", ""], "the prompt has no tokens"),
    ];
    for (flags, reason) in cases {
        let mut arguments = vec!["generate", "--max-tokens", "4"];
        if flags[0] == "--max-tokens" {
            arguments.truncate(1);
        }
        let prompt: &[&str] = if flags[0] == "--raw" { &[] } else { &["Hi"] };
        let output = run(&[&arguments[..], flags, prompt].concat());
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(64), "{flags:?}: {message}");
        assert!(message.contains(reason), "{flags:?}: {message}");
        assert_eq!(output.stdout, b"");
    }
    let accepted = ["--temperature", "2", "--seed", "-3", "--max-tokens", "1"];
    stdout(&run(&[&["generate", "Hi"][..], &accepted].concat()));
}

/// The number before the first `word`.
fn number_before(text: &str, word: &str) -> usize {
    let (before, _) = text.split_once(word).expect("the cost names it");
    let digits = before
        .rsplit([' ', ','])
        .next()
        .expect("split is not empty");
    digits.parse().expect("a number")
}
