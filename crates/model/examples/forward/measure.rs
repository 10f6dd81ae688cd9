//! Batches and the time of forward passes over them.

use asynclane_model::ModelExecutor;
use std::time::{Duration, Instant};
use step::{Batch, BatchOutput, Executor, PageId, Position, Row, Sampling, Score, Segment, Slot};

/// Slots of a page.
pub const PAGE: u32 = 16;
/// Minimum forward passes of a measurement, and the time after which it ends. Results are medians.
const LEAST: (usize, Duration) = (5, Duration::from_secs(2));
/// The same where passes are so long that this time is over before: of thousands of rows.
const LONG: (usize, Duration) = (2, Duration::from_secs(20));
/// Bytes of a measurement of the bandwidth, more than processors cache.
const READ: usize = 256 << 20;
/// Maximum forward passes of a measurement.
const MOST: usize = 101;

/// A batch of sequences of `context` positions; each contributes its last `rows` rows, all scored.
pub fn batch(sequences: u32, rows: u32, context: u32) -> Batch {
    let table = context.div_ceil(PAGE);
    let mut batch = Batch::default();
    for sequence in 0..sequences {
        batch.rows.extend((context - rows..context).map(|i| Row {
            score: Score::Candidate,
            ..Row::new(
                6 + (i * 7 + sequence) % 900,
                Position::new(i),
                Slot::new(i),
                Slot::new(context),
            )
        }));
        batch.pages.extend((sequence * table..(sequence + 1) * table).map(PageId));
        batch.segments.push(Segment {
            rows: sequence * rows..(sequence + 1) * rows,
            pages: sequence * table..(sequence + 1) * table,
            sampling: Sampling::GREEDY,
        });
    }
    batch
}

/// Medians over forward passes.
pub struct Measured {
    /// Milliseconds of a pass.
    pub time: f64,
    /// Billions of operations of matrix products per second of the pass.
    pub rate: f64,
}

fn pass(executor: &mut ModelExecutor, batch: &Batch) {
    let done = executor.execute(batch, &mut BatchOutput::default());
    done.expect("a valid batch");
}

/// True if a measurement goes on after `passes` passes in `time`.
fn wants_more(passes: usize, time: Duration) -> bool {
    match passes {
        _ if passes < LONG.0 => true,
        _ if passes < LEAST.0 => time < LONG.1,
        _ => time < LEAST.1 && passes < MOST,
    }
}

/// Measures passes; `operations` is the count for one row.
pub fn measure(executor: &mut ModelExecutor, batch: &Batch, operations: f64) -> Measured {
    let begin = Instant::now();
    for _ in 0..3 {
        pass(executor, batch);
        if begin.elapsed() >= LEAST.1 {
            break;
        }
    }
    let operations = 1e-9 * operations * batch.rows.len() as f64;
    let mut times = Vec::new();
    let begin = Instant::now();
    while wants_more(times.len(), begin.elapsed()) {
        let start = Instant::now();
        pass(executor, batch);
        times.push(start.elapsed().as_secs_f64());
    }
    let time = median(times);
    Measured { time: 1e3 * time, rate: operations / time }
}

/// Bytes per second that `threads` read together, each a part of [`READ`] bytes.
pub fn bandwidth(threads: usize) -> f64 {
    let data = vec![1u64; READ / size_of::<u64>()];
    let read = |part: &[u64]| {
        let start = Instant::now();
        std::hint::black_box(part.iter().fold(0u64, |sum, word| sum.wrapping_add(*word)));
        size_of_val(part) as f64 / start.elapsed().as_secs_f64()
    };
    std::thread::scope(|scope| {
        let parts = data.chunks(data.len().div_ceil(threads));
        let readers: Vec<_> = parts.map(|part| scope.spawn(move || read(part))).collect();
        let rates = readers.into_iter().filter_map(|reader| reader.join().ok());
        rates.sum()
    })
}

/// User and system processor time of this process in seconds; `None` if the system does not report
/// it.
fn processor_time() -> Option<(f64, f64)> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The 12th and 13th fields after the name in brackets, in ticks of 1/100 s.
    let mut numbers = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut seconds = || Some(numbers.next()?.parse::<f64>().ok()? / 100.0);
    Some((seconds()?, seconds()?))
}

/// The use of the threads by consecutive passes.
pub struct Occupancy {
    /// Average number of busy threads.
    pub threads: f64,
    /// Percent of their time spent in the system.
    pub system: f64,
}

/// Runs `batch` repeatedly; `None` if the system does not report processor times.
pub fn occupancy(executor: &mut ModelExecutor, batch: &Batch) -> Option<Occupancy> {
    let (user, system) = processor_time()?;
    let start = Instant::now();
    while start.elapsed() < LEAST.1 {
        pass(executor, batch);
    }
    let wall = start.elapsed().as_secs_f64();
    let now = processor_time()?;
    let (user, system) = (now.0 - user, now.1 - system);
    Some(Occupancy { threads: (user + system) / wall, system: 100.0 * system / (user + system) })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
