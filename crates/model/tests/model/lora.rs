//! LoRA adapters in PEFT's format: merged at load, and refused ones.

use asynclane_model::{Checkpoint, Files, LoadError, Model};
use safetensors::tensor::{Dtype, TensorView, serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

use crate::common::{self, Noise, Tiny, refusal};
use crate::official::{Case, error};

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
    let config = json!({"peft_type": "LORA", "r": RANK, "lora_alpha": 6,
        "target_modules": ["q_proj", "attn_out"], "bias": "none", "use_rslora": false,
        "use_dora": false, "fan_in_fan_out": false, "rank_pattern": {}, "alpha_pattern": {},
        "modules_to_save": [], "init_lora_weights": "gaussian", "lora_dropout": 0.1});
    common::with(config, keys)
}

fn adapter(config: &Value, tensors: &Tensors) -> Files {
    let views = tensors.iter().map(|(name, (shape, values))| {
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        let view = TensorView::new(Dtype::F32, shape.clone(), bytes.leak());
        (name, view.expect("a tensor"))
    });
    let weights = serialize(views, None).expect("it serialises");
    Files::memory([
        ("adapter_config.json", config.to_string().into_bytes()),
        ("adapter_model.safetensors", weights),
    ])
}

fn adapted(base: &Tiny, keys: &Value, tensors: &Tensors) -> Result<Model, LoadError> {
    let adapter = adapter(&config(keys), tensors);
    Model::load(base.checkpoint().with_lora(&adapter, None)?)
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
        for (index, element) in elements.iter_mut().enumerate() {
            let (row, column) = (index / columns, index % columns);
            let products = (0..RANK)
                .map(|k| f64::from(b[row * RANK + k]) * f64::from(a[k * columns + column]));
            *element = (f64::from(*element) + scale * products.sum::<f64>()) as f32;
        }
    }
    merged
}

/// Largest difference of a logit, relative to the largest logit of its row.
fn distance(ours: &Model, theirs: &Model) -> f64 {
    let tokens: Vec<u32> = (0..12).map(|position| (7 * position + 3) % 61).collect();
    let [ours, theirs] = [ours, theirs].map(|model| model.logits(&tokens).expect("a forward pass"));
    error(&ours, &theirs, 61)
}

/// Within rounding in f32: each element is rounded a few times where the expected one is rounded once.
#[test]
fn an_adapter_equals_merged_weights() {
    let base = base();
    let tensors = tensors(&base);
    for (keys, scale) in [
        (json!({}), 2.0),
        (json!({"use_rslora": true}), 6.0 / (RANK as f64).sqrt()),
        (json!({"target_modules": "all-linear"}), 2.0),
        // Modules of other architectures, and one that was left out.
        (json!({"target_modules": ["q_proj", "attn_out", "gate_proj", "o_proj"]}), 2.0),
        (
            json!({"target_modules": ["q_proj", "attn_out", "v_proj"], "exclude_modules": "v_proj"}),
            2.0,
        ),
    ] {
        let ours = adapted(&base, &keys, &tensors).expect("it merges");
        let near = distance(&ours, &merged(&base, &tensors, scale).model());
        assert!(near < 1e-5, "{keys}: {near:e}");
        let far = distance(&ours, &base.model());
        assert!(far > 1e-2, "{keys}: {far:e}");
    }
}

/// PEFT matches patterns against a module's name, or its end after a dot. Factors with a zero row and column more
/// have the same product.
#[test]
fn modules_may_have_their_own_ranks_and_alphas() {
    let base = base();
    let plain = tensors(&base);
    let mut wider = plain.clone();
    for (name, (shape, values)) in &mut wider {
        if !name.contains(".0.q_proj.") {
            continue;
        }
        if name.contains("lora_A") {
            values.extend(vec![0.0; shape[1]]);
            shape[0] += 1;
        } else {
            let rows = values.chunks(RANK).flat_map(|row| row.iter().copied().chain([0.0]));
            *values = rows.collect();
            shape[1] += 1;
        }
    }
    let want = merged(&base, &plain, 2.0).model();
    for (ranks, alphas) in [
        // alpha / r stays 2.
        (json!({"0.q_proj": 4}), json!({"^model.transformer.blocks.0.q_proj": 8})),
        (json!({r"blocks\.[0-0]\.q_proj": 4, "v_proj": 9}), json!({".*0.q_proj": 8, "none": 1})),
    ] {
        let keys = json!({"rank_pattern": ranks, "alpha_pattern": alphas});
        let ours = adapted(&base, &keys, &wider).expect("it merges");
        let near = distance(&ours, &want);
        assert!(near < 1e-5, "{keys}: {near:e}");
        // Without its alpha the module is scaled by 6 / 4.
        let keys = json!({"rank_pattern": ranks});
        let far = distance(&adapted(&base, &keys, &wider).expect("it merges"), &want);
        assert!(far > 1e-3, "{keys}: {far:e}");
    }
}

