//! Batches, and how long passes over them take.

use asynclane_model::{ModelExecutor, Part};
use std::time::{Duration, Instant};
use step::{Batch, BatchOutput, Executor, PageId, Row, Sampling, Score, Segment};

/// Slots of a page.
pub const PAGE: u32 = 16;
/// Least forward passes of a measurement and the time after which it ends; medians count.
const LEAST: (usize, Duration) = (5, Duration::from_secs(2));
/// Most forward passes of a measurement.
const MOST: usize = 101;

/// Some sequences, each with its last rows of `context` positions in the batch, all scored.
pub fn batch(sequences: u32, rows: u32, context: u32) -> Batch {
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
pub struct Measured {
    /// In milliseconds.
    pub time: f64,
    /// Percent of the peak that the matrix products reach, and that they come to over the whole
    /// pass.
    pub of_peak: (f64, f64),
    /// Percent of the pass, in the order of [`Part::ALL`].
    pub parts: [f64; Part::ALL.len()],
}

impl Measured {
    pub fn part(&self, part: Part) -> f64 {
        self.parts[part as usize]
    }

    /// Percent of the pass in matrix products and attention.
    pub fn work(&self) -> f64 {
        self.part(Part::Linear) + self.part(Part::Head) + self.part(Part::Attention)
    }
}

fn pass(executor: &mut ModelExecutor, batch: &Batch) {
    let done = executor.execute(batch, &mut BatchOutput::default());
    done.expect("a valid batch");
}

/// Passes in turn with the peak; `operations` are those of one row.
pub fn measure(executor: &mut ModelExecutor, batch: &Batch, operations: f64) -> Measured {
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

/// What passes one after another take of the threads.
pub struct Occupancy {
    /// Threads busy on average.
    pub threads: f64,
    /// Percent of their time that is the system's.
    pub system: f64,
}

/// Runs `batch` for a while; none where the system does not tell.
pub fn occupancy(executor: &mut ModelExecutor, batch: &Batch) -> Option<Occupancy> {
    let (user, system) = processor_time()?;
    let start = Instant::now();
    while start.elapsed() < LEAST.1 {
        pass(executor, batch);
    }
    let wall = start.elapsed().as_secs_f64();
    let now = processor_time()?;
    let (user, system) = (now.0 - user, now.1 - system);
    Some(Occupancy {
        threads: (user + system) / wall,
        system: 100.0 * system / (user + system),
    })
}

/// The middle one of some numbers.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
