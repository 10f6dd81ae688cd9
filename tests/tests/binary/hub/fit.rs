//! A model that does not fit is refused before its weights are asked for.

use std::path::Path;

use asynclane_tests::process::{refusal, stderr, stdout};
use serde_json::json;

use super::stand_in::{File, Hub, SHA, repository};
use super::{cache, inspect, with_hub};
use crate::folder;

const SHARDS: [&str; 2] = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];

/// A model of the width of LLaDA-8B with this many layers, in bf16.
fn config(layers: usize) -> String {
    let config = json!({
        "architectures": ["LLaDAModelLM"], "torch_dtype": "bfloat16", "d_model": 4096, "n_heads": 32,
        "n_kv_heads": 4, "n_layers": layers, "mlp_hidden_size": 12288, "vocab_size": 126464,
        "max_sequence_length": 256
    });
    config.to_string()
}

fn index() -> String {
    let map = json!({"a": SHARDS[0], "b": SHARDS[1]});
    json!({"metadata": {"total_size": 7_u64 << 30}, "weight_map": map}).to_string()
}

/// A repository of `tiny/demo` with two shards of these bytes, which it does not send.
fn sharded(layers: usize, bytes: Option<u64>) -> Hub {
    let (config, index) = (config(layers), index());
    Hub::start(move |head| {
        let shard = |name| bytes.map_or(File::listed(name), |bytes| File::sized(name, bytes));
        let files = [
            File::new("config.json", config.as_bytes()),
            File::new("model.safetensors.index.json", index.as_bytes()),
            shard(SHARDS[0]),
            shard(SHARDS[1]),
        ];
        repository(head, &files)
    })
}

/// The paths that were asked for, of files only.
fn files(hub: &Hub) -> Vec<String> {
    let resolve = format!("/tiny/demo/resolve/{SHA}/");
    let asked = hub.requests();
    let paths = asked.iter().filter_map(|head| head.split(' ').nth(1)?.strip_prefix(&*resolve));
    paths.map(str::to_owned).collect()
}

/// The run of a command with `tiny/demo` as its model.
fn run(command: &str, hub: &Hub, home: &Path, more: &[&str]) -> std::process::Output {
    let model = match command {
        "pull" => vec!["pull", "tiny/demo"],
        "generate" => vec!["generate", "--model", "tiny/demo", "hello"],
        "logits" => {
            vec!["inspect", "logits", "--model", "tiny/demo", "--tokens", "1", "--out", "/dev/null"]
        }
        _ => vec!["serve", "tiny/demo", "--port", "0"],
    };
    let arguments = [&model[..], &["--device", "cpu"], more].concat();
    with_hub(&arguments, home, &[("HF_ENDPOINT", &hub.endpoint)])
}

#[test]
fn what_does_not_fit_is_refused_before_the_first_weight() {
    let home = folder("fit-refused");
    let hub = sharded(2000, Some(1 << 30));
    for command in ["serve", "generate", "pull", "logits"] {
        let before = files(&hub).len();
        let message = refusal(&run(command, &hub, &home, &[]), 65);
        for part in [
            "tiny/demo: 378.54 billion parameters, 2.0 GiB to download: needs ",
            " in bf16",
            ": no dtype fits (--force goes on)",
        ] {
            assert!(message.contains(part), "{part} in {command}: {message}");
        }
        // Configuration and index come first, nothing after them, and neither comes twice.
        let first = ["config.json", "model.safetensors.index.json"];
        assert_eq!(files(&hub)[before..], first[if before == 0 { 0 } else { 2 }..], "{command}");
    }
    let forced = stderr(&run("pull", &hub, &home, &["--force"]));
    assert!(forced.starts_with("warning: tiny/demo: 378.54 billion"), "{forced}");
    assert_eq!(files(&hub).last().map(String::as_str), Some(SHARDS[0]), "the first weight");
}

