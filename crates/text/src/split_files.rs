//! Builds a tokenizer.json from vocab.json and merges.txt, for checkpoints without one.

use serde_json::{Value, json};

use crate::{TextError, TokenizerFiles};

/// The pre-tokenization regex of the Qwen2 family, including Dream.
const QWEN2_SPLIT: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// Families with a byte-level BPE that can be built without a tokenizer.json.
#[derive(Clone, Copy)]
enum Family {
    Gpt2,
    Qwen2,
}

/// The bytes of a tokenizer.json equivalent to `vocab.json` and `merges.txt`. `class` is the
/// checkpoint's `tokenizer_class`, which determines the pre-tokenization.
///
/// # Errors
/// If a file is missing or malformed, or the class is not a known byte-level BPE.
pub(crate) fn join(files: &TokenizerFiles, class: Option<&str>) -> Result<Vec<u8>, TextError> {
    let (Some(vocab), Some(merges)) = (&files.vocab, &files.merges) else {
        return Err(TextError::malformed(
            "tokenizer.json",
            "the file is missing, and so is the pair vocab.json and merges.txt",
        ));
    };
    let family = match class.map(|class| class.trim_end_matches("Fast")) {
        Some("Qwen2Tokenizer" | "DreamTokenizer") => Family::Qwen2,
        Some("GPT2Tokenizer") => Family::Gpt2,
        other => {
            return Err(TextError::value(
                "tokenizer_config.json",
                "tokenizer_class",
                "Qwen2Tokenizer, DreamTokenizer or GPT2Tokenizer where tokenizer.json is missing",
                other.unwrap_or("none"),
            ));
        }
    };
    let vocab: Value =
        serde_json::from_slice(vocab).map_err(|e| TextError::malformed("vocab.json", e))?;
    let merges = std::str::from_utf8(merges).map_err(|e| TextError::malformed("merges.txt", e))?;
    let merges: Vec<&str> =
        merges.lines().filter(|line| !line.starts_with("#version") && !line.is_empty()).collect();
    let document = document(family, vocab, &merges);
    serde_json::to_vec(&document).map_err(|e| TextError::malformed("vocab.json", e))
}

fn document(family: Family, vocab: Value, merges: &[&str]) -> Value {
    let byte_level = |use_regex: bool| {
        json!({
            "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
            "use_regex": use_regex,
        })
    };
    let (normalizer, pre_tokenizer) = match family {
        Family::Gpt2 => (Value::Null, byte_level(true)),
        Family::Qwen2 => {
            let split = json!({
                "type": "Split", "pattern": {"Regex": QWEN2_SPLIT}, "behavior": "Isolated",
                "invert": false,
            });
            let parts = json!([split, byte_level(false)]);
            (json!({"type": "NFC"}), json!({"type": "Sequence", "pretokenizers": parts}))
        }
    };
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": null,
        "decoder": byte_level(true),
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    })
}
