//! LoRA adapters in PEFT's format: merged at load, and refused ones.

use asynclane_model::{Checkpoint, Files, LoadError, Model};
use safetensors::tensor::{Dtype, TensorView, serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

use crate::common::{self, Noise, Store, Tiny};

const RANK: usize = 3;
const BLOCK: &str = "model.transformer.blocks";

/// Tensors of an adapter by name, with their shapes.
type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

fn base() -> Tiny {
    Tiny::new(41, &json!({"n_kv_heads": 2}))
}

/// A and B of the query and output projections of both layers.
fn tensors(base: &Tiny) -> Tensors {
    let mut noise = Noise(7);
    let mut tensors = Tensors::new();
    for module in ["0.q_proj", "0.attn_out", "1.q_proj", "1.attn_out"] {
        let shape = &base.tensors[&format!("{BLOCK}.{module}.weight")].0;
        for (end, shape) in [("A", [RANK, shape[1]]), ("B", [shape[0], RANK])] {
            let values = (0..shape[0] * shape[1]).map(|_| 0.2 * noise.next());
            let name = format!("base_model.model.{BLOCK}.{module}.lora_{end}.weight");
            tensors.insert(name, (shape.to_vec(), values.collect()));
        }
    }
    tensors
}

fn config(keys: &Value) -> Value {
    let mut config = json!({
        "peft_type": "LORA", "r": RANK, "lora_alpha": 6, "target_modules": ["q_proj", "attn_out"],
        "bias": "none", "use_rslora": false, "use_dora": false, "fan_in_fan_out": false,
        "rank_pattern": {}, "alpha_pattern": {}, "modules_to_save": null, "lora_dropout": 0.1,
    });
    for (key, value) in keys.as_object().expect("an object") {
        config[key] = value.clone();
    }
    config
}

fn adapter(config: &Value, tensors: &Tensors) -> Files {
    let bytes = tensors.iter().map(|(name, (shape, values))| {
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        (name.clone(), shape.clone(), bytes)
    });
    let bytes: Vec<_> = bytes.collect();
    let views = bytes.iter().map(|(name, shape, bytes)| {
        let view = TensorView::new(Dtype::F32, shape.clone(), bytes).expect("a tensor");
        (name.clone(), view)
    });
    let weights = serialize(views, None).expect("it serialises");
    Files::memory([
        ("adapter_config.json", config.to_string().into_bytes()),
        ("adapter_model.safetensors", weights),
    ])
}

fn adapted(base: &Tiny, adapter: &Files) -> Result<Model, LoadError> {
    let checkpoint = Checkpoint::open(&Files::memory(base.files(Store::F32)))?;
    Model::load(checkpoint.with_lora(adapter)?)
}

/// The checkpoint with merged weights, each sum computed in f64 and rounded once.
fn merged(base: &Tiny, tensors: &Tensors, scale: f64) -> Tiny {
    let mut merged = base.clone();
    for (name, (shape, a)) in tensors.iter().filter(|(name, _)| name.contains("lora_A")) {
        let b = &tensors[&name.replace("lora_A", "lora_B")].1;
        let matrix = name.replace(".lora_A", "");
        let matrix = matrix.strip_prefix("base_model.model.").expect("PEFT's");
        let columns = shape[1];
        let elements = &mut merged.tensors.get_mut(matrix).expect("a matrix").1;
        for (at, element) in elements.iter_mut().enumerate() {
            let (row, column) = (at / columns, at % columns);
            let products = (0..RANK)
                .map(|k| f64::from(b[row * RANK + k]) * f64::from(a[k * columns + column]));
            *element = (f64::from(*element) + scale * products.sum::<f64>()) as f32;
        }
    }
    merged
}

/// Largest difference of the logits, as a share of the largest one.
fn distance(ours: &Model, theirs: &Model) -> f32 {
    let tokens: Vec<u32> = (0..12).map(|at| (7 * at + 3) % 61).collect();
    let logits = [ours, theirs].map(|model| model.logits(&tokens).expect("a forward pass"));
    let most = logits[1].iter().fold(0.0, |most: f32, x| most.max(x.abs()));
    let pairs = logits[0].iter().zip(&logits[1]);
    pairs.fold(0.0, |far: f32, (a, b)| far.max((a - b).abs())) / most
}

/// Within rounding in f32: each element is rounded a few times where the expected one is rounded once.
#[test]
fn an_adapter_equals_merged_weights() {
    let base = base();
    let tensors = tensors(&base);
    let load = |tiny: &Tiny| common::load(tiny.files(Store::F32)).expect("it loads");
    for (keys, scale) in [
        (json!({}), 2.0),
        (json!({"use_rslora": true}), 6.0 / (RANK as f64).sqrt()),
        (json!({"target_modules": "all-linear"}), 2.0),
    ] {
        let ours = adapted(&base, &adapter(&config(&keys), &tensors)).expect("it merges");
        let near = distance(&ours, &load(&merged(&base, &tensors, scale)));
        assert!(near < 1e-5, "{keys}: {near:e}");
        let far = distance(&ours, &load(&base));
        assert!(far > 1e-2, "{keys}: {far:e}");
    }
}

/// The message of an adapter that is refused.
fn refusal(base: &Tiny, keys: &Value, tensors: &Tensors) -> String {
    let error = adapted(base, &adapter(&config(keys), tensors)).err();
    error.expect("refused").to_string()
}

#[test]
fn adapters_that_cannot_be_merged_are_refused() {
    let base = base();
    let all = tensors(&base);
    for (keys, expected) in [
        (
            json!({"peft_type": "LOHA"}),
            "adapter_config.json: peft_type: expected \"LORA\", found \"LOHA\"",
        ),
        (
            json!({"use_dora": true}),
            "adapter_config.json: use_dora: expected false, found true",
        ),
        (
            json!({"rank_pattern": {"q_proj": 2}}),
            "adapter_config.json: rank_pattern: expected {}, found {\"q_proj\":2}",
        ),
        (
            json!({"r": 0}),
            "adapter_config.json: r: expected a positive whole number, found 0",
        ),
        (
            json!({"r": 5000}),
            "adapter_config.json: r: expected at most 4096, found 5000",
        ),
        (
            json!({"lora_alpha": "many"}),
            "adapter_config.json: lora_alpha: expected a positive number, found \"many\"",
        ),
        (
            json!({"r": 2}),
            "adapter_model.safetensors: base_model.model.model.transformer.blocks.0.attn_out.lora_A.weight: \
             expected shape [2, 48], found [3, 48]",
        ),
        (
            json!({"target_modules": ["q_proj"]}),
            "adapter_config.json: target_modules: expected the module \
             model.transformer.blocks.0.attn_out among its names, found [\"q_proj\"]",
        ),
        (
            json!({"target_modules": ["q_proj", "attn_out", "v_proj"]}),
            "adapter_model.safetensors: tensors: expected some of the target module v_proj, found none",
        ),
    ] {
        assert_eq!(refusal(&base, &keys, &all), expected);
    }
}

#[test]
fn factors_that_have_no_matrix_or_no_partner_are_refused() {
    let base = base();
    let all = tensors(&base);
    let refusal = |keys: &Value, tensors: &Tensors| refusal(&base, keys, tensors);
    let factor = "base_model.model.model.transformer.blocks.0.q_proj.lora_A.weight";
    let renamed = |to: &str| {
        let mut tensors = all.clone();
        let tensor = tensors.remove(factor).expect("a factor");
        tensors.insert(to.to_owned(), tensor);
        refusal(&json!({}), &tensors)
    };
    assert_eq!(
        renamed("base_model.model.model.transformer.blocks.9.q_proj.lora_A.weight"),
        "adapter_model.safetensors: \
         base_model.model.model.transformer.blocks.9.q_proj.lora_A.weight: expected the matrix \
         model.transformer.blocks.9.q_proj.weight in the checkpoint, found none"
    );
    let bias = "base_model.model.model.transformer.blocks.0.q_proj.bias";
    assert_eq!(
        renamed(bias),
        format!(
            "adapter_model.safetensors: {bias}: expected base_model.model.MODULE.lora_A.weight or \
             .lora_B.weight, found another name"
        )
    );
    let mut halved = all.clone();
    halved.remove(factor);
    assert_eq!(
        refusal(&json!({}), &halved),
        format!(
            "adapter_model.safetensors: {factor}: expected a tensor of shape [3, 48], found none"
        )
    );
    let empty = refusal(&json!({}), &Tensors::new());
    assert!(empty.ends_with("lora_A.weight, found none"), "{empty}");
}

/// The head is tied to the embedding, so the stored matrix of the head is not read.
#[test]
fn an_adapter_of_a_matrix_that_is_not_used_is_refused() {
    let mut base = Tiny::new(3, &json!({"weight_tying": true}));
    let head = "model.transformer.ff_out";
    let shape = base.tensors["model.transformer.wte.weight"].0.clone();
    let values = vec![0.5; shape[0] * shape[1]];
    base.tensors
        .insert(format!("{head}.weight"), (shape.clone(), values));
    let factor = |rows: usize, columns: usize| (vec![rows, columns], vec![0.25; rows * columns]);
    let tensors = Tensors::from([
        (
            format!("base_model.model.{head}.lora_A.weight"),
            factor(RANK, shape[1]),
        ),
        (
            format!("base_model.model.{head}.lora_B.weight"),
            factor(shape[0], RANK),
        ),
    ]);
    let adapter = adapter(&config(&json!({"target_modules": ["ff_out"]})), &tensors);
    let error = adapted(&base, &adapter).err().expect("refused").to_string();
    assert_eq!(
        error,
        format!(
            "adapter_model.safetensors: base_model.model.{head}.lora_A.weight: expected a matrix that the \
             model uses, {head}.weight, found one that it does not use"
        )
    );
}

#[test]
fn only_weights_with_full_attention_take_blocks_after_the_prompt() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/model/fixtures/families");
    let load = |case: &str| {
        let files = Files::folder(format!("{root}/{case}"));
        let checkpoint = Checkpoint::open(&files).expect("a checkpoint");
        Model::load(checkpoint.with_blocks_after_prompt(Some(8)))
    };
    let attention = load("dream-grouped")
        .expect("it loads")
        .info()
        .rows
        .attention;
    assert_eq!(attention, step::Attention::BlocksAfterPrompt(8));
    let error = load("sdar-4").err().expect("refused").to_string();
    assert_eq!(
        error,
        "config.json: model_type: expected a model with full attention, which blocks after the prompt \
         need, found \"sdar\""
    );
}
