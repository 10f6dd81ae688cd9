//! Models by their id on the Hub: from the cache, from a local server in its place, and without one.

mod fit;
mod shelf;
mod stand_in;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Output;

use asynclane_tests::process::{command, refusal, run_command, stderr, stdout};

use crate::{folder, gguf};
use stand_in::{File, Hub, SHA, repository, status, tiny};

/// A command with the Hub's environment variables.
fn with_hub(arguments: &[&str], home: &Path, variables: &[(&str, &str)]) -> Output {
    let mut command = command(arguments);
    command.env("HF_HOME", home).current_dir(home);
    command.envs(variables.iter().copied());
    run_command(command)
}

fn inspect(model: &str, home: &Path, variables: &[(&str, &str)]) -> Output {
    with_hub(&["inspect", "--model", model], home, variables)
}

const OFFLINE: [(&str, &str); 1] = [("HF_HUB_OFFLINE", "1")];

/// A cache that holds the demo checkpoint as revision `main` of `tiny/demo`.
fn cache(test: &str) -> (PathBuf, PathBuf) {
    let home = folder(test);
    let repository = home.join("hub/models--tiny--demo");
    let snapshot = repository.join("snapshots").join(SHA);
    std::fs::create_dir_all(&snapshot).unwrap();
    std::fs::create_dir_all(repository.join("refs")).unwrap();
    std::fs::write(repository.join("refs/main"), SHA).unwrap();
    for (file, content) in demo::checkpoint::DEMO.files() {
        std::fs::write(snapshot.join(file), content).unwrap();
    }
    (home, snapshot)
}

#[test]
fn a_cached_model_is_loaded_offline() {
    let (home, snapshot) = cache("hub-cached");
    for model in ["tiny/demo".to_owned(), format!("tiny/demo@{SHA}")] {
        let text = stdout(&inspect(&model, &home, &OFFLINE));
        assert!(text.contains("family           llada"), "{text}");
    }
    let unknown = refusal(&inspect("tiny/demo@v2", &home, &OFFLINE), 66);
    assert!(unknown.contains("revision v2 not found in"), "{unknown}");
    for weights in ["model.safetensors", demo::checkpoint::FILTER] {
        std::fs::remove_file(snapshot.join(weights)).unwrap();
    }
    let gone = refusal(&inspect("tiny/demo", &home, &OFFLINE), 66);
    assert!(gone.contains("model.safetensors not found in"), "{gone}");
}

#[test]
fn a_cache_in_another_folder_is_found() {
    let (home, _) = cache("hub-elsewhere");
    let cache = home.join("hub");
    let variables =
        [("HF_HUB_OFFLINE", "true"), ("HF_HUB_CACHE", cache.to_str().expect("the path is UTF-8"))];
    stdout(&inspect("tiny/demo", &folder("hub-empty-home"), &variables));
}

#[test]
fn a_model_that_is_not_cached_is_refused_offline() {
    let home = folder("hub-offline");
    let message = refusal(&inspect("tiny/demo", &home, &OFFLINE), 66);
    let parts = "tiny/demo: no such folder|HF_HUB_OFFLINE|revision main not found";
    let all = parts.split('|').all(|part| message.contains(part));
    assert!(all, "{message}");
}

#[test]
fn a_folder_wins_over_an_id() {
    let (home, snapshot) = cache("hub-folder");
    std::fs::create_dir(home.join("tiny")).unwrap();
    std::fs::rename(snapshot, home.join("tiny/demo")).unwrap();
    stdout(&inspect("tiny/demo", &home, &OFFLINE));
    let hub = Hub::start(tiny);
    stdout(&inspect("tiny/demo", &home, &[("HF_ENDPOINT", &hub.endpoint)]));
    assert!(hub.requests().is_empty());
}

