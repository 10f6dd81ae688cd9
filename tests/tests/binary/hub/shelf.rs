//! `asynclane models`: short names, the memory of models, and the models in the cache.

use std::fs;

use asynclane_tests::process::{refusal, run, stderr, stdout, utf8};
use serde_json::{Value, json};

use super::stand_in::{Hub, SHA, status};
use super::{OFFLINE, cache, with_hub};
use crate::folder;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn models(home: &std::path::Path) -> Value {
    serde_json::from_str(&stdout(&with_hub(&["models", "--json"], home, &[]))).unwrap()
}

/// The row of a short name.
fn row<'a>(list: &'a Value, name: &str) -> &'a Value {
    let rows = list["models"].as_array().unwrap();
    rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name}"))
}

/// Bytes as `inspect` prints them.
fn printed(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    match bytes >> 20 {
        1024.. => format!("{:.1} GiB", mib / 1024.0),
        100.. => format!("{mib:.0} MiB"),
        _ => format!("{mib:.1} MiB"),
    }
}

#[test]
fn the_memory_of_the_list_is_that_of_inspect() {
    let home = folder("shelf-memory");
    let list = models(&home);
    // The keys of the published files.
    let llada = json!({
        "architectures": ["LLaDAModelLM"], "activation_type": "silu", "alibi": false,
        "block_group_size": 1, "block_type": "llama", "d_model": 4096, "embedding_size": 126464,
        "eos_token_id": 126081, "include_bias": false, "include_qkv_bias": false,
        "layer_norm_type": "rms", "layer_norm_with_affine": true, "mask_token_id": 126336,
        "max_sequence_length": 4096, "mlp_hidden_size": 12288, "mlp_ratio": 4, "model_type": "llada",
        "n_heads": 32, "n_kv_heads": 32, "n_layers": 32, "pad_token_id": 126081,
        "rms_norm_eps": 1e-5, "rope": true, "rope_theta": 500000.0, "vocab_size": 126464,
        "torch_dtype": "bfloat16", "weight_tying": false
    });
    let wedlm = json!({
        "architectures": ["WeDLMForCausalLM"], "attention_bias": false, "head_dim": 128,
        "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 12288,
        "max_position_embeddings": 16384, "model_type": "wedlm", "num_attention_heads": 32,
        "num_hidden_layers": 36, "num_key_value_heads": 8, "qk_norm": true, "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
        "vocab_size": 151936
    });
    let written = [("llada-8b", llada), ("llada-1.5", json!(null)), ("wedlm-8b", wedlm)];
    let mut configs =
        vec![("diffusiongemma", format!("{ROOT}/crates/cli/src/shelf/diffusiongemma-26b.json"))];
    let mut last = String::new();
    for (name, config) in written {
        let file = home.join(format!("{name}.json"));
        if !config.is_null() {
            last = config.to_string();
        }
        fs::write(&file, &last).unwrap();
        configs.push((name, utf8(&file).to_owned()));
    }
    let capacity =
        |arguments: &[&str]| stdout(&run(&[&["inspect", "capacity"], arguments].concat()));
    let mut texts: Vec<(&str, String)> = configs
        .iter()
        .map(|(name, config)| (*name, capacity(&["--config-json", config])))
        .collect();
    // These are embedded: the headers of their weights say the same.
    texts.extend(["demo", "demo-wedlm"].map(|name| (name, capacity(&["--model", name]))));
    for (name, text) in texts {
        let memory = row(&list, name)["memory"].as_array().unwrap();
        assert_eq!(memory.len(), 4, "{name}");
        for room in memory {
            let weights = printed(room["weights"].as_u64().unwrap());
            let dtype = room["dtype"].as_str().unwrap();
            let line = format!("weights in {dtype:<5} {weights} in memory, ");
            assert!(text.contains(&line), "{name}: {line} in {text}");
            assert!(room["needed"].as_u64() >= room["weights"].as_u64(), "{name} {dtype}");
        }
    }
}

#[test]
fn every_row_says_what_was_verified_and_what_fits() {
    let list = models(&folder("shelf-rows"));
    let free = list["machine"]["free"].as_u64().expect("Linux reports its memory");
    let rows = list["models"].as_array().unwrap();
    assert!(rows.len() >= 15, "{}", rows.len());
    for row in rows {
        let text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
        let verified = &row["verified"];
        assert!(["on", "when", "by"].iter().all(|key| text(&verified[*key])), "{row}");
        assert!(text(&row["decoder"]) && row["bytes"].as_u64() > Some(1 << 20), "{row}");
        for room in row["memory"].as_array().unwrap() {
            let needed = room["needed"].as_u64().unwrap();
            let expected = match needed {
                _ if needed > free => "too large",
                _ if needed > free - free / 10 => "tight",
                _ => "fits",
            };
            assert_eq!(room["fit"], expected, "{row}");
        }
    }
    for (name, parameters, decoder) in [
        ("llada-8b", 8_015_581_184_u64, "balanced"),
        ("dream-7b", 7_615_616_512, "balanced"),
        ("coda-1.7b", 2_031_739_904, "balanced"),
        ("rnd1-30b", 30_532_122_624, "balanced"),
        ("sdar-8b", 8_190_735_360, "block_causal"),
        ("fast-dllm-1.5b", 1_543_714_304, "block_causal"),
        ("smollm2", 134_515_008, "autoregressive"),
        ("llada2.1-mini", 16_255_643_392, "editing"),
    ] {
        let row = row(&list, name);
        assert_eq!(row["parameters"], parameters, "{name}");
        assert_eq!(row["decoder"], decoder, "{name}");
    }
    let text = stdout(&with_hub(&["models"], &folder("shelf-text"), &[]));
    let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(row("wedlm-8b").contains("tencent/WeDLM-8B-Instruct"), "{text}");
    assert!(text.contains("verified (all others): architecture: "), "{text}");
    assert!(text.contains("is empty"), "{text}");
}

