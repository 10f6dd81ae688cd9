//! `asynclane serve --model FOLDER` on a tiny checkpoint of every family, and what a folder says beside
//! its weights.

use std::path::{Path, PathBuf};

use asynclane_tests::process::{Server, run, stderr, utf8};
use asynclane_tests::reply::Reply;
use asynclane_tests::words::with_words;
use serde_json::{Value, json};

use crate::folder;

const CHECKPOINTS: [&str; 2] = [
    "../crates/model/tests/model/fixtures/families",
    "../crates/model/tests/model/fixtures/canvas",
];
const WORDS: [&str; 3] = ["w7 w8 w9", "w11", "w9 w8 w12 w30 w31 w8 w8"];

/// A copy of a checkpoint with a tokenizer, and its mask token, if it has one.
fn with_tokenizer(checkpoint: &Path) -> (PathBuf, Option<u64>) {
    let copy = folder(utf8(checkpoint.file_name().unwrap().as_ref()));
    let mask = with_words(checkpoint, &copy);
    (copy, mask)
}

#[test]
fn every_family_answers_from_a_folder() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = CHECKPOINTS.map(|folder| std::fs::read_dir(root.join(folder)).unwrap());
    let mut served = 0;
    for entry in folders.into_iter().flatten() {
        let (folder, mask) = with_tokenizer(&entry.unwrap().path());
        let name = utf8(folder.file_name().unwrap().as_ref());
        let server = Server::start(&["--model", utf8(&folder)]);
        for prompt in WORDS {
            let mut body = json!({"model": name, "prompt": prompt, "max_tokens": 24,
                "temperature": 0, "ignore_eos": true, "return_token_ids": true, "seed": 7});
            let path = "/v1/completions";
            let plain = server.client().post(path, &body).json();
            let choice = &plain["choices"][0];
            assert_eq!(choice["finish_reason"], "length", "{name}: {plain}");
            let ids: Vec<u64> = serde_json::from_value(choice["token_ids"].clone()).unwrap();
            assert_eq!(ids.len(), 24, "{name}: {plain}");
            let is_mask = |id: &u64| Some(*id) == mask;
            assert!(!ids.iter().any(is_mask), "{name}: a mask is no token");
            let words: Vec<String> = ids.iter().map(|id| format!("w{id}")).collect();
            let text = choice["text"].as_str().unwrap().trim();
            assert_eq!(text, words.join(" "), "{name}");
            body["stream"] = json!(true);
            body["stream_options"] = json!({"include_usage": true});
            let events = server.client().stream(path, &body);
            let streamed = Reply::of_events(events);
            assert_eq!(streamed.choices, Reply::of_answer(&plain).choices, "{name}");
        }
        assert_the_default_by_name(&server, name);
        served += 1;
    }
    assert_eq!(served, 40);
}

/// A request that names the server's default preset has the tokens of one that names none.
fn assert_the_default_by_name(server: &Server, model: &str) {
    let served = server.client().get("/v1/models").json();
    let preset = &served["data"][0]["diffusion"]["default"];
    let ids = |diffusion: Value| {
        let body = json!({"model": model, "prompt": "w8 w9", "max_tokens": 45, "temperature": 0,
            "seed": 7, "return_token_ids": true, "diffusion": diffusion});
        let answer = server.client().post("/v1/completions", &body).json();
        let ids = answer["choices"][0]["token_ids"].clone();
        assert!(ids.is_array(), "{model}: {answer}");
        ids
    };
    let named = ids(json!({"preset": preset}));
    assert_eq!(named, ids(json!({})), "{model}: {preset}");
    assert_eq!(named, ids(Value::Null), "{model}: {preset}");
}

#[test]
fn the_default_preset_by_name_is_the_default_of_the_embedded_models() {
    for model in ["demo", "demo-wedlm", "demo-sdar"] {
        assert_the_default_by_name(&Server::start(&["--model", model]), model);
    }
}

#[test]
fn a_canvas_models_folder_says_how_canvases_are_decoded() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (folder, _) = with_tokenizer(&root.join(CHECKPOINTS[1]).join("diffusion-gemma"));
    let inspected = |content: &Value| {
        let path = folder.join("generation_config.json");
        std::fs::write(path, content.to_string()).unwrap();
        run(&["inspect", "--model", utf8(&folder)])
    };
    let sampler = json!({"entropy_bound": 0.3});
    let output = inspected(&json!({"max_denoising_steps": 3, "sampler_config": sampler}));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("max_denoising_steps=3"), "{text}");
    assert!(text.contains("entropy_bound=0.3"), "{text}");
    let output = inspected(&json!({"t_min": "low"}));
    assert_eq!(output.status.code(), Some(65));
    let message = stderr(&output);
    let expected = "generation_config.json: t_min: expected a number, found \"low\"";
    assert!(message.contains(expected), "{message}");
}
