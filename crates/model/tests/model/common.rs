//! Tiny random checkpoints and a plain reference forward in f64.

use asynclane_model::{Checkpoint, ExecutorConfig, Files, LoadError, Model, ModelExecutor};
use asynclane_model::{KvDtype, WeightDtype};
use safetensors::tensor::{Dtype, TensorView, serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use step::{
    Batch, BatchOutput, Candidate, Executor, PageId, Position, Row, Sampling, Score, Segment, Slot,
};

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
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    pub fn below(&mut self, limit: usize) -> usize {
        ((self.next() + 1.0) / 2.0 * limit as f32) as usize % limit
    }
}

/// A minimal configuration; `overrides` replace keys.
pub fn config(overrides: &Value) -> Value {
    let mut config = json!({
        "architectures": ["LLaDAModelLM"], "model_type": "llada", "block_type": "llama",
        "layer_norm_type": "rms", "activation_type": "silu", "rms_norm_eps": 1e-5,
        "d_model": 48, "n_heads": 4, "n_kv_heads": null, "n_layers": 2, "mlp_hidden_size": 80,
        "vocab_size": 61, "embedding_size": 61, "max_sequence_length": 256,
        "rope_theta": 10000.0, "weight_tying": false, "include_bias": false,
        "include_qkv_bias": false, "mask_token_id": 5, "eos_token_id": 1,
    });
    for (key, value) in overrides.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
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
            let values = (0..shape.iter().product())
                .map(|_| base + scale * noise.next())
                .collect();
            tensors.insert(name, (shape, values));
        };
        let t = "model.transformer";
        let (bias, qkv_bias) = (
            config["include_bias"] == true,
            config["include_qkv_bias"] == true,
        );
        put(format!("{t}.wte.weight"), vec![s.embedding, s.d], 1.0, 0.0);
        put(format!("{t}.ln_f.weight"), vec![s.d], 0.3, 1.0);
        let mut linear = |name: String, rows: usize, k: usize, biased: bool| {
            put(
                format!("{name}.weight"),
                vec![rows, k],
                2.5 / (k as f32).sqrt(),
                0.0,
            );
            if biased {
                put(format!("{name}.bias"), vec![rows], 0.5, 0.0);
            }
        };
        if config["weight_tying"] != true {
            linear(format!("{t}.ff_out"), s.embedding, s.d, bias);
        }
        for i in 0..s.layers {
            let b = format!("{t}.blocks.{i}");
            linear(format!("{b}.q_proj"), s.d, s.d, bias || qkv_bias);
            linear(
                format!("{b}.k_proj"),
                s.num_kv_heads * s.c,
                s.d,
                bias || qkv_bias,
            );
            linear(
                format!("{b}.v_proj"),
                s.num_kv_heads * s.c,
                s.d,
                bias || qkv_bias,
            );
            linear(format!("{b}.attn_out"), s.d, s.d, bias);
            linear(format!("{b}.ff_proj"), s.mlp, s.d, bias);
            linear(format!("{b}.up_proj"), s.mlp, s.d, bias);
            linear(format!("{b}.ff_out"), s.d, s.mlp, bias);
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
        let encoded: Vec<(&String, &Vec<usize>, Vec<u8>)> = self
            .tensors
            .iter()
            .filter(|(name, _)| pick(name))
            .map(|(name, (shape, values))| {
                let bytes = values.iter().flat_map(|&x| match store {
                    Store::F32 => x.to_le_bytes().to_vec(),
                    Store::Bf16 => half::bf16::from_f32(x).to_le_bytes().to_vec(),
                    Store::F16 => half::f16::from_f32(x).to_le_bytes().to_vec(),
                });
                (name, shape, bytes.collect())
            })
            .collect();
        let dtype = match store {
            Store::F32 => Dtype::F32,
            Store::Bf16 => Dtype::BF16,
            Store::F16 => Dtype::F16,
        };
        let views = encoded.iter().map(|(name, shape, bytes)| {
            (
                name.as_str(),
                TensorView::new(dtype, (*shape).clone(), bytes).unwrap(),
            )
        });
        serialize(views, None).unwrap()
    }

    /// The files of an unsharded checkpoint.
    pub fn files(&self, store: Store) -> BTreeMap<String, Vec<u8>> {
        BTreeMap::from([
            (
                "config.json".to_owned(),
                self.config.to_string().into_bytes(),
            ),
            (
                "model.safetensors".to_owned(),
                self.safetensors(store, |_| true),
            ),
        ])
    }

    /// The files of a checkpoint in three shards.
    pub fn sharded(&self, store: Store) -> BTreeMap<String, Vec<u8>> {
        let shard = |name: &str| name.len() % 3;
        let file = |i: usize| format!("model-0000{}-of-00003.safetensors", i + 1);
        let map: BTreeMap<_, _> = self
            .tensors
            .keys()
            .map(|name| (name.clone(), file(shard(name))))
            .collect();
        let index = json!({ "metadata": {}, "weight_map": map });
        let mut files = BTreeMap::from([
            (
                "config.json".to_owned(),
                self.config.to_string().into_bytes(),
            ),
            (
                "model.safetensors.index.json".to_owned(),
                index.to_string().into_bytes(),
            ),
        ]);
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
        self.executor_as(WeightDtype::F32, pages, threads)
    }

    /// An executor for the model with pages of 8 slots and matrices in `dtype`.
    pub fn executor_as(&self, dtype: WeightDtype, pages: u32, threads: usize) -> ModelExecutor {
        sized(self.model_as(dtype), pages, threads)
    }

    /// An executor for the model with pages of 8 slots and keys and values in `kv`.
    pub fn executor_kv(&self, kv: KvDtype, pages: u32, threads: usize) -> ModelExecutor {
        let model = Model::load(self.checkpoint().with_kv_dtype(kv)).unwrap();
        sized(model, pages, threads)
    }
}

