//! `asynclane generate`: the answer on standard output, the lane tree on standard error.

use std::process::Command;

use asynclane_tests::process::{binary, run, run_command, stderr, stdout};
use problems::{grade, is_strict};

use crate::sum;

#[test]
fn answers_a_sum() {
    let problem = sum();
    let output = run(&["generate", &problem.prompt]);
    let answer = stdout(&output);
    let graded = grade(&problem, answer.trim_end()).expect("no code runs");
    assert!(graded.end, "{answer}");
    assert_eq!(stderr(&output), "", "nothing but the answer");
    // The reference decoder answers word for word.
    let answer = stdout(&run(&["generate", &problem.prompt, "--decoder", "vanilla"]));
    assert!(is_strict(&problem, answer.trim_end()), "{answer}");
}

#[test]
fn a_terminal_shows_the_canvas_and_keeps_the_answer() {
    let problem = sum();
    let prompt = &problem.prompt;
    let plain = stdout(&run(&["generate", prompt, "--decoder", "asynclane"]));
    let binary = binary().display().to_string();
    let line = format!("'{binary}' generate '{prompt}' --decoder asynclane");
    // Runs the program on a terminal of 24 lines and 80 columns, and copies its output.
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    let terminal = run_command(script);
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
    let temperature = |got: &str| format!("'--temperature <TEMPERATURE>': must be {got}");
    let few = "'--max-tokens <MAX_TOKENS>': must be an integer of at least 1, got 0";
    for (flag, value, reason) in [
        ("--temperature", "2.5", &*temperature("in 0..2, got 2.5")),
        ("--temperature", "-1", &temperature("in 0..2, got -1")),
        ("--temperature", "nan", &temperature("a number")),
        ("--temperature", "hot", &temperature("a number")),
        ("--max-tokens", "0", few),
        ("--max-tokens", "100000", "--max-tokens must be at most "),
        ("--seed", "9223372036854775808", "'--seed <SEED>': must be a 64-bit integer"),
        ("--seed", "1.5", "'--seed <SEED>': "),
        ("--raw", "", "the prompt has no tokens"),
    ] {
        let mut arguments = vec!["generate", flag, value];
        if flag != "--max-tokens" {
            arguments.extend(["--max-tokens", "4"]);
        }
        if flag != "--raw" {
            arguments.push("Hi");
        }
        let output = run(&arguments);
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(64), "{arguments:?}: {message}");
        assert!(message.contains(reason), "{arguments:?}: {message}");
        assert_eq!(output.stdout, b"");
    }
    let accepted = ["--temperature", "2", "--seed", "-3", "--max-tokens", "1"];
    stdout(&run(&[&["generate", "Hi"][..], &accepted].concat()));
}

/// The number before the first `word`.
fn number_before(text: &str, word: &str) -> usize {
    let (before, _) = text.split_once(word).expect("the cost names it");
    let digits = before.rsplit([' ', ',']).next();
    digits.expect("split is not empty").parse().expect("a number")
}
