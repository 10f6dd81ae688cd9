//! DiffusionGemma compared with its official PyTorch code, on tiny checkpoints.
//!
//! `fixtures/canvas.py` generates the checkpoints and the references.

use crate::common::{execute, refusal, single, sized, with};
use crate::official;
use asynclane_model::{Candle, Checkpoint, Cpu, Files, Host, LoadError, Model, ModelExecutor};
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use step::{Denoise, Position, Row, Sampling, Score, Slot};

/// Largest difference of a logit from the official one in f32, relative to the largest logit.
pub const TOLERANCE: f64 = 1e-5;
/// Pages of 8 slots.
pub const PAGES: [u32; 6] = [5, 0, 3, 1, 4, 2];

/// A checkpoint of `fixtures/canvas` and its reference.
pub struct Case {
    folder: PathBuf,
    reference: Vec<u8>,
}

impl Case {
    pub fn all() -> [Self; 2] {
        ["diffusion-gemma", "diffusion-gemma-odd"].map(|name| {
            let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/model/fixtures/canvas");
            let folder = PathBuf::from(fixtures).join(name);
            let reference = std::fs::read(folder.join("reference.safetensors")).unwrap();
            Self { folder, reference }
        })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint::open(&Files::folder(&self.folder)).unwrap()
    }

    pub fn tokens(&self, name: &str) -> Vec<u32> {
        let file = SafeTensors::deserialize(&self.reference).unwrap();
        let tensor = file.tensor(name).unwrap();
        let words = tensor.data().as_chunks().0.iter();
        words.map(|word| u32::from_le_bytes(*word)).collect()
    }

    fn floats(&self, name: &str) -> Vec<f32> {
        self.tokens(name).into_iter().map(f32::from_bits).collect()
    }

    /// The stored embedding table.
    fn embedding(&self) -> Vec<f32> {
        let name = "model.decoder.embed_tokens.weight";
        let files = std::fs::read_dir(&self.folder).unwrap();
        for path in files.map(|entry| entry.unwrap().path()) {
            let bytes = std::fs::read(path).unwrap();
            let file = SafeTensors::deserialize(&bytes);
            let Ok(tensor) = file.and_then(|file| file.tensor(name)) else {
                continue;
            };
            let data = tensor.data();
            let f32s = data.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b));
            let halves = data.as_chunks().0.iter().map(|b| u16::from_le_bytes(*b));
            return match tensor.dtype() {
                Dtype::F32 => f32s.collect(),
                _ => halves.map(|b| half::bf16::from_bits(b).to_f32()).collect(),
            };
        }
        panic!("no embedding table");
    }
}

fn at(token: u32, position: usize, end: usize) -> Row {
    let (slot, end) = (Slot::new(position as u32), Slot::new(end as u32));
    Row::new(token, Position::new(position as u32), slot, end)
}

/// Final tokens from `start` on.
pub fn encoded(tokens: &[u32], start: usize) -> Vec<Row> {
    let rows = tokens.iter().zip(start..);
    rows.map(|(token, i)| at(*token, i, i + 1)).collect()
}

/// A canvas from `start` on, with all log-probabilities wanted.
pub fn canvas(tokens: &[u32], start: usize, conditioned: bool, vocab: usize) -> Vec<Row> {
    let rows = tokens.iter().zip(start..);
    let row = |(token, place): (&u32, usize)| Row {
        denoise: Some(Denoise { conditioned }),
        score: Score::Top((vocab - 1) as u8),
        ..at(*token, place, start + tokens.len())
    };
    rows.map(row).collect()
}

pub fn scaled(scale: f32) -> Sampling {
    Sampling { scale, ..Sampling::GREEDY }
}

/// The largest difference between the log-probabilities of a step and those of logits divided by
/// `scale`, times `scale`, relative to the largest logit.
fn difference(
    executor: &mut dyn step::Executor,
    rows: Vec<Row>,
    scale: f32,
    logits: &[f32],
) -> f64 {
    let count = rows.iter().filter(|row| row.score.is_wanted()).count();
    let mut batch = single(rows, &PAGES);
    batch.segments[0].sampling = scaled(scale);
    let output = execute(executor, &batch);
    let vocab = logits.len() / count;
    let (mut largest, scale) = (0.0f64, f64::from(scale));
    let rows = output.tops.chunks(vocab - 1).zip(logits.chunks(vocab));
    for (tops, logits) in rows {
        let want = |token: u32| f64::from(logits[token as usize]);
        let sum: f64 = logits.iter().map(|x| (f64::from(*x) / scale).exp()).sum();
        for top in tops {
            let got = (f64::from(top.logprob) + sum.ln()) * scale;
            largest = largest.max((got - want(top.token)).abs());
        }
    }
    let sizes = logits.iter().map(|x| f64::from(x.abs()));
    largest / sizes.fold(0.0, f64::max)
}

