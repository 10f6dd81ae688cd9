//! DFlash drafters through the engine: drafts and texts equal those of the published code, and texts are
//! the target's own.
//!
//! `crates/model/tests/model/fixtures/dflash.py` generates pairs and goldens.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use asynclane_tests::random::Random;
use asynclane_tests::run::{Outcome, config, request, run_on, sized};
use engine::{Capabilities, Engine, EngineConfig, Request};
use model::{Candle, Checkpoint, Cpu, Files, Host, KvDtype, Model, ModelExecutor, WeightDtype};
use serde::Deserialize;
use step::{Batch, BatchOutput, ExecuteError, Executor, ExecutorSpec};

const FOLDER: &str = "../crates/model/tests/model/fixtures/dflash";
const PAIRS: [&str; 2] = ["qwen3", "llama"];

#[derive(Deserialize)]
struct Goldens {
    runs: Vec<Run>,
}

/// A run of the published sampler.
#[derive(Deserialize)]
struct Run {
    prompt: Vec<u32>,
    budget: u32,
    stops: Vec<u32>,
    tokens: Vec<u32>,
    /// The drafts of every step.
    drafts: Vec<Vec<u32>>,
    /// Tokens that each of the target's forward passes behind the prompt's added.
    accepted: Vec<u32>,
}

impl Run {
    /// Up to the first token that ends a text.
    fn text(&self) -> &[u32] {
        let end = self.tokens.iter().position(|token| self.stops.contains(token));
        &self.tokens[..end.unwrap_or(self.tokens.len())]
    }

    /// The steps that the text needs: the published loop drafts once more where the budget ends at the
    /// target's own token.
    fn steps(&self) -> usize {
        let mut known = 1;
        let needed = |count: &&u32| {
            let is_needed = known < self.budget;
            known += **count;
            is_needed
        };
        self.accepted.iter().take_while(needed).count()
    }
}

fn folder(pair: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER).join(pair)
}

fn goldens(pair: &str) -> Vec<Run> {
    let text = std::fs::read_to_string(folder(pair).join("goldens.json")).expect("the goldens");
    let goldens: Goldens = serde_json::from_str(&text).expect("valid goldens");
    goldens.runs
}

/// The target of a pair.
fn target(pair: &str) -> Checkpoint {
    Checkpoint::open(&Files::folder(folder(pair).join("target"))).expect("a checkpoint")
}

/// A target with its drafter.
fn pair(pair: &str) -> Checkpoint {
    let drafter = Files::folder(folder(pair).join("drafter"));
    assert!(Checkpoint::is_drafter(&drafter));
    target(pair).with_drafter(&drafter).expect("a drafter")
}

/// With pages that do not end where blocks do.
fn on<B: Host + 'static>(backend: B, checkpoint: Checkpoint) -> ModelExecutor<B> {
    sized(Model::load_on(backend, checkpoint).expect("it loads"), (6, 400), None)
}

fn executor(checkpoint: Checkpoint) -> ModelExecutor {
    on(Cpu::default(), checkpoint)
}

/// An engine that knows of the drafter.
fn engine_with(executor: &dyn Executor, chunk: u32) -> Engine {
    let block_drafts = matches!(executor.spec().attention, step::Attention::OpenBlock(_));
    let config = EngineConfig {
        prefill_chunk: chunk,
        capabilities: Capabilities { block_drafts, ..Capabilities::default() },
        ..config(Arc::default())
    };
    Engine::new(&config, executor.spec())
}

fn run(executor: &mut dyn Executor, requests: Vec<Request>) -> Vec<Outcome> {
    run_on(&mut engine_with(executor, 0), executor, requests)
}

/// A greedy request under the default of the weights.
fn drafted(executor: &dyn Executor, prompt: &[u32], budget: u32, stops: &[u32]) -> Request {
    let step::Attention::OpenBlock(block) = executor.spec().attention else {
        panic!("the block of a drafter is open")
    };
    request(prompt, budget, stops, &format!("self_speculation,window={block}"))
}

/// The executor, which notes the drafts of every pass.
struct Noted {
    executor: ModelExecutor,
    drafts: Vec<Vec<u32>>,
}

