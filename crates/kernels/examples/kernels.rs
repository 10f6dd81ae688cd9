//! Times single kernels at the demo geometry beside the machine's multiply-add peak.

use asynclane_kernels::{AttentionSegment, Draw, Epilogue, Linear, PagedAttention, rms_norm};
use asynclane_kernels::{InstructionSet, Scorer, ScorerRow, score};
use candle_core::{Device, Result, Tensor};
use std::time::Instant;

/// Shortest time of `runs` calls, in seconds.
fn best(runs: usize, mut call: impl FnMut()) -> f64 {
    let times = (0..runs).map(|_| {
        let start = Instant::now();
        call();
        start.elapsed().as_secs_f64()
    });
    times.fold(f64::INFINITY, f64::min)
}

fn random(shape: (usize, usize)) -> Result<Tensor> {
    Tensor::randn(0f32, 1.0, shape, &Device::Cpu)
}

fn linear(m: usize, n: usize, k: usize, epilogue: Epilogue) -> Result<()> {
    let weight = random((n, k))?;
    let x = random((m, k))?;
    let layer = Linear::new(&weight.flatten_all()?.to_vec1::<f32>()?, k, None, epilogue)?;
    let ours = best(400, || drop(layer.forward(&x).expect("shapes fit")));
    let transposed = weight.t()?;
    let candle = best(100, || drop(x.matmul(&transposed).expect("shapes fit")));
    let rate = |time: f64| 2e-9 * (m * n * k) as f64 / time;
    println!(
        "linear {m}x{n}x{k} {epilogue:?}: {:.1} us, {:.1} GFLOP/s; candle {:.1} us, {:.1} GFLOP/s",
        ours * 1e6,
        rate(ours),
        candle * 1e6,
        rate(candle)
    );
    Ok(())
}

fn attention(rows: usize, heads: usize, c: usize) -> Result<()> {
    let q = random((rows, heads * c))?;
    let pool = random((rows.next_multiple_of(16), heads * c))?.reshape(((), heads, c))?;
    let pages: Vec<u32> = (0..rows.div_ceil(16) as u32).collect();
    let op = PagedAttention {
        segments: &[AttentionSegment {
            rows: 0..rows as u32,
            pages: 0..pages.len() as u32,
        }],
        pages: &pages,
        visible: &vec![rows as u32; rows],
        page_size: 16,
        heads,
        scale: 0.1,
    };
    let time = best(200, || {
        drop(q.apply_op3_no_bwd(&pool, &pool, &op).expect("shapes fit"))
    });
    let rate = 4e-9 * (rows * rows * heads * c) as f64 / time;
    println!(
        "attention {rows} rows, {heads}x{c}: {:.1} us, {rate:.1} GFLOP/s",
        time * 1e6
    );
    Ok(())
}

fn small(rows: usize) -> Result<()> {
    let x = random((rows, 192))?;
    let weight = random((1, 192))?.flatten_all()?;
    let norm = best(400, || {
        drop(rms_norm(&x, &weight, 1e-5).expect("shapes fit"))
    });
    println!("{rows} rows: rms_norm {:.1} us", norm * 1e6);
    Ok(())
}

fn scoring(rows: usize, vocab: usize) -> Result<()> {
    let logits = random((rows, vocab))?;
    // Every other run of 64 tokens.
    let allowed: Vec<u32> = (0..vocab.div_ceil(32))
        .map(|word| if word / 2 % 2 == 0 { u32::MAX } else { 0 })
        .collect();
    let draw = Draw {
        temperature: 0.0,
        top_p: 1.0,
        min_p: 0.0,
        top_k: 0,
        seed: 0,
        clock: 0,
    };
    let time = |tops: u32, allowed_set: Option<u32>| {
        let row = ScorerRow {
            input: 5,
            position: 0,
            biases: 0..0,
            allowed: allowed_set,
            tops,
            draw: 0,
        };
        let rows_of = vec![row; rows];
        let scorer = Scorer {
            rows: &rows_of,
            biases: &[],
            allowed: &allowed,
            draws: &[draw],
            mask: 5,
        };
        1e6 * best(100, || {
            drop(score(&logits, &scorer).expect("finite logits"))
        })
    };
    println!(
        "score {rows} rows of {vocab}: {:.1} us, 20 tops {:.1} us, allowed set {:.1} us",
        time(0, None),
        time(20, None),
        time(0, Some(0))
    );
    Ok(())
}

fn main() -> Result<()> {
    // As in the executor: every kernel is entered from a worker that is awake.
    rayon::scope(|_| measure())
}

fn measure() -> Result<()> {
    let threads = rayon::current_num_threads();
    println!("{}, {threads} threads", InstructionSet::detect().name());
    for m in [1, 12, 64, 170] {
        linear(m, 576, 192, Epilogue::None)?;
        linear(m, 192, 192, Epilogue::None)?;
        linear(m, 1024, 192, Epilogue::SiluGate)?;
        linear(m, 192, 512, Epilogue::None)?;
        small(m)?;
        scoring(m, 1024)?;
        attention(m, 6, 32)?;
    }
    scoring(12, 126_464)?;
    linear(64, 4096, 1024, Epilogue::None)?;
    linear(64, 1024, 4096, Epilogue::None)?;
    linear(64, 4096, 4096, Epilogue::None)?;
    linear(16, 16384, 4096, Epilogue::None)?;
    linear(64, 16384, 4096, Epilogue::None)?;
    attention(512, 8, 128)
}
