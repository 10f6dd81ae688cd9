//! Copies of checkpoints of random weights with a tokenizer of one word per token.

use std::path::Path;

use serde_json::{Map, Value, json};

/// Copies a checkpoint to a folder with a tokenizer that has one word per id: `w0`, `w1`. Returns its
/// mask token, if it has one.
///
/// # Panics
/// If a file cannot be read or written.
pub fn with_words(checkpoint: &Path, folder: &Path) -> Option<u64> {
    for entry in std::fs::read_dir(checkpoint).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a file has a name");
        std::fs::copy(&path, folder.join(name)).expect("it can be copied");
    }
    let config = std::fs::read(folder.join("config.json")).expect("a configuration");
    let config: Value = serde_json::from_slice(&config).expect("JSON");
    let text = config.get("text_config").unwrap_or(&config);
    let size = text["vocab_size"].as_u64().expect("a vocabulary");
    let vocabulary: Map<String, Value> =
        (0..size).map(|id| (format!("w{id}"), json!(id))).collect();
    let mask = config["mask_token_id"].as_u64();
    let special = |id: u64| {
        json!({"id": id, "content": format!("w{id}"), "special": true, "single_word": false,
            "lstrip": false, "rstrip": false, "normalized": false})
    };
    let added: Vec<Value> = [Some(1), mask].into_iter().flatten().map(special).collect();
    let tokenizer = json!({"version": "1.0", "added_tokens": added,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": {"type": "WordLevel",
        "vocab": vocabulary, "unk_token": "w6"}});
    let write = |name: &str, value: &Value| {
        let written = std::fs::write(folder.join(name), value.to_string());
        written.expect("it can be written");
    };
    write("tokenizer.json", &tokenizer);
    write("tokenizer_config.json", &json!({"eos_token": "w1"}));
    mask
}
