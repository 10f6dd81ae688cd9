//! Times forward passes beside the machine's peak and shows where their time goes.
//!
//! `cargo run --release -p asynclane-model --example forward [-- llada-300m] [bf16 | int8]`: the
//! demo model's geometry, or one of 300 million parameters, with random weights.
//! `crates/model/README.md` explains the lines.

use asynclane_model::{ExecutorConfig, Geometry, Model, ModelExecutor, Part, WeightDtype};
use std::time::{Duration, Instant};
use step::{Batch, BatchOutput, Executor, PageId, Row, Sampling, Score, Segment};

/// Slots of a page.
const PAGE: u32 = 16;
/// Positions that each sequence sees.
const CONTEXT: u32 = 192;
/// Sequences of a profile, and rows of each: what one sequence brings to a step, and what a crowd
/// comes to under a budget of rows.
const PROFILES: [(u32, u32); 2] = [(1, 40), (64, 8)];
/// Least forward passes of a measurement and the time after which it ends; medians count.
const LEAST: (usize, Duration) = (5, Duration::from_secs(2));
/// Most forward passes of a measurement.
const MOST: usize = 101;

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

/// Medians of forward passes.
struct Measured {
    /// In milliseconds.
    time: f64,
    /// Percent of the peak that the matrix products reach, and that they come to over the whole
    /// pass.
    of_peak: (f64, f64),
    /// Percent of the pass by part.
    parts: [f64; Part::ALL.len()],
}

impl Measured {
    fn part(&self, part: Part) -> f64 {
        self.parts[part as usize]
    }

    /// Percent of the pass in matrix products and attention.
    fn work(&self) -> f64 {
        self.part(Part::Linear) + self.part(Part::Head) + self.part(Part::Attention)
    }
}

fn pass(executor: &mut ModelExecutor, batch: &Batch) {
    let done = executor.execute(batch, &mut BatchOutput::default());
    done.expect("a valid batch");
}

/// Passes in turn with the peak; `operations` are those of one row.
fn measure(executor: &mut ModelExecutor, batch: &Batch, operations: f64) -> Measured {
    (0..3).for_each(|_| pass(executor, batch));
    let operations = 1e-9 * operations * batch.rows.len() as f64;
    let (mut times, mut products, mut passes) = (vec![], vec![], vec![]);
    let mut parts = Part::ALL.map(|_| vec![]);
    let begin = Instant::now();
    while times.len() < LEAST.0 || (begin.elapsed() < LEAST.1 && times.len() < MOST) {
        let before = executor.peak();
        executor.start_profile();
        let start = Instant::now();
        pass(executor, batch);
        let time = start.elapsed().as_secs_f64();
        let profile = executor.take_profile().unwrap_or_default();
        let peak = f64::midpoint(before, executor.peak());
        let in_products = profile.time(Part::Linear) + profile.time(Part::Head);
        times.push(1e3 * time);
        passes.push(100.0 * operations / time / peak);
        products.push(100.0 * operations / in_products.as_secs_f64() / peak);
        for (part, of) in Part::ALL.into_iter().zip(&mut parts) {
            of.push(100.0 * profile.share(part));
        }
    }
    Measured {
        time: median(times),
        of_peak: (median(products), median(passes)),
        parts: parts.map(median),
    }
}

/// Processor time of this process in seconds, as user and as system; none where the system does
/// not tell.
fn processor_time() -> Option<(f64, f64)> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // Behind the name in brackets, the 12th and 13th numbers, in ticks of a hundredth.
    let mut numbers = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut seconds = || Some(numbers.next()?.parse::<f64>().ok()? / 100.0);
    Some((seconds()?, seconds()?))
}

/// What passes one after another take of the threads, and how much of it as system time.
fn occupancy(executor: &mut ModelExecutor, batch: &Batch) -> Option<String> {
    let (user, system) = processor_time()?;
    let start = Instant::now();
    while start.elapsed() < LEAST.1 {
        pass(executor, batch);
    }
    let wall = start.elapsed().as_secs_f64();
    let (user, system) = {
        let now = processor_time()?;
        (now.0 - user, now.1 - system)
    };
    Some(format!(
        "{:.2} threads busy, {:.1} % of it system time",
        (user + system) / wall,
        100.0 * system / (user + system)
    ))
}

/// Where a step's time goes, as a table.
fn profiles(executor: &mut ModelExecutor, geometry: &Geometry) {
    let batches = PROFILES.map(|(sequences, rows)| batch(sequences, rows, CONTEXT));
    let measured = batches
        .each_ref()
        .map(|batch| measure(executor, batch, geometry.operations()));
    let row = |name: &str, value: &dyn Fn(&Measured) -> String| {
        let cells = measured.each_ref().map(value);
        println!("| {name} | {} |", cells.join(" | "));
    };
    let heads = PROFILES.map(|(sequences, rows)| format!("{sequences} x {rows} rows"));
    println!("| % of the wall time | {} |", heads.join(" | "));
    println!("|---|{}", "---|".repeat(heads.len()));
    for part in Part::ALL {
        row(part.name(), &|m| format!("{:.1}", m.part(part)));
    }
    row("**linear, head and attention**", &|m| {
        format!("**{:.1}**", m.work())
    });
    row("ms", &|m| format!("{:.2}", m.time));
    row("products, % of the peak", &|m| {
        format!("{:.0}", m.of_peak.0)
    });
    row("forward, % of the peak", &|m| format!("{:.0}", m.of_peak.1));
    for (name, batch) in heads.iter().zip(&batches) {
        if let Some(line) = occupancy(executor, batch) {
            println!("{name}: {line}");
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let large = std::env::args().any(|arg| arg == "llada-300m");
    let geometry = if large { "llada-300m" } else { "demo" };
    let geometry = Geometry::named(geometry).expect("a geometry of the crate");
    let dtype = std::env::args().find_map(|arg| WeightDtype::named(&arg));
    let dtype = dtype.unwrap_or_default();
    let checkpoint = geometry.checkpoint(5, 1)?.with_dtype(dtype);
    let model = Model::load(checkpoint)?;
    let parameters = model.info().parameters;
    let config = ExecutorConfig {
        page_size: PAGE,
        pages: 64 * CONTEXT.div_ceil(PAGE),
        threads: None,
    };
    let mut executor = ModelExecutor::new(model, config)?;
    println!(
        "{:.1} M parameters, {} threads, {} by {}, peak {:.1} GFLOP/s",
        1e-6 * parameters as f64,
        executor.threads(),
        dtype.name(),
        executor.instructions(),
        executor.peak()
    );
    println!("one sequence of as many rows:");
    for rows in [1, 4, 16, 32, 64, 128, 256] {
        let batch = batch(1, rows, rows);
        let measured = measure(&mut executor, &batch, geometry.operations());
        println!(
            "{rows:4} rows: linear {:.0} % of {} peak, forward {:.0} %, {:.3} ms",
            measured.of_peak.0,
            dtype.name(),
            measured.of_peak.1,
            measured.time
        );
    }
    println!("where a step's time goes, {CONTEXT} positions a sequence:");
    profiles(&mut executor, &geometry);
    Ok(())
}
