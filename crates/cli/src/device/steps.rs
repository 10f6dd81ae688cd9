//! The time of a step on a GPU: measured on a machine with a device, beside the time to read the weights,
//! keys and values once.

use std::path::Path;

use anyhow::{Context, Result};
use model::{
    Device, DeviceLimits, DeviceModel, Form, Geometry, LaunchTime, LoadError, MatrixFormat,
    ModelInfo, Roofline, StepLoad, WeightDtype,
};
use serde_json::{Value, json};

use crate::args::StepsArgs;
use crate::config::{Config, DeviceChoice};
use crate::exit;
use crate::names::unknown;

/// Rows of a sequence.
const LANE: u32 = 32;
/// Maximum number of steps of a table.
const MAX_STEPS: usize = 96;
/// The dtypes of a table, with the number formats of their matrices.
const DTYPES: [(WeightDtype, MatrixFormat); 4] = [
    (WeightDtype::Bf16, MatrixFormat::Bf16),
    (WeightDtype::Int8, MatrixFormat::Int8),
    (WeightDtype::Int8w, MatrixFormat::Int8w),
    (WeightDtype::Int4, MatrixFormat::Packed(Form::Four)),
];
/// Bytes that are copied to measure the memory.
const COPIED_BYTES: usize = 1 << 30;
/// Bytes of the matrices that timed launches use in turn, more than an L2 cache has.
const ROTATED_BYTES: usize = 256 << 20;

/// A step and its times in seconds.
struct Step {
    load: StepLoad,
    dtype: WeightDtype,
    /// The time to read the weights, keys and values once.
    floor: f64,
    /// `None` if there is no device.
    measured: Option<f64>,
}

impl Step {
    /// Its line in the table.
    fn line(&self) -> String {
        let line = format!(
            "{:<5} {:>5} {:>6} {:>9.3}",
            self.dtype.name(),
            self.load.rows,
            self.load.slots,
            self.floor * 1e3,
        );
        match self.measured {
            Some(seconds) => {
                let (ms, ratio) = (seconds * 1e3, seconds / self.floor);
                format!("{line} {ms:>11.3} {ratio:>6.2}")
            }
            None => line,
        }
    }

    fn json(&self) -> Value {
        let ms = |seconds: f64| rounded(seconds * 1e3, 3);
        json!({
            "dtype": self.dtype.name(),
            "rows": self.load.rows,
            "slots": self.load.slots,
            "floor_ms": ms(self.floor),
            "measured_ms": self.measured.map(ms),
        })
    }
}

/// Prints a line for every dtype and number of slots and rows.
///
/// # Errors
/// An unknown geometry, too many steps, a step that does not fit; `cuda` without a device.
pub fn run(args: &StepsArgs, config: &Config) -> Result<()> {
    let Some(geometry) = Geometry::named(&args.geometry) else {
        let names = Geometry::ALL.map(|geometry| geometry.name);
        return Err(refused(&format!("--geometry: {}", unknown(&names, &args.geometry))));
    };
    let dtypes = dtypes(args)?;
    let count = dtypes.len() * args.rows.len() * args.slots.len();
    if count > MAX_STEPS {
        return Err(refused(&format!(
            "--rows and --slots: expected at most {MAX_STEPS} steps in {} dtypes, found {count}",
            dtypes.len()
        )));
    }
    let info = geometry.info().map_err(exit::refused)?;
    let device = opened(config)?;
    let memory = match &device {
        Some(device) => device.copy_rate(COPIED_BYTES).map_err(failed)?,
        None => Roofline::of(DeviceLimits::H200).memory,
    };
    tell!("{}", assumptions(geometry, memory, device.is_some()));
    if let Some(line) = touched(&info, &args.rows) {
        tell!("{line}");
    }
    tell!("\n{}", head(device.is_some()));
    let mut steps = Vec::new();
    for &(dtype, format) in &dtypes {
        let loads = args.slots.iter().flat_map(|&slots| {
            let lane = LANE;
            args.rows.iter().map(move |&rows| StepLoad { rows, lane, slots })
        });
        let loads: Vec<StepLoad> = loads.collect();
        let mut times = match &device {
            Some(device) => measured(device, geometry, dtype, &loads).map_err(exit::refused)?,
            None => Vec::new(),
        };
        times.reverse();
        for load in loads {
            let positions = u64::from(load.sequences()) * u64::from(load.slots);
            let bytes = info.read_bytes(format.bits(), load.rows, positions);
            let step = Step { load, dtype, floor: bytes as f64 / memory, measured: times.pop() };
            tell!("{}", step.line());
            steps.push(step);
        }
    }
    let Some(file) = &args.json else {
        return Ok(());
    };
    let launches = match (&device, args.launches) {
        (Some(device), true) => launches(device, &info.matrices(), (&dtypes, &args.rows))?,
        _ => Vec::new(),
    };
    let words: Vec<String> = std::env::args().skip(1).collect();
    let found = json!({
        "command": format!("asynclane {}", words.join(" ")),
        "device": device.as_ref().map_or("none", Device::name),
        "geometry": geometry.name,
        "memory_tb_per_s": rounded(memory / 1e12, 2),
        "steps": steps.iter().map(Step::json).collect::<Vec<_>>(),
        "launches": launches,
    });
    write(file, &found)
}

