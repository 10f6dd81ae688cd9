//! Simulated replicas: the real engine over a simulated executor in virtual time. The time of a step
//! is computed from its rows ([`device::Device`]). Nothing depends on a clock, so the same arguments
//! give the same result on every machine.

pub mod autoscaler;
pub mod day;
mod device;
mod fleet;
mod replica;
mod router;
pub mod routing;
mod table;
mod trace;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use crate::args::{DeviceArgs, EngineArgs, ReplicasArgs, Study};
use crate::bench::report::round;
use cli::exit;

/// Runs a study, prints its table and writes its result.
///
/// # Errors
/// Arguments that make no simulation, a file that cannot be written.
pub fn run(args: &ReplicasArgs) -> Result<()> {
    match &args.study {
        Study::Routing(args) => {
            let result = routing::run(args)?;
            print!("{}", table::routing(&result));
            save(&result, args.json.as_deref())
        }
        Study::Day(args) => {
            let result = day::run(args)?;
            print!("{}", table::day(&result));
            save(&result, args.json.as_deref())
        }
    }
}

fn save<T: Serialize>(result: &T, path: Option<&Path>) -> Result<()> {
    let Some(path) = path else {
        return Ok(());
    };
    let text = serde_json::to_string_pretty(result)?;
    let failed = |error| exit::failure(exit::IO, format!("{}: {error}", path.display()));
    std::fs::write(path, text + "\n").map_err(failed)
}

/// The command line, with the name of the program alone.
fn command() -> String {
    crate::bench::report::command()
}

/// The simulated device and its model, in words.
fn machine(device: &DeviceArgs, engine: &EngineArgs) -> String {
    format!(
        "simulated steps of {} billion parameters in bf16 at {} % of {} GB/s and {} % of {} TFLOP/s, \
         K/V of {} KiB a position in {} GiB, {} sequences and {} rows a step",
        device.parameters,
        round(100.0 * device.bandwidth_share, 1),
        device.bandwidth,
        round(100.0 * device.flops_share, 1),
        device.tflops,
        device.kv_position,
        engine.kv_memory,
        engine.max_running,
        engine.row_budget,
    )
}

/// 50th, 95th and 99th percentile by nearest rank, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Waits(pub [f64; 3]);

impl Waits {
    /// Zeros without values.
    fn of(times: impl Iterator<Item = Duration>) -> Self {
        let mut times: Vec<Duration> = times.collect();
        times.sort_unstable();
        Self([50, 95, 99].map(|percent| {
            let rank = (times.len() * percent).div_ceil(100).max(1);
            let found = times.get(rank - 1);
            found.map_or(0.0, |time| round(time.as_secs_f64(), 3))
        }))
    }
}
