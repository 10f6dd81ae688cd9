//! The work of every kernel of a step, an estimate of its time, and on a machine with a CUDA device (feature
//! `cuda`) its measured time: `cargo run --release --example steps -- llada-8b 32,64 1024`. With `ring` as a
//! further word bulk copies may load the operands of products, with `overlap` launches overlap.

use asynclane_cuda_lab::{Card, LaunchCost, floor, planned, timed};
use asynclane_kernels::device::{Device, DeviceLimits};
use asynclane_model::{DeviceModel, Geometry, LoadError, StepLoad, WeightDtype};
use std::collections::BTreeMap;
use step::{BatchOutput, Executor};

/// Rows of a sequence.
const LANE: u32 = 32;

/// The work of the launches of a kernel.
#[derive(Default)]
struct Sum {
    launches: usize,
    dram: f64,
    l2: f64,
    operations: f64,
    estimated: f64,
    measured: f64,
}

impl Sum {
    fn add(&mut self, launch: &LaunchCost, seconds: f64) {
        self.launches += 1;
        self.dram += launch.memory_bytes();
        self.l2 += launch.cache_bytes();
        self.operations += launch.operations;
        self.estimated += seconds;
    }

    fn print(&self, name: &str) {
        println!(
            "{name:<28} {:>8} {:>9.1} {:>9.1} {:>9.1} {:>9.3} {:>9.3}",
            self.launches,
            self.dram / 1e6,
            self.l2 / 1e6,
            self.operations / 1e9,
            self.estimated * 1e3,
            self.measured * 1e3,
        );
    }
}

/// The kernels of a step on a device, launched one by one, and their seconds.
fn measured(
    device: &Device,
    load: &StepLoad,
    geometry: Geometry,
    dtype: WeightDtype,
) -> Result<Vec<(&'static str, f64)>, LoadError> {
    let (timed, times) = timed(device);
    // Times of launches one by one have no overlap.
    let device = timed.with_fused(device.limits().fused).with_ring(device.limits().ring);
    let checkpoint = geometry.checkpoint(5, 1)?.with_dtype(dtype);
    let mut executor = load.executor(DeviceModel::load(&device, checkpoint)?)?;
    load.prefill(&mut executor)?;
    let failed = |error: String| LoadError::Setup(error);
    let batch = load.batch(executor.spec());
    let mut run = || executor.execute(&batch, &mut BatchOutput::default());
    run().map_err(|error| failed(error.0))?;
    times.start().map_err(|error| failed(error.0))?;
    run().map_err(|error| failed(error.0))?;
    times.take().map_err(|error| failed(error.0))
}

/// The seconds of a whole step on a device, from its graph if it has one.
fn whole(
    device: &Device,
    load: &StepLoad,
    geometry: Geometry,
    dtype: WeightDtype,
) -> Result<f64, LoadError> {
    let checkpoint = geometry.checkpoint(5, 1)?.with_dtype(dtype);
    load.time(&mut load.executor(DeviceModel::load(device, checkpoint)?)?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [geometry, rows, slots, ways @ ..] = &words[..] else {
        return Err("expected a geometry, rows and slots".into());
    };
    if ways.iter().any(|way| !["ring", "overlap"].contains(&way.as_str())) {
        return Err("expected `ring`, `overlap` or both after the slots".into());
    }
    let [ring, overlap] = ["ring", "overlap"].map(|way| ways.iter().any(|word| word == way));
    let geometry = Geometry::named(geometry).ok_or("an unknown geometry")?;
    let slots = slots.parse()?;
    let device = Device::open(0).ok();
    for rows in rows.split(',') {
        let load = StepLoad { rows: rows.parse()?, lane: LANE, slots };
        for dtype in [WeightDtype::Bf16, WeightDtype::Int8, WeightDtype::Int8w, WeightDtype::Int4] {
            for fused in [false, true] {
                let with =
                    |device: Device| device.with_fused(fused).with_ring(ring).with_overlap(overlap);
                let device = device.clone().map(with);
                step(&load, geometry, dtype, (device.as_ref(), [fused, ring, overlap]))?;
            }
        }
    }
    Ok(())
}

/// Prints the kernels of a step, separate or fused.
fn step(
    load: &StepLoad,
    geometry: Geometry,
    dtype: WeightDtype,
    (device, [fused, ring, overlap]): (Option<&Device>, [bool; 3]),
) -> Result<(), Box<dyn std::error::Error>> {
    let limits = device.map(Device::limits).unwrap_or_default();
    let checkpoint = geometry.checkpoint(5, 1)?.with_dtype(dtype);
    let limits = DeviceLimits { fused, ring, overlap, ..limits };
    let (launches, unknown) = planned(load, checkpoint, limits)?;
    let (mut all, mut sums) = (Sum::default(), BTreeMap::<&str, Sum>::new());
    let mut before = None;
    for launch in &launches {
        let seconds = match overlap {
            true => launch.seconds_over(before, &Card::H200),
            false => launch.seconds(&Card::H200),
        };
        all.add(launch, seconds);
        sums.entry(launch.kernel).or_default().add(launch, seconds);
        before = Some(launch);
    }
    if let Some(device) = device {
        for (name, seconds) in measured(device, load, geometry, dtype)? {
            sums.entry(name).or_default().measured += seconds;
            all.measured += seconds;
        }
    }
    println!(
        "\n{}, {} rows, {} slots, {} kernels, floor {:.3} ms\n{:<28} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9}",
        dtype.name(),
        load.rows,
        load.slots,
        if fused { "fused" } else { "separate" },
        floor(&launches, &Card::H200) * 1e3,
        "kernel",
        "launches",
        "DRAM MB",
        "L2 MB",
        "GFLOP",
        "est. ms",
        "ms",
    );
    sums.iter().for_each(|(name, sum)| sum.print(name));
    all.print("all");
    if let Some(device) = device {
        println!("the whole step: {:.3} ms", whole(device, load, geometry, dtype)? * 1e3);
    }
    if !unknown.is_empty() {
        println!("not counted: {}", unknown.join(", "));
    }
    Ok(())
}
