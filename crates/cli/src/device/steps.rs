//! The time of a step on a GPU: a model of it from what its launches move and compute, and on a machine
//! with a device the measured time beside it.

use std::collections::BTreeMap;

use anyhow::Result;
use model::{
    Device, DeviceLimits, DeviceModel, GAP, Geometry, LaunchCost, LoadError, Roofline, StepLoad,
    StepTimes, WeightDtype, step_floor,
};

use super::measured;
use crate::args::StepsArgs;
use crate::config::DeviceChoice;
use crate::exit;
use crate::names::unknown;

/// Rows of a sequence.
const LANE: u32 = 32;
/// Maximum number of steps of a table.
const MOST_STEPS: usize = 64;
const DTYPES: [WeightDtype; 2] = [WeightDtype::Bf16, WeightDtype::Int8];
/// Bytes that are copied to measure the memory, and the product that measures tensor cores.
const COPIED: usize = 1 << 30;
const PRODUCT: [usize; 3] = [4096, 4096, 12_288];

/// What some launches move and compute, and how long that takes.
#[derive(Clone, Copy, Default)]
pub(super) struct Sum {
    pub(super) launches: usize,
    dram: f64,
    l2: f64,
    operations: f64,
    instructions: f64,
    /// Estimated.
    pub(super) seconds: f64,
    /// 0 if it was not measured.
    pub(super) measured: f64,
}

impl Sum {
    fn of<'a>(launches: impl IntoIterator<Item = &'a LaunchCost>, on: &Roofline) -> Self {
        let mut sum = Self::default();
        for launch in launches {
            sum.launches += 1;
            sum.dram += launch.memory_bytes();
            sum.l2 += launch.cache_bytes();
            sum.operations += launch.operations;
            sum.instructions += launch.instructions;
            sum.seconds += launch.seconds(on);
        }
        sum
    }

    fn line(&self, name: &str, is_measured: bool) -> String {
        let line = format!(
            "{name:<24} {:>8} {:>9.1} {:>9.1} {:>9.1} {:>9.2} {:>8.3}",
            self.launches,
            self.dram / 1e6,
            self.l2 / 1e6,
            self.operations / 1e9,
            self.instructions / 1e6,
            self.seconds * 1e3,
        );
        match is_measured {
            true => format!("{line} {:>11.3}", self.measured * 1e3),
            false => line,
        }
    }
}

/// A step and its times.
pub(super) struct Step {
    pub(super) load: StepLoad,
    pub(super) dtype: WeightDtype,
    pub(super) launches: Vec<LaunchCost>,
    unknown: Vec<&'static str>,
    pub(super) times: Option<StepTimes>,
}

impl Step {
    fn new(
        load: StepLoad,
        (geometry, dtype): (Geometry, WeightDtype),
        limits: DeviceLimits,
    ) -> Result<Self, LoadError> {
        let mut checkpoint = geometry.checkpoint(5, 1)?;
        let (launches, unknown) = load.launches(&mut checkpoint, dtype, limits)?;
        Ok(Self {
            load,
            dtype,
            launches,
            unknown,
            times: None,
        })
    }

    /// Its line in the table of all steps.
    fn line(&self, on: &Roofline) -> String {
        let (floor, sum) = (step_floor(&self.launches, on), Sum::of(&self.launches, on));
        let line = format!(
            "{:<5} {:>5} {:>6} {:>9} {:>9.3} {:>12.3} {:>6.2}",
            self.dtype.name(),
            self.load.rows,
            self.load.slots,
            sum.launches,
            floor * 1e3,
            sum.seconds * 1e3,
            sum.seconds / floor,
        );
        match &self.times {
            Some(times) => {
                let (ms, ratio) = (times.step * 1e3, times.step / floor);
                format!("{line} {ms:>11.3} {ratio:>6.2}")
            }
            None => line,
        }
    }

    /// What its kernels move and compute, by name.
    pub(super) fn sums(&self, on: &Roofline) -> BTreeMap<&'static str, Sum> {
        let measured = self.times.as_ref().map(by_kernel).unwrap_or_default();
        let names = self.launches.iter().map(|launch| launch.kernel);
        let sums = names.map(|name| {
            let of = self.launches.iter().filter(|launch| launch.kernel == name);
            let measured = measured.get(name).copied().unwrap_or(0.0);
            let sum = Sum {
                measured,
                ..Sum::of(of, on)
            };
            (name, sum)
        });
        sums.collect()
    }

    /// Its table of kernels.
    fn kernels(&self, on: &Roofline) -> Vec<String> {
        let is_measured = self.times.is_some();
        let mut lines = vec![format!(
            "{}, {} rows, {} slots",
            self.dtype.name(),
            self.load.rows,
            self.load.slots
        )];
        let head = format!(
            "{:<24} {:>8} {:>9} {:>9} {:>9} {:>9} {:>8}",
            "kernel", "launches", "DRAM MB", "L2 MB", "GFLOP", "M instr", "ms"
        );
        lines.push(match is_measured {
            true => format!("{head} {:>11}", "measured ms"),
            false => head,
        });
        let sums = self.sums(on);
        lines.extend(sums.iter().map(|(name, sum)| sum.line(name, is_measured)));
        if !self.unknown.is_empty() {
            lines.push(format!("not counted: {}", self.unknown.join(", ")));
        }
        lines
    }
}

