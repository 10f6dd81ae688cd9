//! Invalid models, configurations and arguments end with the right exit code and one readable line.

use std::path::{Path, PathBuf};

use asynclane_tests::process::{run, stderr};
use serde_json::{Value, json};

use crate::folder;

/// Writes the demo checkpoint with a changed configuration into a new folder.
fn checkpoint(name: &str, change: impl FnOnce(&mut Value)) -> PathBuf {
    let folder = folder(name);
    for (file, content) in demo::checkpoint::DEMO.files() {
        std::fs::write(folder.join(file), content).unwrap();
    }
    let path = folder.join("config.json");
    let mut config = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut config);
    std::fs::write(&path, config.to_string()).unwrap();
    folder
}

/// The one-line error of `asynclane serve` for a model folder.
fn refusal(folder: &Path, code: i32) -> String {
    let model = folder.to_str().expect("the path is UTF-8");
    let output = run(&["serve", "--listen", "127.0.0.1:0", "--model", model]);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(output.stdout.is_empty());
    message
}

/// Checks that `message` has all `parts`, in order.
fn names(message: &str, parts: &[&str]) {
    let mut rest = message;
    for part in parts {
        let at = rest.find(part);
        let at = at.unwrap_or_else(|| panic!("expected {part:?} in {message:?}"));
        rest = &rest[at + part.len()..];
    }
}