impl Executor for Noted {
    fn spec(&self) -> ExecutorSpec {
        self.executor.spec()
    }

    fn execute(&mut self, batch: &Batch, output: &mut BatchOutput) -> Result<(), ExecuteError> {
        self.executor.execute(batch, output)?;
        if batch.rows.iter().any(|row| row.open) {
            self.drafts.push(output.candidates.iter().map(|candidate| candidate.token).collect());
        }
        Ok(())
    }
}

/// Drafts of every step, texts with and without a token that ends them, and budgets that end inside of
/// a block; then all runs in one batch.
#[test]
fn drafts_and_texts_are_the_published_ones() {
    for name in PAIRS {
        let runs = goldens(name);
        assert!(runs.iter().any(|run| run.text().len() < run.tokens.len()));
        assert!(runs.iter().any(|run| run.stops.is_empty()));
        let mut noted = Noted { executor: executor(pair(name)), drafts: Vec::new() };
        for golden in &runs {
            noted.drafts.clear();
            let wanted = drafted(&noted, &golden.prompt, golden.budget, &golden.stops);
            let found = run(&mut noted, vec![wanted]).remove(0);
            assert_eq!(found.tokens, golden.text(), "{name}: {:?}", golden.prompt);
            assert_eq!(
                noted.drafts,
                golden.drafts[..golden.steps()],
                "{name}: {:?}",
                golden.prompt
            );
            let stats = found.finished.expect("it ends").stats;
            let checks = golden.steps() as u32;
            assert_eq!(stats.forwards(), 1 + checks, "{name}: {:?}", golden.prompt);
            assert_eq!(stats.draft_model.forwards, checks);
        }
        let mut executor = noted.executor;
        let requests =
            runs.iter().map(|run| drafted(&executor, &run.prompt, run.budget, &run.stops));
        let requests = requests.collect();
        for (golden, found) in runs.iter().zip(run(&mut executor, requests)) {
            assert_eq!(found.tokens, golden.text(), "{name}: {:?}", golden.prompt);
        }
    }
}

/// Random prompts, some of them with a common beginning, for which pages are shared.
fn prompts(count: u64) -> Vec<Vec<u32>> {
    let mut random = Random::new(11);
    let common: Vec<u32> = (0..20).map(|_| 3 + random.below(41) as u32).collect();
    let prompts = (0..count).map(|number| {
        let length = 1 + random.below(40);
        let own: Vec<u32> = (0..length).map(|_| 3 + random.below(41) as u32).collect();
        match number % 3 {
            0 => common.iter().copied().chain(own).collect(),
            _ => own,
        }
    });
    prompts.collect()
}

/// On 300 prompts: the text is the target's alone, in fewer of its forward passes.
#[test]
fn texts_are_those_of_the_target_alone() {
    for name in PAIRS {
        let (mut alone, mut both) = (executor(target(name)), executor(pair(name)));
        let prompts = prompts(300);
        let budget = |number: usize| 1 + (number as u32 * 7) % 45;
        let numbered = || prompts.iter().enumerate();
        let plain = numbered()
            .map(|(number, prompt)| request(prompt, budget(number), &[4, 9], "autoregressive"));
        let plain = run(&mut alone, plain.collect());
        let requests =
            numbered().map(|(number, prompt)| drafted(&both, prompt, budget(number), &[4, 9]));
        let requests = requests.collect();
        let found = run(&mut both, requests);
        let (mut tokens, mut forwards, mut right, mut all) = (0, 0, 0, 0);
        for ((ours, theirs), prompt) in found.iter().zip(&plain).zip(&prompts) {
            assert_eq!(ours.tokens, theirs.tokens, "{name}: {prompt:?}");
            let stats = ours.finished.expect("it ends").stats;
            tokens += stats.emitted_tokens;
            forwards += stats.forwards();
            all += stats.draft_model.drafted;
            right += stats.draft_model.verified;
        }
        let rate = f64::from(tokens) / f64::from(forwards);
        println!("{name}: {rate:.2} tokens a forward of the target, {right} of {all} drafts right");
        assert!(rate > 2.0, "{name}: {rate}");
        // Drafts are counted once each.
        assert!(right < all && right < tokens, "{name}: {right} of {all}, {tokens} tokens");
    }
}

