//! Whether a device is right: its kernels, its forward passes, and the demo model's texts.

use anyhow::Result;
use demo::problems::{self, Split, Task};
use engine::Request;
use engine::decoding::DecodingSpec;
use model::{Check, Device};

use super::DeviceChoice;
use crate::bench::{Runner, closed};
use crate::config::Config;
use crate::exit;
use crate::load;

/// Rows of the longest sequence: attention over several parts of a context.
const ROWS: u32 = 2000;
/// Texts at a time, all of them.
const TEXTS: usize = 32;
/// Tokens of a text.
const TOKENS: u32 = 64;
/// One of each kind of schedule and cache.
const DECODERS: [&str; 4] = ["asynclane", "balanced", "fast_dllm_dual", "vanilla"];

/// Compares the device of this machine with its CPU and prints every error.
///
/// # Errors
/// No device, or the first comparison that is off by more than its tolerance.
pub fn run() -> Result<()> {
    let device = Device::open().map_err(|reason| failed(&reason.to_string()))?;
    let checks = model::selftest(&device, ROWS).map_err(load::refused)?;
    checks.iter().try_for_each(told)?;
    let (mut cpu, mut gpu) = (demo(DeviceChoice::Cpu)?, demo(DeviceChoice::Cuda)?);
    for decoder in DECODERS {
        texts((&mut cpu, &mut gpu), decoder, TEXTS)?
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
    println!("{name}: {error:.1e} of {tolerance:.0e}, {verdict}");
    match check.holds() {
        true => Ok(()),
        false => Err(failed(&format!("{name} is wrong by {error:.1e}"))),
    }
}

/// The demo model in f32.
fn demo(device: DeviceChoice) -> Result<Runner> {
    let mut config = Config::default();
    config.model.device = device.name().to_owned();
    Ok(Runner::new(load::load(&config)?, &config))
}

/// How many texts differ between two runners one by one, and between one by one and all at once on
/// the second; a few of each kind of problem, greedy and sampled.
///
/// # Errors
/// A decoder that there is none of, a failed step.
fn texts(
    (reference, tested): (&mut Runner, &mut Runner),
    decoder: &str,
    count: usize,
) -> Result<[Check; 2]> {
    let requests = requests(reference, decoder, count)?;
    let (_, want) = reference.run(requests.clone(), closed(count, 1))?;
    let (_, alone) = tested.run(requests.clone(), closed(count, 1))?;
    let (_, many) = tested.run(requests, closed(count, count))?;
    let check = |what: &str, (left, right): (&[Vec<u32>], &[Vec<u32>]), tolerance| {
        let differ = left.iter().zip(right).filter(|(left, right)| left != right);
        Check {
            name: format!("{count} texts of the demo model, {decoder}: {what}"),
            error: differ.count() as f64,
            tolerance,
        }
    };
    Ok([
        // Sums in another order: of thousands of decisions one may be a tie.
        check("other than the CPU's", (&alone, &want), 1.0),
        check("other than alone", (&many, &alone), 0.0),
    ])
}

fn requests(runner: &Runner, decoder: &str, count: usize) -> Result<Vec<Request>> {
    let decoding = DecodingSpec::parse(decoder)?.resolve()?;
    let mut requests = Vec::with_capacity(count);
    for number in 0..count {
        let task = Task::ALL[number % Task::ALL.len()];
        let problems = problems::generate(task, Split::Eval, number as u64, 1);
        for problem in &problems {
            let mut request = runner.ask(&problem.prompt, TOKENS, &decoding)?;
            if number % 4 == 3 {
                request.sampling.temperature = 0.7;
                request.sampling.seed = number as u64;
            }
            requests.push(request);
        }
    }
    Ok(requests)
}

#[cfg(test)]
mod tests {
    use super::*;
    use step::{Batch, BatchOutput, ExecuteError, Executor, ExecutorSpec};

    /// A device whose candidates are off where many rows are in the batch.
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

    fn errors(pair: (&mut Runner, &mut Runner)) -> [f64; 2] {
        texts(pair, "balanced", 6).unwrap().map(|check| check.error)
    }

    #[test]
    fn the_same_device_writes_the_same_texts_and_a_wrong_one_does_not() {
        let cpu = || demo(DeviceChoice::Cpu).unwrap();
        assert_eq!(errors((&mut cpu(), &mut cpu())), [0.0, 0.0]);
        let config = Config::default();
        let mut loaded = load::load(&config).unwrap();
        loaded.executor = Box::new(Crowded(loaded.executor));
        let mut crowded = Runner::new(loaded, &config);
        let [other, many] = errors((&mut cpu(), &mut crowded));
        assert_eq!(other, 0.0);
        assert!(many > 0.0);
        let [other, _] = errors((&mut crowded, &mut cpu()));
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