#[test]
fn a_model_that_the_hub_does_not_show_is_refused() {
    let home = folder("hub-refused");
    let refused = |hub: &Hub, code: i32, parts: &[&str]| {
        let output = inspect("tiny/demo", &home, &[("HF_ENDPOINT", &hub.endpoint)]);
        let message = refusal(&output, code);
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        message
    };
    let folder = "tiny/demo: no such folder";
    for (line, code, parts, asked) in [
        ("404 Not Found", 66, [folder, "no revision main of it"], 1),
        ("401 Unauthorized", 66, ["status 401", "HF_TOKEN"], 1),
        ("403 Forbidden", 66, ["status 403", "HF_TOKEN"], 1),
        ("503 Service Unavailable", 69, ["tiny/demo: http", "status 503"], 4),
    ] {
        let hub = Hub::start(move |_| status(line));
        refused(&hub, code, &parts);
        assert_eq!(hub.requests().len(), asked);
    }
    let pickle = File::listed("pytorch_model.bin");
    let hub = Hub::start(move |head| repository(head, &[pickle]));
    refused(&hub, 65, &["expected model.safetensors", "found pytorch_model.bin"]);
    // An unsupported architecture is named before missing weights.
    let config = br#"{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"}"#;
    let hub = Hub::start(move |head| repository(head, &[pickle, File::new("config.json", config)]));
    let message = refused(&hub, 65, &["found [\"GPT2LMHeadModel\"]"]);
    assert!(!message.contains("safetensors"), "{message}");
}

#[test]
fn without_a_network_only_the_cache_is_read() {
    // Bound and released: a free port without a listener.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let variables = [("HF_ENDPOINT", endpoint.as_str())];
    let output = inspect("tiny/demo", &folder("hub-no-network"), &variables);
    let message = refusal(&output, 69);
    for part in [
        format!("not downloaded from {endpoint}"),
        "give the folder of a copy".to_owned(),
        "hub-no-network/hub and set HF_HUB_OFFLINE=1".to_owned(),
    ] {
        assert!(message.contains(&part), "{part} in {message}");
    }
    let output = inspect("tiny/demo", &cache("hub-cache-only").0, &variables);
    stdout(&output);
    let warning = stderr(&output);
    let named = warning.starts_with("warning: tiny/demo") && warning.lines().count() == 1;
    assert!(named, "{warning}");
}

#[test]
fn a_download_takes_what_a_checkpoint_needs_and_stays() {
    let home = folder("hub-download");
    let hub = Hub::start(tiny);
    let token = ("HF_TOKEN", "canary");
    let variables = [("HF_ENDPOINT", &*hub.endpoint), token];
    let described = inspect("tiny/demo", &home, &variables);
    let text = stdout(&described);
    assert!(text.contains("family           llada"), "{text}");
    assert!(text.contains("weights          not downloaded"), "{text}");
    let is_weights = |head: &String| head.contains("model.safetensors");
    assert!(!hub.requests().iter().any(is_weights));
    let short = ["generate", "--model", "tiny/demo", "--max-tokens", "4", "2 + 3?"];
    let output = with_hub(&short, &home, &variables);
    stdout(&output);
    assert!(!stderr(&output).contains("canary"));
    let requests = hub.requests();
    for head in &requests {
        let lower = head.to_ascii_lowercase();
        assert!(lower.contains("authorization: bearer canary"), "{head}");
    }
    for (file, asked) in [
        ("config.json", true),
        ("model.safetensors", true),
        ("tokenizer.json", true),
        ("README.md", false),
        ("pytorch_model.bin", false),
        ("..", false),
    ] {
        let path = format!("/resolve/{SHA}/{file}");
        let found = requests.iter().any(|head| head.contains(&path));
        assert_eq!(found, asked, "{file}");
    }
    // A second run requests only the list of files; offline, a third requests nothing.
    stdout(&inspect("tiny/demo", &home, &variables[..1]));
    assert_eq!(hub.requests().len(), requests.len() + 1);
    stdout(&inspect("tiny/demo", &home, &OFFLINE));
}