/// The changed key, and the fault of the adapter.
const REFUSED: &str = r#"
{"peft_type": "LOHA"} | adapter_config.json: peft_type: expected "LORA", found "LOHA"
{"use_dora": true} | adapter_config.json: use_dora: expected false, found true
{"rank_pattern": {"q_proj": 2}} | adapter_model.safetensors: base_model.model.model.transformer.blocks.0.q_proj.lora_A.weight: expected shape [2, 48], found [3, 48]
{"rank_pattern": {"q_proj": 0}} | adapter_config.json: rank_pattern: q_proj: expected a positive whole number, found 0
{"rank_pattern": ["q_proj"]} | adapter_config.json: rank_pattern: expected an object, found ["q_proj"]
{"rank_pattern": {"(?=q)": 2}} | adapter_config.json: rank_pattern: (?=q): expected a pattern without look-around and back-references (look-around, including look-ahead and look-behind, is not supported), found 2
{"alpha_pattern": {"0.q_proj": 4, "q_proj": 2}} | adapter_config.json: alpha_pattern: expected one value for the module model.transformer.blocks.0.q_proj, found {"0.q_proj":4,"q_proj":2}
{"alpha_pattern": {"q_proj": -1}} | adapter_config.json: alpha_pattern: q_proj: expected a positive number, found -1
{"layer_replication": [[0, 2], [1, 3]]} | adapter_config.json: layer_replication: expected null, found [[0,2],[1,3]]
{"use_qalora": true} | adapter_config.json: use_qalora: expected false, found true
{"init_lora_weights": "pissa_niter_4"} | adapter_config.json: init_lora_weights: expected an adapter of the unchanged base, as `path_initial_model_for_weight_conversion` saves it, found "pissa_niter_4"
{"modules_to_save": ["lm_head"]} | adapter_config.json: modules_to_save: expected null, found ["lm_head"]
{"r": 0} | adapter_config.json: r: expected a positive whole number, found 0
{"r": 5000} | adapter_config.json: r: expected at most 4096, found 5000
{"lora_alpha": "many"} | adapter_config.json: lora_alpha: expected a positive number, found "many"
{"r": 2} | adapter_model.safetensors: base_model.model.model.transformer.blocks.0.attn_out.lora_A.weight: expected shape [2, 48], found [3, 48]
{"target_modules": ["o_proj"]} | adapter_config.json: target_modules: expected the module model.transformer.blocks.0.attn_out among its names, found ["o_proj"]
{"target_modules": ["q_proj"]} | adapter_config.json: target_modules: expected the module model.transformer.blocks.0.attn_out among its names, found ["q_proj"]
{"target_modules": ["q_proj", "attn_out", "v_proj"]} | adapter_model.safetensors: tensors: expected some of the target module v_proj, found none
"#;

#[test]
fn adapters_that_cannot_be_merged_are_refused() {
    let base = base();
    let all = tensors(&base);
    for case in REFUSED.lines().skip(1) {
        let (keys, expected) = case.split_once(" | ").unwrap();
        let keys = serde_json::from_str(keys).unwrap();
        assert_eq!(refusal(adapted(&base, &keys, &all)), expected);
    }
}

