//! Measures single kernels: the products of the demo model and of a
//! model with 300 million parameters, attention, norms and scoring.
//!
//! `cargo run --release -p asynclane-kernels --example kernels [-- f32 | bf16 | int8 | int4 | formats]`:
//! all dtypes or one, or the layers of the larger model in every format beside each other, with the
//! block types of GGUF files.

use asynclane_kernels::{BlockRows, BlockType, Epilogue, Linear, Matrix, Team, WeightDtype};
use asynclane_kernels::{PagedAttention, Pool, Visible, rms_norm};
use asynclane_kernels::{Scorer, ScorerRow, score};
use candle_core::{Device, Result, Tensor};
use std::time::Instant;
use step::{PageId, Sampling, Segment};

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

/// Rows in a step.
const ROWS: [usize; 7] = [1, 4, 16, 32, 64, 128, 256];

/// Matrices `[n, k]` of a layer and of the LM head of the demo model.
const DEMO: &[(&str, usize, usize, Epilogue)] = &[
    ("qkv", 576, 192, Epilogue::None),
    ("out", 192, 192, Epilogue::None),
    ("gate+up", 1024, 192, Epilogue::SiluGate),
    ("down", 192, 512, Epilogue::None),
    ("head", 1024, 192, Epilogue::None),
];
/// The same for a model with 300 million parameters.
const LLADA_300M: &[(&str, usize, usize, Epilogue)] = &[
    ("qkv", 3072, 1024, Epilogue::None),
    ("out", 1024, 1024, Epilogue::None),
    ("gate+up", 5632, 1024, Epilogue::SiluGate),
    ("down", 1024, 2816, Epilogue::None),
    ("head", 32_000, 1024, Epilogue::None),
];

/// Rounds; each measures this crate and candle. Results are medians.
const ROUNDS: usize = 9;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Prints one line per matrix: for each row count the rate, and its ratio to candle's
/// rate in f32.
fn linears(dtype: WeightDtype, shapes: &[(&str, usize, usize, Epilogue)]) -> Result<()> {
    for &(name, n, k, epilogue) in shapes {
        let weight = random((n, k))?;
        let matrix = Matrix { weight: &weight.flatten_all()?.to_vec1::<f32>()?, k, bias: None };
        let layer = Linear::new(matrix, dtype, epilogue)?;
        let transposed = weight.t()?;
        print!("{name:>8} {n}x{k}:");
        for m in ROWS {
            let x = random((m, k))?;
            let operations = 2e-9 * (m * n * k) as f64;
            let runs = (0.2 / operations).clamp(1.0, 50.0) as usize;
            let (mut rates, mut ratios) = (vec![], vec![]);
            for _ in 0..ROUNDS {
                let ours = best(runs, || drop(layer.forward(&x).expect("shapes fit")));
                let candle = best(runs.div_ceil(4), || {
                    drop(x.matmul(&transposed).expect("shapes fit"));
                });
                rates.push(operations / ours);
                ratios.push(candle / ours);
            }
            print!(" {m}: {:.0} ({:.1}x)", median(rates), median(ratios));
        }
        println!();
    }
    Ok(())
}

/// Layers whose weights are read in turn: together they are larger than the caches.
const LAYERS: usize = 6;

/// The matrices of one layer of the larger model.
type Layer = Vec<Linear>;

/// A layer in a dtype.
fn dense(dtype: WeightDtype) -> Result<Layer> {
    let matrices = LLADA_300M[..4].iter().map(|&(_, n, k, epilogue)| {
        let weight = random((n, k))?.flatten_all()?.to_vec1::<f32>()?;
        let (weight, bias) = (&*weight, None);
        Linear::new(Matrix { weight, k, bias }, dtype, epilogue)
    });
    matrices.collect()
}

/// A layer in a block type.
fn packed(kind: BlockType) -> Result<Layer> {
    let matrices = LLADA_300M[..4].iter().map(|&(_, rows, k, epilogue)| {
        // Bytes that are finite scales too.
        let bytes = vec![0x33; rows * k / kind.weights() * kind.bytes()];
        let blocks = [BlockRows { kind, rows, bytes: &bytes }];
        Linear::of_blocks([rows, k], &blocks, None, epilogue)
    });
    matrices.collect()
}

