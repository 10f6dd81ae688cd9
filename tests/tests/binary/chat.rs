//! `asynclane run`: one answer for an argument or a pipe, a chat on a terminal.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use asynclane_tests::process::{binary, command, refusal, run, stderr, stdout};

use crate::sum;

const LIST: &str = "Reverse the list coins, eggs, books, pens.";
const REVERSED: &str = "Reversed it is pens, books, eggs, coins.";

/// Every text comes within this time.
const BOUND: Duration = Duration::from_secs(60);

/// A chat on a terminal, in which each line is typed once the text that belongs to the line before and
/// then a prompt have been shown.
fn typed(arguments: &str, lines: &[(&str, &str)]) {
    let line = format!("'{}' run {arguments}", binary().display());
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    let mut child =
        script.stdin(Stdio::piped()).stdout(Stdio::piped()).env("TERM", "xterm").spawn().unwrap();
    let (mut keys, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (send, shown) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = screen.read(&mut bytes) {
            let _ = send.send(bytes[..count].to_vec());
        }
    });
    let await_text = |expected: &str| {
        let mut seen = Vec::new();
        let is_shown = |seen: &[u8]| {
            let seen = String::from_utf8_lossy(seen).into_owned();
            let rest = seen.split_once(expected).map(|(_, rest)| rest.to_owned());
            rest.is_some_and(|rest| rest.contains(">>> ") || rest.contains("... "))
        };
        while !is_shown(&seen) {
            let more = shown.recv_timeout(BOUND);
            seen.extend(more.unwrap_or_else(|_| panic!("{expected}: {}", seen.escape_ascii())));
        }
    };
    await_text("");
    for (line, expected) in lines {
        keys.write_all(format!("{line}\r").as_bytes()).unwrap();
        await_text(expected);
    }
    keys.write_all(b"/quit\r").unwrap();
    assert!(child.wait().unwrap().success());
    reader.join().unwrap();
}

#[test]
fn a_prompt_behind_the_model_is_answered_once() {
    for arguments in [&["run", "demo", LIST][..], &["run", "--model", "demo", LIST]] {
        let output = run(arguments);
        assert!(stdout(&output).trim_end().ends_with(REVERSED), "{output:?}");
        assert_eq!(stderr(&output), "");
    }
    let answer = stdout(&run(&["generate", &sum().prompt]));
    assert_eq!(stdout(&run(&["run", "demo", &sum().prompt])), answer);
}

#[test]
fn a_cut_answer_is_told() {
    let output = run(&["run", "demo", LIST, "--max-model-len", "36"]);
    let told = stderr(&output);
    assert!(told.starts_with("(cut after ") && told.ends_with("without --max-tokens)\n"), "{told}");
    let output = run(&["run", "demo", LIST, "--max-tokens", "5"]);
    assert_eq!(stderr(&output), "", "the user set it");
}

#[test]
fn a_piped_prompt_is_answered_once_and_an_empty_one_is_refused() {
    let piped = |text: &str| {
        let mut child = command(&["run"]);
        let child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = child.spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let output = piped(LIST);
    assert!(stdout(&output).trim_end().ends_with(REVERSED), "{output:?}");
    let refused = piped(" \n");
    assert_eq!(refused.status.code(), Some(64));
    let line = String::from_utf8(refused.stderr).unwrap();
    assert!(line.starts_with("asynclane: no prompt: write it behind the model"), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
    for (arguments, said) in [
        (&["run", "demo", ""][..], "no prompt: write it behind the model"),
        (&["run", "nosuch"], "no prompt: \"nosuch\" was read as the model's name; write"),
        (&["generate", ""], "no prompt: write it behind the command"),
        (&["generate"], "no prompt: write it behind the command"),
    ] {
        let line = refusal(&run(arguments), 64);
        assert!(line.contains(said), "{line}");
    }
}

#[test]
fn a_greeting_is_answered_with_what_the_model_can_do() {
    for text in ["hi", "Hello! Who are you?", "What is the capital of France?"] {
        let answer = stdout(&run(&["run", "demo", text]));
        assert!(answer.starts_with("Hi. I am a small demo. I can do sums"), "{text}: {answer}");
    }
}

#[test]
fn a_chat_answers_and_obeys_commands() {
    typed(
        "demo",
        &[
            ("/stats", "no answer yet"),
            (LIST, REVERSED),
            ("/stats", "1 answers, "),
            ("/preset", "others: asynclane, "),
            ("/preset fast", "decoder fast"),
            ("/preset slow", "slow"),
            ("/prset", "did you mean \"/preset\""),
            ("/race", ": the same text"),
            (&format!("\"\"\"{LIST}"), ""),
            ("\"\"\"", REVERSED),
            ("/help", "end (also Ctrl-D)"),
        ],
    );
}

#[test]
fn a_system_prompt_and_a_seed_are_taken_and_a_wrong_budget_is_refused() {
    let output = run(&["run", "demo", LIST, "--max-tokens", "2000"]);
    assert_eq!(output.status.code(), Some(64));
    assert!(stderr(&output).contains("--max-tokens must be at most "), "{output:?}");
    let output = run(&["run", "--model", "demo", "demo", LIST]);
    assert!(stderr(&output).contains("--model and \"demo\" both name the model"), "{output:?}");
    let seed = ["run", "demo", LIST, "--seed", "5", "--temperature", "1", "--system", "Be brief."];
    assert_eq!(stdout(&run(&seed)), stdout(&run(&seed)));
}

#[test]
fn options_of_other_servers_have_advice() {
    let output = run(&["serve", "--max-num-seqs", "4"]);
    assert_eq!(output.status.code(), Some(64));
    let line = "error: --max-num-seqs is an option of another server: use --max-running\n";
    assert_eq!(stderr(&output), line);
}
