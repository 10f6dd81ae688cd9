//! A model of the time of a step on a GPU: what its launches move and compute, over the assumed rates
//! of a device. Nothing is measured.

use std::collections::BTreeMap;

use anyhow::Result;
use model::{Geometry, LaunchCost, SECTOR, StepLoad, WeightDtype};

use crate::args::StepsArgs;
use crate::exit;
use crate::names::unknown;

/// Rows of a sequence.
const LANE: u32 = 32;

/// The assumed rates of a device.
struct Rates {
    /// Bytes per second of DRAM and of the L2 cache.
    dram: f64,
    l2: f64,
    /// Floating-point operations per second of tensor cores.
    tensor: f64,
    /// Multiprocessors and their clock in Hz.
    multiprocessors: f64,
    clock: f64,
    /// Seconds from the end of a kernel to the start of the next.
    gap: f64,
}

/// An H200. DRAM and tensor cores as others measured them, the rest assumed.
const H200: Rates = Rates {
    dram: 4.3e12,
    l2: 10e12,
    tensor: 790e12,
    multiprocessors: 132.0,
    clock: 1.755e9,
    gap: 2e-6,
};

/// What some launches move and compute, and how long that takes.
#[derive(Clone, Copy, Default)]
struct Sum {
    launches: usize,
    dram: f64,
    l2: f64,
    operations: f64,
    instructions: f64,
    seconds: f64,
}

impl Sum {
    fn add(&mut self, launch: &LaunchCost, rates: &Rates) {
        self.launches += 1;
        self.dram += dram(launch);
        self.l2 += l2(launch);
        self.operations += launch.operations;
        self.instructions += launch.instructions;
        self.seconds += seconds(launch, rates);
    }

    fn row(&self, name: &str) {
        tell!(
            "{name:<18} {:>8} {:>9.1} {:>9.1} {:>9.1} {:>9.2} {:>8.3}",
            self.launches,
            self.dram / 1e6,
            self.l2 / 1e6,
            self.operations / 1e9,
            self.instructions / 1e6,
            self.seconds * 1e3,
        );
    }
}

fn dram(launch: &LaunchCost) -> f64 {
    ((launch.read.distinct + launch.written.distinct) * SECTOR) as f64
}

fn l2(launch: &LaunchCost) -> f64 {
    ((launch.read.by_blocks + launch.written.by_blocks) * SECTOR) as f64
}

/// The longest of the times that DRAM, the L2 cache, tensor cores, shared memory and the issue of
/// instructions need, and the gap after the kernel. The last three are limited by the multiprocessor
/// with the most blocks.
fn seconds(launch: &LaunchCost, rates: &Rates) -> f64 {
    let blocks = launch.blocks as f64;
    let share = (blocks / rates.multiprocessors).ceil() / blocks;
    let times = [
        dram(launch) / rates.dram,
        l2(launch) / rates.l2,
        launch.tensor * share * rates.multiprocessors / rates.tensor,
        launch.passes * share / rates.clock,
        // Four instructions per cycle.
        launch.instructions * share / (4.0 * rates.clock),
    ];
    times.into_iter().fold(0.0, f64::max) + rates.gap
}

/// The least time of a step: weights, keys and values once from DRAM, or the operations at the peak.
fn floor(launches: &[LaunchCost], rates: &Rates) -> f64 {
    let product = |launch: &&LaunchCost| launch.operations > 0.0;
    let read: u64 = launches
        .iter()
        .filter(product)
        .map(|launch| launch.read.distinct)
        .sum();
    let operations: f64 = launches.iter().map(|launch| launch.operations).sum();
    ((read * SECTOR) as f64 / rates.dram).max(operations / rates.tensor)
}