/// Prints the milliseconds of a layer's products by format and rows. The formats take turns.
fn formats() -> Result<()> {
    let mut all: Vec<(&str, Vec<Layer>)> = Vec::new();
    for dtype in [WeightDtype::F32, WeightDtype::Bf16, WeightDtype::Int8, WeightDtype::Int4] {
        let layers = (0..LAYERS).map(|_| dense(dtype));
        all.push((dtype.name(), layers.collect::<Result<_>>()?));
    }
    let more = [BlockType::IQ4, BlockType::NVFP4, BlockType::FP8, BlockType::F16];
    for kind in BlockType::ALL.into_iter().chain(more) {
        let layers = (0..LAYERS).map(|_| packed(kind));
        all.push((kind.name(), layers.collect::<Result<_>>()?));
    }
    for m in [1, 4, 16, 32, 64, 128] {
        let inputs = [1024, 1024, 1024, 2816].map(|k| random((m, k)));
        let mut times = vec![Vec::new(); all.len()];
        for _ in 0..2 * ROUNDS {
            for ((_, layers), times) in all.iter().zip(&mut times) {
                let start = Instant::now();
                for layer in layers {
                    for (matrix, x) in layer.iter().zip(&inputs) {
                        let x = x.as_ref().expect("shapes fit");
                        drop(matrix.forward(x).expect("shapes fit"));
                    }
                }
                times.push(1e3 * start.elapsed().as_secs_f64() / LAYERS as f64);
            }
        }
        print!("{m} rows:");
        for ((name, _), times) in all.iter().zip(times) {
            let best = times.iter().copied().fold(f64::INFINITY, f64::min);
            print!(" {name} {:.3} ({best:.3})", median(times));
        }
        println!();
    }
    Ok(())
}

fn attention(rows: usize, heads: usize, c: usize) -> Result<()> {
    let q = random((rows, heads * c))?;
    let pages: Vec<PageId> = (0..rows.div_ceil(16) as u32).map(PageId).collect();
    let pool = |kind: Pool| {
        let shape = kind.shape(pages.len(), heads, c, 16);
        Tensor::randn(0f32, 1.0, shape.as_slice(), &Device::Cpu)
    };
    let (k, v) = (pool(Pool::Keys)?, pool(Pool::Values)?);
    let op = PagedAttention {
        segments: &[Segment {
            rows: 0..rows as u32,
            pages: 0..pages.len() as u32,
            sampling: Sampling::GREEDY,
        }],
        pages: &pages,
        visible: &vec![Visible::prefix(rows as u32); rows],
        heads,
        scale: 0.1,
    };
    let time = best(200, || drop(q.apply_op3_no_bwd(&k, &v, &op).expect("shapes fit")));
    let rate = 4e-9 * (rows * rows * heads * c) as f64 / time;
    println!("attention {rows} rows, {heads}x{c}: {:.1} us, {rate:.1} GFLOP/s", time * 1e6);
    Ok(())
}

fn small(rows: usize) -> Result<()> {
    let x = random((rows, 192))?;
    let weight = random((1, 192))?.flatten_all()?.to_vec1::<f32>()?;
    let norm = best(400, || drop(rms_norm(&x, &weight, 1e-5).expect("shapes fit")));
    println!("{rows} rows: rms_norm {:.1} us", norm * 1e6);
    Ok(())
}

fn scoring(rows: usize, vocab: usize) -> Result<()> {
    let logits = random((rows, vocab))?;
    // Alternating runs of 64 allowed and 64 banned tokens.
    let allowed: Vec<u32> =
        (0..vocab.div_ceil(32)).map(|word| if word / 2 % 2 == 0 { u32::MAX } else { 0 }).collect();
    let segments = [Segment { rows: 0..rows as u32, pages: 0..0, sampling: Sampling::GREEDY }];
    let time = |tops: u32, allowed_set: Option<u32>| {
        let row = ScorerRow {
            input: 5,
            position: 0,
            biases: 0..0,
            allowed: allowed_set,
            tops,
            among: None,
            segment: 0,
        };
        let rows_of = vec![row; rows];
        let scorer =
            Scorer { rows: &rows_of, biases: &[], allowed: &allowed, segments: &segments, mask: 5 };
        1e6 * best(100, || drop(score(&logits, &scorer).expect("finite logits")))
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
    let team = Team::new(None).map_err(candle_core::Error::wrap)?;
    team.install(|| measure(team.threads()))
}

fn measure(threads: usize) -> Result<()> {
    if std::env::args().any(|arg| arg == "formats") {
        println!("{threads} threads; milliseconds of a layer of the 300M model, median (least)");
        return formats();
    }
    let only = std::env::args().find_map(|arg| WeightDtype::named(&arg));
    let dtypes = WeightDtype::ALL.into_iter();
    for dtype in dtypes.filter(|&dtype| only.is_none_or(|only| only == dtype)) {
        println!(
            "{} by {}, {} threads; rows: GFLOP/s (times candle's rate in f32)",
            dtype.name(),
            dtype.instructions(),
            threads,
        );
        linears(dtype, DEMO)?;
        linears(dtype, LLADA_300M)?;
    }
    for rows in [1, 12, 64, 170] {
        small(rows)?;
        scoring(rows, 1024)?;
        attention(rows, 6, 32)?;
    }
    scoring(12, 126_464)?;
    attention(512, 8, 128)
}
