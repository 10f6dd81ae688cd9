//! Every family through the engine: greedy decoding with cached K/V, in a batch, gives the tokens of a
//! loop over whole forward passes of the same checkpoint.
//!
//! The checkpoints are those of the parity tests of the crate `model`, which compare their logits with
//! the official PyTorch code.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use asynclane_tests::run::{Outcome, request, run, run_in_chunks, run_with_newlines, sized};
use model::{Checkpoint, DeviceModel, Files, Model, ModelExecutor, ModelInfo, WeightDtype};
use serde::Deserialize;
use step::{Attention, Bias, LogitShift};

const FOLDER: &str = "../crates/model/tests/model/fixtures/families";
const BUDGET: usize = 59;
const SUB_BLOCK: usize = 8;
/// In place of a mask where the model knows none: it reads no place before it is filled.
const OPEN: u32 = 0;

/// Every checkpoint of the fixtures.
fn checkpoints() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER);
    let entries = std::fs::read_dir(&folder).expect("the checkpoints are there");
    let folders = entries.map(|entry| entry.expect("an entry").path());
    let mut folders: Vec<PathBuf> = folders.collect();
    folders.retain(|path| path.join("config.json").exists());
    folders.sort();
    folders
}

fn executor(folder: &Path) -> ModelExecutor {
    sized(load(folder), (16, 256), None)
}

fn load(folder: &Path) -> Model {
    load_with(folder, |checkpoint| checkpoint)
}

fn load_with(folder: &Path, change: impl FnOnce(Checkpoint) -> Checkpoint) -> Model {
    let checkpoint = Checkpoint::open(&Files::folder(folder)).expect("a checkpoint");
    Model::load(change(checkpoint)).expect("it loads")
}

/// A canvas and the model that fills it.
struct Loop<'a> {
    model: &'a Model,
    tokens: Vec<u32>,
}

impl Loop<'_> {
    /// The greedy text after `prompt`, one token per forward.
    fn decode(model: &Model, prompt: &[u32]) -> Vec<u32> {
        let end = match model.info().rows.attention {
            Attention::Blocks(length) => (prompt.len() + BUDGET).next_multiple_of(length as usize),
            _ => prompt.len() + BUDGET,
        };
        let mut tokens = prompt.to_vec();
        tokens.resize(end, model.info().vocabulary.mask.unwrap_or(OPEN));
        let mut canvas = Loop { model, tokens };
        match model.info().rows.attention {
            // The checkpoints' own attention is full.
            Attention::Full | Attention::BlocksAfterPrompt(_) => {
                canvas.fill(prompt.len()..end, end);
            }
            // Canvas models have tests of their own.
            Attention::Causal | Attention::OpenBlock(_) | Attention::Canvas(_) => {
                (prompt.len()..end).for_each(|index| canvas.fill(index..index + 1, index + 1));
            }
            Attention::Blocks(length) => canvas.fill_blocks(prompt.len()..end, length as usize),
        }
        canvas.tokens[prompt.len()..][..BUDGET].to_vec()
    }

    /// Fills blocks from left to right. If predictions are read at the previous row, the first place of a
    /// block comes first, because the previous block predicts it; then come sub-blocks.
    fn fill_blocks(&mut self, places: Range<usize>, length: usize) {
        let shifted = self.model.info().rows.logit_shift == LogitShift::One;
        let mut start = places.start;
        while start < places.end {
            let block_end = (start / length + 1) * length;
            let (next, end) = match shifted {
                true if start.is_multiple_of(length) => (start + 1, start + 1),
                true => ((start / SUB_BLOCK + 1) * SUB_BLOCK, block_end),
                false => (block_end, block_end),
            };
            let next = next.min(places.end);
            self.fill(start..next, end.min(places.end));
            start = next;
        }
    }

    /// Fills `places`, the most confident one first; the canvas ends at `end`.
    fn fill(&mut self, places: Range<usize>, end: usize) {
        let info = self.model.info();
        for _ in places.clone() {
            let logits = self.model.logits(&self.tokens[..end]).expect("a forward pass");
            let rows: Vec<&[f32]> = logits.chunks(info.vocabulary.size).collect();
            let (mut best, mut most) = (None, f64::NEG_INFINITY);
            let mask = info.vocabulary.mask.unwrap_or(OPEN);
            for place in places.clone().filter(|index| self.tokens[*index] == mask) {
                let row = match (info.rows.attention, info.rows.logit_shift) {
                    // A final token predicts the next one.
                    (Attention::OpenBlock(_), _) | (_, LogitShift::One) => rows[place - 1],
                    (_, LogitShift::None) => rows[place],
                };
                let (token, probability) = likeliest(row, info.vocabulary.mask);
                if probability > most {
                    (best, most) = (Some((place, token)), probability);
                }
            }
            let (place, token) = best.expect("a mask is left");
            self.tokens[place] = token;
        }
    }
}

