//! DiffusionGemma through the engine: whole texts equal those of the official sampler, with the same
//! noise, alone and beside others.
//!
//! `crates/model/tests/model/fixtures/canvas.py` generates checkpoints and samples.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use std::time::Duration;

use asynclane_tests::run::{engine, request, run, run_on, tiny};
use decode::{Constraint, ConstraintError, Offset, Pin};
use engine::{Draw, Event, StepTrace, TokenLogprob};
use model::{Files, Host, ModelExecutor};
use safetensors::SafeTensors;
use serde::Deserialize;
use step::{Attention, Batch, BatchOutput, ExecuteError, Executor, ExecutorSpec, noise_token};

const FOLDER: &str = "../crates/model/tests/model/fixtures/canvas";

#[derive(Deserialize)]
struct Samples {
    origin: Origin,
    samples: Vec<Sample>,
}

#[derive(Deserialize)]
struct Origin {
    end_tokens: EndTokens,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum EndTokens {
    One(u32),
    Several(Vec<u32>),
}

impl Samples {
    fn ends(&self) -> &[u32] {
        match &self.origin.end_tokens {
            EndTokens::One(token) => std::slice::from_ref(token),
            EndTokens::Several(tokens) => tokens,
        }
    }
}

#[derive(Deserialize)]
struct Sample {
    prompt: Vec<u32>,
    seed: u64,
    /// Settings of the decoder, by name.
    settings: serde_json::Map<String, serde_json::Value>,
    max_new_tokens: u32,
    canvases: Vec<Vec<u32>>,
    steps: Vec<u32>,
}

impl Sample {
    /// The engine's settings.
    fn decoder(&self, length: u32) -> String {
        let settings = self.settings.iter().map(|(name, value)| format!(",{name}={value}"));
        format!("canvas,block_length={length}{}", settings.collect::<String>())
    }

    /// The text up to its first end token, and at most as long as asked for.
    fn text(&self, ends: &[u32]) -> Vec<u32> {
        let all = self.canvases.iter().flatten().take(self.max_new_tokens as usize);
        all.take_while(|token| !ends.contains(token)).copied().collect()
    }
}

fn cases() -> [(PathBuf, Samples); 2] {
    ["diffusion-gemma", "diffusion-gemma-odd"].map(|name| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER).join(name);
        let text = std::fs::read_to_string(folder.join("samples.json")).expect("the samples");
        (folder, serde_json::from_str(&text).expect("valid samples"))
    })
}
/// A checkpoint on a backend.
fn executor<B: Host + 'static>(backend: B, folder: &Path) -> ModelExecutor<B> {
    tiny(backend, &Files::folder(folder), (16, 128), None)
}

fn requests(samples: &[Sample], ends: &[u32], attention: Attention) -> Vec<engine::Request> {
    let Attention::Canvas(length) = attention else {
        panic!("a canvas model");
    };
    let request = |sample: &Sample| {
        let settings = sample.decoder(length);
        let mut request = request(&sample.prompt, sample.max_new_tokens, ends, &settings);
        request.sampling.temperature = 1.0;
        request.sampling.seed = sample.seed;
        request
    };
    samples.iter().map(request).collect()
}

/// The reference backend gives the same texts.
#[test]
fn texts_equal_those_of_the_official_sampler() {
    for (folder, all) in cases() {
        let (ends, samples) = (all.ends(), &all.samples);
        let mut executor = self::executor(model::Cpu::default(), &folder);
        let mut candle = self::executor(model::Candle::default(), &folder);
        let attention = executor.model().info().rows.attention;
        let together = run(&mut executor, requests(samples, ends, attention));
        let on_candle = run(&mut candle, requests(samples, ends, attention));
        for (index, sample) in samples.iter().enumerate() {
            let name = format!("{}, sample {index}", folder.display());
            let one = requests(std::slice::from_ref(sample), ends, attention);
            let alone = run(&mut executor, one).remove(0);
            assert_eq!(alone.tokens, sample.text(ends), "{name}");
            assert_eq!(together[index].tokens, alone.tokens, "{name}");
            assert_eq!(on_candle[index].tokens, alone.tokens, "{name}");
            let finished = together[index].finished.expect("it ends");
            let steps: u32 = sample.steps.iter().sum();
            assert_eq!(finished.stats.forwards(), steps, "{name}");
        }
    }
}

/// Under a grammar every text follows it, to its end, and is the same alone and beside others.
#[test]
fn a_canvas_follows_a_grammar() {
    for (folder, Samples { samples, .. }) in cases() {
        let mut executor = executor(model::Cpu::default(), &folder);
        let info = executor.model().info().clone();
        let vocab_size = info.vocabulary.size as u32;
        let asked = || {
            let mut all = requests(&samples, &[], info.rows.attention);
            for (request, length) in all.iter_mut().zip(3..) {
                request.constraint = Some(Box::new(Turns { vocab_size, length, accepted: 0 }));
            }
            all
        };
        let limits: Vec<u32> = asked().iter().map(|request| request.max_tokens).collect();
        let outcomes = run(&mut executor, asked());
        for (together, request) in outcomes.iter().zip(asked()) {
            let alone = run(&mut executor, vec![request]).remove(0);
            assert_eq!(alone.tokens, together.tokens, "{}", folder.display());
        }
        for (index, (outcome, limit)) in outcomes.iter().zip(limits).enumerate() {
            let what = format!("{}, sample {index}", folder.display());
            let expected = limit.min(3 + index as u32) as usize;
            assert_eq!(outcome.tokens.len(), expected, "{what}");
            for (index, token) in outcome.tokens.iter().enumerate() {
                assert!(Turns::fits(index as u32, *token), "{what}: {token} at {index}");
            }
        }
    }
}

