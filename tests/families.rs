//! Every family through the engine: greedy decoding with cached K/V, together with others, gives
//! the tokens of a loop over whole forward passes of the same checkpoint.
//!
//! The checkpoints are those of the parity tests of the crate `model`, where their logits are held
//! to the official PyTorch code.

use std::path::{Path, PathBuf};

use asynclane_tests::run::{request, run};
use model::{Checkpoint, ExecutorConfig, Files, Model, ModelExecutor};
use step::{Attention, Readout};

const FOLDER: &str = "../crates/model/tests/model/fixtures/families";
const BUDGET: usize = 11;

fn load(folder: &Path) -> Model {
    let checkpoint = Checkpoint::open(&Files::folder(folder)).expect("a checkpoint");
    Model::load(checkpoint).expect("it loads")
}

/// A canvas and the model that fills it.
struct Loop<'a> {
    model: &'a Model,
    tokens: Vec<u32>,
}

impl Loop<'_> {
    /// The greedy text behind `prompt`, one token a forward.
    fn decode(model: &Model, prompt: &[u32]) -> Vec<u32> {
        let end = prompt.len() + BUDGET;
        let mut tokens = prompt.to_vec();
        tokens.resize(end, model.info().mask);
        let mut canvas = Loop { model, tokens };
        match model.info().attention {
            Attention::Full => canvas.fill(prompt.len()..end),
            Attention::Causal => (prompt.len()..end).for_each(|at| canvas.fill(at..at + 1)),
            Attention::Blocks(length) => {
                let mut start = prompt.len();
                while start < end {
                    let next = (start / length as usize + 1) * length as usize;
                    canvas.fill(start..next.min(end));
                    start = next;
                }
            }
        }
        canvas.tokens.split_off(prompt.len())
    }

    /// Fills `places`, each time the one that the model is surest of; what lies behind them is not
    /// there yet.
    fn fill(&mut self, places: std::ops::Range<usize>) {
        let info = self.model.info();
        for _ in places.clone() {
            let logits = self.model.logits(&self.tokens[..places.end]);
            let logits = logits.expect("a forward pass");
            let rows: Vec<&[f32]> = logits.chunks(info.vocab_size).collect();
            let (mut best, mut most) = (None, f64::NEG_INFINITY);
            for place in places.clone().filter(|at| self.tokens[*at] == info.mask) {
                let row = match info.readout {
                    Readout::Own => rows[place],
                    Readout::Previous => rows[place - 1],
                };
                let (token, probability) = likeliest(row, info.mask);
                if probability > most {
                    (best, most) = (Some((place, token)), probability);
                }
            }
            let (place, token) = best.expect("a mask is left");
            self.tokens[place] = token;
        }
    }
}

/// The likeliest token but the mask, and its probability among all tokens.
fn likeliest(row: &[f32], mask: u32) -> (u32, f64) {
    let all = (0..).zip(row).filter(|(token, _)| *token != mask);
    let of = |(token, logit): (u32, &f32)| (token, f64::from(*logit));
    let first = (u32::MAX, f64::NEG_INFINITY);
    let (token, top) = all.map(of).fold(first, |best, one| match one.1 > best.1 {
        true => one,
        false => best,
    });
    let sum: f64 = row
        .iter()
        .map(|logit| (f64::from(*logit) - top).exp())
        .sum();
    (token, 1.0 / sum)
}

/// The engine's settings for one token a forward.
fn settings(attention: Attention) -> String {
    match attention {
        Attention::Full => format!("vanilla,block_length={BUDGET}"),
        Attention::Causal => "autoregressive".to_owned(),
        Attention::Blocks(length) => format!("block_causal,commit=top_k,block_length={length}"),
    }
}

#[test]
fn every_family_decodes_as_a_loop_over_its_forward_does() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER);
    let entries = std::fs::read_dir(&folder).expect("the checkpoints are there");
    let mut folders: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    folders.retain(|path| path.join("config.json").exists());
    folders.sort();
    let mut seen = std::collections::BTreeSet::new();
    for folder in folders {
        let model = load(&folder);
        let info = model.info().clone();
        let word = |index: u32| {
            let token = (7 * index + 3) % info.vocab_size as u32;
            if token == info.mask { token + 1 } else { token }
        };
        let prompts = [1, 4, 5, 9, 18].map(|length| (0..length).map(word).collect::<Vec<_>>());
        let settings = settings(info.attention);
        let requests = prompts.iter();
        let requests = requests.map(|prompt| request(prompt, BUDGET as u32, &[], &settings));
        let sizes = ExecutorConfig {
            page_size: 16,
            pages: 64,
            threads: None,
        };
        let mut executor = ModelExecutor::new(load(&folder), sizes).expect("it fits");
        let outcomes = run(&mut executor, requests.collect());
        for (prompt, outcome) in prompts.iter().zip(outcomes) {
            let expected = Loop::decode(&model, prompt);
            assert_eq!(outcome.tokens, expected, "{}: {prompt:?}", folder.display());
        }
        seen.insert(info.family);
    }
    assert_eq!(seen.len(), model::Family::ALL.len(), "{seen:?}");
}
