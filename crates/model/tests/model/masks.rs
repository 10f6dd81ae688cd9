//! Adapters for the rows of masks: other rows keep their bits, masks are computed as by merged weights.

use asynclane_model::{Checkpoint, Files, Host, LoadError, Model, WeightDtype};
use safetensors::tensor::{Dtype, TensorView, serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

use crate::common::{Noise, refusal};
use crate::official::{Case, error};

const RANK: usize = 3;
const MASK: u32 = 5;
const PREFIX: &str = "base_model.model.";
const EMBEDDING: &str = "model.embed_tokens.token_adapter.trainable_tokens_delta";

type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

struct Base {
    case: Case,
    config: Value,
}

impl Base {
    fn new() -> Self {
        let case = Case::named("llama-31");
        Self { config: case.config(), case }
    }

    fn size(&self, key: &str) -> usize {
        self.config[key].as_u64().expect(key) as usize
    }

    /// Rows and columns of a layer's matrices.
    fn matrices(&self) -> Vec<(String, [usize; 2])> {
        let (d, width) = (self.size("hidden_size"), self.size("intermediate_size"));
        let head = d / self.size("num_attention_heads");
        let kv = self.size("num_key_value_heads") * head;
        let layer = |number: usize| {
            [
                ("self_attn.q_proj", [d, d]),
                ("self_attn.k_proj", [kv, d]),
                ("self_attn.v_proj", [kv, d]),
                ("self_attn.o_proj", [d, d]),
                ("mlp.gate_proj", [width, d]),
                ("mlp.up_proj", [width, d]),
                ("mlp.down_proj", [d, width]),
            ]
            .map(|(name, shape)| (format!("model.layers.{number}.{name}"), shape))
        };
        (0..self.size("num_hidden_layers")).flat_map(layer).collect()
    }

    /// An adapter of all matrices whose name has one of `ends`, and of the mask's embedding.
    fn tensors(&self, ends: &[&str]) -> Tensors {
        let mut noise = Noise(7);
        let mut numbers = |shape: Vec<usize>| {
            let count = shape.iter().product();
            let values: Vec<f32> = (0..count).map(|_| 0.2 * noise.next()).collect();
            (shape, values)
        };
        let mut tensors = Tensors::new();
        for (name, [rows, columns]) in self.matrices() {
            if ends.iter().any(|end| name.ends_with(end)) {
                tensors.insert(format!("{name}.lora_A.weight"), numbers(vec![RANK, columns]));
                tensors.insert(format!("{name}.lora_B.weight"), numbers(vec![rows, RANK]));
            }
        }
        tensors.insert(EMBEDDING.to_owned(), numbers(vec![1, self.size("hidden_size")]));
        tensors
    }
}

const ALL: [&str; 7] =
    ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];

fn files(tensors: &Tensors, ends: &[&str], masks: Value) -> Files {
    let views = tensors.iter().map(|(name, (shape, values))| {
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        let view = TensorView::new(Dtype::F32, shape.clone(), bytes.leak());
        (format!("{PREFIX}{name}"), view.expect("a tensor"))
    });
    let weights = serialize(views, None).expect("it serialises");
    let mut config = json!({"peft_type": "LORA", "r": RANK, "lora_alpha": 6,
        "target_modules": ends, "trainable_token_indices": {"embed_tokens": [MASK]}});
    config["mask_token_id"] = masks;
    for (name, (shape, _)) in tensors {
        if let Some(module) = name.strip_suffix(".lora_A.weight").filter(|_| shape[0] != RANK) {
            config["rank_pattern"][module] = json!(shape[0]);
            config["alpha_pattern"][module] = json!(2 * shape[0]);
        }
    }
    Files::memory([
        ("adapter_config.json", config.to_string().into_bytes()),
        ("adapter_model.safetensors", weights),
    ])
}

fn adapted(base: &Base, ends: &[&str]) -> Checkpoint {
    let adapter = files(&base.tensors(ends), ends, json!(MASK));
    base.case.checkpoint().with_lora(&adapter, None).expect("it opens")
}