/// A text of `length` tokens: even, odd, the token 4, and again.
#[derive(Clone, Debug)]
struct Turns {
    vocab_size: u32,
    length: u32,
    accepted: u32,
}

impl Turns {
    fn fits(offset: u32, token: u32) -> bool {
        match offset % 3 {
            0 => token.is_multiple_of(2),
            1 => !token.is_multiple_of(2),
            _ => token == 4,
        }
    }
}

impl Constraint for Turns {
    fn allowed(&mut self, set: &mut Vec<u32>) -> Result<(), ConstraintError> {
        set.clear();
        set.resize(step::set_words(self.vocab_size), 0);
        for token in (0..self.vocab_size).filter(|token| Self::fits(self.accepted, *token)) {
            set[token as usize / 32] |= 1 << (token % 32);
        }
        Ok(())
    }

    fn accept(&mut self, token: u32) -> Result<bool, ConstraintError> {
        let fits = self.accepted < self.length && Self::fits(self.accepted, token);
        self.accepted += u32::from(fits);
        Ok(fits)
    }

    fn forced(&mut self, tokens: &mut Vec<u32>) {
        tokens.clear();
        if self.accepted % 3 == 2 && self.accepted < self.length {
            tokens.push(4);
        }
    }

    fn may_end(&mut self) -> bool {
        self.accepted == self.length
    }

    fn is_over(&mut self) -> bool {
        self.accepted == self.length
    }

    fn boxed_clone(&self) -> Box<dyn Constraint> {
        Box::new(self.clone())
    }
}

/// A prompt that another request had before is read from its pages; the text is the same.
#[test]
fn a_cached_prompt_gives_the_same_text() {
    let (folder, Samples { samples, .. }) = &cases()[0];
    let mut executor = executor(model::Cpu::default(), folder);
    let attention = executor.model().info().rows.attention;
    let longest = samples.iter().max_by_key(|sample| sample.prompt.len());
    let longest = std::slice::from_ref(longest.expect("a sample"));
    let mut engine = engine(&executor);
    let outcomes = [0, 1].map(|_| {
        let one = requests(longest, &[], attention);
        run_on(&mut engine, &mut executor, one).remove(0)
    });
    assert_eq!(outcomes[0].tokens, outcomes[1].tokens);
    let cached = outcomes.map(|outcome| outcome.finished.expect("it ends").stats.cached_tokens);
    assert_eq!(cached, [0, 16], "the prompt's first page");
}

/// A step's trace says of every token that it drew whether the next forward pass reads it or noise.
#[test]
fn a_trace_tells_what_stands_in_the_next_pass() {
    for (folder, all) in cases() {
        let (ends, samples) = (all.ends(), &all.samples);
        let mut executor = executor(model::Cpu::default(), &folder);
        let info = executor.model().info().clone();
        let mut seen = [0, 0];
        for request in requests(samples, ends, info.rows.attention) {
            let (seed, given) = (request.sampling.seed, request.prompt.len() as u32);
            let mut engine = engine(&executor);
            engine.submit(request).expect("it fits");
            let mut output = BatchOutput::default();
            let (mut clock, mut draws) = (0, Vec::<Draw>::new());
            while let Some(step) = engine.plan() {
                let rows = step.batch().rows.iter().filter(|row| row.denoise.is_some());
                let rows: Vec<_> = rows.collect();
                assert!(draws.is_empty() || draws.len() == rows.len());
                for (row, draw) in rows.iter().zip(&draws) {
                    assert_eq!(row.position.get(), given + draw.offset.get());
                    let noise = noise_token(seed, clock, row.position, info.vocabulary.size as u32);
                    assert_eq!(row.token, if draw.kept { draw.token } else { noise });
                    seen[usize::from(draw.kept)] += 1;
                }
                executor.execute(step.batch(), &mut output).expect("a pass");
                engine.apply(step, &output, Duration::ZERO);
                let trace = last_trace(&mut engine);
                assert_eq!(trace.step, clock + 1);
                assert!(trace.draws.iter().all(|draw| draw.offset >= trace.frontier));
                (clock, draws) = (trace.step, trace.draws);
            }
            assert!(draws.is_empty(), "the last canvas is committed");
        }
        assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
    }
}

/// The trace of the step that was just applied.
fn last_trace(engine: &mut engine::Engine) -> StepTrace {
    let events = std::iter::from_fn(|| engine.poll_event());
    let mut traces = events.filter_map(|(_, event)| match event {
        Event::Step(trace) => Some(*trace),
        _ => None,
    });
    traces.next().expect("a traced sequence")
}