#[test]
fn a_short_name_is_accepted_wherever_a_model_is() {
    let home = folder("shelf-names");
    let hub = Hub::start(|_| status("404 Not Found"));
    let config = home.join("a.toml");
    fs::write(&config, "[model]\npath = \"smollm2\"\n").unwrap();
    let drafts = ["serve", "demo-wedlm", "--port", "0", "--draft-model", "smollm2"];
    for arguments in [
        &["serve", "smollm2", "--port", "0"][..],
        &["serve", "--port", "0", "--config", utf8(&config)],
        &["generate", "--model", "smollm2", "hello"],
        &["inspect", "--model", "smollm2"],
        &["inspect", "capacity", "--model", "smollm2"],
        &["pull", "smollm2"],
        &drafts,
    ] {
        let before = hub.requests().len();
        let output = with_hub(arguments, &home, &[("HF_ENDPOINT", &hub.endpoint)]);
        let message = refusal(&output, 66);
        assert!(message.contains("HuggingFaceTB/SmolLM2-135M-Instruct"), "{message}");
        let path = "GET /api/models/HuggingFaceTB/SmolLM2-135M-Instruct/revision/main";
        assert!(hub.requests()[before].starts_with(path), "{arguments:?}");
    }
    // A folder of the name comes first, and a name near one is named.
    fs::create_dir(home.join("smollm2")).unwrap();
    let own = refusal(&with_hub(&["inspect", "--model", "smollm2"], &home, &OFFLINE), 65);
    assert!(own.contains("config.json") && !own.contains("HuggingFaceTB"), "{own}");
    let near = refusal(&with_hub(&["serve", "lada-8b", "--port", "0"], &home, &OFFLINE), 66);
    assert!(near.contains("did you mean \"llada-8b\"?"), "{near}");
}

#[test]
fn models_of_the_cache_are_listed_and_removed() {
    let (home, _) = cache("shelf-cache");
    let blobs = home.join("hub/models--tiny--demo/blobs");
    fs::create_dir_all(&blobs).unwrap();
    fs::write(blobs.join("a.incomplete"), [0; 1000]).unwrap();
    let list = models(&home);
    let found = &list["cache"]["models"][0];
    assert_eq!((&found["id"], &found["is_partial"]), (&json!("tiny/demo"), &json!(true)));
    assert_eq!(found["revisions"], json!([{"name": "main", "commit": SHA}]));
    assert!(found["bytes"].as_u64() > Some(6_000_000), "{found}");
    let text = stdout(&with_hub(&["models"], &home, &[]));
    assert!(text.contains("tiny/demo ") && text.contains("main 01234567"), "{text}");

    let remove = |more: &[&str]| with_hub(&[&["models", "rm"], more].concat(), &home, &[]);
    let asked = refusal(&remove(&["tiny/demo"]), 64);
    assert!(asked.contains("--yes removes it"), "{asked}");
    let unknown = refusal(&remove(&["tiny/demos", "--yes"]), 66);
    assert!(unknown.contains("not in the hub's cache"), "{unknown}");
    assert!(unknown.contains("did you mean \"tiny/demo\"?"), "{unknown}");
    let outside = refusal(&remove(&["../../x", "--yes"]), 66);
    assert!(outside.contains("not in the hub's cache"), "{outside}");

    // Another process holds a lock while it downloads.
    let locks = home.join("hub/.locks/models--tiny--demo");
    fs::create_dir_all(&locks).unwrap();
    let lock = fs::File::create(locks.join("a.lock")).unwrap();
    lock.lock().unwrap();
    let busy = refusal(&remove(&["tiny/demo", "--yes"]), 74);
    assert!(busy.contains("another process downloads it"), "{busy}");
    drop(lock);

    let output = remove(&["tiny/demo", "--yes"]);
    assert!(output.status.success() && stderr(&output).starts_with("removed tiny/demo, "));
    assert!(!home.join("hub/models--tiny--demo").exists() && !locks.exists());
    assert_eq!(models(&home)["cache"]["models"], json!([]));
}
