//! Refused checkpoints in the format of Hugging Face `transformers`, and their error messages.

use crate::common::{Named, load, refusal};
use crate::official::{self, Case};
use asynclane_model::Model;
use serde_json::{Value, json};

/// The files of a fixture checkpoint with some configuration keys replaced.
fn files(case: &str, keys: &[(&str, Value)]) -> Named {
    let case = Case::named(case);
    let mut config = case.config();
    for (key, value) in keys {
        config[*key] = value.clone();
    }
    let mut files = official::files(&case.folder);
    files.insert("config.json".to_owned(), config.to_string().into_bytes());
    files
}

fn refused(case: &str, keys: &[(&str, Value)]) -> String {
    refusal(load(files(case, keys)))
}

fn accepted(case: &str, keys: &[(&str, Value)]) -> Model {
    load(files(case, keys)).unwrap_or_else(|error| panic!("{case} {keys:?}: {error}"))
}

/// Checkpoint, key, value, and the end of the error.
const SETTINGS: &str = r#"
dream-grouped | num_key_value_heads | 4 | a divisor of num_attention_heads 6, found 4
dream-grouped | num_attention_heads | 8 | a divisor of hidden_size 24, even heads, found 8
dream-grouped | hidden_act | "gelu" | "silu", found "gelu"
dream-grouped | use_sliding_window | true | false, found true
dream-grouped | rope_scaling | {"rope_type":"dynamic"} | nothing or the type "default", "linear", "llama3", "yarn" or "longrope", found {"rope_type":"dynamic"}
a2d-longrope | rope_scaling | {"long_factor":[1,2],"rope_type":"longrope","short_factor":[1,1]} | 6 divisors of the type "longrope", found {"long_factor":[1,2],"rope_type":"longrope","short_factor":[1,1]}
dream-grouped | rope_parameters | "yarn" | nothing or the type "default", "linear", "llama3", "yarn" or "longrope", found "yarn"
dream-grouped | mask_token_id | null | a token id below 47, found nothing
dream-grouped | eos_token_id | [1,47] | a token id below 47, found [1,47]
dream-grouped | max_position_embeddings | 2097152 | at most 1048576, found 2097152
dream-grouped | vocab_size | 2 | at least 3, found 2
wedlm-7b | layer_types | ["full_attention","sliding_attention"] | "full_attention" in every layer, found ["full_attention","sliding_attention"]
wedlm-8b | head_dim | 5 | an even number, found 5
wedlm-8b | qk_norm | "yes" | true or false, found "yes"
sdar-4 | block_size | 0 | a positive whole number, found 0
nemotron-labs | block_size | 0 | a positive whole number, found 0
nemotron-labs | sliding_window | 4096 | null, found 4096
nemotron-labs | mlp_bias | true | false, found true
nemotron-labs | dlm_paradigm | "prefix" | one of bidirectional, block_diff, sbd_block_diff, autoregressive, found "prefix"
nemotron-labs | rope_parameters | null | an object, found nothing
llada2-mini | score_function | "softmax" | "sigmoid", found "softmax"
llada2-mini | n_group | 8 | groups of two or more of num_experts 8, found 8
llada2-mini | topk_group | 1 | at most 4, with 3 experts or more, found 1
llada2-mini | num_experts_per_tok | 9 | at most num_experts 8, found 9
llada2-mini | partial_rotary_factor | 0.4 | an even part of heads of 8, found 0.4
llada-moe | moe_layer_freq | [1] | 0 or 1 for each of 2 layers, found [1]
llada-moe | clip_qkv | 8.0 | nothing, found 8.0
llada-moe | moe_router_score_function | "sigmoid" | "softmax", found "sigmoid"
"#;

#[test]
fn settings_are_refused_by_key() {
    for case in SETTINGS.lines().skip(1) {
        let cells: Vec<&str> = case.split(" | ").collect();
        let [case, key, value, expected] = cells[..] else { panic!("{case}") };
        let error = refused(case, &[(key, serde_json::from_str(value).unwrap())]);
        assert_eq!(error, format!("config.json: {key}: expected {expected}"));
    }
}

/// A key of Nemotron-Labs-Diffusion's rotation, a value, and the error.
const ROTATION: &str = r#"
rope_theta | null | rope_theta: expected a positive number, found nothing
llama_4_scaling_beta | "much" | llama_4_scaling_beta: expected a number from 0 to 1000000, found "much"
llama_4_scaling_beta | -0.1 | llama_4_scaling_beta: expected a number from 0 to 1000000, found -0.1
original_max_position_embeddings | 0 | original_max_position_embeddings: expected 1 to 1048576 positions, found 0
"#;

