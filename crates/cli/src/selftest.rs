//! The test that the processor and the CUDA device compute correctly: forward passes and the demo
//! model's texts, compared with candle and with each other.

use std::sync::Arc;

use anyhow::Result;
use demo::EXAMPLES;
use engine::decoding::DecodingSpec;
use engine::{Event, Handle, Request};
use model::{Check, Device};
use text::Tokenizer;

use crate::config::{BackendChoice, Config, DeviceChoice, Text};
use crate::exit;
use crate::load::{self, LoadedModel};

/// Rows of the longest sequence, so that attention splits its context into several parts.
const LONGEST_ROWS: u32 = 2000;
/// Texts per decoder, and sequences in the batch when all are generated together.
const TEXTS: usize = 32;
/// Texts that candle generates, which is slow.
const CANDLE_TEXTS: usize = 8;
/// Tokens of a text.
const TEXT_TOKENS: u32 = 64;
/// One decoder of each kind of schedule and cache.
const DECODERS: [&str; 4] = ["asynclane", "balanced", "fast_dllm_dual", "vanilla"];

/// Columns of the large products: the whole matrices.
const COLUMNS: usize = usize::MAX;

/// Compares this machine's processor with candle, and its CUDA device, if it has one, with both.
/// Prints every comparison when it is made, also after one that does not hold.
///
/// # Errors
/// If a comparison does not hold.
pub fn run() -> Result<()> {
    let mut told = Comparisons::default();
    model::selftest_on_cpu(LONGEST_ROWS, &mut |check| told.add(check));
    let cpu = told.runner("demo model, CPU", demo(DeviceChoice::Cpu, BackendChoice::Cpu));
    let candle = demo(DeviceChoice::Cpu, BackendChoice::Candle);
    let candle = told.runner("demo model, candle", candle);
    told.texts(&candle, &cpu, DECODERS[1], CANDLE_TEXTS);
    match Device::open(0) {
        Ok(device) => {
            model::selftest(&device, LONGEST_ROWS, COLUMNS, &mut |check| told.add(check));
            let gpu = demo(DeviceChoice::Cuda(0), BackendChoice::Cpu);
            let gpu = told.runner("demo model, device", gpu);
            for decoder in DECODERS {
                told.texts(&cpu, &gpu, decoder, TEXTS);
            }
        }
        Err(reason) => tell!("CUDA: not compared: {reason}"),
    }
    told.verdict()
}

/// The comparisons up to now.
#[derive(Default)]
struct Comparisons {
    count: usize,
    wrong: usize,
    /// The first that does not hold.
    first: Option<Check>,
}

impl Comparisons {
    /// Prints a comparison.
    fn add(&mut self, check: Check) {
        let Check { name, error, tolerance } = &check;
        let verdict = if check.holds() { "ok" } else { "WRONG" };
        tell!("{name}: {error:.1e} of {tolerance:.0e}, {verdict}");
        self.count += 1;
        if !check.holds() {
            self.wrong += 1;
            self.first.get_or_insert(check);
        }
    }

    /// A runner; one that cannot be made is a comparison that does not hold.
    fn runner(&mut self, name: &str, made: Result<Runner>) -> Option<Runner> {
        made.map_err(|reason| self.add(Check::failed(name, reason))).ok()
    }

    /// Compares texts if both runners exist.
    fn texts(
        &mut self,
        reference: &Option<Runner>,
        tested: &Option<Runner>,
        decoder: &str,
        count: usize,
    ) {
        let (Some(reference), Some(tested)) = (reference, tested) else {
            return;
        };
        match texts(reference, tested, decoder, count) {
            Ok(checks) => checks.into_iter().for_each(|check| self.add(check)),
            Err(reason) => self.add(Check::failed(&format!("texts, {decoder}"), reason)),
        }
    }

    /// # Errors
    /// If a comparison did not hold.
    fn verdict(self) -> Result<()> {
        let Some(Check { name, error, .. }) = self.first else {
            return Ok(());
        };
        let Self { count, wrong, .. } = self;
        let first = format!("{name} is wrong by {error:.1e}");
        Err(failed(&format!("{wrong} of {count} checks do not hold, the first: {first}")))
    }
}

fn failed(what: &str) -> anyhow::Error {
    exit::failure(exit::UNAVAILABLE, format!("--selftest: {what}"))
}

/// A loaded model behind an engine thread.
struct Runner {
    engine: Handle,
    tokenizer: Arc<Tokenizer>,
    stop_tokens: Vec<u32>,
}

impl Runner {
    fn new(loaded: LoadedModel, config: &Config) -> Result<Self> {
        let engine_config = load::engine_config(config, &loaded);
        // The thread ends with its last handle.
        let (engine, _) = engine::spawn(&engine_config, loaded.executor, Box::new(()))?;
        Ok(Self { engine, tokenizer: loaded.tokenizer, stop_tokens: loaded.stop_tokens })
    }

    /// The tokens of every answer; `together` requests are submitted at once.
    ///
    /// # Errors
    /// A request that does not fit, a failed step.
    fn answers(&self, requests: &[Request], together: usize) -> Result<Vec<Vec<u32>>> {
        let mut answers = Vec::with_capacity(requests.len());
        for batch in requests.chunks(together) {
            let streams = self.engine.submit(batch.to_vec());
            let streams = streams.map_err(|error| exit::failure(exit::USAGE, error.to_string()))?;
            for mut stream in streams {
                let mut tokens = Vec::new();
                while let Some(event) = stream.blocking_next() {
                    match event {
                        Event::Tokens { chunk, .. } => tokens.extend_from_slice(chunk.as_slice()),
                        Event::Refused { message } | Event::Failed { message } => {
                            return Err(failed(&message));
                        }
                        Event::Started | Event::Step(_) | Event::Labels(_) | Event::Finished(_) => {
                        }
                    }
                }
                answers.push(tokens);
            }
        }
        Ok(answers)
    }

