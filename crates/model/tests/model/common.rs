//! Tiny random checkpoints and a plain reference forward in f64.

use asynclane_model::{Checkpoint, ExecutorConfig, Files, Host, LoadError, Model, ModelExecutor};
use asynclane_model::{KvDtype, WeightDtype};
use safetensors::tensor::{Dtype, TensorView, serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use step::{
    Batch, BatchOutput, Candidate, Executor, PageId, Position, Row, Sampling, Score, Segment, Slot,
};

/// The goldens' checkpoint.
pub const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/goldens/checkpoint");

/// Files by name.
pub type Named = BTreeMap<String, Vec<u8>>;

/// A checkpoint described by its configuration and f32 tensors.
#[derive(Clone)]
pub struct Tiny {
    pub config: Value,
    pub tensors: BTreeMap<String, (Vec<usize>, Vec<f32>)>,
}

/// The number format of stored tensors.
#[derive(Clone, Copy, PartialEq)]
pub enum Store {
    F32,
    Bf16,
    F16,
}

/// Deterministic values in -1..1.
pub struct Noise(pub u64);

impl Noise {
    pub fn next(&mut self) -> f32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    pub fn below(&mut self, limit: usize) -> usize {
        ((self.next() + 1.0) / 2.0 * limit as f32) as usize % limit
    }
}

/// `value` with the members of `keys` in place of its own.
pub fn with(mut value: Value, keys: &Value) -> Value {
    for (key, member) in keys.as_object().unwrap() {
        value[key] = member.clone();
    }
    value
}

/// A minimal configuration; `overrides` replace keys.
pub fn config(overrides: &Value) -> Value {
    let config = json!({"architectures": ["LLaDAModelLM"], "model_type": "llada",
        "block_type": "llama", "layer_norm_type": "rms", "activation_type": "silu",
        "rms_norm_eps": 1e-5, "d_model": 48, "n_heads": 4, "n_kv_heads": null, "n_layers": 2,
        "mlp_hidden_size": 80, "vocab_size": 61, "embedding_size": 61, "max_sequence_length": 256,
        "rope_theta": 10000.0, "weight_tying": false, "include_bias": false,
        "include_qkv_bias": false, "mask_token_id": 5, "eos_token_id": 1});
    with(config, overrides)
}

/// Sizes read from a configuration.
pub struct Sizes {
    pub d: usize,
    pub heads: usize,
    pub num_kv_heads: usize,
    pub c: usize,
    pub mlp: usize,
    pub layers: usize,
    pub vocab: usize,
    pub embedding: usize,
}

impl Sizes {
    pub fn of(config: &Value) -> Self {
        let n = |key: &str| config[key].as_u64().map(|n| n as usize);
        let (d, heads) = (n("d_model").unwrap(), n("n_heads").unwrap());
        let vocab = n("vocab_size").unwrap();
        Self {
            d,
            heads,
            num_kv_heads: n("n_kv_heads").unwrap_or(heads),
            c: d / heads,
            mlp: n("mlp_hidden_size").unwrap_or_else(|| n("mlp_ratio").unwrap() * d),
            layers: n("n_layers").unwrap(),
            vocab,
            embedding: n("embedding_size").unwrap_or(vocab),
        }
    }
}

impl Tiny {
    /// Random weights for `config(overrides)`.
    pub fn new(seed: u64, overrides: &Value) -> Self {
        let config = config(overrides);
        let s = Sizes::of(&config);
        let mut noise = Noise(seed);
        let mut tensors = BTreeMap::new();
        let mut put = |name: String, shape: Vec<usize>, scale: f32, base: f32| {
            let values = (0..shape.iter().product()).map(|_| base + scale * noise.next());
            tensors.insert(name, (shape, values.collect()));
        };
        let t = "model.transformer";
        let bias = config["include_bias"] == true;
        let qkv_bias = bias || config["include_qkv_bias"] == true;
        put(format!("{t}.wte.weight"), vec![s.embedding, s.d], 1.0, 0.0);
        put(format!("{t}.ln_f.weight"), vec![s.d], 0.3, 1.0);
        let mut linear = |name: String, rows: usize, k: usize, biased: bool| {
            let scale = 2.5 / (k as f32).sqrt();
            put(format!("{name}.weight"), vec![rows, k], scale, 0.0);
            if biased {
                put(format!("{name}.bias"), vec![rows], 0.5, 0.0);
            }
        };
        if config["weight_tying"] != true {
            linear(format!("{t}.ff_out"), s.embedding, s.d, bias);
        }
        for i in 0..s.layers {
            let kv = s.num_kv_heads * s.c;
            for (name, rows, k, biased) in [
                ("q_proj", s.d, s.d, qkv_bias),
                ("k_proj", kv, s.d, qkv_bias),
                ("v_proj", kv, s.d, qkv_bias),
                ("attn_out", s.d, s.d, bias),
                ("ff_proj", s.mlp, s.d, bias),
                ("up_proj", s.mlp, s.d, bias),
                ("ff_out", s.d, s.mlp, bias),
            ] {
                linear(format!("{t}.blocks.{i}.{name}"), rows, k, biased);
            }
        }
        for i in 0..s.layers {
            for norm in ["attn_norm", "ff_norm"] {
                put(format!("{t}.blocks.{i}.{norm}.weight"), vec![s.d], 0.3, 1.0);
            }
        }
        Self { config, tensors }
    }

    /// Rounds every weight to a value that `store` can represent.
    pub fn rounded(mut self, store: Store) -> Self {
        for (_, values) in self.tensors.values_mut() {
            for x in values {
                *x = match store {
                    Store::F32 => *x,
                    Store::Bf16 => half::bf16::from_f32(*x).to_f32(),
                    Store::F16 => half::f16::from_f32(*x).to_f32(),
                };
            }
        }
        self
    }

    /// A safetensors file with the tensors selected by `pick`.
    pub fn safetensors(&self, store: Store, pick: impl Fn(&str) -> bool) -> Vec<u8> {
        let dtype = match store {
            Store::F32 => Dtype::F32,
            Store::Bf16 => Dtype::BF16,
            Store::F16 => Dtype::F16,
        };
        let picked = self.tensors.iter().filter(|(name, _)| pick(name));
        let views = picked.map(|(name, (shape, values))| {
            let bytes = values.iter().flat_map(|&x| match store {
                Store::F32 => x.to_le_bytes().to_vec(),
                Store::Bf16 => half::bf16::from_f32(x).to_le_bytes().to_vec(),
                Store::F16 => half::f16::from_f32(x).to_le_bytes().to_vec(),
            });
            let bytes: &[u8] = bytes.collect::<Vec<_>>().leak();
            (name, TensorView::new(dtype, shape.clone(), bytes).unwrap())
        });
        serialize(views, None).unwrap()
    }

    /// The files of an unsharded checkpoint.
    pub fn files(&self, store: Store) -> Named {
        let config = self.config.to_string().into_bytes();
        let weights = self.safetensors(store, |_| true);
        let files = [("config.json", config), ("model.safetensors", weights)];
        files.map(|(name, bytes)| (name.to_owned(), bytes)).into()
    }

    /// The files of a checkpoint in three shards.
    pub fn sharded(&self, store: Store) -> Named {
        let shard = |name: &str| name.len() % 3;
        let file = |i: usize| format!("model-0000{}-of-00003.safetensors", i + 1);
        let names = self.tensors.keys();
        let map: BTreeMap<_, _> = names.map(|name| (name, file(shard(name)))).collect();
        let index = json!({ "metadata": {}, "weight_map": map }).to_string();
        let mut files = self.files(store);
        files.remove("model.safetensors");
        files.insert("model.safetensors.index.json".to_owned(), index.into_bytes());
        for i in 0..3 {
            files.insert(file(i), self.safetensors(store, |name| shard(name) == i));
        }
        files
    }

    /// Loads the model from memory as f32.
    pub fn model(&self) -> Model {
        load(self.files(Store::F32)).unwrap()
    }

    /// Opens the model from memory.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint::open(&Files::memory(self.files(Store::F32))).unwrap()
    }

    /// Loads the model from memory with matrices in `dtype`.
    pub fn model_as(&self, dtype: WeightDtype) -> Model {
        Model::load(self.checkpoint().with_dtype(dtype)).unwrap()
    }

    /// An executor for the model with pages of 8 slots.
    pub fn executor(&self, pages: u32, threads: usize) -> ModelExecutor {
        sized(self.model(), pages, threads)
    }

    /// An executor for the model with pages of 8 slots and keys and values in `kv`.
    pub fn executor_kv(&self, kv: KvDtype, pages: u32, threads: usize) -> ModelExecutor {
        let model = Model::load(self.checkpoint().with_kv_dtype(kv)).unwrap();
        sized(model, pages, threads)
    }
}