/// Every number format and backend: each has its own target.
#[test]
fn a_text_is_the_targets_in_every_format() {
    for (name, dtype, kv) in [
        ("qwen3", WeightDtype::Bf16, KvDtype::F32),
        ("llama", WeightDtype::Int8, KvDtype::Bf16),
        ("qwen3", WeightDtype::Int8, KvDtype::Int8),
    ] {
        let stored =
            |checkpoint: Checkpoint| executor(checkpoint.with_dtype(dtype).with_kv_dtype(kv));
        compare(&mut stored(target(name)), &mut stored(pair(name)), dtype.name());
    }
    let on_candle = |checkpoint| on(Candle::default(), checkpoint);
    compare(&mut on_candle(target("llama")), &mut on_candle(pair("llama")), "candle");
}

fn compare(alone: &mut dyn Executor, both: &mut dyn Executor, what: &str) {
    let prompts = prompts(40);
    let plain = prompts.iter().map(|prompt| request(prompt, 30, &[4], "autoregressive")).collect();
    let plain = run(alone, plain);
    let requests = prompts.iter().map(|prompt| drafted(both, prompt, 30, &[4])).collect();
    let (mut all, mut right) = (0, 0);
    for ((ours, theirs), prompt) in run(both, requests).iter().zip(plain).zip(&prompts) {
        assert_eq!(ours.tokens, theirs.tokens, "{what}: {prompt:?}");
        let drafts = ours.finished.expect("it ends").stats.draft_model;
        (all, right) = (all + drafts.drafted, right + drafts.verified);
    }
    assert!(4 * right > all, "{what}: {right} of {all} drafts are right");
}

/// Rows of the drafter and rows of its target in one step change no bit of each other: tokens, their
/// log-probabilities and the drafts of a request are the same alone, beside others, after a prompt in
/// chunks, and behind cached pages.
#[test]
fn neighbours_chunks_and_cached_pages_change_no_bit() {
    let mut executor = executor(pair("qwen3"));
    let prompts = prompts(24);
    let asked = |executor: &dyn Executor, number: usize| {
        let mut request = drafted(executor, &prompts[number], 26, &[4]);
        request.extras.logprobs = Some(3);
        request.sampling.temperature = if number.is_multiple_of(2) { 0.0 } else { 0.9 };
        request.sampling.seed = number as u64;
        request
    };
    let mut alone = Vec::new();
    for number in 0..prompts.len() {
        let request = asked(&executor, number);
        alone.extend(run(&mut executor, vec![request]));
    }
    for chunk in [0, 1, 7] {
        let mut engine = engine_with(&executor, chunk);
        for is_cached in [false, true] {
            let requests = (0..prompts.len()).map(|number| asked(&executor, number)).collect();
            let found = run_on(&mut engine, &mut executor, requests);
            for (ours, alone) in found.iter().zip(&alone) {
                assert_eq!(ours.tokens, alone.tokens);
                assert_eq!(ours.logprobs, alone.logprobs);
                let [ours, alone] =
                    [ours, alone].map(|outcome| outcome.finished.expect("it ends").stats);
                assert_eq!(ours.draft_model, alone.draft_model);
                assert_eq!(ours.forwards(), alone.forwards());
                let whole_pages = (ours.prompt_tokens - 1) / 6;
                assert!(!is_cached || ours.cached_tokens >= 6 * whole_pages, "{ours:?}");
            }
        }
    }
}

/// The last blocks of a text that fills the context are cut at its end.
#[test]
fn a_text_may_fill_the_context() {
    let (mut alone, mut both) = (executor(target("qwen3")), executor(pair("qwen3")));
    let prompt: Vec<u32> = (0..130).map(|number| 3 + (number * number + 5 * number) % 41).collect();
    let plain = run(&mut alone, vec![request(&prompt, 30, &[], "autoregressive")]);
    let requests = vec![drafted(&both, &prompt, 30, &[])];
    let found = run(&mut both, requests);
    assert_eq!(found[0].tokens, plain[0].tokens);
    assert_eq!(found[0].tokens.len(), 30);
}