#[test]
fn the_growth_of_queries_is_refused_by_key() {
    for case in ROTATION.lines().skip(1) {
        let cells: Vec<&str> = case.split(" | ").collect();
        let [key, value, expected] = cells[..] else { panic!("{case}") };
        let mut rotation = Case::named("nemotron-labs").config()["rope_parameters"].clone();
        rotation[key] = serde_json::from_str(value).unwrap();
        let error = refused("nemotron-labs", &[("rope_parameters", rotation)]);
        assert_eq!(error, format!("config.json: rope_parameters: {expected}"));
    }
    // Without it, as with 0, queries keep their size.
    let logits = |beta: Value| {
        let mut rotation = Case::named("nemotron-labs").config()["rope_parameters"].clone();
        rotation["llama_4_scaling_beta"] = beta;
        let model = accepted("nemotron-labs", &[("rope_parameters", rotation)]);
        model.logits(&(0..20).collect::<Vec<_>>()).unwrap()
    };
    assert_eq!(logits(Value::Null), logits(json!(0)));
    let (with, without) = (logits(json!(0.3)), logits(json!(0)));
    let grown = with.iter().zip(&without).position(|(a, b)| a != b).unwrap();
    assert_eq!(grown / 47, 16, "the first position beyond the original context");
}

#[test]
fn default_values_may_be_written_out() {
    let parameters = json!({"rope_type": "default", "rope_theta": 1e6});
    let keys = [
        ("rope_scaling", json!({"type": "default"})),
        ("rope_theta", Value::Null),
        ("rope_parameters", parameters),
        ("torch_dtype", json!("bfloat16")),
        ("sliding_window", json!(4096)),
    ];
    let logits = |keys| accepted("dream-grouped", keys).logits(&[3, 1, 4, 1, 5]).unwrap();
    assert_eq!(logits(&keys), logits(&[]));
}

#[test]
fn files_and_tensors_are_named() {
    let mut lacking = files("wedlm-7b", &[]);
    lacking.remove("model-00002-of-00004.safetensors");
    let error = refusal(load(lacking));
    let expected = "model-00002-of-00004.safetensors: not found in the embedded files";
    assert_eq!(error, expected);
    let mut pickle = files("wedlm-8b", &[]);
    pickle.remove("model.safetensors");
    pickle.insert("pytorch_model.bin.index.json".to_owned(), b"{}".to_vec());
    let error = refusal(load(pickle));
    assert!(error.starts_with("pytorch_model.bin.index.json: pickle files can run"));
    // The second one has no norms of heads.
    for (case, key, value, expected) in [
        (
            "sdar-4",
            "intermediate_size",
            json!(35),
            ": model.layers.0.mlp.gate_proj.weight: expected shape [35, 24], found [34, 24]",
        ),
        (
            "wedlm-7b",
            "qk_norm",
            json!(true),
            ".index.json: model.layers.0.self_attn.q_norm.weight: expected a tensor of shape [4], found none",
        ),
        (
            "llada2-mini",
            "num_experts",
            json!(12),
            ": model.layers.1.mlp.gate.weight: expected shape [12, 20], found [8, 20]",
        ),
    ] {
        let error = refused(case, &[(key, value)]);
        assert_eq!(error, format!("model.safetensors{expected}"));
    }
    let mut garbage = files("sdar-4", &[]);
    let file = garbage.get_mut("model.safetensors").unwrap();
    let end = file.len();
    file[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    let error = refusal(load(garbage));
    let expected = ": expected finite numbers, found NaN at element ";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn a_tied_head_may_be_stored_and_an_untied_one_must() {
    let tied = [("tie_word_embeddings", json!(true))];
    let none: [&str; 0] = [];
    assert_eq!(accepted("dream-grouped", &tied).warnings(), none);
    let untied = [("tie_word_embeddings", json!(false))];
    let error = refused("sdar-16-tied", &untied);
    let expected =
        "model.safetensors: lm_head.weight: expected a tensor of shape [47, 24], found none";
    assert_eq!(error, expected);
    // A tensor that the configuration does not use is a warning.
    let bare = accepted("wedlm-7b", &[("attention_bias", json!(false))]);
    let warnings = bare.warnings();
    assert_eq!(warnings.len(), 6);
    let unused = "model.layers.0.self_attn.k_proj.bias: stored but not used";
    assert_eq!(warnings[0], unused);
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
    let error = refused("llada-moe-dense-shared", &unsaid);
    let key = "config.json: dense_intermediate_size";
    assert_eq!(error, format!("{key}: expected a positive whole number, found -1"));
}
