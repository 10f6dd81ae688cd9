//! Invalid models, configurations and arguments end with the right exit code and one readable line.

use std::path::{Path, PathBuf};

use asynclane_tests::process::{Server, command, refusal, run, run_command, stderr, stdout, utf8};
use serde_json::{Value, json};

use crate::folder;

const SERVE: [&str; 3] = ["serve", "--listen", "127.0.0.1:0"];

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

/// A memory for keys and values may be smaller than the model's context.
#[test]
fn sequences_are_as_long_as_fits() {
    let model = checkpoint("long", |config| config["max_sequence_length"] = json!(8192));
    let arguments = ["--model", utf8(&model), "--kv-memory", "16MiB"];
    let server = Server::start(&arguments);
    let models = server.client().get("/v1/models").json();
    assert_eq!(models["data"][0]["max_model_len"], 1024, "{models}");
    let log = server.stop();
    let said = "warning: sequences are limited to 1024 positions: keys and values for the model's 8192 would take \
                72.0 MiB (model.max_model_len)";
    assert!(log.lines().any(|line| line == said), "{log}");
    let asked = run(&[&SERVE[..], &arguments, &["--max-model-len", "8192"]].concat());
    let expected =
        "engine.kv_memory: expected at least 73728 KiB for one sequence of 8192 positions";
    names(&refusal(&asked, 78), &[expected, "(model.max_model_len), found 16MiB"]);
}

/// The one-line error of `asynclane serve` for a model folder.
fn refused(folder: &Path, code: i32) -> String {
    refusal(&run(&[&SERVE[..], &["--model", utf8(folder)]].concat()), code)
}

/// Checks that `message` has all `parts`, in order.
fn names(message: &str, parts: &[&str]) {
    let mut rest = message;
    for part in parts {
        let start = rest.find(part);
        let start = start.unwrap_or_else(|| panic!("expected {part:?} in {message:?}"));
        rest = &rest[start + part.len()..];
    }
}