/// An executor with pages of 8 slots.
fn sized(model: Model, pages: u32, threads: usize) -> ModelExecutor {
    let threads = NonZeroUsize::new(threads);
    let config = ExecutorConfig {
        page_size: 8,
        pages,
        threads,
    };
    ModelExecutor::new(model, config).unwrap()
}

/// Loads a model from files in memory.
pub fn load(files: BTreeMap<String, Vec<u8>>) -> Result<Model, LoadError> {
    Model::load(Checkpoint::open(&Files::memory(files))?)
}

/// [`reference_over`] rows at positions from 0 on; each attends to the first `visible_ends[row]` rows.
pub fn reference(tiny: &Tiny, tokens: &[u32], visible_ends: &[usize]) -> Vec<Vec<f64>> {
    let rows: Vec<_> = tokens.iter().copied().zip(0..).collect();
    let seen: Vec<Vec<usize>> = visible_ends.iter().map(|&end| (0..end).collect()).collect();
    reference_over(tiny, &rows, &seen)
}

/// The reference: each row of one sequence, a token and its position, attends to the rows `seen[row]`.
/// Plain loops in f64, written from the architecture's definition. Returns logits `[rows, vocab]`.
pub fn reference_over(tiny: &Tiny, rows: &[(u32, usize)], seen: &[Vec<usize>]) -> Vec<Vec<f64>> {
    let s = Sizes::of(&tiny.config);
    let theta = tiny.config["rope_theta"].as_f64().unwrap();
    let t = "model.transformer";
    let embed = matrix(tiny, &format!("{t}.wte"));
    let mut x: Vec<Vec<f64>> = rows
        .iter()
        .map(|&(id, _)| embed[id as usize].clone())
        .collect();
    for i in 0..s.layers {
        let b = format!("{t}.blocks.{i}");
        let normed: Vec<_> = x
            .iter()
            .map(|x| norm(tiny, &format!("{b}.attn_norm"), x))
            .collect();
        let project = |name: &str| -> Vec<Vec<f64>> {
            normed
                .iter()
                .map(|x| linear(tiny, &format!("{b}.{name}"), x))
                .collect()
        };
        let (mut q, mut k, v) = (project("q_proj"), project("k_proj"), project("v_proj"));
        for (row, &(_, position)) in rows.iter().enumerate() {
            for heads in [&mut q[row], &mut k[row]] {
                let heads = heads.chunks_mut(s.c);
                heads.for_each(|head| rotate(head, position, theta));
            }
        }
        for row in 0..rows.len() {
            let mut mixed = Vec::new();
            for head in 0..s.heads {
                let group = head / (s.heads / s.num_kv_heads);
                let q = &q[row][head * s.c..(head + 1) * s.c];
                let part = group * s.c..(group + 1) * s.c;
                let weight =
                    |&row: &usize| (dot(q, &k[row][part.clone()]) / (s.c as f64).sqrt()).exp();
                let weights: Vec<f64> = seen[row].iter().map(weight).collect();
                let total: f64 = weights.iter().sum();
                for j in part {
                    let values = weights.iter().zip(&seen[row]);
                    let value: f64 = values.map(|(w, &row)| w * v[row][j]).sum();
                    mixed.push(value / total);
                }
            }
            add(&mut x[row], &linear(tiny, &format!("{b}.attn_out"), &mixed));
        }
        for x in &mut x {
            let normed = norm(tiny, &format!("{b}.ff_norm"), x);
            let gate = linear(tiny, &format!("{b}.ff_proj"), &normed);
            let up = linear(tiny, &format!("{b}.up_proj"), &normed);
            let inner: Vec<f64> = gate
                .iter()
                .zip(&up)
                .map(|(g, u)| g / (1.0 + (-g).exp()) * u)
                .collect();
            add(x, &linear(tiny, &format!("{b}.ff_out"), &inner));
        }
    }
    let tied = tiny.config["weight_tying"] == true;
    x.iter()
        .map(|x| {
            let x = norm(tiny, &format!("{t}.ln_f"), x);
            let mut logits = match tied {
                true => embed.iter().map(|row| dot(row, &x)).collect(),
                false => linear(tiny, &format!("{t}.ff_out"), &x),
            };
            logits.truncate(s.vocab);
            logits
        })
        .collect()
}