#[test]
fn an_unchanged_copy_of_the_checkpoint_is_accepted() {
    let folder = checkpoint("whole", |_| {});
    let model = folder.to_str().expect("the path is UTF-8");
    let output = run(&["inspect", "--model", model]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn a_missing_folder() {
    let message = refusal(&folder("empty").join("missing"), 66);
    names(&message, &["missing: no such file or folder", "expected"]);
}

#[test]
fn a_model_that_is_nowhere() {
    for (model, parts) in [
        ("./nope", ["./nope: no such file or folder; expected", ""]),
        (
            "dmeo",
            [
                "dmeo: no such file or folder (did you mean \"demo\"?)",
                "`demo`",
            ],
        ),
        ("/dev/null", ["neither a folder nor a GGUF file", ""]),
    ] {
        for command in [&["inspect", "--model", model][..], &["serve", model]] {
            let output = run(command);
            let message = stderr(&output);
            assert_eq!(output.status.code(), Some(66), "{message}");
            assert_eq!(message.lines().count(), 1, "{message}");
            names(&message, &parts);
        }
    }
}

#[test]
fn a_length_beyond_the_context() {
    for command in ["serve", "inspect", "generate"] {
        let output = run(&[command, "--max-model-len", "70000"]);
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(78), "{message}");
        let parts = ["model.max_model_len: expected at most ", " found 70000"];
        names(&message, &parts);
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

#[test]
fn truncated_weights() {
    let folder = checkpoint("truncated", |_| {});
    let path = folder.join("model.safetensors");
    let weights = std::fs::read(&path).unwrap();
    for length in [0, 5, 2000, weights.len() / 2, weights.len() - 1] {
        std::fs::write(&path, &weights[..length]).unwrap();
        let message = refusal(&folder, 65);
        names(&message, &["model.safetensors", "truncated"]);
        // With an intact header the error names the missing tensor.
        if length >= weights.len() / 2 {
            let found = format!("found {length}");
            names(
                &message,
                &["model.transformer", "expected a file of", &found],
            );
        }
    }
}

#[test]
fn a_tensor_of_another_shape() {
    let folder = checkpoint("shape", |config| config["mlp_hidden_size"] = json!(500));
    let message = refusal(&folder, 65);
    let tensor = "model.transformer.blocks.0.ff_proj.weight";
    let shapes = ["expected shape [500, 192]", "found [512, 192]"];
    names(
        &message,
        &["model.safetensors", tensor, shapes[0], shapes[1]],
    );
}

#[test]
fn a_missing_tensor() {
    let folder = checkpoint("layers", |config| config["n_layers"] = json!(7));
    let message = refusal(&folder, 65);
    names(
        &message,
        &["model.safetensors", "blocks.6.", "expected", "found none"],
    );
}

#[test]
fn an_unknown_architecture() {
    let folder = checkpoint("architecture", |config| {
        config["model_type"] = json!("gpt2");
        config["architectures"] = json!(["GPT2LMHeadModel"]);
    });
    let message = refusal(&folder, 65);
    names(
        &message,
        &[
            "config.json",
            "expected",
            "LLaDAModelLM",
            "found",
            "GPT2LMHeadModel",
        ],
    );
    // The architecture is named before the missing weights.
    std::fs::remove_file(folder.join("model.safetensors")).unwrap();
    assert_eq!(refusal(&folder, 65), message);
}

#[test]
fn a_value_of_the_wrong_type_in_a_configuration() {
    let file = folder("config").join("broken.toml");
    std::fs::write(&file, "[engine]\nrow_budget = \"many\"\n").unwrap();
    let path = file.to_str().expect("the path is UTF-8");
    for arguments in [
        &["serve", "--listen", "127.0.0.1:0", "--config", path][..],
        &["check-config", path],
    ] {
        let output = run(arguments);
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(78), "{message}");
        names(
            &message,
            &[
                &format!("{path}:2:14"),
                "engine.row_budget",
                "whole number",
                "many",
            ],
        );
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

#[test]
fn an_unknown_key_in_a_configuration() {
    let file = folder("key").join("broken.toml");
    std::fs::write(&file, "[server]\n\n  lisen = \"127.0.0.1:0\"\n").unwrap();
    let path = file.to_str().expect("the path is UTF-8");
    let output = run(&["check-config", path]);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(78), "{message}");
    names(&message, &[&format!("{path}:3:3"), "lisen"]);
}

#[test]
fn a_missing_configuration() {
    let file = folder("no-config").join("missing.toml");
    let path = file.to_str().expect("the path is UTF-8");
    let output = run(&["check-config", path]);
    assert_eq!(output.status.code(), Some(66));
    names(&stderr(&output), &[path]);
}

#[test]
fn an_unknown_flag() {
    let output = run(&["serve", "--lisen", "127.0.0.1:0"]);
    assert_eq!(output.status.code(), Some(64));
    names(&stderr(&output), &["--lisen", "--listen"]);
}

#[test]
fn a_model_larger_than_the_memory() {
    let folder = checkpoint("large", |config| {
        config["max_sequence_length"] = json!(1 << 20)
    });
    let model = folder.to_str().expect("the path is UTF-8");
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--model", model];
    let output = run(&[&arguments[..], &["--kv-memory", "1000000GiB"]].concat());
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(65), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    let parts = [
        model,
        ": needs ",
        " of weights in f32, ",
        " of KV pages), ",
        " free: try --kv-memory ",
    ];
    names(&message, &parts);
}

/// A server that would refuse every request does not start.
#[test]
fn a_decoder_that_the_weights_do_not_support() {
    for (model, decoder, instead) in [
        ("demo", "wedlm", "balanced"),
        ("demo-wedlm", "balanced", "wedlm_next"),
        ("demo-sdar", "wedlm", "block_causal"),
        ("demo", "vanilla,commit=edit", "force"),
    ] {
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--model", model];
        let output = run(&[&arguments[..], &["--decoder", decoder]].concat());
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(78), "{message}");
        let last = message.lines().last().unwrap_or_default();
        names(last, &["model.decoder", instead]);
        assert!(!message.contains("ready"), "{message}");
    }
}

/// The binary of the tests has no CUDA; `tests/lab/cuda/without-device` tests one that has.
#[test]
fn a_missing_device() {
    let output = run(&["serve", "--listen", "127.0.0.1:0", "--device", "cuda"]);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(69), "{message}");
    assert_eq!(
        message,
        "asynclane: --device cuda: this build has no CUDA support (feature `cuda`)\n"
    );
    let output = run(&["serve", "--listen", "127.0.0.1:0", "--device", "tpu"]);
    assert_eq!(output.status.code(), Some(78), "{}", stderr(&output));
    names(
        &stderr(&output),
        &["model.device", "auto, cpu, cuda", "\"tpu\""],
    );
}

/// A disk without room: the output is lost, and the exit status says so.
#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written() {
    for arguments in [
        &["inspect", "--model", "demo"][..],
        &["completions", "bash"],
        &["serve", "--print-config"],
        &["generate", "--model", "demo", "--max-tokens", "4", "Hi"],
        &["--help"],
    ] {
        let full = std::fs::File::create("/dev/full").unwrap();
        let mut command = asynclane_tests::process::command(arguments);
        command.stdout(full).stderr(std::process::Stdio::piped());
        let output = command.spawn().unwrap().wait_with_output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(74),
            "{arguments:?}: {}",
            stderr(&output)
        );
    }
}

/// A template that reads another file of the machine, for all clients to see.
#[cfg(unix)]
#[test]
fn a_link_that_leads_out_of_the_folder() {
    let folder = checkpoint("link", |_| {});
    std::os::unix::fs::symlink("/etc/passwd", folder.join("chat_template.jinja")).unwrap();
    let message = refusal(&folder, 65);
    names(
        &message,
        &[
            "chat_template.jinja: expected a link inside",
            "found one to /etc/passwd",
        ],
    );
}

/// A template that fails for every chat is told at the start; completions need none.
#[test]
fn a_template_that_can_never_answer() {
    let folder = checkpoint("include", |_| {});
    std::fs::write(folder.join("chat_template.jinja"), "{% include 'x' %}").unwrap();
    let folder = folder.to_str().expect("the path is UTF-8");
    let output = run(&["serve", "--listen", "127.0.0.1:0", "--model", folder]);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(65), "{message}");
    names(
        &message,
        &["chat_template.jinja: line 1: ", "non-existing template 'x'"],
    );
}