/// The checkpoint with the adapter merged into all rows and the mask's embedding replaced.
fn merged(base: &Base, tensors: &Tensors) -> Model {
    let bytes = std::fs::read(base.case.folder.join("model.safetensors")).expect("weights");
    let stored = safetensors::SafeTensors::deserialize(&bytes).expect("a file");
    let mut new = Tensors::new();
    for (name, view) in stored.tensors() {
        let words = view.data().as_chunks().0.iter().copied();
        let mut values: Vec<f32> = words.map(f32::from_le_bytes).collect();
        let module = name.strip_suffix(".weight").expect("a weight");
        if let Some((shape, a)) = tensors.get(&format!("{module}.lora_A.weight")) {
            let b = &tensors[&format!("{module}.lora_B.weight")].1;
            for (index, value) in values.iter_mut().enumerate() {
                let (row, column) = (index / shape[1], index % shape[1]);
                let sum: f32 =
                    (0..RANK).map(|k| b[row * RANK + k] * a[k * shape[1] + column]).sum();
                *value += 2.0 * sum;
            }
        }
        if module == "model.embed_tokens" {
            let row = &tensors[EMBEDDING].1;
            let first = MASK as usize * row.len();
            values[first..first + row.len()].copy_from_slice(row);
        }
        new.insert(name, (view.shape().to_vec(), values));
    }
    let views = new.iter().map(|(name, (shape, values))| {
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        (name, TensorView::new(Dtype::F32, shape.clone(), bytes.leak()).expect("a tensor"))
    });
    let weights = serialize(views, None).expect("it serialises");
    let files = Files::memory([
        ("config.json", base.config.to_string().into_bytes()),
        ("model.safetensors", weights),
    ]);
    Model::load(Checkpoint::open(&files).expect("it opens")).expect("it loads")
}

fn logits<B: Host>(model: &Model<B>, tokens: &[u32]) -> Vec<f32> {
    model.logits(tokens).expect("a forward pass")
}

#[test]
fn rows_of_tokens_keep_their_bits() {
    let base = Base::new();
    let vocab = base.size("vocab_size");
    for dtype in [WeightDtype::F32, WeightDtype::Bf16] {
        let plain = base.case.model(dtype);
        let ours = Model::load(adapted(&base, &ALL).with_dtype(dtype)).expect("it loads");
        assert_eq!(ours.info().vocabulary.mask, Some(MASK));
        let tokens = [7, 9, 11, 20, MASK, MASK];
        let (expected, found) = (logits(&plain, &tokens[..4]), logits(&ours, &tokens));
        assert_eq!(found[..4 * vocab], expected, "{dtype:?}");
        let same = logits(&plain, &tokens);
        assert!(error(&found[4 * vocab..], &same[4 * vocab..], vocab) > 1e-2, "{dtype:?}");
    }
}

/// Masks that see masks alone are computed by merged weights; behind tokens, as plain tensor code of candle
/// computes them.
#[test]
fn rows_of_masks_are_those_of_merged_weights() {
    let base = Base::new();
    let vocab = base.size("vocab_size");
    for ends in [&ALL[..], &["q_proj", "v_proj"], &["down_proj"]] {
        let ours = Model::load(adapted(&base, ends)).expect("it loads");
        let masks = [MASK; 4];
        let whole = merged(&base, &base.tensors(ends));
        let near = error(&logits(&ours, &masks), &logits(&whole, &masks), vocab);
        assert!(near < 1e-4, "{ends:?}: {near:e}");
        let plain = asynclane_model::Candle::default();
        let plain = Model::load_on(plain, adapted(&base, ends)).expect("it loads");
        let tokens = [7, 9, MASK, 11, MASK, MASK];
        let near = error(&logits(&ours, &tokens), &logits(&plain, &tokens), vocab);
        assert!(near < 1e-4, "{ends:?}: {near:e}");
    }
}

/// Rows of A and columns of B that are 0 add nothing.
#[test]
fn stacked_matrices_may_have_different_ranks() {
    let base = Base::new();
    let mut tensors = base.tensors(&ALL);
    for (name, (shape, values)) in &mut tensors {
        let is_wider = ["0.self_attn.k_proj", "0.mlp.up_proj"].iter().any(|end| name.contains(end));
        if is_wider && name.contains("lora_A") {
            values.extend(vec![0.0; 2 * shape[1]]);
            shape[0] += 2;
        } else if is_wider {
            let rows = values.chunks(RANK).flat_map(|row| row.iter().copied().chain([0.0; 2]));
            *values = rows.collect();
            shape[1] += 2;
        }
    }
    let adapter = files(&tensors, &ALL, json!(MASK));
    let wider = base.case.checkpoint().with_lora(&adapter, None).expect("it opens");
    let [wider, plain] =
        [wider, adapted(&base, &ALL)].map(|one| Model::load(one).expect("it loads"));
    let tokens = [7, 9, MASK, 11, MASK, MASK];
    let near = error(&logits(&wider, &tokens), &logits(&plain, &tokens), base.size("vocab_size"));
    assert!(near < 1e-6, "{near:e}");
    assert!(wider.info().parameters > plain.info().parameters);
}

