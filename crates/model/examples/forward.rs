//! Times forward passes and shows where their time goes, beside the machine's peak.
//!
//! `cargo run --release -p asynclane-model --example forward [-- llada-300m] [bf16 | int8]`: the
//! demo model's geometry, or one of 300 million parameters, with random weights.

use asynclane_model::{Checkpoint, ExecutorConfig, Model, ModelExecutor, Part, WeightDtype};
use std::time::Instant;
use step::{Batch, BatchOutput, Executor, PageId, Row, Sampling, Score, Segment};

/// Slots of a page.
const PAGE: u32 = 16;
/// Positions that each sequence of a crowd sees.
const CONTEXT: u32 = 192;
/// Rows of each sequence of a crowd, about what open rows of the demo model come to.
const OPEN: u32 = 8;
/// Forward passes, in turn with the peak; medians count.
const RUNS: usize = 11;

/// A geometry in numbers.
struct Geometry {
    width: usize,
    heads: usize,
    layers: usize,
    mlp: usize,
    vocab: usize,
}

const DEMO: Geometry = Geometry {
    width: 192,
    heads: 6,
    layers: 6,
    mlp: 512,
    vocab: 1024,
};
const LLADA_300M: Geometry = Geometry {
    width: 1024,
    heads: 16,
    layers: 24,
    mlp: 2816,
    vocab: 32_000,
};

impl Geometry {
    fn config(&self) -> String {
        let Self {
            width,
            heads,
            layers,
            mlp,
            vocab,
        } = self;
        format!(
            r#"{{"architectures": ["LLaDAModelLM"], "d_model": {width}, "n_heads": {heads},
            "n_layers": {layers}, "mlp_hidden_size": {mlp}, "vocab_size": {vocab},
            "max_sequence_length": 1024, "mask_token_id": 5, "eos_token_id": 1}}"#
        )
    }

    /// Operations of the matrix products of one row.
    fn operations(&self) -> f64 {
        let layer = 4 * self.width * self.width + 3 * self.width * self.mlp;
        2.0 * (self.layers * layer + self.vocab * self.width) as f64
    }
}

/// Some sequences, each with its last rows of `context` positions in the batch, all scored.
fn batch(sequences: u32, rows: u32, context: u32) -> Batch {
    let table = context.div_ceil(PAGE);
    let mut batch = Batch::default();
    for sequence in 0..sequences {
        batch.rows.extend((context - rows..context).map(|i| Row {
            token: 6 + (i * 7 + sequence) % 900,
            position: i,
            slot: i,
            visible: context,
            score: Score::Candidate,
            biases: 0..0,
            allowed: None,
        }));
        batch
            .pages
            .extend((sequence * table..(sequence + 1) * table).map(PageId));
        batch.segments.push(Segment {
            rows: sequence * rows..(sequence + 1) * rows,
            pages: sequence * table..(sequence + 1) * table,
            sampling: Sampling::GREEDY,
        });
    }
    batch
}

/// One line: rate, share of the peak, parts.
fn measure(executor: &mut ModelExecutor, batch: &Batch, operations: f64) -> String {
    let mut output = BatchOutput::default();
    let mut pass = |executor: &mut ModelExecutor| {
        let done = executor.execute(batch, &mut output);
        done.expect("a valid batch");
    };
    (0..3).for_each(|_| pass(executor));
    let operations = 1e-9 * operations * batch.rows.len() as f64;
    let (mut times, mut shares, mut product_shares) = (vec![], vec![], vec![]);
    let mut parts = Part::ALL.map(|_| vec![]);
    for _ in 0..RUNS {
        let peak = executor.peak();
        let start = Instant::now();
        pass(executor);
        let time = start.elapsed().as_secs_f64();
        executor.start_profile();
        pass(executor);
        let profile = executor.take_profile().unwrap_or_default();
        let products = (profile.time(Part::Linear) + profile.time(Part::Head)).as_secs_f64();
        times.push(time);
        shares.push(100.0 * operations / time / peak);
        product_shares.push(100.0 * operations / products / peak);
        for (part, of) in Part::ALL.into_iter().zip(&mut parts) {
            of.push(100.0 * profile.share(part));
        }
    }
    let time = median(times);
    let parts = Part::ALL.into_iter().zip(parts);
    let parts: Vec<_> = parts
        .map(|(part, shares)| format!("{} {:.1}", part.name(), median(shares)))
        .collect();
    format!(
        "{:9.3} ms, {:6.1} GFLOP/s ({:.0} % of peak; products alone {:.0} %); %: {}",
        1e3 * time,
        operations / time,
        median(shares),
        median(product_shares),
        parts.join(", ")
    )
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let large = std::env::args().any(|arg| arg == "llada-300m");
    let geometry = if large { LLADA_300M } else { DEMO };
    let dtype = std::env::args().find_map(|arg| WeightDtype::named(&arg));
    let dtype = dtype.unwrap_or_default();
    let checkpoint = Checkpoint::synthetic(&geometry.config(), 1)?.with_dtype(dtype);
    let model = Model::load(checkpoint)?;
    let parameters = model.info().parameters;
    let config = ExecutorConfig {
        page_size: PAGE,
        pages: 64 * CONTEXT.div_ceil(PAGE),
        threads: None,
    };
    let mut executor = ModelExecutor::new(model, config)?;
    println!(
        "{parameters} parameters, {} threads, {} by {}, peak {:.1} GFLOP/s",
        executor.threads(),
        dtype.name(),
        executor.instructions(),
        executor.peak()
    );
    println!("one sequence of as many rows:");
    for rows in [1, 4, 16, 32, 64, 128, 256] {
        let batch = batch(1, rows, rows);
        let line = measure(&mut executor, &batch, geometry.operations());
        println!("{rows:4}: {line}");
    }
    println!("sequences of {OPEN} rows at {CONTEXT} positions:");
    for sequences in [1, 4, 16, 64] {
        let batch = batch(sequences, OPEN, CONTEXT);
        let line = measure(&mut executor, &batch, geometry.operations());
        println!("{sequences:4}: {line}");
    }
    Ok(())
}
