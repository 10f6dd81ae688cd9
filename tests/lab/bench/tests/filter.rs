//! `asynclane-lab train-filter` as a process.

use std::path::Path;
use std::process::{Command, Output};

fn train(settings: &str, out: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_asynclane-lab"));
    command.arg("train-filter").args(settings.split_whitespace());
    command.arg("--out").arg(out);
    command.output().expect("the binary runs")
}

#[test]
fn a_filter_is_trained_and_saved() {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("filter.safetensors");
    let settings =
        "--task lists --problems 10 --max-tokens 32 --block-length 8 --hidden 4 --epochs 20";
    let output = train(settings, &out);
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{log}");
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.contains("filter > 0.96"), "{table}");
    assert!(std::fs::metadata(&out).is_ok_and(|file| file.len() > 0));
}

#[test]
fn too_few_prompts_are_refused() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (prompts, out) = (folder.join("prompts.txt"), folder.join("few.safetensors"));
    std::fs::write(&prompts, "One?\n\nTwo?\n").expect("the folder is writable");
    let output = train(&format!("--prompts {}", prompts.display()), &out);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(64), "{message}");
    let expected = "--prompts: expected at least 10 prompts, found 2";
    assert!(message.contains(expected), "{message}");
    assert!(!out.exists());
}
