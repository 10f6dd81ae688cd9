//! Compares a device with the CPU: every kernel, then forward passes of small models with random
//! weights.

use super::{DeviceConfig, DeviceExecutor, DeviceModel, KvMemory};
use crate::{Checkpoint, ExecutorConfig, LoadError, Model, ModelExecutor, WeightDtype};
use kernels::device::{self, Check, Device};
use step::{
    Batch, BatchOutput, Candidate, Executor, PageId, Position, Row, Sampling, Score, Segment, Slot,
};

/// Heads, key/value heads and width of the models; the head widths are 32, 64 and 128.
const SHAPES: [Shape; 3] = [
    Shape::new(6, 3, 192),
    Shape::new(4, 1, 256),
    Shape::new(3, 3, 384),
];
const VOCAB: u32 = 1003;
const PAGE: u32 = 16;
const SAMPLED: Sampling = Sampling {
    temperature: 0.7,
    seed: 11,
    clock: 5,
    ..Sampling::GREEDY
};

/// Heads, key/value heads and width of a model.
#[derive(Clone, Copy)]
struct Shape {
    heads: usize,
    groups: usize,
    width: usize,
}

impl Shape {
    const fn new(heads: usize, groups: usize, width: usize) -> Self {
        Self {
            heads,
            groups,
            width,
        }
    }
}

/// Compares every kernel in f32 and bf16, with batches of up to `rows` rows. Then compares the
/// log-probabilities of complete forward passes, launched directly and from a graph, and checks
/// that a sequence has the same bits alone and beside other sequences.
///
/// # Errors
/// If a model cannot be set up or a forward pass fails.
pub fn selftest(device: &Device, rows: u32) -> Result<Vec<Check>, LoadError> {
    let checks = device::selftest(device, rows as usize);
    let mut checks = checks.map_err(|error| LoadError::Setup(error.to_string()))?;
    for (dtype, tolerance) in [(WeightDtype::F32, 1e-4), (WeightDtype::Bf16, 5e-2)] {
        for shape in SHAPES {
            let (mut cpu, mut gpu) = executors(device, shape, dtype, rows)?;
            let Shape {
                heads,
                groups,
                width,
            } = shape;
            let name = |what: &str| {
                let c = width / heads;
                format!("{} {heads}/{groups} heads of {c}: {what}", dtype.name())
            };
            for lengths in [&[1][..], &[5, 1, 33, rows / 8], &[rows]] {
                let batch = batch(lengths);
                let (want, got) = (run(&mut cpu, &batch)?, run(&mut gpu, &batch)?);
                checks.push(Check {
                    name: name(&format!("sequences of {lengths:?} rows")),
                    error: distance(&got, &want),
                    tolerance,
                });
                let again = [run(&mut gpu, &batch)?, run(&mut gpu, &batch)?];
                let differ = again.iter().filter(|again| **again != got);
                checks.push(Check {
                    name: name(&format!(
                        "repeated passes of {lengths:?} rows that differ from the first"
                    )),
                    error: differ.count() as f64,
                    tolerance: 0.0,
                });
            }
            let (alone, many) = (batch(&[33]), batch(&[33, 1, rows / 2]));
            let (alone, many) = (run(&mut gpu, &alone)?, run(&mut gpu, &many)?);
            let differ = alone
                .iter()
                .zip(&many)
                .filter(|(alone, many)| alone != many);
            checks.push(Check {
                name: name("rows that differ beside other sequences"),
                error: differ.count() as f64,
                tolerance: 0.0,
            });
        }
    }
    Ok(checks)
}

/// The same model on the CPU and on the device.
fn executors(
    device: &Device,
    shape: Shape,
    dtype: WeightDtype,
    rows: u32,
) -> Result<(ModelExecutor, DeviceExecutor), LoadError> {
    let Shape {
        heads,
        groups,
        width,
    } = shape;
    let config = format!(
        r#"{{"architectures": ["LLaDAModelLM"], "d_model": {width}, "n_heads": {heads},
        "n_kv_heads": {groups}, "n_layers": 2, "mlp_hidden_size": 200, "vocab_size": {VOCAB},
        "max_sequence_length": {}, "mask_token_id": 5, "eos_token_id": 1}}"#,
        rows.max(64)
    );
    let checkpoint = || Ok(Checkpoint::synthetic(&config, 7)?.with_dtype(dtype));
    let sizes = ExecutorConfig {
        page_size: PAGE,
        pages: 4 + 2 * rows.max(64).div_ceil(PAGE),
        threads: None,
    };
    let model = DeviceModel::load(device, checkpoint()?)?;
    let slots = u64::from(sizes.pages) * u64::from(sizes.page_size);
    let on_device = DeviceConfig {
        page_size: sizes.page_size,
        rows,
        positions: rows,
        sequences: 4,
        kv: KvMemory::Bytes(slots * model.kv_bytes_per_position() as u64),
    };
    let cpu = ModelExecutor::new(Model::load(checkpoint()?)?, sizes)?;
    Ok((cpu, DeviceExecutor::new(model, on_device)?))
}

/// Sequences of these lengths under full attention, each with its own pages in descending order.
fn batch(lengths: &[u32]) -> Batch {
    let mut batch = Batch::default();
    let mut page = 0;
    for (number, &length) in lengths.iter().enumerate() {
        let (row, table) = (batch.rows.len() as u32, batch.pages.len() as u32);
        let count = length.div_ceil(PAGE);
        batch.pages.extend((page..page + count).rev().map(PageId));
        page += count;
        batch.rows.extend((0..length).map(|i| Row {
            score: Score::Candidate,
            ..Row::new(
                (i * 7919 + i * i * 31) % VOCAB,
                Position::new(i),
                Slot::new(i),
                Slot::new(length),
            )
        }));
        batch.segments.push(Segment {
            rows: row..row + length,
            pages: table..table + count,
            sampling: if number % 2 == 0 {
                Sampling::GREEDY
            } else {
                SAMPLED
            },
        });
    }
    batch
}

fn run(executor: &mut dyn Executor, batch: &Batch) -> Result<Vec<Candidate>, LoadError> {
    let mut output = BatchOutput::default();
    let done = executor.execute(batch, &mut output);
    done.map_err(|error| LoadError::Setup(error.to_string()))?;
    Ok(output.candidates)
}

/// Root mean square of the differences of the input tokens' log-probabilities.
fn distance(got: &[Candidate], want: &[Candidate]) -> f64 {
    if got.len() != want.len() {
        return f64::INFINITY;
    }
    let squares = got
        .iter()
        .zip(want)
        .map(|(got, want)| (got.present / want.present).ln().powi(2));
    (squares.sum::<f64>() / got.len() as f64).sqrt()
}