/// The measured seconds of each kernel.
fn by_kernel(times: &StepTimes) -> BTreeMap<&'static str, f64> {
    let mut all = BTreeMap::new();
    for (name, seconds) in &times.launches {
        *all.entry(*name).or_insert(0.0) += seconds;
    }
    all
}

/// Prints a line for every dtype and number of slots and rows, then what each kernel does.
///
/// # Errors
/// An unknown geometry, too many steps, a step that does not fit; `cuda` without a device.
pub fn run(args: &StepsArgs, choice: DeviceChoice) -> Result<()> {
    let Some(geometry) = Geometry::named(&args.geometry) else {
        let names = Geometry::ALL.map(|geometry| geometry.name);
        return Err(refused(&format!(
            "--geometry: {}",
            unknown(&names, &args.geometry)
        )));
    };
    let count = DTYPES.len() * args.rows.len() * args.slots.len();
    if count > MOST_STEPS {
        return Err(refused(&format!(
            "--rows and --slots: expected at most {MOST_STEPS} steps in {} dtypes, found {count}",
            DTYPES.len()
        )));
    }
    let device = opened(choice)?;
    let (limits, rates) = match &device {
        Some(device) => {
            let rates = device.rates(COPIED, PRODUCT);
            let rates = rates.map_err(|error| exit::refused(LoadError::Setup(error.0)))?;
            (device.limits(), rates)
        }
        None => (DeviceLimits::default(), Roofline::H200),
    };
    tell!("{}", assumptions(geometry, &rates, device.is_some()));
    let mut steps = Vec::new();
    for dtype in DTYPES {
        let first = steps.len();
        for &slots in &args.slots {
            for &rows in &args.rows {
                let load = StepLoad {
                    rows,
                    lane: LANE,
                    slots,
                };
                let step = Step::new(load, (geometry, dtype), limits);
                steps.push(step.map_err(exit::refused)?);
            }
        }
        if let Some(device) = &device {
            measure(device, geometry, &mut steps[first..]).map_err(exit::refused)?;
        }
    }
    table(&steps, &rates)
        .iter()
        .for_each(|line| tell!("{line}"));
    let Some(file) = &args.json else {
        return Ok(());
    };
    let found = measured::Found {
        device: device.as_ref(),
        geometry,
        rates,
        launches: if args.launches { &args.rows } else { &[] },
    };
    found.write(file, &steps)
}

fn refused(problem: &str) -> anyhow::Error {
    exit::failure(exit::USAGE, problem.to_owned())
}

/// The device on which steps are measured.
fn opened(choice: DeviceChoice) -> Result<Option<Device>> {
    match (choice, Device::open()) {
        (DeviceChoice::Cpu, _) | (DeviceChoice::Auto, Err(_)) => Ok(None),
        (_, Ok(device)) => Ok(Some(device)),
        (DeviceChoice::Cuda, Err(reason)) => {
            let message = format!("--device cuda: {reason}");
            Err(exit::failure(exit::UNAVAILABLE, message))
        }
    }
}

/// Runs the steps on a device, on a model with random weights.
fn measure(device: &Device, geometry: Geometry, steps: &mut [Step]) -> Result<(), LoadError> {
    let Some(dtype) = steps.first().map(|step| step.dtype) else {
        return Ok(());
    };
    let most = |of: fn(&StepLoad) -> u32| steps.iter().map(|step| of(&step.load)).max();
    let largest = StepLoad {
        rows: most(|load| load.rows).unwrap_or(LANE),
        lane: LANE,
        slots: most(|load| load.slots).unwrap_or(LANE),
    };
    let checkpoint = geometry.checkpoint(5, 1)?.with_dtype(dtype);
    let mut executor = largest.executor(DeviceModel::load(device, checkpoint)?)?;
    for step in steps {
        step.times = Some(step.load.time(&mut executor)?);
    }
    Ok(())
}