    /// Requests with different prompts; three in four are greedy, the others sampled.
    fn requests(&self, decoder: &str, count: usize) -> Result<Vec<Request>> {
        let decoding = DecodingSpec::parse(decoder)?.resolve()?;
        let mut requests = Vec::with_capacity(count);
        for number in 0..count {
            let text = prompt(number);
            let ids = load::chat_ids(&text, &self.tokenizer)?;
            let mut request = Request {
                stop_tokens: self.stop_tokens.clone(),
                code_prompt: server::is_code_shaped(&text),
                ..Request::new(ids, TEXT_TOKENS, decoding.clone())
            };
            if number % 4 == 3 {
                request.sampling.temperature = 0.7;
                request.sampling.seed = number as u64;
            }
            requests.push(request);
        }
        Ok(requests)
    }
}

/// The demo model in f32.
fn demo(device: DeviceChoice, backend: BackendChoice) -> Result<Runner> {
    let mut config = Config::default();
    config.model.device = Text::literal(&device.to_string());
    config.model.backend = Text::literal(backend.name());
    Runner::new(load::load(&config)?, &config)
}

/// The demo's examples in turns, each with another number or another order of its words.
pub fn prompt(number: usize) -> String {
    let [sum, snippet, list] = EXAMPLES;
    let varied = 4 + number;
    match number % EXAMPLES.len() {
        0 => sum.replace("has 9 coins", &format!("has {varied} coins")),
        1 => snippet.replace("multiply by 3", &format!("multiply by {varied}")),
        _ => {
            let mut words = ["coins", "eggs", "books", "pens"];
            let by = number % words.len();
            words.rotate_left(by);
            list.replace("coins, eggs, books, pens", &words.join(", "))
        }
    }
}

/// Numbers of texts, of `count`, that differ between two runners, and on the second between one
/// by one and all together.
///
/// # Errors
/// An unknown decoder, a failed step.
fn texts(reference: &Runner, tested: &Runner, decoder: &str, count: usize) -> Result<[Check; 2]> {
    let requests = reference.requests(decoder, count)?;
    let want = reference.answers(&requests, 1)?;
    let alone = tested.answers(&requests, 1)?;
    let together = tested.answers(&requests, count)?;
    let check = |what: &str, (left, right): (&[Vec<u32>], &[Vec<u32>]), tolerance| {
        let differ = left.iter().zip(right).filter(|(left, right)| left != right);
        Check {
            name: format!("{count} texts of the demo model, {decoder}: {what}"),
            error: differ.count() as f64,
            tolerance,
        }
    };
    Ok([
        // The reference sums in another order: one of thousands of decisions may be a tie.
        check("differ from the reference's", (&alone, &want), 1.0),
        check("differ from the texts made one by one", (&together, &alone), 0.0),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use step::{Batch, BatchOutput, ExecuteError, Executor, ExecutorSpec};

    /// A device whose candidates are wrong when a batch has several segments.
    struct CrowdedExecutor(Box<dyn Executor>);

    impl Executor for CrowdedExecutor {
        fn spec(&self) -> ExecutorSpec {
            self.0.spec()
        }

        fn execute(&mut self, batch: &Batch, output: &mut BatchOutput) -> Result<(), ExecuteError> {
            self.0.execute(batch, output)?;
            if batch.segments.len() > 1 {
                for candidate in &mut output.candidates {
                    candidate.token = candidate.runner_up;
                }
            }
            Ok(())
        }
    }

    fn errors(a: &Runner, b: &Runner) -> [f64; 2] {
        texts(a, b, "balanced", 6).unwrap().map(|check| check.error)
    }

    #[test]
    fn prompts_differ() {
        let prompts: std::collections::BTreeSet<String> = (0..12).map(prompt).collect();
        assert_eq!(prompts.len(), 12);
        assert!(!prompts.contains(EXAMPLES[0]), "numbers are replaced");
    }

    #[test]
    fn the_same_device_writes_the_same_texts_and_a_wrong_one_does_not() {
        let cpu = || demo(DeviceChoice::Cpu, BackendChoice::Cpu).unwrap();
        assert_eq!(errors(&cpu(), &cpu()), [0.0, 0.0]);
        let config = Config::default();
        let mut loaded = load::load(&config).unwrap();
        loaded.executor = Box::new(CrowdedExecutor(loaded.executor));
        let crowded = Runner::new(loaded, &config).unwrap();
        let [other, many] = errors(&cpu(), &crowded);
        assert_eq!(other, 0.0);
        assert!(many > 0.0);
        let [other, _] = errors(&crowded, &cpu());
        assert_eq!(other, 0.0, "one by one it is right");
    }

    #[test]
    fn a_check_that_does_not_hold_fails_the_test_at_its_end() {
        let check = |name: &str, error| Check { name: name.to_owned(), error, tolerance: 0.5 };
        let mut told = Comparisons::default();
        told.add(check("sums", 0.5));
        assert!(told.verdict().is_ok());
        let mut told = Comparisons::default();
        told.add(check("sums", 0.75));
        told.add(check("products", 0.5));
        told.texts(&None, &None, "vanilla", 1);
        assert!(told.runner("demo model", Err(failed("no memory"))).is_none());
        let said = told.verdict().unwrap_err().to_string();
        let want = "--selftest: 2 of 3 checks do not hold, the first: sums is wrong by 7.5e-1";
        assert_eq!(said, want);
    }
}