/// The output of an official sampler on a checkpoint (`fixtures/samplers.py`).
#[derive(Deserialize)]
struct Sample {
    sampler: String,
    /// The equivalent settings of this engine.
    settings: String,
    prompt: Vec<u32>,
    tokens: Vec<u32>,
    /// Forward passes of the sampler, where they were counted.
    forwards: Option<u32>,
    /// The tokens that the sampler took for line feeds.
    #[serde(default)]
    newlines: Vec<u32>,
    /// The tokens that end a text.
    #[serde(default)]
    stops: Vec<u32>,
    /// The budget of a text that may end before it; otherwise the text fills it.
    budget: Option<u32>,
    /// Above 0 with the noise of this project.
    #[serde(default)]
    temperature: f32,
    #[serde(default)]
    seed: u64,
    /// Length of the blocks after the prompt, if the sampler lets full attention see no later ones.
    prompt_blocks: Option<u32>,
}

impl Sample {
    fn request(&self, mask: Option<u32>) -> engine::Request {
        let budget = self.budget.unwrap_or(self.tokens.len() as u32);
        let mut request = request(&self.prompt, budget, &self.stops, &self.settings);
        request.sampling.temperature = self.temperature;
        request.sampling.seed = self.seed;
        // Random weights may predict the mask token, which the official samplers exclude.
        request.logits.biases.extend(mask.map(Bias::ban));
        request
    }

    /// The sampler's text: up to the first stop token.
    fn text(&self) -> &[u32] {
        let end = self.tokens.iter().position(|id| self.stops.contains(id));
        &self.tokens[..end.unwrap_or(self.tokens.len())]
    }

    /// The differences of the engine's outcome, in words.
    fn difference(&self, outcome: &Outcome) -> Option<String> {
        let (ours, theirs) = (&outcome.tokens, self.text());
        let equal = ours.iter().zip(theirs).take_while(|(a, b)| a == b).count();
        let forwards = outcome.finished.map(|finished| finished.stats.forwards());
        let same = ours == theirs && (self.forwards.is_none() || self.forwards == forwards);
        let Self { sampler, settings, .. } = self;
        let words = format!(
            "{sampler} ({settings}), {} tokens: the first {equal} are equal, {forwards:?} forwards against \
             {:?}",
            theirs.len(),
            self.forwards
        );
        (!same).then_some(words)
    }
}

/// The samples of a checkpoint: of its own sampler, and of published methods.
fn samples(folder: &Path) -> Vec<Sample> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let is_sample = |path: &PathBuf| path.to_string_lossy().ends_with("samples.json");
    let mut paths: Vec<PathBuf> = paths.filter(is_sample).collect();
    paths.sort();
    let read = |path: PathBuf| std::fs::read_to_string(path).expect("a file of samples");
    let parse = |text: String| -> Vec<Sample> {
        let mut all: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        serde_json::from_value(all["samples"].take()).expect("valid samples")
    };
    let texts = paths.into_iter().map(read);
    texts.flat_map(parse).collect()
}

/// The most probable token except the mask, and its probability among all tokens.
fn likeliest(row: &[f32], mask: Option<u32>) -> (u32, f64) {
    let all = (0..).zip(row).filter(|(token, _)| Some(*token) != mask);
    let widened = |(token, logit): (u32, &f32)| (token, f64::from(*logit));
    let first = (u32::MAX, f64::NEG_INFINITY);
    let (token, top) = all.map(widened).fold(first, |best, one| match one.1 > best.1 {
        true => one,
        false => best,
    });
    let exponents = row.iter().map(|logit| (f64::from(*logit) - top).exp());
    (token, 1.0 / exponents.sum::<f64>())
}

/// The engine's settings for one token per forward.
fn settings(attention: Attention, logit_shift: LogitShift) -> String {
    match attention {
        Attention::Blocks(_) if logit_shift == LogitShift::One => {
            format!("block_causal,commit=top_k,block_length={SUB_BLOCK}")
        }
        Attention::Full | Attention::BlocksAfterPrompt(_) => {
            format!("vanilla,block_length={BUDGET}")
        }
        Attention::Causal | Attention::OpenBlock(_) => "autoregressive".to_owned(),
        Attention::Blocks(length) => format!("block_causal,commit=top_k,block_length={length}"),
        // `tests/canvas.rs` runs these.
        Attention::Canvas(_) => "canvas".to_owned(),
    }
}