/// An executor with pages of 8 slots; without a number of threads it chooses its own.
pub fn sized<B: Host + 'static>(model: Model<B>, pages: u32, threads: usize) -> ModelExecutor<B> {
    let threads = NonZeroUsize::new(threads);
    let config = ExecutorConfig { page_size: 8, pages, threads };
    ModelExecutor::new(model, config).unwrap()
}

/// Loads a model from files in memory.
pub fn load(files: Named) -> Result<Model, LoadError> {
    Model::load(Checkpoint::open(&Files::memory(files))?)
}

/// The error of a load that must fail, in one line.
pub fn refusal<T>(loaded: Result<T, LoadError>) -> String {
    let error = loaded.err().expect("refused").to_string();
    assert!(!error.contains('\n'), "{error}");
    error
}

/// A row whose slot is its position, scored.
pub fn row(token: u32, position: u32, visible_end: u32) -> Row {
    let (slot, position) = (Slot::new(position), Position::new(position));
    Row { score: Score::Candidate, ..Row::new(token, position, slot, Slot::new(visible_end)) }
}

/// Adds a segment of `rows` under the page table `pages`.
pub fn push(batch: &mut Batch, rows: Vec<Row>, pages: &[u32], sampling: Sampling) {
    let (row, page) = (batch.rows.len() as u32, batch.pages.len() as u32);
    batch.rows.extend(rows);
    batch.pages.extend(pages.iter().map(|&page| PageId(page)));
    batch.segments.push(Segment {
        rows: row..batch.rows.len() as u32,
        pages: page..batch.pages.len() as u32,
        sampling,
    });
}