/// Prints a table for every number of rows and slots.
///
/// # Errors
/// An unknown geometry; a step that does not fit.
pub fn run(args: &StepsArgs) -> Result<()> {
    let Some(geometry) = Geometry::named(&args.geometry) else {
        let names = Geometry::ALL.map(|geometry| geometry.name);
        return Err(exit::failure(exit::USAGE, unknown(&names, &args.geometry)));
    };
    let rates = &H200;
    tell!(
        "A model, nothing was measured: {} in bf16, sequences of {LANE} rows, DRAM {:.1} TB/s, L2 {:.0} \
         TB/s, {:.0} TFLOP/s, {} multiprocessors at {:.3} GHz, {:.0} us between kernels",
        geometry.name,
        rates.dram / 1e12,
        rates.l2 / 1e12,
        rates.tensor / 1e12,
        rates.multiprocessors,
        rates.clock / 1e9,
        rates.gap * 1e6,
    );
    for &slots in &args.slots {
        for &rows in &args.rows {
            let load = StepLoad {
                rows,
                lane: LANE,
                slots,
            };
            let mut checkpoint = geometry.checkpoint(5, 1).map_err(exit::refused)?;
            let launches = load.launches(&mut checkpoint, WeightDtype::Bf16);
            let (launches, unknown) = launches.map_err(exit::refused)?;
            table(load, &launches, rates);
            if !unknown.is_empty() {
                tell!("not counted: {}", unknown.join(", "));
            }
        }
    }
    Ok(())
}

fn table(load: StepLoad, launches: &[LaunchCost], rates: &Rates) {
    tell!("");
    tell!("{} rows, {} slots", load.rows, load.slots);
    tell!(
        "{:<18} {:>8} {:>9} {:>9} {:>9} {:>9} {:>8}",
        "kernel",
        "launches",
        "DRAM MB",
        "L2 MB",
        "GFLOP",
        "M instr",
        "ms"
    );
    let (mut by_kernel, mut all) = (BTreeMap::<&str, Sum>::new(), Sum::default());
    for launch in launches {
        by_kernel
            .entry(launch.kernel)
            .or_default()
            .add(launch, rates);
        all.add(launch, rates);
    }
    for (name, sum) in &by_kernel {
        sum.row(name);
    }
    all.row("step");
    let floor = floor(launches, rates);
    tell!(
        "floor {:.3} ms (weights, keys and values once, or FLOPs), {:.2} times the floor",
        floor * 1e3,
        all.seconds / floor
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launches(rows: u32) -> Vec<LaunchCost> {
        let geometry = Geometry::named("llada-8b").unwrap();
        let load = StepLoad {
            rows,
            lane: LANE,
            slots: 1024,
        };
        let mut checkpoint = geometry.checkpoint(5, 1).unwrap();
        let (launches, unknown) = load.launches(&mut checkpoint, WeightDtype::Bf16).unwrap();
        assert!(unknown.is_empty(), "{unknown:?}");
        launches
    }

    /// A step reads every weight once from DRAM, and computes what the geometry says.
    #[test]
    fn a_step_reads_its_weights_and_computes_its_products() {
        let all = launches(64);
        let geometry = Geometry::named("llada-8b").unwrap();
        let products = all
            .iter()
            .filter(|launch| !launch.kernel.starts_with("attend"));
        let operations: f64 = products.map(|launch| launch.operations).sum();
        assert!((operations / (64.0 * geometry.operations()) - 1.0).abs() < 1e-3);
        // The floor of `bytes = parameters that are multiplied * 2`, and of 64 K/V contexts.
        let weights = geometry.operations() / 2.0 * 2.0;
        let ms = floor(&all, &H200) * 1e3;
        let least = weights / H200.dram * 1e3;
        assert!(least < ms && ms < 1.25 * least, "{ms} of {least}");
        // Tiles read the rows again for every 128 columns.
        let l2: f64 = all.iter().map(l2).sum();
        let dram: f64 = all.iter().map(dram).sum();
        assert!(l2 > 1.5 * dram, "{l2} of {dram}");
        assert!(all.iter().map(|launch| seconds(launch, &H200)).sum::<f64>() * 1e3 > ms);
    }
}