/// A token other than the mask.
fn word(info: &ModelInfo, number: u32) -> u32 {
    let token = number % info.vocabulary.size as u32;
    token + u32::from(Some(token) == info.vocabulary.mask)
}

#[test]
fn every_family_decodes_as_a_loop_over_its_forward_does() {
    let mut seen = BTreeSet::new();
    for folder in checkpoints() {
        let model = load(&folder);
        let info = model.info().clone();
        let prompt =
            |length| (0..length).map(|index| word(&info, 7 * index + 3)).collect::<Vec<_>>();
        let prompts = [1, 4, 5, 9, 18, 37].map(prompt);
        let settings = settings(info.rows.attention, info.rows.logit_shift);
        let request = |prompt: &Vec<u32>| request(prompt, BUDGET as u32, &[], &settings);
        let requests = prompts.iter().map(request).collect();
        let outcomes = run(&mut executor(&folder), requests);
        for (prompt, outcome) in prompts.iter().zip(outcomes) {
            let expected = Loop::decode(&model, prompt);
            assert_eq!(outcome.tokens, expected, "{}: {prompt:?}", folder.display());
        }
        seen.insert(info.family);
    }
    // All but the canvas models.
    assert_eq!(seen.len() + 1, model::Family::ALL.len(), "{seen:?}");
}

/// Prompts in chunks: the tokens, their log-probabilities, and the candidates of every step have the
/// bits of those after a whole prefill.
#[test]
fn prompts_in_chunks_change_no_bit() {
    let mut attentions = BTreeSet::new();
    for folder in checkpoints() {
        let info = load(&folder).info().clone();
        if info.rows.attention == Attention::Full {
            continue;
        }
        attentions.insert(format!("{:?}", info.rows.attention.kind()));
        let settings = settings(info.rows.attention, info.rows.logit_shift);
        let asked = |length: u32| {
            let prompt = (0..length).map(|index| word(&info, 5 * index + length));
            let prompt: Vec<u32> = prompt.collect();
            let mut request = request(&prompt, 12, &[], &settings);
            request.extras.logprobs = Some(3);
            request.sampling.temperature = if length.is_multiple_of(2) { 0.0 } else { 0.9 };
            request
        };
        let run = |chunk: u32| {
            let requests = [1, 16, 37, 64, 71, 90].map(asked).into_iter().collect();
            run_in_chunks(&mut executor(&folder), chunk, requests)
        };
        let whole = run(0);
        for chunk in [1, 7, 16, 40] {
            for (ours, whole) in run(chunk).into_iter().zip(&whole) {
                let place = format!("{}: {chunk}", folder.display());
                assert_eq!(ours.tokens, whole.tokens, "{place}");
                assert_eq!(ours.logprobs, whole.logprobs, "{place}");
                let effects = |outcome: &Outcome| {
                    let effects = outcome.steps.iter().map(|step| step.effects.clone());
                    effects.collect::<Vec<_>>()
                };
                assert_eq!(effects(&ours), effects(whole), "{place}");
                let cost = |outcome: &Outcome| outcome.finished.expect("it ends").stats;
                let (ours, whole) = (cost(&ours), cost(whole));
                let is_long = whole.prompt_tokens > 4 * chunk.max(16);
                assert!(ours.chunks > 0 || !is_long, "{place}");
                let whole = engine::SequenceStats { chunks: ours.chunks, ..whole };
                assert_eq!(ours, whole, "{place}");
            }
        }
    }
    assert_eq!(attentions.len(), 3, "{attentions:?}");
}