#[test]
fn an_unchanged_copy_of_the_checkpoint_is_accepted() {
    let folder = checkpoint("whole", |_| {});
    let output = run(&["inspect", "--model", utf8(&folder)]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn a_missing_folder() {
    let message = refused(&folder("empty").join("missing"), 66);
    names(&message, &["missing: no such file or folder", "expected"]);
    let meant = "dmeo: no such file or folder (did you mean \"demo\"?)";
    for (model, parts) in [
        ("./nope", ["./nope: no such file or folder; expected", ""]),
        ("dmeo", [meant, "`demo`"]),
        ("/dev/null", ["neither a folder nor a GGUF file", ""]),
    ] {
        for command in [&["inspect", "--model", model][..], &["serve", model, "--port", "0"]] {
            names(&refusal(&run(command), 66), &parts);
        }
    }
}

#[test]
fn a_missing_adapter() {
    let message = refusal(&run(&[&SERVE[..], &["--lora", "nosuch"]].concat()), 66);
    names(&message, &["adapter_config.json: not found in nosuch"]);
}

#[test]
fn a_length_beyond_the_context() {
    for command in [&SERVE[..], &["inspect"], &["generate", "Hi"]] {
        let message = refusal(&run(&[command, &["--max-model-len", "70000"]].concat()), 78);
        let parts = ["model.max_model_len: expected at most ", " found 70000"];
        names(&message, &parts);
    }
}

#[test]
fn truncated_weights() {
    let folder = checkpoint("truncated", |_| {});
    let path = folder.join("model.safetensors");
    let weights = std::fs::read(&path).unwrap();
    for length in [0, 5, 2000, weights.len() / 2, weights.len() - 1] {
        std::fs::write(&path, &weights[..length]).unwrap();
        let message = refused(&folder, 65);
        names(&message, &["model.safetensors", "truncated"]);
        // With an intact header the error names the missing tensor.
        if length >= weights.len() / 2 {
            let found = format!("found {length}");
            names(&message, &["model.transformer", "expected a file of", &found]);
        }
    }
}

#[test]
fn tensors_that_a_configuration_does_not_describe() {
    let shape = checkpoint("shape", |config| config["mlp_hidden_size"] = json!(500));
    let tensor = "model.transformer.blocks.0.ff_proj.weight";
    let shapes = "expected shape [500, 192], found [512, 192]";
    names(&refused(&shape, 65), &["model.safetensors", tensor, shapes]);
    let layers = checkpoint("layers", |config| config["n_layers"] = json!(7));
    let parts = ["model.safetensors", "blocks.6.", "expected", "found none"];
    names(&refused(&layers, 65), &parts);
}

#[test]
fn an_unknown_architecture() {
    let folder = checkpoint("architecture", |config| {
        config["model_type"] = json!("gpt2");
        config["architectures"] = json!(["GPT2LMHeadModel"]);
    });
    let message = refused(&folder, 65);
    let found = ["config.json", "expected", "LLaDAModelLM", "found", "GPT2LMHeadModel"];
    names(&message, &found);
    // The architecture is named before the missing weights.
    std::fs::remove_file(folder.join("model.safetensors")).unwrap();
    assert_eq!(refused(&folder, 65), message);
}

#[test]
fn configurations_and_arguments() {
    let file = |name: &str, text: &str| {
        let file = folder(name).join("broken.toml");
        std::fs::write(&file, text).unwrap();
        utf8(&file).to_owned()
    };
    let kind = file("config", "[engine]\nrow_budget = \"many\"\n");
    let place = format!("{kind}:2:14");
    for arguments in [&[&SERVE[..], &["--config", &kind]].concat()[..], &["check-config", &kind]] {
        let message = refusal(&run(arguments), 78);
        names(&message, &[&place, "engine.row_budget", "whole number", "many"]);
    }
    let key = file("key", "[server]\n\n  lisen = \"127.0.0.1:0\"\n");
    let place = format!("{key}:3:3");
    let missing = utf8(&folder("no-config").join("missing.toml")).to_owned();
    for (arguments, code, parts) in [
        (["check-config", &key], 78, [&*place, "lisen"]),
        (["check-config", &missing], 66, [&*missing, ""]),
        (["serve", "--lisen"], 64, ["--lisen", "--listen"]),
    ] {
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        names(&stderr(&output), &parts);
    }
}

#[test]
fn a_model_larger_than_the_memory() {
    let folder = checkpoint("large", |config| config["max_sequence_length"] = json!(1 << 20));
    let model = utf8(&folder);
    let arguments = ["--model", model, "--kv-memory", "1000000GiB"];
    let message = refusal(&run(&[&SERVE[..], &arguments].concat()), 65);
    let parts =
        [model, ": needs ", " of weights in f32, ", " of KV pages), ", " free: try --kv-memory "];
    names(&message, &parts);
}

/// Containers and shells set a model for all commands.
#[test]
fn a_model_on_the_command_line_takes_the_place_of_one_in_the_environment() {
    let inspected = |arguments: &[&str]| {
        let mut command = command(&[&["inspect"], arguments].concat());
        command.env("ASYNCLANE_MODEL", "demo");
        run_command(command)
    };
    for arguments in [&["demo-wedlm"][..], &["model", "demo-wedlm"], &["--model", "demo-wedlm"]] {
        let text = stdout(&inspected(arguments));
        assert!(text.contains("wedlm"), "{arguments:?}: {text}");
    }
    assert!(!stdout(&inspected(&[])).contains("wedlm"));
    let both = run(&["inspect", "demo", "--model", "demo"]);
    assert_eq!(both.status.code(), Some(64));
    let expected = "the argument '[MODEL]' cannot be used with '--model <MODEL>'";
    assert!(stderr(&both).contains(expected), "{}", stderr(&both));
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
        let arguments = ["--model", model, "--decoder", decoder];
        let output = run(&[&SERVE[..], &arguments].concat());
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(78), "{message}");
        let last = message.lines().last().unwrap_or_default();
        names(last, &["model.decoder", instead]);
        assert!(!message.contains("ready") && !message.contains("model loaded"), "{message}");
    }
}

