//! The rule `learned_filter`: the filter of the demo model, one from a file, and one trained by the
//! laboratory.

use std::path::Path;
use std::process::Command;

use asynclane_tests::process::{command, lab_command, run, stderr, stdout};
use lab::grade::grade;

use crate::{folder, sum};

const LEARNED: &str = "schedule=block_wise,commit=learned_filter,cache=dual";

/// The answer to the sum with a decoder, and its number of forwards.
fn answer(arguments: &[&str]) -> (String, usize) {
    let problem = sum();
    let output = run(&[&["generate", &problem.prompt, "--stats"], arguments].concat());
    let cost = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{cost}");
    let (before, _) = cost.split_once(" forwards").expect("the cost names them");
    let number = before.rsplit([' ', ',']).next().expect("a word");
    (stdout(&output), number.parse().expect("a number"))
}

/// The one-line error of a command.
fn refusal(mut command: Command, code: i32) -> String {
    let output = command.output().expect("the binary runs");
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the path is UTF-8")
}

#[test]
fn the_demo_model_brings_a_filter_that_saves_forwards() {
    let single = "schedule=block_wise,commit=top_k,cache=dual";
    let (_, one_by_one) = answer(&["--decoder", single]);
    let (text, forwards) = answer(&["--decoder", LEARNED]);
    assert!(grade(&sum(), text.trim_end()).end, "{text}");
    assert!(2 * forwards < one_by_one, "{forwards} of {one_by_one}");
}

#[test]
fn a_filter_is_trained_saved_and_used() {
    let folder = folder("trained-filter");
    let file = folder.join("filter.safetensors");
    let settings = "train-filter --task lists --problems 10 --max-tokens 32 --block-length 8 \
                    --hidden 4 --epochs 20";
    let arguments: Vec<&str> = settings.split_whitespace().collect();
    let output = lab_command(&[&arguments[..], &["--out", text(&file)]].concat()).output();
    let output = output.expect("the binary runs");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let table = stdout(&output);
    assert!(table.contains("filter > 0.96"), "{table}");

    let short = format!("{LEARNED},block_length=8");
    answer(&["--decoder", &short, "--filter", text(&file)]);
    let prompt = sum().prompt;
    let generate = [
        "generate",
        &prompt,
        "--decoder",
        LEARNED,
        "--filter",
        text(&file),
    ];
    let message = refusal(command(&generate), 64);
    assert!(message.contains("block_length: must be 8"), "{message}");
}

#[test]
fn a_file_that_is_no_filter_is_named() {
    let folder = folder("no-filter");
    let model = folder.join("model.safetensors");
    let weights = demo::checkpoint::DEMO
        .file("model.safetensors")
        .expect("the demo has weights");
    std::fs::write(&model, weights).expect("the folder is writable");
    let message = refusal(
        command(&["generate", "Hello", "--filter", text(&model)]),
        65,
    );
    assert!(message.contains("model.safetensors: 0.weight"), "{message}");
    let gone = folder.join("gone.safetensors");
    let message = refusal(command(&["generate", "Hello", "--filter", text(&gone)]), 66);
    assert!(
        message.contains("gone.safetensors: not found in"),
        "{message}"
    );
}

#[test]
fn too_few_prompts_are_refused() {
    let folder = folder("few-prompts");
    let prompts = folder.join("prompts.txt");
    std::fs::write(&prompts, "One?\n\nTwo?\n").expect("the folder is writable");
    let out = folder.join("filter.safetensors");
    let train = [
        "train-filter",
        "--out",
        text(&out),
        "--prompts",
        text(&prompts),
    ];
    let message = refusal(lab_command(&train), 64);
    assert!(
        message.contains("--prompts: expected at least 10 prompts, found 2"),
        "{message}"
    );
    assert!(!out.exists());
}
