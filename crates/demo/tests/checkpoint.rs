//! The embedded checkpoint is a complete Hugging Face folder of the stated geometry.

use asynclane_demo::checkpoint::{ALL, BLOCK_CAUSAL, DEMO, Embedded, WEDLM};
use serde_json::Value;

fn json(name: &str) -> Value {
    serde_json::from_slice(DEMO.file(name).expect("a file of the checkpoint")).expect("a JSON file")
}

#[test]
fn the_files_are_those_of_a_model_folder() {
    let names = |model: Embedded| {
        let mut names: Vec<&str> = model.files().map(|(name, _)| name).collect();
        names.sort_unstable();
        names
    };
    let mut expected = vec![
        "config.json",
        "filter.safetensors",
        "generation_config.json",
        "model.safetensors",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ];
    assert_eq!(names(DEMO), expected);
    expected.remove(1);
    assert_eq!(names(WEDLM), expected);
    assert_eq!(names(BLOCK_CAUSAL), expected);
    for one in ALL {
        let found = Embedded::named(one.name).expect("it has that name");
        assert_eq!(found.file("config.json"), one.file("config.json"));
    }
    assert!(Embedded::named("demo-dream").is_none());
    assert_eq!(DEMO.file("pytorch_model.bin"), None);
}

#[test]
fn the_weights_have_the_shapes_that_the_configuration_states() {
    let config = json("config.json");
    let size = |key: &str| config[key].as_u64().expect("a whole number");
    let (width, hidden, rows) = (size("d_model"), size("mlp_hidden_size"), size("embedding_size"));
    let weights = DEMO.file("model.safetensors").expect("a file of the checkpoint");
    let (length, rest) = weights.split_first_chunk::<8>().expect("a length");
    let length = u64::from_le_bytes(*length) as usize;
    let header: Value = serde_json::from_slice(&rest[..length]).expect("a JSON header");
    let shape = |name: String| {
        let tensor = &header[format!("model.transformer.{name}.weight")];
        assert_eq!(tensor["dtype"], "BF16", "{name}");
        tensor["shape"].clone()
    };
    let mut parameters = 0;
    let mut expect = |name: String, expected: &[u64]| {
        assert_eq!(shape(name), Value::from(expected));
        parameters += expected.iter().product::<u64>();
    };
    for name in ["wte", "ff_out"] {
        expect(name.to_owned(), &[rows, width]);
    }
    expect("ln_f".to_owned(), &[width]);
    for block in 0..size("n_layers") {
        let named = |part: &str| format!("blocks.{block}.{part}");
        for part in ["q_proj", "k_proj", "v_proj", "attn_out"] {
            expect(named(part), &[width, width]);
        }
        for part in ["ff_proj", "up_proj"] {
            expect(named(part), &[hidden, width]);
        }
        expect(named("ff_out"), &[width, hidden]);
        for part in ["attn_norm", "ff_norm"] {
            expect(named(part), &[width]);
        }
    }
    assert_eq!(rest.len() - length, 2 * parameters as usize, "no other tensors");
}

#[test]
fn the_special_tokens_are_where_the_configuration_says() {
    let (tokenizer, config) = (json("tokenizer.json"), json("config.json"));
    for (id, name) in [
        (0, "<|startoftext|>"),
        (1, "<|endoftext|>"),
        (2, "<|start_header_id|>"),
        (3, "<|end_header_id|>"),
        (4, "<|eot_id|>"),
        (5, "<|mdm_mask|>"),
    ] {
        assert_eq!(tokenizer["model"]["vocab"][name], id);
    }
    assert_eq!((&config["eos_token_id"], &config["mask_token_id"]), (&1.into(), &5.into()));
}
