//! Refused checkpoints in the format of Hugging Face `transformers`, and their error messages.

use crate::common::load;
use asynclane_model::Model;
use serde_json::{Value, json};
use std::collections::BTreeMap;

type Named = BTreeMap<String, Vec<u8>>;

/// The files of a fixture checkpoint with some configuration keys replaced.
fn files(case: &str, keys: &[(&str, Value)]) -> Named {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/model/fixtures/families");
    let mut files = Named::new();
    for entry in std::fs::read_dir(format!("{root}/{case}")).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        files.insert(name, std::fs::read(entry.path()).unwrap());
    }
    let mut config: Value = serde_json::from_slice(&files["config.json"]).unwrap();
    for (key, value) in keys {
        config[*key] = value.clone();
    }
    files.insert("config.json".to_owned(), config.to_string().into_bytes());
    files
}

fn refusal(files: Named) -> String {
    let error = load(files).err().expect("refused").to_string();
    assert!(!error.contains('\n'), "{error}");
    error
}

fn accepted(case: &str, keys: &[(&str, Value)]) -> Model {
    load(files(case, keys)).unwrap_or_else(|error| panic!("{case} {keys:?}: {error}"))
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn settings_are_refused_by_key() {
    for (case, key, value, expected) in [
        (
            "dream-grouped",
            "num_key_value_heads",
            json!(4),
            "a divisor of num_attention_heads 6, found 4",
        ),
        (
            "dream-grouped",
            "num_attention_heads",
            json!(8),
            "a divisor of hidden_size 24, even heads, found 8",
        ),
        (
            "dream-grouped",
            "hidden_act",
            json!("gelu"),
            "\"silu\", found \"gelu\"",
        ),
        (
            "dream-grouped",
            "use_sliding_window",
            json!(true),
            "false, found true",
        ),
        (
            "dream-grouped",
            "rope_scaling",
            json!({"rope_type": "yarn"}),
            "nothing or the type \"default\" or \"llama3\", found {\"rope_type\":\"yarn\"}",
        ),
        (
            "dream-grouped",
            "rope_parameters",
            json!({"rope_type": "linear"}),
            "nothing or the type \"default\" or \"llama3\", found {\"rope_type\":\"linear\"}",
        ),
        (
            "dream-grouped",
            "quantization_config",
            json!({"bits": 4}),
            "nothing, found {\"bits\":4}",
        ),
        (
            "dream-grouped",
            "mask_token_id",
            Value::Null,
            "a token id below 47, found nothing",
        ),
        (
            "dream-grouped",
            "eos_token_id",
            json!([1, 47]),
            "a token id below 47, found [1,47]",
        ),
        (
            "dream-grouped",
            "max_position_embeddings",
            json!(1 << 21),
            "at most 1048576, found 2097152",
        ),
        (
            "dream-grouped",
            "vocab_size",
            json!(2),
            "at least 3, found 2",
        ),
        (
            "wedlm-7b",
            "layer_types",
            json!(["full_attention", "sliding_attention"]),
            "\"full_attention\" in every layer, found [\"full_attention\",\"sliding_attention\"]",
        ),
        ("wedlm-8b", "head_dim", json!(5), "an even number, found 5"),
        (
            "wedlm-8b",
            "qk_norm",
            json!("yes"),
            "true or false, found \"yes\"",
        ),
        (
            "sdar-4",
            "block_size",
            json!(0),
            "a positive whole number, found 0",
        ),
        (
            "llada2-mini",
            "score_function",
            json!("softmax"),
            "\"sigmoid\", found \"softmax\"",
        ),
        (
            "llada2-mini",
            "n_group",
            json!(8),
            "groups of two or more of num_experts 8, found 8",
        ),
        (
            "llada2-mini",
            "topk_group",
            json!(1),
            "at most 4, with 3 experts or more, found 1",
        ),
        (
            "llada2-mini",
            "num_experts_per_tok",
            json!(9),
            "at most num_experts 8, found 9",
        ),
        (
            "llada2-mini",
            "partial_rotary_factor",
            json!(0.4),
            "an even part of heads of 8, found 0.4",
        ),
        (
            "llada-moe",
            "moe_layer_freq",
            json!([1]),
            "0 or 1 for each of 2 layers, found [1]",
        ),
        ("llada-moe", "clip_qkv", json!(8.0), "nothing, found 8.0"),
        (
            "llada-moe",
            "moe_router_score_function",
            json!("sigmoid"),
            "\"softmax\", found \"sigmoid\"",
        ),
    ] {
        let error = refusal(files(case, &[(key, value)]));
        assert_eq!(error, format!("config.json: {key}: expected {expected}"));
    }
}

#[test]
fn default_values_may_be_written_out() {
    let told = accepted(
        "dream-grouped",
        &[
            ("rope_scaling", json!({"type": "default"})),
            ("rope_theta", Value::Null),
            (
                "rope_parameters",
                json!({"rope_type": "default", "rope_theta": 1e6}),
            ),
            ("torch_dtype", json!("bfloat16")),
            ("sliding_window", json!(4096)),
        ],
    );
    let plain = accepted("dream-grouped", &[]);
    let tokens = [3, 1, 4, 1, 5];
    assert_eq!(
        told.logits(&tokens).unwrap(),
        plain.logits(&tokens).unwrap()
    );
}

#[test]
fn files_and_tensors_are_named() {
    let mut lacking = files("wedlm-7b", &[]);
    lacking.remove("model-00002-of-00004.safetensors");
    assert_eq!(
        refusal(lacking),
        "model-00002-of-00004.safetensors: not found in the embedded files"
    );
    let mut pickle = files("wedlm-8b", &[]);
    pickle.remove("model.safetensors");
    pickle.insert("pytorch_model.bin.index.json".to_owned(), b"{}".to_vec());
    assert!(refusal(pickle).starts_with("pytorch_model.bin.index.json: pickle files can run"));
    let gate = "model.layers.0.mlp.gate_proj.weight";
    assert_eq!(
        refusal(files("sdar-4", &[("intermediate_size", json!(35))])),
        format!("model.safetensors: {gate}: expected shape [35, 24], found [34, 24]")
    );
    // Head norms that the checkpoint does not contain.
    assert_eq!(
        refusal(files("wedlm-7b", &[("qk_norm", json!(true))])),
        "model.safetensors.index.json: model.layers.0.self_attn.q_norm.weight: expected a tensor \
         of shape [4], found none"
    );
    assert_eq!(
        refusal(files("llada2-mini", &[("num_experts", json!(12))])),
        "model.safetensors: model.layers.1.mlp.gate.weight: expected shape [12, 20], found [8, 20]"
    );
    let mut garbage = files("sdar-4", &[]);
    let file = garbage.get_mut("model.safetensors").unwrap();
    let end = file.len();
    file[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    let error = refusal(garbage);
    assert!(
        error.contains(": expected finite numbers, found NaN at element "),
        "{error}"
    );
}

#[test]
fn a_tied_head_may_be_stored_and_an_untied_one_must() {
    let tied = [("tie_word_embeddings", json!(true))];
    let none: [&str; 0] = [];
    assert_eq!(accepted("dream-grouped", &tied).warnings(), none);
    let untied = [("tie_word_embeddings", json!(false))];
    assert_eq!(
        refusal(files("sdar-16-tied", &untied)),
        "model.safetensors: lm_head.weight: expected a tensor of shape [47, 24], found none"
    );
    // A tensor that the configuration does not use is a warning.
    let bare = accepted("wedlm-7b", &[("attention_bias", json!(false))]);
    assert_eq!(bare.warnings().len(), 6);
    assert_eq!(
        bare.warnings()[0],
        "model.layers.0.self_attn.k_proj.bias: stored but not used"
    );
}

#[test]
fn expert_info_follows_the_configuration() {
    let experts = |case| {
        let experts = accepted(case, &[]).info().experts?;
        Some((experts.count, experts.chosen, experts.parameters))
    };
    assert_eq!(experts("dream-grouped"), None);
    assert_eq!(experts("llada2-mini"), Some((8, 3, 3 * 20 * 7 * 2)));
    assert_eq!(experts("llada-moe"), Some((8, 3, 3 * 24 * 7 * 2)));
    // The width of a dense MLP is required if a layer has one.
    let unsaid = [("dense_intermediate_size", json!(-1))];
    assert_eq!(accepted("llada-moe", &unsaid).info().mlp_width, 7);
    assert_eq!(
        refusal(files("llada-moe-dense-shared", &unsaid)),
        "config.json: dense_intermediate_size: expected a positive whole number, found -1"
    );
}