/// What the model of the time assumes.
fn assumptions(geometry: Geometry, on: &Roofline, is_measured: bool) -> String {
    let first = match is_measured {
        true => {
            "Times were measured with events. Estimates: DRAM and tensor cores as measured by a copy and a product, the rest"
        }
        false => {
            "A model, nothing was measured: an H200, DRAM and tensor cores as others measured them, the rest"
        }
    };
    format!(
        "{first} assumed. {} with random weights, sequences of {LANE} rows, DRAM {:.1} TB/s, L2 {:.0} \
         TB/s, {:.0} TFLOP/s at the peak and {:.0} in products, {} multiprocessors, {:.0} us from a \
         kernel to the next",
        geometry.name,
        on.memory / 1e12,
        on.cache / 1e12,
        on.peak / 1e12,
        on.tensor / 1e12,
        on.multiprocessors,
        (GAP + on.latency) * 1e6,
    )
}

/// All lines: every step, then the kernels of every step.
fn table(steps: &[Step], on: &Roofline) -> Vec<String> {
    let head = format!(
        "{:<5} {:>5} {:>6} {:>9} {:>9} {:>12} {:>6}",
        "dtype", "rows", "slots", "launches", "floor ms", "estimated ms", "ratio"
    );
    let is_measured = steps.iter().any(|step| step.times.is_some());
    let mut lines = vec![
        String::new(),
        match is_measured {
            true => format!("{head} {:>11} {:>6}", "measured ms", "ratio"),
            false => head,
        },
    ];
    lines.extend(steps.iter().map(|step| step.line(on)));
    for step in steps {
        lines.push(String::new());
        lines.extend(step.kernels(on));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(geometry: &str, rows: u32, dtype: WeightDtype) -> Step {
        let geometry = Geometry::named(geometry).unwrap();
        let load = StepLoad {
            rows,
            lane: LANE,
            slots: 1024,
        };
        let step = Step::new(load, (geometry, dtype), DeviceLimits::default()).unwrap();
        assert!(step.unknown.is_empty(), "{:?}", step.unknown);
        step
    }

    /// A step reads every weight once from DRAM, and computes what the geometry says.
    #[test]
    fn a_step_reads_its_weights_and_computes_its_products() {
        let geometry = Geometry::named("llada-8b").unwrap();
        for (dtype, bytes) in [(WeightDtype::Bf16, 2.0), (WeightDtype::Int8, 1.0)] {
            let all = step("llada-8b", 64, dtype).launches;
            let products = all
                .iter()
                .filter(|launch| !launch.kernel.starts_with("attend"));
            let operations: f64 = products.map(|launch| launch.operations).sum();
            assert!((operations / (64.0 * geometry.operations()) - 1.0).abs() < 1e-3);
            // The multiplied parameters, and K/V of two sequences.
            let least = geometry.operations() / 2.0 * bytes / Roofline::H200.memory;
            let floor = step_floor(&all, &Roofline::H200);
            assert!(least < floor && floor < 1.25 * least, "{floor} of {least}");
            // Tiles read the rows again for every 128 columns.
            let sum = Sum::of(&all, &Roofline::H200);
            assert!(sum.l2 > 1.2 * sum.dram, "{} of {}", sum.l2, sum.dram);
            assert!(sum.seconds > floor);
        }
    }

    /// Measured times stand beside the estimates, by kernel and for the step.
    #[test]
    fn measured_times_are_printed_beside_the_estimates() {
        let mut step = step("demo", 32, WeightDtype::Bf16);
        let floor = step_floor(&step.launches, &Roofline::H200);
        let plain = table(std::slice::from_ref(&step), &Roofline::H200);
        assert!(!plain.iter().any(|line| line.contains("measured")));
        step.times = Some(StepTimes {
            step: 4.0 * floor,
            launches: vec![
                ("head_bf16_groups_64x128", 0.25e-3),
                ("norm_bf16", 1e-3),
                ("norm_bf16", 2e-3),
            ],
        });
        let lines = table(std::slice::from_ref(&step), &Roofline::H200);
        assert_eq!(lines.len(), plain.len());
        let words = |line: &str| {
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert!(lines[1].ends_with("measured ms  ratio"), "{}", lines[1]);
        let row = words(&lines[2]);
        assert_eq!(row[..3], ["bf16", "32", "1024"]);
        assert_eq!(row[7..], [format!("{:.3}", 4e3 * floor), "4.00".to_owned()]);
        let of = |name: &str| {
            let line = lines.iter().find(|line| line.starts_with(name)).unwrap();
            words(line).pop().unwrap()
        };
        assert_eq!([of("norm_bf16"), of("head_bf16")], ["3.000", "0.250"]);
    }
}