fn refused(problem: &str) -> anyhow::Error {
    exit::failure(exit::USAGE, problem.to_owned())
}

fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    exit::refused(LoadError::Setup(error.to_string()))
}

fn write(file: &Path, found: &Value) -> Result<()> {
    let text = serde_json::to_string_pretty(found)? + "\n";
    std::fs::write(file, text).with_context(|| format!("{} was not written", file.display()))
}

/// The device on which steps are measured.
fn opened(config: &Config) -> Result<Option<Device>> {
    let choice = *config.model.device;
    match (choice, super::opened(config)) {
        (DeviceChoice::Cpu, _) | (DeviceChoice::Auto, Err(_)) => Ok(None),
        (_, Ok(device)) => Ok(Some(device)),
        (DeviceChoice::Cuda(_), Err(reason)) => {
            let message = format!("--device {choice}: {reason}");
            Err(exit::failure(exit::UNAVAILABLE, message))
        }
    }
}

/// The seconds of the steps on a device, on a model with random weights.
fn measured(
    device: &Device,
    geometry: Geometry,
    dtype: WeightDtype,
    loads: &[StepLoad],
) -> Result<Vec<f64>, LoadError> {
    let most = |rows: fn(&StepLoad) -> u32| loads.iter().map(rows).max();
    let largest = StepLoad {
        rows: most(|load| load.rows).unwrap_or(LANE),
        lane: LANE,
        slots: most(|load| load.slots).unwrap_or(LANE),
    };
    let checkpoint = geometry.checkpoint(5, 1)?.with_dtype(dtype);
    let mut executor = largest.executor(DeviceModel::load(device, checkpoint)?)?;
    loads.iter().map(|load| load.time(&mut executor)).collect()
}

/// The chosen dtypes, all by default.
fn dtypes(args: &StepsArgs) -> Result<Vec<(WeightDtype, MatrixFormat)>> {
    if args.dtypes.is_empty() {
        return Ok(DTYPES.to_vec());
    }
    let named = |name: &String| {
        let found = DTYPES.into_iter().find(|(dtype, _)| dtype.name() == name);
        let names = DTYPES.map(|(dtype, _)| dtype.name());
        found.ok_or_else(|| refused(&format!("--dtypes: {}", unknown(&names, name))))
    };
    args.dtypes.iter().map(named).collect()
}

/// The number of experts that the floor of every number of rows counts.
fn touched(info: &ModelInfo, rows: &[u32]) -> Option<String> {
    let count = info.experts?.count;
    let each = rows.iter().map(|&rows| format!("{rows} rows {:.0}", info.touched_experts(rows)));
    let each: Vec<String> = each.collect();
    Some(format!(
        "Experts of {count} that a layer's rows touch, chosen at random: {}",
        each.join(", ")
    ))
}

/// The times of every launch of the products with these matrices.
fn launches(
    device: &Device,
    matrices: &[(usize, usize)],
    (dtypes, rows): (&[(WeightDtype, MatrixFormat)], &[u32]),
) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for &rows in rows {
        for &(_, format) in dtypes {
            for &(n, k) in matrices {
                let sizes = [rows as usize, n, k];
                let times = device.launch_times(format, sizes, ROTATED_BYTES);
                all.extend(times.map_err(failed)?.iter().map(launch));
            }
        }
    }
    Ok(all)
}

fn launch(LaunchTime { launch, seconds }: &LaunchTime) -> Value {
    json!({
        "kernel": launch.tile.names.gemm,
        "rows": launch.sizes.rows,
        "n": launch.sizes.n,
        "k": launch.sizes.k,
        "whole": launch.whole.min(launch.tiles()),
        "lead": launch.lead,
        "us": rounded(seconds * 1e6, 1),
    })
}

/// `value` rounded to `digits` digits after the decimal point.
fn rounded(value: f64, digits: i32) -> f64 {
    let scale = 10_f64.powi(digits);
    (value * scale).round() / scale
}

/// The first line: where the numbers come from.
fn assumptions(geometry: Geometry, memory: f64, is_measured: bool) -> String {
    let first = match is_measured {
        true => "Steps and the memory's rate were measured.",
        false => "Nothing was measured; the memory's rate is an H200's.",
    };
    format!(
        "{first} {} with random weights, sequences of {LANE} rows. The floor reads weights, keys and \
         values once at {:.1} TB/s",
        geometry.name,
        memory / 1e12,
    )
}

fn head(is_measured: bool) -> String {
    let head = format!("{:<5} {:>5} {:>6} {:>9}", "dtype", "rows", "slots", "floor ms");
    match is_measured {
        true => format!("{head} {:>11} {:>6}", "measured ms", "ratio"),
        false => head,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_time_stands_beside_its_floor() {
        let mut step = Step {
            load: StepLoad { rows: 64, lane: LANE, slots: 1024 },
            dtype: WeightDtype::Bf16,
            floor: 2e-3,
            measured: None,
        };
        let words = |step: &Step| step.line().split_whitespace().count();
        assert_eq!((words(&step), head(false).split_whitespace().count()), (4, 5));
        assert_eq!(step.json()["measured_ms"], Value::Null);
        step.measured = Some(5e-3);
        assert!(step.line().ends_with("5.000   2.50"), "{}", step.line());
        assert_eq!(step.json()["measured_ms"], 5.0);
    }
}
