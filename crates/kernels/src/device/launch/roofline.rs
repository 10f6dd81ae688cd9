//! Estimated times of launches.

use super::{ProductLaunch, ProductSizes};

/// Multiprocessors of the device that the numbers are of.
const MULTIPROCESSORS: f64 = 132.0;

/// The limits of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roofline {
    /// Number of multiprocessors.
    pub multiprocessors: f64,
    /// Bytes per second of the memory.
    pub memory: f64,
    /// Bytes per second of the L2 cache.
    pub cache: f64,
    /// Bytes per second between the L2 cache and one multiprocessor.
    pub port: f64,
    /// Bytes per second of the shared memory of one multiprocessor.
    pub shared: f64,
    /// Multiplications and additions per second in bf16, of the best products.
    pub peak: f64,
    /// Multiplications and additions per second of attention.
    pub tensor: f64,
    /// Seconds from a request to memory to its answer.
    pub latency: f64,
    /// Seconds until the last block of a divided tile knows that it is the last one.
    pub gather: f64,
}

/// The parts of a launch's time, in seconds. Those up to `work` overlap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Reads of the weights from memory.
    pub memory: f64,
    /// Traffic of the L2 cache.
    pub cache: f64,
    /// Tensor cores of the multiprocessor with the most work.
    pub tensor: f64,
    /// Shared memory of that multiprocessor.
    pub shared: f64,
    /// The first reads of the blocks.
    pub start: f64,
    /// The addition of the partial sums of the last tile.
    pub end: f64,
}

impl Estimate {
    /// The time of the launch.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        let work = self
            .memory
            .max(self.cache)
            .max(self.tensor)
            .max(self.shared);
        work + self.start + self.end
    }
}

impl Roofline {
    /// An H200. Memory and tensor cores were measured; the cache, the latency and the time of a division
    /// are those with which the choice of launches is nearly the fastest of those measured
    /// (`tests/lab/records/h200/launches.json`).
    pub const H200: Self = Self::of(132);

    /// A device with the rates of an H200 per multiprocessor.
    #[must_use]
    pub const fn of(multiprocessors: usize) -> Self {
        let multiprocessors = multiprocessors as f64;
        let share = multiprocessors / MULTIPROCESSORS;
        let clock = 1.755e9;
        Self {
            multiprocessors,
            memory: 4.2e12 * share,
            cache: 8e12 * share,
            port: 64.0 * clock,
            shared: 128.0 * clock,
            peak: 790e12 * share,
            tensor: 270e12 * share,
            latency: 2e-6,
            gather: 4e-6,
        }
    }

    /// The least time of a product by any kernel: every weight is read once, or the multiplications
    /// at the peak.
    #[must_use]
    pub fn floor(&self, ProductSizes { rows, n, k, format }: ProductSizes) -> f64 {
        let weights = n as f64 * k as f64;
        let memory = weights * format.bytes() as f64 / self.memory;
        memory.max(2.0 * weights * rows as f64 / self.peak)
    }

    /// The time of a launch.
    #[must_use]
    pub fn estimate(&self, launch: &ProductLaunch) -> Estimate {
        let ProductSizes { n, k, format, .. } = launch.sizes;
        let (tile, blocks) = (launch.tile, launch.blocks() as f64);
        let busy = blocks.min(self.multiprocessors);
        let tiles = self.longest(launch);
        let flight = blocks.min(self.multiprocessors * tile.resident as f64)
            * (tile.ahead() * tile.stage()) as f64;
        let filled = (flight / (self.memory * self.latency)).min(1.0);
        let weights = (n * k * format.bytes()) as f64;
        let cache = launch.cache_bytes() as f64;
        let area = (tile.rows * tile.columns) as f64;
        let tensor = tile.rate / MULTIPROCESSORS;
        let sums = (launch.slots() * tile.rows * tile.columns * 4) as f64;
        Estimate {
            memory: weights / (self.memory * filled),
            cache: (cache / self.cache).max(cache / (busy * self.port)),
            tensor: tiles * area * 2.0 * k as f64 / tensor,
            shared: tiles * shared_bytes(launch) / self.shared,
            start: self.latency,
            end: match launch.divided() {
                0 => 0.0,
                _ => sums / self.port + self.gather,
            },
        }
    }

    /// Tiles of the multiprocessor with the most work: rounds of whole tiles, then rounds of pieces.
    fn longest(&self, launch: &ProductLaunch) -> f64 {
        let rounds = |blocks: usize| (blocks as f64 / self.multiprocessors).ceil();
        let pieces = rounds(launch.divided() * launch.pieces());
        let piece = launch.lead as f64 / launch.segments() as f64;
        rounds(launch.whole.min(launch.tiles())) + pieces * piece
    }
}

/// Bytes that a tile writes to shared memory and reads from it.
fn shared_bytes(launch: &ProductLaunch) -> f64 {
    let (tile, k) = (launch.tile, launch.sizes.k);
    let weight = tile.format.bytes();
    let input = tile.format.inputs().bytes();
    let written = tile.rows * input + tile.columns * weight;
    let sums = match tile.held {
        true => (launch.segments() - 1) * 2 * tile.rows * tile.columns * 4,
        false => 0,
    };
    ((tile.read() + written) * k + sums) as f64
}