pub fn executor<B: Host + 'static>(backend: B, checkpoint: Checkpoint) -> ModelExecutor<B> {
    let model = Model::load_on(backend, checkpoint).unwrap();
    sized(model, PAGES.len() as u32, 0)
}

/// The largest differences from the official logits: of the prompt with a first step, of a conditioned
/// step, and of the first step of the next canvas with the last one as final text.
pub fn steps(executor: &mut dyn step::Executor, case: &Case) -> [f64; 3] {
    let vocab = executor.spec().vocab_size as usize;
    let (prompt, scale) = (case.tokens("prompt"), case.floats("temperature")[0]);
    let [a, b, c] = ["canvas_a", "canvas_b", "canvas_c"].map(|name| case.tokens(name));
    let (start, next) = (prompt.len(), prompt.len() + b.len());
    let first = [encoded(&prompt, 0), canvas(&a, start, false, vocab)].concat();
    let second = canvas(&b, start, true, vocab);
    let third = [encoded(&b, start), canvas(&c, next, false, vocab)].concat();
    [
        difference(executor, first, scale, &case.floats("logits_a")),
        difference(executor, second, scale, &case.floats("logits_b")),
        difference(executor, third, scale, &case.floats("logits_c")),
    ]
}

#[test]
fn steps_agree_with_the_official_code() {
    for case in Case::all() {
        for found in [
            steps(&mut executor(Cpu::default(), case.checkpoint()), &case),
            steps(&mut executor(Candle::default(), case.checkpoint()), &case),
        ] {
            let near = found.iter().all(|error| *error < TOLERANCE);
            assert!(near, "{}: {found:?}", case.folder.display());
        }
    }
}

/// The encoder has no head of its own in the official code: its hidden states are compared through
/// the decoder's.
#[test]
fn the_encoder_agrees_with_the_official_code() {
    for case in Case::all() {
        let model = Model::load(case.checkpoint()).unwrap();
        let (hidden, table) = (case.floats("encoder_last"), case.embedding());
        let width = model.info().width;
        let logits = model.logits(&case.tokens("prompt")).unwrap();
        let mut largest = 0.0f64;
        let rows = logits.chunks(model.info().vocabulary.size);
        for (hidden, logits) in hidden.chunks(width).zip(rows) {
            for (token, got) in table.chunks(width).zip(logits) {
                let pairs = hidden.iter().zip(token);
                let product: f64 = pairs.map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
                let want = 30.0 * (product / 30.0).tanh();
                largest = largest.max((want - f64::from(*got)).abs());
            }
        }
        assert!(largest < 2e-5, "{}: {largest}", case.folder.display());
    }
}

/// The weights of the vision tower are named once and not read.
#[test]
fn the_vision_tower_is_left_out() {
    let [text, with_vision] = Case::all();
    let warnings = |case: &Case| Model::load(case.checkpoint()).unwrap().warnings().to_vec();
    assert_eq!(warnings(&text), [""; 0]);
    let [line] = &warnings(&with_vision)[..] else {
        panic!("one line about the vision tower");
    };
    assert!(line.contains("vision"), "{line}");
}

#[test]
fn wrong_configurations_are_refused_by_key() {
    let case = &Case::all()[0];
    let config = official::config(&case.folder);
    let refused = |config: &Value| {
        let loaded = Checkpoint::synthetic(&config.to_string(), 1).and_then(Model::load);
        assert!(matches!(loaded, Err(LoadError::Key { .. })), "{config}");
        refusal(loaded)
    };
    let yarn = json!({"full_attention": {"rope_type": "yarn"}});
    let layers = json!(["sliding_attention", "linear", "full_attention"]);
    for (key, value) in [
        ("canvas_length", json!(5000)),
        ("text_config", json!(3)),
        ("layer_types", layers),
        ("hidden_activation", json!("silu")),
        ("use_bidirectional_attention", json!("all")),
        ("top_k_experts", json!(7)),
        ("rope_parameters", yarn),
    ] {
        let mut config = config.clone();
        match config.get(key) {
            Some(_) => config[key] = value,
            None => config["text_config"][key] = value,
        }
        let error = refused(&config);
        assert!(error.contains("config.json") && error.contains(key), "{error}");
    }
    let mut files = official::files(&case.folder);
    let larger = with(config["text_config"].clone(), &json!({"num_experts": 5}));
    let larger = with(config, &json!({"text_config": larger}));
    files.insert("config.json".to_owned(), larger.to_string().into_bytes());
    let error = refusal(crate::common::load(files));
    assert!(error.contains("router.proj.weight"), "{error}");
}
