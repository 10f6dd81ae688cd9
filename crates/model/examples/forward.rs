//! Times forward passes of the demo geometry, and the same products by candle's own matmul.

use asynclane_model::{Checkpoint, ExecutorConfig, Model, ModelExecutor};
use candle_core::{Device, Tensor};
use std::time::{Duration, Instant};
use step::{Batch, BatchOutput, Executor, PageId, Row, Sampling, Score, Segment};

/// The demo model's geometry, or a larger one when asked for.
fn config(large: bool) -> String {
    let (d, heads, layers, mlp, vocab) = if large {
        (1024, 16, 20, 3072, 32_000)
    } else {
        (192, 6, 6, 512, 1024)
    };
    format!(
        r#"{{"architectures": ["LLaDAModelLM"], "d_model": {d}, "n_heads": {heads},
        "n_layers": {layers}, "mlp_hidden_size": {mlp}, "vocab_size": {vocab},
        "max_sequence_length": 1024, "mask_token_id": 5, "eos_token_id": 1}}"#
    )
}

fn batch(rows: u32, page_size: u32) -> Batch {
    Batch {
        rows: (0..rows)
            .map(|i| Row {
                token: 6 + i % 900,
                position: i,
                slot: i,
                visible: rows,
                score: Score::Candidate,
                biases: 0..0,
                allowed: None,
            })
            .collect(),
        segments: vec![Segment {
            rows: 0..rows,
            pages: 0..rows.div_ceil(page_size),
            sampling: Sampling::GREEDY,
        }],
        pages: (0..rows.div_ceil(page_size)).map(PageId).collect(),
        ..Batch::default()
    }
}

/// Median time of `runs` calls after a few warm ones.
fn median(runs: usize, mut call: impl FnMut()) -> Duration {
    (0..3).for_each(|_| call());
    let mut times: Vec<_> = (0..runs)
        .map(|_| {
            let start = Instant::now();
            call();
            start.elapsed()
        })
        .collect();
    times.sort();
    times[runs / 2]
}

/// Products of one layer by candle's matmul, times the layers.
fn products(rows: usize, large: bool) -> Duration {
    let (layers, shapes) = if large {
        (20, [(1024, 3072), (1024, 1024), (1024, 6144), (3072, 1024)])
    } else {
        (6, [(192, 576), (192, 192), (192, 1024), (512, 192)])
    };
    let pairs = shapes.map(|(k, n)| {
        let x = Tensor::randn(0f32, 1.0, (rows, k), &Device::Cpu).expect("a tensor");
        let w = Tensor::randn(0f32, 1.0, (n, k), &Device::Cpu).expect("a tensor");
        (x, w.t().expect("a matrix"))
    });
    median(15, || {
        for _ in 0..layers {
            for (x, w) in &pairs {
                x.matmul(w).expect("shapes fit");
            }
        }
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let large = std::env::args().any(|arg| arg == "large");
    let model = Model::load(Checkpoint::synthetic(&config(large), 1)?)?;
    let parameters = model.info().parameters;
    let config = ExecutorConfig {
        page_size: 16,
        pages: 64,
        threads: None,
    };
    let mut executor = ModelExecutor::new(model, config)?;
    let (threads, set) = (executor.threads(), executor.instruction_set());
    println!("{parameters} parameters, {threads} threads, {set}");
    for rows in [1, 4, 16, 32, 64, 113, 170, 256] {
        let batch = batch(rows, 16);
        let mut output = BatchOutput::default();
        let time = median(if large { 7 } else { 51 }, || {
            executor
                .execute(&batch, &mut output)
                .expect("a valid batch");
        });
        let flops = 2.0 * parameters as f64 * f64::from(rows);
        println!(
            "{rows:4} rows: {time:9.2?}, {:6.1} GFLOP/s; layer products by candle: {:9.2?}",
            flops / time.as_secs_f64() / 1e9,
            products(rows as usize, large)
        );
    }
    Ok(())
}