/// Records the tokens at the places of canvases, pass by pass.
struct Recorder<E> {
    inner: E,
    canvases: Vec<Vec<u32>>,
}

impl<E: Executor> Executor for Recorder<E> {
    fn spec(&self) -> ExecutorSpec {
        self.inner.spec()
    }

    fn execute(&mut self, batch: &Batch, output: &mut BatchOutput) -> Result<(), ExecuteError> {
        let rows = batch.rows.iter().filter(|row| row.denoise.is_some());
        self.canvases.push(rows.map(|row| row.token).collect());
        self.inner.execute(batch, output)
    }
}

/// The log-probabilities of a read are those of the official logits of its row, among the possible tokens.
fn assert_read(read: &TokenLogprob, logits: &[f64], possible: impl Fn(usize) -> bool, name: &str) {
    let known = (0..logits.len()).filter(|token| possible(*token));
    let sum = known.map(|token| logits[token].exp()).sum::<f64>().ln();
    for top in &read.top {
        let want = logits[top.token as usize] - sum;
        let error = (f64::from(top.logprob) - want).abs();
        assert!(error < 1e-4, "{name}: {error}");
    }
}

/// vLLM's fields of a canvas: what is pinned stands in every pass, and the log-probabilities of a read are
/// those of the official decoder's first pass over the seed.
#[test]
fn a_seeded_canvas_is_read_as_the_official_decoder_reads_it() {
    for (folder, _) in cases() {
        let file = std::fs::read(folder.join("reference.safetensors")).expect("the reference");
        let reference = SafeTensors::deserialize(&file).expect("a valid file");
        let words = |name: &str| -> Vec<u32> {
            let tensor = reference.tensor(name).expect("a tensor of this name");
            let words = tensor.data().as_chunks().0.iter();
            words.map(|word| u32::from_le_bytes(*word)).collect()
        };
        let (prompt, seed) = (words("prompt"), words("canvas_a"));
        let logits: Vec<f64> =
            words("logits_a").into_iter().map(|bits| f32::from_bits(bits).into()).collect();
        let (length, vocab) = (seed.len(), logits.len() / seed.len());
        let inner = executor(model::Cpu::default(), &folder);
        let mut executor = Recorder { inner, canvases: Vec::new() };
        // All tokens, some of them listed, and no others written.
        let some: Arc<[u32]> = (0..vocab as u32).filter(|token| token % 3 != 1).collect();
        let reads = [(1, false), (1, true), (4, true)].map(|(steps, is_pinned)| {
            [(None, false), (Some(&some), false), (Some(&some), true)]
                .map(|(listed, alone)| (steps, is_pinned, listed, alone))
        });
        for (steps, is_pinned, listed, alone) in reads.into_iter().flatten() {
            let held = |offset: usize| is_pinned && offset.is_multiple_of(2);
            let settings = format!(
                "canvas,block_length={length},max_denoising_steps={steps},t_min=1,t_max=1,\
                 confidence_threshold=0"
            );
            let mut read = request(&prompt, length as u32, &[], &settings);
            let pins = (0..).zip(&seed).map(|(offset, token)| Pin {
                offset: Offset::new(offset),
                token: *token,
                editable: !held(offset as usize),
            });
            read.given.pins = pins.collect();
            read.extras.logprobs = Some(listed.map_or(vocab - 1, |listed| listed.len()) as u8);
            read.extras.listed = listed.cloned();
            read.logits.only = listed.filter(|_| alone).cloned();
            executor.canvases.clear();
            let outcome = run(&mut executor, vec![read]).remove(0);
            let name = format!("{}, {steps} steps", folder.display());
            assert_eq!(executor.canvases.len(), steps, "{name}");
            assert_eq!(executor.canvases[0], seed, "{name}");
            for canvas in executor.canvases.iter().chain([&outcome.tokens]) {
                let stands = |offset: &usize| canvas[*offset] == seed[*offset];
                assert!(
                    (0..length).filter(|offset| held(*offset)).all(|offset| stands(&offset)),
                    "{name}"
                );
            }
            for (offset, read) in outcome.logprobs.iter().enumerate() {
                if held(offset) {
                    assert_eq!(read.logprob, 0.0, "{name}");
                    continue;
                }
                let possible = |token: usize| !alone || some.contains(&(token as u32));
                assert!(possible(outcome.tokens[offset] as usize), "{name}");
                let total = read.top.iter().map(|top| f64::from(top.logprob).exp()).sum::<f64>();
                assert!(!alone || (total - 1.0).abs() < 1e-5, "{name}: {total}");
                match listed {
                    Some(listed) => assert_eq!(read.top.len(), listed.len(), "{name}"),
                    None => assert!(read.top.len() >= vocab - 1, "{name}"),
                }
                if steps == 1 {
                    let row = &logits[offset * vocab..(offset + 1) * vocab];
                    assert_read(read, row, possible, &format!("{name}, offset {offset}"));
                }
            }
        }
    }
}
