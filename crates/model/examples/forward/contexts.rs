//! Steps in long contexts, beside the bytes that they must read.

use crate::measure::{PAGE, bandwidth, measure};
use crate::{Options, machine, round};
use asynclane_model::{ExecutorConfig, KvDtype, Model, ModelExecutor};
use serde_json::{Value, json};
use std::error::Error;
use step::{
    Batch, BatchOutput, Executor, PageCopy, PageId, Position, Row, Sampling, Score, Segment, Slot,
};

/// Default number of rows of a step.
const ROWS: &[u32] = &[32];
/// Bandwidths measured beside each step; the result is their median.
const READINGS: usize = 5;

/// A step to be measured.
#[derive(Clone, Copy)]
struct Step {
    kv: KvDtype,
    /// Slots that each row sees.
    slots: u32,
    rows: u32,
}

/// Measures a step of each size in each number format of keys and values.
pub fn contexts(options: &Options) -> Result<Value, Box<dyn Error>> {
    let mut steps = Vec::new();
    let mut of_machine = String::new();
    for &kv in &options.kv {
        let mut executor = executor(options, kv)?;
        of_machine = machine(&executor, options.dtype);
        println!("{}; keys and values in {}", of_machine, kv.name());
        for &slots in &options.slots {
            for &rows in options.rows.as_deref().unwrap_or(ROWS) {
                steps.push(step(&mut executor, Step { kv, slots, rows }));
            }
        }
    }
    Ok(json!({
        "machine": of_machine,
        "geometry": options.geometry.name,
        "dtype": options.dtype.name(),
        "contexts": steps,
    }))
}

/// An executor whose slots all hold the keys and values of some rows.
fn executor(options: &Options, kv: KvDtype) -> Result<ModelExecutor, Box<dyn Error>> {
    let checkpoint = options.geometry.checkpoint(5, 1)?;
    let checkpoint = checkpoint.with_dtype(options.dtype).with_kv_dtype(kv);
    let most = options.slots.iter().copied().max().unwrap_or(1);
    let config = ExecutorConfig { page_size: PAGE, pages: most.div_ceil(PAGE), threads: None };
    let mut executor = ModelExecutor::new(Model::load(checkpoint)?, config)?;
    run(&mut executor, &batch(PAGE, PAGE));
    let copies =
        (1..config.pages).map(|page| PageCopy { source: PageId(0), destination: PageId(page) });
    let copies = Batch { copies: copies.collect(), ..Batch::default() };
    run(&mut executor, &copies);
    Ok(executor)
}

fn run(executor: &mut ModelExecutor, batch: &Batch) {
    let done = executor.execute(batch, &mut BatchOutput::default());
    done.expect("a valid batch");
}

/// The last `rows` rows of a sequence of `slots` slots, all scored. Their positions start again where
/// the model's end: the step costs the same.
fn batch(slots: u32, rows: u32) -> Batch {
    let row = |i: u32| Row {
        score: Score::Candidate,
        ..Row::new(6 + i * 7 % 900, Position::new(i % 1024), Slot::new(i), Slot::new(slots))
    };
    let pages = slots.div_ceil(PAGE);
    Batch {
        rows: (slots - rows..slots).map(row).collect(),
        pages: (0..pages).map(PageId).collect(),
        segments: vec![Segment { rows: 0..rows, pages: 0..pages, sampling: Sampling::GREEDY }],
        ..Batch::default()
    }
}

/// Measures one step.
fn step(executor: &mut ModelExecutor, step: Step) -> Value {
    let Step { kv, slots, rows } = step;
    let info = executor.model().info();
    // The embedding table is only indexed.
    let table = (info.vocabulary.embedding_size * info.width * size_of::<f32>()) as u64;
    let weights = executor.model().memory().weights - table;
    let read = info.kv_bytes_per_position() as u64 * u64::from(slots);
    let operations = info.operations();
    let measured = measure(executor, &batch(slots, rows), operations);
    let mut rates: Vec<f64> = (0..READINGS).map(|_| bandwidth(executor.threads())).collect();
    rates.sort_by(f64::total_cmp);
    let bandwidth = rates[READINGS / 2];
    let bytes = (weights + read) as f64;
    let least = 1e3 * bytes / bandwidth;
    println!(
        "{:>5} {slots:6} slots, {rows:3} rows: {:.1} ms, {:.2} GB to read in {least:.1} ms \
         ({:.1} GB/s): {:.2}x",
        kv.name(),
        measured.time,
        1e-9 * bytes,
        1e-9 * bandwidth,
        measured.time / least,
    );
    json!({
        "kv": kv.name(),
        "slots": slots,
        "rows": rows,
        "ms": round(measured.time, 2),
        "gb": round(1e-9 * bytes, 3),
        "kv_gb": round(1e-9 * read as f64, 3),
        "gb_per_second": round(1e-9 * bandwidth, 1),
        "least_ms": round(least, 2),
        "ratio": round(measured.time / least, 2),
    })
}