/// A quantization that a file beside the configuration describes is known before the download.
#[test]
fn a_file_of_an_older_quantization_is_read_before_the_weights() {
    for (text, expected) in [
        (&br#"{"bits": 4, "group_size": 32}"#[..], Ok("gptq, 4 bits, groups of 32")),
        (
            br#"{"bits": 3, "group_size": 32}"#,
            Err("quantize_config.json: bits: expected 4 or 8, found 3"),
        ),
    ] {
        let hub = Hub::start(move |head| {
            let others = demo::checkpoint::DEMO.files().map(|(name, content)| match name {
                "model.safetensors" => File::sized(name, 1 << 20),
                _ => File::new(name, content),
            });
            let all = others.chain([File::new("quantize_config.json", text)]);
            repository(head, &all.collect::<Vec<_>>())
        });
        let home = folder(if expected.is_ok() { "hub-older" } else { "hub-older-refused" });
        let output = inspect("tiny/demo", &home, &[("HF_ENDPOINT", &hub.endpoint)]);
        match expected {
            Ok(about) => assert!(stdout(&output).contains(about), "{output:?}"),
            Err(reason) => assert!(refusal(&output, 65).contains(reason), "{output:?}"),
        }
        assert!(!hub.requests().iter().any(|head| head.contains("model.safetensors")));
    }
}

/// As publishers of quantized files call them. An adapter and shards without an index are no model.
#[test]
fn the_only_file_of_weights_may_have_another_name() {
    const OTHER: &str = "gptq_model-4bit-128g.safetensors";
    let start = |other: &'static str| {
        Hub::start(move |head| {
            let files = demo::checkpoint::DEMO.files();
            let files = files.filter(|(name, _)| *name != demo::checkpoint::FILTER);
            let files = files.map(|(name, content)| match name {
                "model.safetensors" => File::new(other, content),
                _ => File::new(name, content),
            });
            let adapter = [File::listed("adapter_model.safetensors")];
            repository(head, &files.chain(adapter).collect::<Vec<_>>())
        })
    };
    let home = folder("hub-other-name");
    let hub = start(OTHER);
    let online = [("HF_ENDPOINT", &*hub.endpoint)];
    let text = stdout(&inspect("tiny/demo", &home, &online));
    assert!(text.contains("weights          not downloaded"), "{text}");
    let short = ["generate", "--model", "tiny/demo", "--max-tokens", "4", "2 + 3?"];
    stdout(&with_hub(&short, &home, &online));
    assert!(!hub.requests().iter().any(|head| head.contains("adapter_model")));
    stdout(&inspect("tiny/demo", &home, &OFFLINE));
    let home = folder("hub-other-name-refused");
    let hub = start("model-00001-of-00002.safetensors");
    let message = refusal(&inspect("tiny/demo", &home, &[("HF_ENDPOINT", &hub.endpoint)]), 65);
    assert!(
        message.contains("expected model.safetensors, model.safetensors.index.json"),
        "{message}"
    );
}

#[test]
fn a_gguf_file_is_downloaded_by_a_part_of_its_name() {
    let home = folder("hub-gguf");
    let file = gguf::write("hub-gguf-source", "gpt-2");
    let content = std::fs::read(file).expect("the file is written");
    let hub = Hub::start(move |head| {
        let files = [File::new("tiny-Q8_0.gguf", &content), File::listed("tiny-Q4_K_M.gguf")];
        repository(head, &files)
    });
    let online = [("HF_ENDPOINT", hub.endpoint.as_str())];
    let text = stdout(&inspect("tiny/demo:q8_0", &home, &online));
    assert!(text.contains("family           qwen2"), "{text}");
    let asked = hub.requests();
    assert!(asked.iter().all(|head| !head.contains("Q4_K_M")));
    stdout(&inspect("tiny/demo:Q8_0", &home, &OFFLINE));
    for (model, variables, code, expected) in [
        ("tiny/demo", &online, 65, "give one of its GGUF files as tiny/demo:FILE"),
        ("tiny/demo:Q5", &OFFLINE, 66, "no GGUF file Q5; there are tiny-Q8_0.gguf in"),
    ] {
        let message = refusal(&inspect(model, &home, variables), code);
        assert!(message.contains(expected), "{message}");
    }
}
