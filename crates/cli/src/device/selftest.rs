//! Whether the processor and the CUDA device compute correctly: forward passes and the demo model's
//! texts, compared with candle and with each other.

use std::sync::Arc;

use anyhow::Result;
use demo::EXAMPLES;
use engine::decoding::DecodingSpec;
use engine::{Event, Handle, Request};
use model::{Check, Device};
use text::Tokenizer;

use super::{BackendChoice, DeviceChoice};
use crate::config::Config;
use crate::exit;
use crate::load::{self, Loaded};

/// Rows of the longest sequence, so that attention splits its context into several parts.
const ROWS: u32 = 2000;
/// Texts per decoder, and sequences in the batch when all are generated together.
const TEXTS: usize = 32;
/// Texts that candle generates, which is slow.
const CANDLE_TEXTS: usize = 8;
/// Tokens of a text.
const TOKENS: u32 = 64;
/// One decoder of each kind of schedule and cache.
const DECODERS: [&str; 4] = ["asynclane", "balanced", "fast_dllm_dual", "vanilla"];

/// Compares this machine's processor with candle, and its CUDA device, if it has one, with both.
/// Prints the error of every comparison.
///
/// # Errors
/// The first error above its tolerance.
pub fn run() -> Result<()> {
    let checks = model::selftest_on_cpu(ROWS).map_err(exit::refused)?;
    checks.iter().try_for_each(told)?;
    let cpu = demo(DeviceChoice::Cpu, BackendChoice::Cpu)?;
    let candle = demo(DeviceChoice::Cpu, BackendChoice::Candle)?;
    texts((&candle, &cpu), DECODERS[1], CANDLE_TEXTS)?
        .iter()
        .try_for_each(told)?;
    let device = match Device::open() {
        Ok(device) => device,
        Err(reason) => {
            tell!("CUDA: not compared: {reason}");
            return Ok(());
        }
    };
    let checks = model::selftest(&device, ROWS).map_err(exit::refused)?;
    checks.iter().try_for_each(told)?;
    let gpu = demo(DeviceChoice::Cuda, BackendChoice::Cpu)?;
    for decoder in DECODERS {
        texts((&cpu, &gpu), decoder, TEXTS)?
            .iter()
            .try_for_each(told)?;
    }
    Ok(())
}

fn failed(what: &str) -> anyhow::Error {
    exit::failure(exit::UNAVAILABLE, format!("--selftest: {what}"))
}

/// Prints a comparison.
fn told(check: &Check) -> Result<()> {
    let Check {
        name,
        error,
        tolerance,
    } = check;
    let verdict = if check.holds() { "ok" } else { "WRONG" };
    tell!("{name}: {error:.1e} of {tolerance:.0e}, {verdict}");
    match check.holds() {
        true => Ok(()),
        false => Err(failed(&format!("{name} is wrong by {error:.1e}"))),
    }
}

/// A loaded model behind an engine thread.
struct Runner {
    engine: Handle,
    tokenizer: Arc<Tokenizer>,
    stop_tokens: Vec<u32>,
}

impl Runner {
    fn new(loaded: Loaded, config: &Config) -> Result<Self> {
        let engine_config = load::engine_config(config, &loaded);
        // The thread ends with its last handle.
        let (engine, _) = engine::spawn(&engine_config, loaded.executor, Box::new(()))?;
        Ok(Self {
            engine,
            tokenizer: loaded.tokenizer,
            stop_tokens: loaded.stop_tokens,
        })
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
                        Event::Started | Event::Step(_) | Event::Finished(_) => {}
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
                ..Request::new(ids, TOKENS, decoding.clone())
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
    config.model.device = device.name().to_owned();
    config.model.backend = backend.name().to_owned();
    Runner::new(load::load(&config)?, &config)
}

/// The demo's examples in turns, each with another number or another order of its words.
fn prompt(number: usize) -> String {
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

/// How many of `count` texts differ between two runners, and between one by one and all together on
/// the second.
///
/// # Errors
/// An unknown decoder, a failed step.
fn texts(
    (reference, tested): (&Runner, &Runner),
    decoder: &str,
    count: usize,
) -> Result<[Check; 2]> {
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
        check("differ from those one by one", (&together, &alone), 0.0),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use step::{Batch, BatchOutput, ExecuteError, Executor, ExecutorSpec};

    /// A device whose candidates are wrong when a batch has several segments.
    struct Crowded(Box<dyn Executor>);

    impl Executor for Crowded {
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

    fn errors(pair: (&Runner, &Runner)) -> [f64; 2] {
        texts(pair, "balanced", 6).unwrap().map(|check| check.error)
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
        assert_eq!(errors((&cpu(), &cpu())), [0.0, 0.0]);
        let config = Config::default();
        let mut loaded = load::load(&config).unwrap();
        loaded.executor = Box::new(Crowded(loaded.executor));
        let crowded = Runner::new(loaded, &config).unwrap();
        let [other, many] = errors((&cpu(), &crowded));
        assert_eq!(other, 0.0);
        assert!(many > 0.0);
        let [other, _] = errors((&crowded, &cpu()));
        assert_eq!(other, 0.0, "one by one it is right");
    }

    #[test]
    fn a_check_that_does_not_hold_ends_the_test() {
        let check = |error| Check {
            name: "sums".to_owned(),
            error,
            tolerance: 0.5,
        };
        assert!(told(&check(0.5)).is_ok());
        let said = told(&check(0.75)).unwrap_err().to_string();
        assert_eq!(said, "--selftest: sums is wrong by 7.5e-1");
    }
}