fn matrix(tiny: &Tiny, name: &str) -> Vec<Vec<f64>> {
    let (shape, values) = &tiny.tensors[&format!("{name}.weight")];
    let rows = values.chunks(shape[1]);
    rows.map(|row| row.iter().map(|&x| f64::from(x)).collect())
        .collect()
}

fn linear(tiny: &Tiny, name: &str, x: &[f64]) -> Vec<f64> {
    let mut y: Vec<f64> = matrix(tiny, name).iter().map(|row| dot(row, x)).collect();
    if let Some((_, bias)) = tiny.tensors.get(&format!("{name}.bias")) {
        y.iter_mut()
            .zip(bias)
            .for_each(|(y, &b)| *y += f64::from(b));
    }
    y
}

fn norm(tiny: &Tiny, name: &str, x: &[f64]) -> Vec<f64> {
    let weight = &tiny.tensors[&format!("{name}.weight")].1;
    let eps = tiny.config["rms_norm_eps"].as_f64().unwrap();
    let scale = (dot(x, x) / x.len() as f64 + eps).sqrt();
    x.iter()
        .zip(weight)
        .map(|(x, &w)| x / scale * f64::from(w))
        .collect()
}

fn rotate(head: &mut [f64], position: usize, theta: f64) {
    let half = head.len() / 2;
    for i in 0..half {
        let angle = position as f64 * theta.powf(-(i as f64) / half as f64);
        let (a, b) = (head[i], head[i + half]);
        head[i] = a * angle.cos() - b * angle.sin();
        head[i + half] = b * angle.cos() + a * angle.sin();
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(x: &mut [f64], y: &[f64]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

/// A row whose slot is its position, scored.
pub fn row(token: u32, position: u32, visible_end: u32) -> Row {
    Row {
        score: Score::Candidate,
        ..Row::new(
            token,
            Position::new(position),
            Slot::new(position),
            Slot::new(visible_end),
        )
    }
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
    let entropy = -p
        .iter()
        .map(|p| if *p > 0.0 { p * p.ln() } else { 0.0 })
        .sum::<f64>();
    near(f64::from(got.entropy), entropy);
    near(f64::from(got.gap), logits[ids[0]] - logits[ids[1]]);
}
