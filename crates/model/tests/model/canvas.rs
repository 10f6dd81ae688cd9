//! DiffusionGemma compared with its official PyTorch code, on tiny checkpoints.
//!
//! `fixtures/canvas.py` generates the checkpoints and the references.

use crate::common::{execute, push};
use asynclane_model::{
    Candle, Checkpoint, Cpu, ExecutorConfig, Files, Host, LoadError, Model, ModelExecutor,
    WeightDtype,
};
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;
use serde_json::{Value, json};
use std::path::PathBuf;
use step::{Batch, Denoise, Position, Row, Sampling, Score, Slot};

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
        let files = files.map(|entry| entry.unwrap().path());
        let stored = files.filter(|path| {
            let file = path.file_name().unwrap().to_string_lossy().into_owned();
            file.starts_with("model") && file.ends_with(".safetensors")
        });
        for path in stored {
            let bytes = std::fs::read(path).unwrap();
            let file = SafeTensors::deserialize(&bytes).unwrap();
            let Ok(tensor) = file.tensor(name) else {
                continue;
            };
            let data = tensor.data();
            return match tensor.dtype() {
                Dtype::F32 => data
                    .as_chunks()
                    .0
                    .iter()
                    .map(|b| f32::from_le_bytes(*b))
                    .collect(),
                _ => {
                    let halves = data.as_chunks().0.iter().map(|b| u16::from_le_bytes(*b));
                    halves.map(|b| half::bf16::from_bits(b).to_f32()).collect()
                }
            };
        }
        panic!("no embedding table");
    }
}

fn at(token: u32, place: usize, end: usize) -> Row {
    Row::new(
        token,
        Position::new(place as u32),
        Slot::new(place as u32),
        Slot::new(end as u32),
    )
}

/// Final tokens from `start` on.
pub fn encoded(tokens: &[u32], start: usize) -> Vec<Row> {
    let places = start..;
    let rows = tokens.iter().zip(places);
    rows.map(|(token, place)| at(*token, place, place + 1))
        .collect()
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
    Sampling {
        scale,
        ..Sampling::GREEDY
    }
}

/// The largest difference between the log-probabilities of a step and those of logits divided by
/// `scale`, times `scale`, relative to the largest logit.
fn difference(
    executor: &mut dyn step::Executor,
    rows: Vec<Row>,
    scale: f32,
    logits: &[f32],
) -> f64 {
    let (count, mut batch) = (
        rows.iter().filter(|row| row.score.is_wanted()).count(),
        Batch::default(),
    );
    push(&mut batch, rows, &PAGES, scaled(scale));
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
    let size = logits
        .iter()
        .fold(0.0f64, |most, x| most.max(f64::from(x.abs())));
    largest / size
}

fn executor<B: Host + 'static>(backend: B, case: &Case) -> ModelExecutor<B> {
    let sizes = ExecutorConfig {
        page_size: 8,
        pages: PAGES.len() as u32,
        threads: None,
    };
    let model = Model::load_on(backend, case.checkpoint()).unwrap();
    ModelExecutor::new(model, sizes).unwrap()
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
            steps(&mut executor(Cpu::default(), &case), &case),
            steps(&mut executor(Candle::default(), &case), &case),
        ] {
            assert!(
                found.iter().all(|error| *error < TOLERANCE),
                "{}: {found:?}",
                case.folder.display()
            );
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
        for (hidden, logits) in hidden
            .chunks(width)
            .zip(logits.chunks(model.info().vocabulary.size))
        {
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

/// Everything that a canvas's rows return has the same bits alone and beside other sequences.
#[test]
fn a_canvas_has_the_same_bits_in_every_batch() {
    let case = &Case::all()[0];
    let (prompt, b) = (case.tokens("prompt"), case.tokens("canvas_b"));
    let start = prompt.len();
    let run = |others: bool, dtype: WeightDtype| {
        let checkpoint = case.checkpoint().with_dtype(dtype);
        let sizes = ExecutorConfig {
            page_size: 8,
            pages: 12,
            threads: None,
        };
        let model = Model::load(checkpoint).unwrap();
        let vocab = model.info().vocabulary.size;
        let mut executor = ModelExecutor::new(model, sizes).unwrap();
        let mut last = Vec::new();
        for conditioned in [false, true, true] {
            let mut batch = Batch::default();
            if others {
                let more = [encoded(&prompt[..9], 0), canvas(&b, 9, false, vocab)].concat();
                push(&mut batch, more, &[6, 7, 8], scaled(0.5));
            }
            let given = if conditioned {
                Vec::new()
            } else {
                encoded(&prompt, 0)
            };
            let rows = [given, canvas(&b, start, conditioned, vocab)].concat();
            push(&mut batch, rows, &PAGES, scaled(0.6));
            let output = execute(&mut executor, &batch);
            let all = output.candidates.len();
            last = output.candidates[all - b.len()..].to_vec();
        }
        last
    };
    for dtype in [WeightDtype::F32, WeightDtype::Bf16, WeightDtype::Int8] {
        assert_eq!(run(false, dtype), run(true, dtype), "{dtype:?}");
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

/// The fault of a configuration, or of a tensor that it needs.
#[test]
fn wrong_configurations_are_refused_by_key() {
    let case = &Case::all()[0];
    let text = std::fs::read_to_string(case.folder.join("config.json")).unwrap();
    let config: Value = serde_json::from_str(&text).unwrap();
    let refusal = |change: &dyn Fn(&mut Value)| {
        let mut config = config.clone();
        change(&mut config);
        let loaded = Checkpoint::synthetic(&config.to_string(), 1).and_then(Model::load);
        match loaded {
            Err(error @ LoadError::Key { .. }) => error.to_string(),
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("{config} is accepted"),
        }
    };
    let text_key = |key: &'static str, value: Value| {
        refusal(&move |config: &mut Value| config["text_config"][key] = value.clone())
    };
    let found = [
        refusal(&|config| config["canvas_length"] = json!(5000)),
        refusal(&|config| config["text_config"] = json!(3)),
        text_key(
            "layer_types",
            json!(["sliding_attention", "linear", "full_attention"]),
        ),
        text_key("hidden_activation", json!("silu")),
        text_key("use_bidirectional_attention", json!("all")),
        text_key("top_k_experts", json!(7)),
        text_key(
            "rope_parameters",
            json!({"full_attention": {"rope_type": "yarn"}}),
        ),
    ];
    for (message, key) in found.iter().zip([
        "canvas_length",
        "text_config",
        "layer_types",
        "hidden_activation",
        "use_bidirectional_attention",
        "top_k_experts",
        "rope_parameters",
    ]) {
        assert!(
            message.contains("config.json") && message.contains(key),
            "{message}"
        );
    }
    let mut larger = config.clone();
    larger["text_config"]["num_experts"] = json!(5);
    let message = refused_with(&larger, case);
    assert!(message.contains("router.proj.weight"), "{message}");
}

/// The error of a checkpoint whose configuration is replaced.
fn refused_with(config: &Value, case: &Case) -> String {
    let mut files = std::collections::BTreeMap::new();
    files.insert("config.json".to_owned(), config.to_string().into_bytes());
    let weights = std::fs::read(case.folder.join("model.safetensors")).unwrap();
    files.insert("model.safetensors".to_owned(), weights);
    match Checkpoint::open(&Files::memory(files)).and_then(Model::load) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("a checkpoint of other sizes is accepted"),
    }
}