/// The published samplers, token for token: Fast-dLLM's for LLaDA, Dream's, SDAR's, Fast-dLLM v2's
/// with sub-blocks, LLaDA2.0's, LLaDA2.1's with edits, the three of Nemotron-Labs-Diffusion, and the window of WeDLM's engine; and the
/// methods of `fixtures/methods.py`, in as many forward passes.
#[test]
fn every_family_decodes_as_its_official_sampler_does() {
    let mut families = BTreeSet::new();
    let mut differ = Vec::new();
    for folder in checkpoints() {
        let samples = samples(&folder);
        if samples.is_empty() {
            continue;
        }
        let mut whole = executor(&folder);
        let mask = whole.model().info().vocabulary.mask;
        families.insert(whole.model().info().family);
        // Runs that agree about line feeds and attention share a batch.
        let mut groups: BTreeMap<(&[u32], Option<u32>), Vec<&Sample>> = BTreeMap::new();
        for sample in &samples {
            let alike = (&*sample.newlines, sample.prompt_blocks);
            groups.entry(alike).or_default().push(sample);
        }
        for ((newlines, blocks), samples) in groups {
            let mut in_blocks = blocks.map(|length| {
                // The attention of D2F's adapters.
                let model = load_with(&folder, |c| c.with_blocks_after_prompt(Some(length)));
                sized(model, (16, 256), None)
            });
            let executor = in_blocks.as_mut().unwrap_or(&mut whole);
            let requests = samples.iter().map(|sample| sample.request(mask)).collect();
            let outcomes = run_with_newlines(executor, newlines, requests);
            let pairs = samples.iter().zip(outcomes);
            let found = pairs.filter_map(|(sample, outcome)| sample.difference(&outcome));
            differ.extend(found.map(|words| format!("{}: {words}", folder.display())));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    assert_eq!(families.len() + 1, model::Family::ALL.len(), "{families:?}");
}

/// Rows of the README's table that are no family: other weights or decoders of one.
const VARIANTS: [&str; 2] = ["I-DLM", "Qwen3, Llama with a DFlash drafter"];

/// The README's names of a family, and of a family with experts where they differ.
const TITLES: [(&str, &str); 18] = [
    ("sdar with experts", "SDAR-MoE"),
    ("llada", "LLaDA"),
    ("dream", "Dream"),
    ("llada-moe", "LLaDA-MoE"),
    ("a2d", "Tiny-A2D"),
    ("coda", "CoDA"),
    ("rnd1", "RND1"),
    ("wedlm", "WeDLM"),
    ("sdar", "SDAR, TraDo"),
    ("fast-dllm-v2", "Fast-dLLM v2"),
    ("stable-diffcoder", "Stable-DiffCoder"),
    ("nemotron-labs", "Nemotron-Labs-Diffusion"),
    ("llada2", "LLaDA2"),
    ("qwen2", "Qwen2, Qwen2.5"),
    ("qwen3", "Qwen3"),
    ("qwen3-moe", "Qwen3-MoE"),
    ("llama", "Llama, SmolLM2"),
    ("diffusion-gemma", "DiffusionGemma"),
];

#[test]
fn the_readme_lists_every_family_with_its_attention_and_devices() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = std::fs::read_to_string(readme).expect("the README is there");
    let head = "| model | attention | devices |";
    let (_, table) = readme.split_once(head).expect("the table");
    let lines = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = lines.map(|line| line.trim_matches('|').split('|').map(str::trim).collect());
    let rows: Vec<Vec<&str>> = cells.collect();
    let (mut seen, mut listed) = (BTreeSet::new(), BTreeSet::new());
    // `tests/canvas.rs` compares the texts of canvases that hold noise.
    let canvas = Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER);
    let canvas = canvas.join("../canvas/diffusion-gemma");
    for folder in checkpoints().into_iter().chain([canvas]) {
        let info = load(&folder).info().clone();
        let with_experts = format!("{} with experts", info.family);
        let title = |name: &str| TITLES.iter().find(|(known, _)| *known == name);
        let with_experts = info.experts.and_then(|_| title(&with_experts));
        let title = with_experts.or_else(|| title(info.family));
        let (_, title) = title.expect("a title");
        let names = |names: &str| names.split(", ").map(str::to_owned).collect::<Vec<_>>();
        let holds = |row: &&Vec<&str>| names(title).iter().all(|name| names(row[0]).contains(name));
        let row = rows.iter().find(holds).expect("a row");
        let attention = match info.rows.attention {
            Attention::Full | Attention::BlocksAfterPrompt(_) => "full",
            Attention::Causal if info.rows.logit_shift == LogitShift::One => "autoregressive",
            Attention::Causal => "causal",
            Attention::Blocks(_) => "block-causal",
            Attention::OpenBlock(_) => "open block",
            Attention::Canvas(_) => "canvas",
        };
        let mut in_f32 = info.clone();
        in_f32.formats.matrices = WeightDtype::F32;
        let devices = match DeviceModel::unfit(&in_f32, None) {
            Some(_) => "CPU",
            None => "CPU, CUDA",
        };
        assert_eq!(row[1..3], [attention, devices], "{title}");
        seen.insert(title);
        listed.insert(row[0]);
    }
    assert_eq!(seen.len(), TITLES.len());
    let others: Vec<&str> =
        rows.iter().map(|row| row[0]).filter(|name| !listed.contains(name)).collect();
    assert_eq!(others, VARIANTS);
}
