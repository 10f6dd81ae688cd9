//! `asynclane serve` with a tiny DiffusionGemma checkpoint of random weights: JSON under a schema, alone
//! and beside others, with a prompt that requests share.

use std::path::{Path, PathBuf};

use asynclane_tests::process::{Server, run, stderr, stdout, utf8};
use asynclane_tests::reply::Reply;
use asynclane_tests::served::in_parallel;
use serde_json::{Map, Value, json};

use crate::folder;

const CHECKPOINT: &str = "../crates/model/tests/model/fixtures/canvas/diffusion-gemma";
/// The tokens from 3 on, in the byte-level alphabet (`Ġ` is a blank): enough for JSON in small letters
/// without y and z.
const ALPHABET: &str = "{}[]\":,-.0123456789Ġabcdefghijklmnopqrstuvwx";
/// More tokens than a page of K/V has slots.
const PROMPT: &str = "tom has 9 coins, mia has 14 coins";
const SEEDS: u64 = 12;

/// The checkpoint with a tokenizer of one character per token.
fn checkpoint(test: &str) -> PathBuf {
    let copy = folder(test).join("canvas");
    std::fs::create_dir(&copy).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(CHECKPOINT);
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, copy.join(path.file_name().unwrap())).unwrap();
    }
    let characters = ALPHABET.chars().map(String::from);
    let special = ["<pad>", "<eos>", "<bos>"];
    let tokens = special.map(str::to_owned).into_iter().chain(characters);
    let vocabulary: Map<String, Value> = tokens.zip((0..).map(|id| json!(id))).collect();
    let added = |id: usize| {
        json!({"id": id, "content": special[id], "special": true, "single_word": false,
            "lstrip": false, "rstrip": false, "normalized": false})
    };
    let added = [0, 1, 2].map(added);
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
        "use_regex": false});
    let tokenizer = json!({"version": "1.0", "added_tokens": added, "pre_tokenizer": byte_level,
        "decoder": byte_level, "model": {"type": "BPE", "vocab": vocabulary, "merges": []}});
    let write =
        |name: &str, value: &Value| std::fs::write(copy.join(name), value.to_string()).unwrap();
    write("tokenizer.json", &tokenizer);
    write("tokenizer_config.json", &json!({"eos_token": "<eos>"}));
    copy
}

/// A schema whose texts are at most about 100 characters long.
fn schema() -> Value {
    json!({"type": "object", "properties": {"name": {"enum": ["tom", "mia", "dan"]},
        "count": {"type": "integer", "minimum": 0, "maximum": 99},
        "steps": {"type": "array", "minItems": 1, "maxItems": 2,
        "items": {"type": "object", "properties": {"kind": {"enum": ["gain", "lose"]},
        "done": {"type": "boolean"}}, "required": ["kind", "done"], "additionalProperties": false}},
        "note": {"type": "string", "maxLength": 4}}, "required": ["name", "count", "steps", "note"],
        "additionalProperties": false})
}

fn ask(server: &Server, seed: u64) -> Reply {
    let body = json!({
        "model": "canvas", "prompt": PROMPT, "max_tokens": 200, "seed": seed,
        "temperature": if seed.is_multiple_of(3) { 0 } else { 1 },
        "response_format": {"type": "json_schema",
            "json_schema": {"name": "answer", "schema": schema()}},
        "diffusion": {"max_denoising_steps": 8},
    });
    Reply::of_answer(&server.client().json("/v1/completions", &body))
}

#[test]
fn a_canvas_model_writes_valid_json_only() {
    let folder = checkpoint("canvas-json");
    let server = Server::start(&["--model", utf8(&folder)]);
    let alone: Vec<Reply> = (0..SEEDS).map(|seed| ask(&server, seed)).collect();
    for (seed, reply) in alone.iter().enumerate() {
        let choice = &reply.choices[0];
        assert_eq!(choice.finish_reason, "stop", "{choice:?}");
        let value: Value = serde_json::from_str(&choice.text).expect("a text of JSON");
        let valid = jsonschema::validate(&schema(), &value);
        assert!(valid.is_ok(), "{value}: {valid:?}");
        let cached = &reply.usage["prompt_tokens_details"]["cached_tokens"];
        let is_cached = cached.as_u64().unwrap_or(0) > 0;
        assert_eq!(is_cached, seed > 0, "{}", reply.usage);
    }
    let texts = |replies: &[Reply]| {
        let texts = replies.iter().map(|reply| reply.choices[0].text.clone());
        texts.collect::<Vec<_>>()
    };
    let mut distinct = texts(&alone);
    distinct.sort();
    distinct.dedup();
    assert!(distinct.len() > 3, "{distinct:?}");
    let seeds: Vec<u64> = (0..SEEDS).collect();
    let together = in_parallel(seeds.len(), &seeds, |seed| ask(&server, *seed));
    assert_eq!(texts(&together), texts(&alone));
}

/// `generate --trace` has a line per forward pass, with the kept tokens of a canvas that is not final.
#[test]
fn a_trace_in_the_terminal_counts_kept_tokens() {
    let folder = checkpoint("canvas-trace");
    let arguments = ["generate", PROMPT, "--raw", "--max-tokens", "20", "--seed", "3", "--model"];
    let arguments = [&arguments[..], &[utf8(&folder)]].concat();
    let plain = stdout(&run(&arguments));
    let traced = run(&[&arguments[..], &["--trace"]].concat());
    assert_eq!(stdout(&traced), plain, "a trace changes no token");
    let trace = stderr(&traced);
    let steps = trace.lines().take_while(|line| line.starts_with("step"));
    let (mut open, mut committed) = (0, 0);
    for line in steps {
        let (head, _) = line.split_once(" | ").expect("the canvas");
        match head.split_once(" kept ") {
            Some((before, kept)) => {
                assert!(before.ends_with("commits   0"), "{line}");
                let (kept, drawn) = kept.split_once(" of ").expect("two numbers");
                let count = |text: &str| text.trim().parse::<u32>().unwrap();
                assert!((1..8).contains(&count(kept)) && count(drawn) == 8, "{line}");
                open += 1;
            }
            None => {
                assert!(head.ends_with("commits   8"), "{line}");
                committed += 1;
            }
        }
    }
    assert!(open > 0 && (1..=3).contains(&committed), "{trace}");
}
