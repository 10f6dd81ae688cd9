//! Compares the processor or a device with candle on forward passes of small models with random
//! weights, and a device's kernels with the processor's.

mod networks;

use crate::{DeviceConfig, DeviceExecutor, DeviceModel, ExecutorConfig, KvMemory};
use crate::{LoadError, Model, ModelExecutor, WeightDtype};
use kernels::Candle;
use kernels::device::{self, Check, Device};
use networks::Network;
use step::{Batch, BatchOutput, Candidate, Executor, Sampling};

const VOCAB: u32 = 1003;
const PAGE: u32 = 16;
/// Runs of a pass whose launches overlap, and the width of a model whose launches take longer than those of the others.
const RUNS: u32 = 50;
const WIDE: usize = 2048;
const SAMPLED: Sampling = Sampling { temperature: 0.7, seed: 11, clock: 5, ..Sampling::GREEDY };

/// Forward passes in a dtype, and the accepted difference of log-probabilities.
#[derive(Clone, Copy)]
struct Format {
    dtype: WeightDtype,
    tolerance: f64,
    /// The tolerance of the canvas model: nothing trained its experts to be robust, and mean embeddings
    /// take errors to the next pass.
    canvas: f64,
    /// The dtype of candle, which groups 8-bit weights and rounds 4-bit weights in another way.
    reference: WeightDtype,
    /// The width of the MLP.
    mlp: usize,
}

impl Format {
    const ALL: [Self; 4] = [
        Self {
            dtype: WeightDtype::F32,
            tolerance: 1e-4,
            canvas: 5e-4,
            reference: WeightDtype::F32,
            mlp: 200,
        },
        Self {
            dtype: WeightDtype::Bf16,
            tolerance: 5e-2,
            canvas: 3e-1,
            reference: WeightDtype::Bf16,
            mlp: 200,
        },
        Self {
            dtype: WeightDtype::Int8,
            tolerance: 2e-1,
            canvas: 6e-1,
            reference: WeightDtype::F32,
            mlp: 200,
        },
        Self {
            dtype: WeightDtype::Int4,
            tolerance: 8e-1,
            canvas: 1.2,
            reference: WeightDtype::F32,
            // Whole groups.
            mlp: 224,
        },
    ];
}

/// Compares the kernels on the processor with candle, see [`selftest`]. Gives each check to `tell` when
/// it is made; a model that cannot be set up is a check that does not hold.
pub fn selftest_on_cpu(rows: u32, tell: &mut dyn FnMut(Check)) {
    let tested = |network: Network, format: Format| {
        let model = Model::load(network.checkpoint(format.dtype, format.mlp, rows)?)?;
        let executor = ModelExecutor::new(model, sizes(rows))?;
        Ok(Box::new(executor) as Box<dyn Executor>)
    };
    compared("CPU", &Format::ALL, rows, tested, tell);
}

/// Compares products of matrices of LLaDA-8B's sizes, of at most `columns` columns, on a device with the
/// processor's, then whole models ([`selftest_of_models`]). Gives each check to `tell` when it is made; a
/// failure is a check that does not hold.
pub fn selftest(device: &Device, rows: u32, columns: usize, tell: &mut dyn FnMut(Check)) {
    let device = &device.clone().with_fused(true);
    device::selftest(device, columns, tell);
    selftest_of_models(device, rows, tell);
    selftest_of_overlap(device, rows, RUNS, tell);
    let wide = Format { mlp: 3 * WIDE, ..Format::ALL[1] };
    overlapped(device, (Network::full(16, 16, WIDE), wide), (rows, RUNS), tell);
}

/// Compares passes whose launches overlap, with batches of up to `rows` rows, with those whose launches run one after
/// the other: all bits of `runs` runs in a row, the first launched directly, the others from a graph unless they have
/// too many rows. Compares nothing on a device whose launches do not overlap.
pub fn selftest_of_overlap(device: &Device, rows: u32, runs: u32, tell: &mut dyn FnMut(Check)) {
    for format in Format::ALL {
        for network in Network::ALL {
            overlapped(device, (network, format), (rows, runs), tell);
        }
    }
}

/// The comparisons of one model, also of products whose operands bulk copies load if the device has them.
fn overlapped(
    device: &Device,
    (network, format): (Network, Format),
    (rows, runs): (u32, u32),
    tell: &mut dyn FnMut(Check),
) {
    let over = device.clone().with_overlap(true);
    if !over.limits().overlap {
        return;
    }
    let name = format!("overlap, {} {}", format.dtype.name(), network.name());
    // Bulk copies load no other format.
    let copied = matches!(format.dtype, WeightDtype::Bf16 | WeightDtype::Int8);
    let rings: &[bool] = if copied { &[false, true] } else { &[false] };
    for &ring in rings {
        let devices = [device, &over].map(|device| device.clone().with_ring(ring));
        if devices[1].limits().ring != ring {
            continue;
        }
        let name = if ring { format!("{name}, bulk copies") } else { name.clone() };
        let compare = || {
            let [alone, over] = devices.map(|device| on_device(&device, (network, format), rows));
            let (mut alone, mut over) = (alone?, over?);
            for lengths in [&[1][..], &[32], &[33, 31], &[rows]] {
                let passes = network.passes(lengths);
                let want = run(&mut alone, &passes)?;
                let mut differ = 0;
                for _ in 0..runs {
                    differ += u32::from(run(&mut over, &passes)? != want);
                }
                let name = format!("{name}: passes of {lengths:?} rows that differ");
                tell(Check { name, error: differ.into(), tolerance: 0.0 });
            }
            Ok(())
        };
        let done: Result<(), LoadError> = compare();
        if let Err(reason) = done {
            tell(Check::failed(&name, reason));
        }
    }
}