#[test]
fn factors_that_have_no_matrix_or_no_partner_are_refused() {
    let base = base();
    let all = tensors(&base);
    let refused = |tensors: &Tensors| {
        let error = refusal(adapted(&base, &json!({}), tensors));
        error.replace("base_model.model.model.transformer.blocks", "…")
    };
    let prefix = "base_model.model.model.transformer.blocks";
    let factor = format!("{prefix}.0.q_proj.lora_A.weight");
    let file = "adapter_model.safetensors: …";
    for (name, expected) in [
        (
            ".9.q_proj.lora_A.weight",
            "expected the matrix model.transformer.blocks.9.q_proj.weight in the checkpoint, found none",
        ),
        (
            ".0.q_proj.bias",
            "expected base_model.model.MODULE.lora_A.weight or .lora_B.weight, found another name",
        ),
    ] {
        let mut renamed = all.clone();
        let tensor = renamed.remove(&factor).expect("a factor");
        renamed.insert(format!("{prefix}{name}"), tensor);
        assert_eq!(refused(&renamed), format!("{file}{name}: {expected}"));
    }
    let mut halved = all.clone();
    halved.remove(&factor);
    let expected = "expected a tensor of shape [3, 48], found none";
    let name = ".0.q_proj.lora_A.weight";
    assert_eq!(refused(&halved), format!("{file}{name}: {expected}"));
    let empty = refused(&Tensors::new());
    assert!(empty.ends_with("lora_A.weight, found none"), "{empty}");
}

/// The head is tied to the embedding, so the stored matrix of the head is not read.
#[test]
fn an_adapter_of_a_matrix_that_is_not_used_is_refused() {
    let mut base = Tiny::new(3, &json!({"weight_tying": true}));
    let shape = base.tensors["model.transformer.wte.weight"].0.clone();
    let matrix = |rows: usize, columns: usize| (vec![rows, columns], vec![0.25; rows * columns]);
    let (head, stored) = ("model.transformer.ff_out", matrix(shape[0], shape[1]));
    base.tensors.insert(format!("{head}.weight"), stored);
    let name = |factor: &str| format!("base_model.model.{head}.{factor}.weight");
    let tensors = Tensors::from([
        (name("lora_A"), matrix(RANK, shape[1])),
        (name("lora_B"), matrix(shape[0], RANK)),
    ]);
    let refused = refusal(adapted(&base, &json!({"target_modules": ["ff_out"]}), &tensors));
    let expected = format!(
        "adapter_model.safetensors: {}: expected a matrix that the model uses, {head}.weight, found one \
         that it does not use",
        name("lora_A")
    );
    assert_eq!(refused, expected);
}

/// A product cannot be added to codes of a few bits that are stored together.
#[test]
fn an_adapter_of_packed_codes_is_refused() {
    let module = "model.layers.0.mlp.gate_proj";
    let values = |shape: [usize; 2]| (shape.to_vec(), vec![0.1; shape[0] * shape[1]]);
    let tensors = Tensors::from([
        (format!("base_model.model.{module}.lora_A.weight"), values([RANK, 64])),
        (format!("base_model.model.{module}.lora_B.weight"), values([128, RANK])),
    ]);
    let adapter = adapter(&config(&json!({"target_modules": ["gate_proj"]})), &tensors);
    let adapted = |case: &str| {
        let files = Files::folder(crate::quantized::folder(case));
        Checkpoint::open(&files).expect(case).with_lora(&adapter, None)
    };
    for case in ["modelopt", "nvfp4", "gptq", "awq", "packed-4", "mlx"] {
        let expected = format!(
            "adapter_model.safetensors: base_model.model.{module}.lora_A.weight: expected the matrix \
             {module}.weight in the checkpoint, found packed codes, which take no adapter"
        );
        assert_eq!(refusal(adapted(case)), expected, "{case}");
    }
    assert!(adapted("deepseek").is_ok(), "each number has a code of its own");
}

#[test]
fn only_weights_with_full_attention_take_blocks_after_the_prompt() {
    let load = |case: &str| {
        let checkpoint = Case::named(case).checkpoint();
        Model::load(checkpoint.with_blocks_after_prompt(Some(8)))
    };
    let attention = load("dream-grouped").expect("it loads").info().rows.attention;
    assert_eq!(attention, step::Attention::BlocksAfterPrompt(8));
    let expected = "config.json: model_type: expected a model with full attention, which blocks after the \
                    prompt need, found \"sdar\"";
    assert_eq!(refusal(load("sdar-4")), expected);
}