#[test]
fn a_refusal_names_the_dtype_that_fits() {
    let home = folder("fit-dtype");
    let message = stderr(&run("pull", &sharded(2000, None), &home, &[]));
    let free = message.split("), ").nth(1).and_then(|rest| rest.split(' ').next());
    let free: f64 = free.unwrap_or_else(|| panic!("{message}")).parse().unwrap();
    // A layer takes 0.35 GiB in bf16.
    let layers = (1.4 * free / 0.35) as usize;
    let message = refusal(&run("pull", &sharded(layers, None), &folder("fit-int8"), &[]), 65);
    assert!(message.contains("7.0 GiB to download"), "the index says so: {message}");
    assert!(message.contains(" free: try --dtype int8, which needs "), "{message}");
    let hub = sharded(layers, None);
    let fitting = stderr(&run("pull", &hub, &folder("fit-int8"), &["--dtype", "int8"]));
    assert!(fitting.contains("7.0 GiB to download, "), "{fitting}");
    assert!(fitting.contains(" of memory in int8\n"), "{fitting}");
    assert_eq!(files(&hub).last().map(String::as_str), Some(SHARDS[0]));
}

#[test]
fn a_download_that_the_disk_does_not_hold_is_refused() {
    let home = folder("fit-disk");
    let hub = sharded(1, Some(1 << 59));
    let output = run("pull", &hub, &home, &["--force"]);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(74), "{message}");
    let last = message.lines().last().unwrap();
    assert!(last.contains("tiny/demo: 1073741824.0 GiB to download, "), "{last}");
    assert!(last.contains("or set HF_HOME to a folder on another disk"), "{last}");
    assert_eq!(files(&hub), ["config.json", "model.safetensors.index.json"]);
}

#[test]
fn a_gguf_file_that_is_larger_than_the_memory_is_refused() {
    let hub = Hub::start(|head| repository(head, &[File::sized("tiny.gguf", 1 << 50)]));
    let message = refusal(&run("pull", &hub, &folder("fit-gguf"), &[]), 65);
    let expected = "tiny/demo: 1048576.0 GiB to download: needs as much memory at least, ";
    assert!(message.contains(expected), "{message}");
    assert!(files(&hub).is_empty());
}

#[test]
fn a_pulled_model_is_a_folder_that_loads() {
    let home = folder("pulled");
    let hub = Hub::start(super::tiny);
    let output = run("pull", &hub, &home, &[]);
    let place = stdout(&output);
    assert!(stderr(&output).contains("tiny/demo: 0.00 billion parameters, 5.8 MiB to download, "));
    let text = stdout(&inspect(place.trim(), &home, &super::OFFLINE));
    assert!(text.contains("family           llada"), "{text}");
    // A second run asks for the list alone and says nothing of a download.
    let asked = files(&hub).len();
    let again = run("pull", &hub, &home, &[]);
    assert_eq!(stdout(&again), place);
    assert_eq!((stderr(&again).as_str(), files(&hub).len()), ("", asked));

    let here = refusal(&with_hub(&["pull", "demo"], &home, &[]), 64);
    assert!(here.contains("demo: nothing to download"), "{here}");
    let nothing = refusal(&with_hub(&["pull", "llada-9b"], &home, &super::OFFLINE), 66);
    assert!(nothing.contains("did you mean \"llada-8b\"?"), "{nothing}");
}

#[test]
fn a_damaged_cache_is_repaired_or_says_how() {
    let (home, snapshot) = cache("fit-damaged");
    let weights = snapshot.join("model.safetensors");
    let whole = std::fs::read(&weights).unwrap();
    std::fs::write(&weights, &whole[..1000]).unwrap();
    let generate = ["generate", "--model", "tiny/demo", "--max-tokens", "4", "2 + 3?"];
    let message = refusal(&with_hub(&generate, &home, &super::OFFLINE), 65);
    assert!(message.contains("model.safetensors"), "{message}");
    assert!(message.contains("`asynclane models rm tiny/demo`"), "{message}");
    let hub = Hub::start(super::tiny);
    stdout(&with_hub(&generate, &home, &[("HF_ENDPOINT", &hub.endpoint)]));
    assert_eq!(files(&hub), ["model.safetensors"]);
    assert!(std::fs::read(&weights).unwrap() == whole);
}