/// The binary of the tests has no CUDA; `tests/lab/cuda/without-device` tests one that has.
#[test]
fn a_missing_device() {
    let serve = |device| run(&[&SERVE[..], &["--device", device]].concat());
    let message = refusal(&serve("cuda"), 69);
    let expected = "asynclane: --device cuda: this build has no CUDA support (feature `cuda`)\n";
    assert_eq!(message, expected);
    let output = serve("tpu");
    assert_eq!(output.status.code(), Some(78), "{}", stderr(&output));
    let parts = ["model.device", "auto, cpu, cuda", "\"tpu\""];
    names(&stderr(&output), &parts);
}

/// Container files write numbers where a flag has no value.
#[test]
fn flags_in_the_environment() {
    let shown = |value: &str| {
        let mut command = command(&["serve", "--print-config"]);
        command.env("ASYNCLANE_NO_PREFIX_CACHE", value).env("ASYNCLANE_UNTESTED_KERNELS", value);
        run_command(command)
    };
    for value in ["1", "yes", "on", "true"] {
        let text = stdout(&shown(value));
        let origin = "# environment ASYNCLANE_";
        names(&text, &[&format!("untested_kernels = true {origin}UNTESTED_KERNELS")]);
        names(&text, &[&format!("prefix_cache = false {origin}NO_PREFIX_CACHE")]);
    }
    for value in ["0", "no", "off", "false"] {
        let text = stdout(&shown(value));
        names(&text, &["untested_kernels = false # default"]);
        names(&text, &["prefix_cache = true # default"]);
    }
    let output = shown("maybe");
    assert_eq!(output.status.code(), Some(64), "{}", stderr(&output));
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
        let (code, message) = (output.status.code(), stderr(&output));
        assert_eq!(code, Some(74), "{arguments:?}: {message}");
    }
}

/// A template that reads another file of the machine, for all clients to see.
#[cfg(unix)]
#[test]
fn a_link_that_leads_out_of_the_folder() {
    let folder = checkpoint("link", |_| {});
    std::os::unix::fs::symlink("/etc/passwd", folder.join("chat_template.jinja")).unwrap();
    let message = refused(&folder, 65);
    let expected = "chat_template.jinja: expected a link inside";
    names(&message, &[expected, "found one to /etc/passwd"]);
}

/// A template that fails for every chat is told at the start; completions need none.
#[test]
fn a_template_that_can_never_answer() {
    let folder = checkpoint("include", |_| {});
    std::fs::write(folder.join("chat_template.jinja"), "{% include 'x' %}").unwrap();
    let output = run(&[&SERVE[..], &["--model", utf8(&folder)]].concat());
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(65), "{message}");
    let place = "chat_template.jinja: line 1: ";
    names(&message, &[place, "non-existing template 'x'"]);
}

/// A template may refuse some chats, so the operator is warned only of one that refuses all.
#[test]
fn a_template_that_refuses_every_chat() {
    let folder = checkpoint("raise", |_| {});
    let file = folder.join("chat_template.jinja");
    let warned =
        "warning: the chat template refuses a user's message, also after a system message: ";
    let needs_system =
        "{% if messages[0].role != 'system' %}{{ raise_exception('no system') }}{% endif %}a";
    for (template, expected) in
        [("{{ raise_exception('not today') }}", true), (needs_system, false)]
    {
        std::fs::write(&file, template).unwrap();
        let server = Server::start(&["--model", utf8(&folder)]);
        let body = json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1});
        let answer = server.client().post("/v1/chat/completions", &body);
        assert_eq!(answer.status, 400, "{template}");
        let log = server.stop();
        let warning = log.lines().find(|line| line.starts_with(warned));
        assert_eq!(warning.is_some(), expected, "{log}");
        assert!(!expected || log.contains("not today"), "{log}");
    }
}
