//! Runs requests through an engine without a thread.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use decode::{TokenClass, TokenClasses};
use engine::decoding::DecodingSpec;
use engine::{Engine, EngineConfig, Event, Finished, Request, SequenceId, StepTrace, TokenLogprob};
use step::{BatchOutput, Executor};

use crate::golden;

/// The outcome of one request.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The emitted tokens.
    pub tokens: Vec<u32>,
    /// Their log-probabilities, if the request wants them.
    pub logprobs: Vec<TokenLogprob>,
    /// Statistics and finish reason, once it has ended.
    pub finished: Option<Finished>,
    /// Every step.
    pub steps: Vec<StepTrace>,
}

/// The tokenizer of the goldens' checkpoint.
pub fn tokenizer() -> text::Tokenizer {
    let files = text::TokenizerFiles::read(&golden::checkpoint()).expect("its files are readable");
    text::Tokenizer::new(&files).expect("the tokenizer loads")
}

/// The goldens' checkpoint in f32 on the CPU, with `pages` KV pages of 16 slots.
pub fn executor(pages: u32) -> Box<dyn Executor> {
    executor_on(model::Cpu::default(), pages, None)
}

/// As [`executor`], with one thread, for [`run_in_halves`].
pub fn single(pages: u32) -> Box<dyn Executor> {
    executor_on(model::Cpu::default(), pages, NonZeroUsize::new(1))
}

/// As [`executor`], on candle.
pub fn candle(pages: u32) -> Box<dyn Executor> {
    executor_on(model::Candle::default(), pages, None)
}

fn executor_on<B: model::Host + 'static>(
    backend: B,
    pages: u32,
    threads: Option<NonZeroUsize>,
) -> Box<dyn Executor> {
    let files = model::Files::folder(golden::checkpoint());
    Box::new(tiny(backend, &files, (16, pages), threads))
}

/// The checkpoint in `files` on `backend`, with pages of a size and of a number.
pub fn tiny<B: model::Host + 'static>(
    backend: B,
    files: &model::Files,
    sizes: (u32, u32),
    threads: Option<NonZeroUsize>,
) -> model::ModelExecutor<B> {
    let checkpoint = model::Checkpoint::open(files).expect("the checkpoint is valid");
    let model = model::Model::load_on(backend, checkpoint).expect("the model loads");
    sized(model, sizes, threads)
}

/// An executor of a model, with pages of a size and of a number.
pub fn sized<B: model::Host + 'static>(
    model: model::Model<B>,
    (page_size, pages): (u32, u32),
    threads: Option<NonZeroUsize>,
) -> model::ModelExecutor<B> {
    let sizes = model::ExecutorConfig { page_size, pages, threads };
    model::ModelExecutor::new(model, sizes).expect("the pages fit into memory")
}

/// An engine over `executor` with room for every request of a test.
pub fn engine(executor: &dyn Executor) -> Engine {
    Engine::new(&config(tokenizer().classes()), executor.spec())
}

/// The settings of an engine with room for every request of a test.
pub fn config(classes: Arc<TokenClasses>) -> EngineConfig {
    EngineConfig {
        max_running: 256,
        max_waiting: 1024,
        row_budget: 4096,
        long_quantum: 100_000,
        prefill_chunk: 0,
        grammar_timeout: Duration::ZERO,
        prefix_cache: true,
        max_model_len: None,
        classes,
        wait_order: Arc::new(engine::ByPriority),
        capabilities: engine::Capabilities { masks: true, ..Default::default() },
    }
}

/// A greedy, traced request.
pub fn request(prompt: &[u32], budget: u32, stops: &[u32], settings: &str) -> Request {
    let decoding = DecodingSpec::parse(settings).and_then(|spec| spec.resolve());
    let decoding = decoding.expect("the settings are valid");
    let mut request = Request::new(prompt.to_vec(), budget, decoding);
    request.stop_tokens = stops.to_vec();
    request.extras.trace = true;
    request
}

/// Runs all `requests` together; returns the outcomes in the same order.
pub fn run(executor: &mut dyn Executor, requests: Vec<Request>) -> Vec<Outcome> {
    run_on(&mut engine(executor), executor, requests)
}

/// As [`run`], on two executors beside each other, each with half of the requests: two threads that do
/// not wait for each other in every pass.
pub fn run_in_halves(
    executor: impl Fn() -> Box<dyn Executor> + Sync,
    mut requests: Vec<Request>,
) -> Vec<Outcome> {
    let second = requests.split_off(requests.len() / 2);
    let half = |requests| run(&mut *executor(), requests);
    let (mut outcomes, others) = std::thread::scope(|scope| {
        let others = scope.spawn(|| half(second));
        (half(requests), others.join().expect("every request runs"))
    });
    outcomes.extend(others);
    outcomes
}

/// As [`run`], for a vocabulary in which the tokens `newlines` are line feeds.
pub fn run_with_newlines(
    executor: &mut dyn Executor,
    newlines: &[u32],
    requests: Vec<Request>,
) -> Vec<Outcome> {
    let class = |token: u32| {
        let line_feed = newlines.contains(&token);
        TokenClass { newline: line_feed, line_feed, blank: line_feed, ..TokenClass::default() }
    };
    let last = newlines.iter().max().copied().unwrap_or_default();
    let classes = TokenClasses::new((0..=last).map(class).collect());
    let config = config(Arc::new(classes));
    let mut engine = Engine::new(&config, executor.spec());
    run_on(&mut engine, executor, requests)
}

/// As [`run`], with prefills of more than `chunk` rows in chunks (0 = whole), for a vocabulary
/// without line feeds.
pub fn run_in_chunks(
    executor: &mut dyn Executor,
    chunk: u32,
    requests: Vec<Request>,
) -> Vec<Outcome> {
    let config = EngineConfig { prefill_chunk: chunk, ..config(Arc::default()) };
    let mut engine = Engine::new(&config, executor.spec());
    run_on(&mut engine, executor, requests)
}

/// As [`run`], on an engine that may have run others before.
pub fn run_on(
    engine: &mut Engine,
    executor: &mut dyn Executor,
    requests: Vec<Request>,
) -> Vec<Outcome> {
    let requests = requests.into_iter();
    let submitted = requests.map(|request| engine.submit(request).expect("the request fits"));
    let ids: Vec<SequenceId> = submitted.collect();
    let mut outcomes: HashMap<SequenceId, Outcome> = HashMap::new();
    let mut output = BatchOutput::default();
    while !engine.is_idle() {
        if let Some(step) = engine.plan() {
            let executed = executor.execute(step.batch(), &mut output);
            executed.expect("the model runs");
            engine.apply(step, &output, Duration::ZERO);
        }
        while let Some((id, event)) = engine.poll_event() {
            let outcome = outcomes.entry(id).or_default();
            match event {
                Event::Started | Event::Labels(_) => {}
                Event::Tokens { chunk, logprobs, .. } => {
                    outcome.tokens.extend_from_slice(chunk.as_slice());
                    outcome.logprobs.extend(logprobs.into_iter().flatten());
                }
                Event::Step(step) => outcome.steps.push(*step),
                Event::Finished(finished) => outcome.finished = Some(finished),
                Event::Refused { message } | Event::Failed { message } => {
                    panic!("a sequence failed: {message}")
                }
            }
        }
        engine.validate().expect("the engine's invariants hold");
    }
    let mut ended = ids.iter().map(|id| outcomes.remove(id));
    let ended = ended.by_ref().map(|outcome| outcome.expect("every sequence has events"));
    ended.collect()
}