/// Compares the log-probabilities of complete forward passes on a device, launched directly and from a
/// graph, with those of candle, with batches of up to `rows` rows, and checks that a sequence has the same
/// bits alone and beside other sequences.
pub fn selftest_of_models(device: &Device, rows: u32, tell: &mut dyn FnMut(Check)) {
    let tested = |network: Network, format: Format| {
        let executor = on_device(device, (network, format), rows)?;
        Ok(Box::new(executor) as Box<dyn Executor>)
    };
    compared("device", &Format::ALL, rows, tested, tell);
}

/// An executor on a device for batches of up to `rows` rows.
fn on_device(
    device: &Device,
    (network, format): (Network, Format),
    rows: u32,
) -> Result<DeviceExecutor, LoadError> {
    let checkpoint = network.checkpoint(format.dtype, format.mlp, rows)?;
    let model = DeviceModel::load(device, checkpoint)?;
    let sizes = sizes(rows);
    let slots = u64::from(sizes.pages) * u64::from(sizes.page_size);
    let config = DeviceConfig {
        page_size: sizes.page_size,
        rows: rows.max(64),
        positions: rows.max(64),
        sequences: 4,
        kv: KvMemory::Bytes(slots * model.kv_bytes_per_position() as u64),
    };
    DeviceExecutor::new(model, config)
}

/// Compares the executors that `tested` makes with candle.
fn compared(
    place: &str,
    formats: &[Format],
    rows: u32,
    tested: impl Fn(Network, Format) -> Result<Box<dyn Executor>, LoadError>,
    tell: &mut dyn FnMut(Check),
) {
    for &format in formats {
        for network in Network::ALL {
            let name = format!("{place}, {} {}", format.dtype.name(), network.name());
            let pair = || {
                let candle = network.checkpoint(format.reference, format.mlp, rows)?;
                let candle = Model::load_on(Candle::default(), candle)?;
                Ok(Pair {
                    candle: ModelExecutor::new(candle, sizes(rows))?,
                    tested: tested(network, format)?,
                    network,
                    name: name.clone(),
                    tolerance: network.tolerance(format),
                })
            };
            let done = pair().and_then(|mut pair: Pair| pair.compare(rows, tell));
            if let Err(reason) = done {
                tell(Check::failed(&name, reason));
            }
        }
    }
}

/// Two executors of a model.
struct Pair {
    candle: ModelExecutor<Candle>,
    tested: Box<dyn Executor>,
    network: Network,
    name: String,
    tolerance: f64,
}

impl Pair {
    fn compare(&mut self, rows: u32, tell: &mut dyn FnMut(Check)) -> Result<(), LoadError> {
        let name = self.name.clone();
        let check = |what: &str, error: f64, tolerance: f64| Check {
            name: format!("{name}: {what}"),
            error,
            tolerance,
        };
        let passes = |lengths: &[u32]| self.network.passes(lengths);
        for lengths in [&[1][..], &[5, 1, 33, rows / 8], &[rows]] {
            let passes = passes(lengths);
            let (want, got) = (run(&mut self.candle, &passes)?, run(&mut *self.tested, &passes)?);
            let what = format!("sequences of {lengths:?} rows");
            let distance = distance(&got.concat(), &want.concat());
            tell(check(&what, distance, self.tolerance));
            let again = [run(&mut *self.tested, &passes)?, run(&mut *self.tested, &passes)?];
            let differ = again.iter().filter(|again| **again != got);
            let what = format!("repeated passes of {lengths:?} rows that differ from the first");
            tell(check(&what, differ.count() as f64, 0.0));
        }
        let (alone, many) = (passes(&[33]), passes(&[33, 1, rows / 2]));
        let alone = run(&mut *self.tested, &alone)?;
        let many = run(&mut *self.tested, &many)?;
        // The first sequence comes first in every pass.
        let pairs = alone.iter().zip(&many);
        let pairs = pairs.flat_map(|(alone, many)| alone.iter().zip(many));
        let differ = pairs.filter(|(alone, many)| alone != many).count();
        let what = "rows that differ beside other sequences";
        tell(check(what, differ as f64, 0.0));
        Ok(())
    }
}

/// The KV pages of a model.
fn sizes(rows: u32) -> ExecutorConfig {
    ExecutorConfig { page_size: PAGE, pages: 4 + 2 * rows.max(64).div_ceil(PAGE), threads: None }
}

/// The candidates of every pass.
fn run(executor: &mut dyn Executor, passes: &[Batch]) -> Result<Vec<Vec<Candidate>>, LoadError> {
    let one = |batch: &Batch| {
        let mut output = BatchOutput::default();
        let done = executor.execute(batch, &mut output);
        done.map_err(|error| LoadError::Setup(error.to_string()))?;
        Ok(output.candidates)
    };
    passes.iter().map(one).collect()
}

/// Root mean square of the differences of the input tokens' log-probabilities.
fn distance(got: &[Candidate], want: &[Candidate]) -> f64 {
    if got.len() != want.len() {
        return f64::INFINITY;
    }
    let squares = got.iter().zip(want).map(|(got, want)| (got.present / want.present).ln().powi(2));
    (squares.sum::<f64>() / got.len() as f64).sqrt()
}