/// A batch of one greedy sequence.
pub fn single(rows: Vec<Row>, pages: &[u32]) -> Batch {
    let mut batch = Batch::default();
    push(&mut batch, rows, pages, Sampling::GREEDY);
    batch
}

/// Runs a batch.
pub fn execute(executor: &mut dyn Executor, batch: &Batch) -> BatchOutput {
    let mut output = BatchOutput::default();
    executor.execute(batch, &mut output).unwrap();
    output
}

fn softmax(logits: &[f64]) -> Vec<f64> {
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = logits.iter().map(|x| (x - max).exp()).sum();
    logits.iter().map(|x| (x - max).exp() / total).collect()
}

/// Asserts that a candidate matches the logits (the mask is token 5).
pub fn assert_candidate(got: &Candidate, logits: &[f64], input: u32) {
    let p = softmax(logits);
    let mut ids: Vec<usize> = (0..p.len()).filter(|&id| id != 5).collect();
    ids.sort_by(|&a, &b| p[b].total_cmp(&p[a]));
    let near = |got: f64, want: f64| assert!((got - want).abs() < 1e-4, "{got} for {want}");
    // Near ties may be resolved either way: compare probabilities, not ids.
    near(got.probability, p[ids[0]]);
    near(got.runner_up_probability, p[ids[1]]);
    near(p[got.token as usize], p[ids[0]]);
    near(got.present, p.get(input as usize).copied().unwrap_or(0.0));
    let parts = p.iter().map(|p| if *p > 0.0 { -p * p.ln() } else { 0.0 });
    let entropy = parts.sum::<f64>();
    near(f64::from(got.entropy), entropy);
    near(f64::from(got.gap), logits[ids[0]] - logits[ids[1]]);
}