/// Memory is counted before anything is read.
#[test]
fn the_survey_counts_an_adapter() {
    let base = Base::new();
    let mut checkpoint = adapted(&base, &ALL);
    let survey = checkpoint.survey(WeightDtype::F32).expect("a survey");
    let plain = base.case.checkpoint().survey(WeightDtype::F32).expect("a survey");
    let more: usize = base.tensors(&ALL).values().map(|(_, values)| values.len()).sum();
    assert_eq!(survey.info.parameters, plain.info.parameters + more);
    let loaded = Model::load(checkpoint).expect("it loads");
    assert_eq!(loaded.memory(), survey.memory);
    assert_eq!(loaded.info(), &survey.info);
}

#[test]
fn adapters_for_masks_that_do_not_fit_are_refused() {
    let base = Base::new();
    let load = |case: &Case, tensors: &Tensors, ends: &[&str], masks: Value| {
        let adapter = files(tensors, ends, masks);
        let opened = case.checkpoint().with_lora(&adapter, None);
        refusal(opened.and_then(|checkpoint| Model::load(checkpoint).map(|_| ())))
    };
    let (tensors, vocab) = (base.tensors(&ALL), base.size("vocab_size"));
    assert_eq!(
        load(&base.case, &tensors, &ALL, json!(100_000)),
        format!("adapter_config.json: mask_token_id: expected a token below {vocab}, found 100000")
    );
    assert_eq!(
        load(&base.case, &tensors, &ALL, json!("M")),
        "adapter_config.json: mask_token_id: expected a positive whole number, found \"M\""
    );
    assert_eq!(
        load(&base.case, &tensors, &ALL, Value::Null),
        "adapter_config.json: trainable_token_indices: expected null, or a mask_token_id beside it, \
         found {\"embed_tokens\":[5]}"
    );
    let dream = Case::named("dream-odd");
    assert_eq!(
        load(&dream, &tensors, &ALL, json!(MASK)),
        "adapter_config.json: mask_token_id: expected causal weights that predict the next token, \
         found dream"
    );
    let mut other = base.tensors(&ALL);
    for end in ["A", "B"] {
        let moved = format!("model.layers.0.self_attn.q_proj.lora_{end}.weight");
        let moved = other.remove(&moved).expect("a factor");
        other.insert(format!("model.layers.9.self_attn.q_proj.lora_{end}.weight"), moved);
    }
    let found = load(&base.case, &other, &ALL, json!(MASK));
    assert!(found.contains("model.layers.9.self_attn.q_proj"), "{found}");
    let error: LoadError = {
        let mut narrow = base.tensors(&ALL);
        narrow.insert(EMBEDDING.to_owned(), (vec![1, 2], vec![0.0; 2]));
        let adapter = files(&narrow, &ALL, json!(MASK));
        let opened = base.case.checkpoint().with_lora(&adapter, None);
        opened.and_then(|checkpoint| Model::load(checkpoint).map(|_| ())).expect_err("refused")
    };
    assert!(error.to_string().contains("expected shape [1, 32], found [1, 2]"), "{error}");
}

/// I-DLM: SDAR's architecture with strictly causal rows is Qwen3 that knows a mask.
#[test]
fn block_causal_weights_may_be_strictly_causal() {
    let case = Case::named("qwen3");
    let open = |next_tokens: bool| {
        let mut config = case.config();
        config["architectures"] = json!(["SDARForCausalLM"]);
        config["model_type"] = json!("sdar");
        config["mask_token_id"] = json!(MASK);
        let weights = std::fs::read(case.folder.join("model.safetensors")).expect("weights");
        let files = Files::memory([
            ("config.json", config.to_string().into_bytes()),
            ("model.safetensors", weights),
        ]);
        let opened = Checkpoint::open(&files).expect("it opens").with_next_tokens(next_tokens);
        Model::load(opened).expect("it loads")
    };
    let (strict, blocks, plain) = (open(true), open(false), case.model(WeightDtype::F32));
    assert_eq!(logits(&strict, &case.tokens), logits(&plain, &case.tokens));
    assert_ne!(logits(&blocks, &case.tokens), logits(&plain, &case.tokens));
    let rows = strict.info().rows;
    assert_eq!(rows.attention, plain.info().rows.attention);
    assert_eq!(rows.logit_shift, plain.info().rows.logit_shift);
    assert_eq!(strict.info().vocabulary.mask, Some(MASK));
    let full = Case::named("dream-odd").checkpoint().with_next_tokens(true);
    let error = refusal(Model::load(full).map(|_| ()));
    assert!(error.contains("expected a model with block-causal attention"), "{error}");
}
