//! Estimated times of launches of products.

use super::{DeviceLimits, Division, MatrixFormat, ProductLaunch, ProductSizes, ProductTile};

/// Multiprocessors of an H200, the device that the numbers are of.
const MULTIPROCESSORS: f64 = DeviceLimits::H200.multiprocessors as f64;

/// Rows and columns of the matrices of a layer of LLaDA-8B.
const LAYER: [[usize; 2]; 4] = [[12_288, 4_096], [4_096, 4_096], [24_576, 4_096], [4_096, 12_288]];

/// Instructions of eight warps that a multiprocessor issues in a cycle; assumed.
const HEADS_ISSUED: f64 = 2.0;

/// Instructions of a warp that rotates and writes a head of a width, counted in the PTX.
const fn head_instructions(width: usize) -> f64 {
    60.0 + width.div_ceil(32) as f64 * 20.0
}

/// Instructions of warps that rotate and write the heads of a row of a tile; a head has `width` columns.
pub fn row_instructions(tile: &ProductTile, width: usize) -> f64 {
    // Counted in the machine code, where all sizes are known: of a row, and of a head or a part of one.
    const ROW: f64 = 24.0;
    const PART: f64 = 68.0;
    match (tile.cuts_heads(), tile.columns / width.max(1)) {
        (true, _) => ROW + 2.0 * PART,
        (false, heads) if tile.cluster > 0 && width == 128 => ROW + heads as f64 * PART,
        (false, heads) => heads as f64 * head_instructions(width),
    }
}

/// The reads and writes of the blocks of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionWork {
    /// Number of blocks.
    pub blocks: usize,
    /// Chunks of slots of a block, which it reads one after the other.
    pub chunks: usize,
    /// Bytes of a chunk's keys and values.
    pub chunk_bytes: usize,
    /// Parts of a context.
    pub parts: usize,
    /// Bytes of the results of parts.
    pub partial_bytes: usize,
}

/// The rates of a device.
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
    /// Seconds from a request to memory to its answer.
    pub latency: f64,
    /// Seconds until the last block of a divided tile knows that it is the last one.
    pub gather: f64,
}

impl Roofline {
    /// A device with the memory of these limits and otherwise the rates of an H200 per multiprocessor. The
    /// cache, the latency and the time of a division are those with which the choice of launches is nearly
    /// the fastest of those measured (`tests/lab/records/h200/launches.json`).
    pub const fn of(limits: DeviceLimits) -> Self {
        let multiprocessors = limits.multiprocessors as f64;
        let clock = 1.755e9;
        Self {
            multiprocessors,
            memory: limits.memory_rate as f64 * 1e9,
            cache: 8e12 * multiprocessors / MULTIPROCESSORS,
            port: 64.0 * clock,
            shared: 128.0 * clock,
            latency: 2e-6,
            gather: 4e-6,
        }
    }

    /// The estimated seconds of a launch: the longest of reading the weights from memory, the traffic of
    /// the L2 cache, and tensor cores and shared memory of the multiprocessor with the most work; then
    /// the first reads, and the addition of the last tile's partial sums.
    pub fn seconds(&self, launch: &ProductLaunch) -> f64 {
        let (sizes, tile, blocks) = (launch.sizes, launch.tile, launch.blocks() as f64);
        let busy = blocks.min(self.multiprocessors);
        let tiles = self.longest(launch);
        let flight = blocks.min(self.multiprocessors * tile.resident as f64)
            * (tile.ahead() * tile.stage()) as f64;
        let filled = (flight / (self.memory * self.latency)).min(1.0);
        let weights = sizes.format.bytes(sizes.n * sizes.k) as f64;
        let cache = launch.cache_bytes() as f64;
        let area = (tile.rows * tile.columns) as f64;
        let sums = (launch.slots() * tile.rows * tile.columns * 4) as f64;
        let work = [
            weights / (self.memory * filled),
            (cache / self.cache).max(cache / (busy * self.port)),
            tiles * area * 2.0 * sizes.k as f64 / (tile.rate / MULTIPROCESSORS),
            tiles * shared_bytes(launch) / self.shared,
        ];
        let end = match launch.divided() {
            0 => 0.0,
            _ => sums / self.port + self.gather,
        };
        work.into_iter().fold(0.0, f64::max) + self.latency + end
    }

    /// The estimated seconds of the split of a product's results, with the numbers that are nearest to the
    /// times of norms and splits in `tests/lab/records/h200/steps.json`: f32 sums are read, bf16 heads written.
    pub fn split_seconds(&self, sizes: ProductSizes) -> f64 {
        3.1e-6 + (6 * sizes.rows * sizes.n) as f64 / (0.8 * self.memory)
    }

    /// The estimated seconds in which the blocks of a launch norm, rotate and write heads of a width: a warp
    /// has a head at a time.
    pub fn heads_seconds(&self, launch: &ProductLaunch, width: usize) -> f64 {
        let tile = launch.tile;
        let rows = tile.rows.min(launch.sizes.rows) as f64;
        let instructions = rows * row_instructions(tile, width);
        self.longest(launch).ceil() * instructions / (HEADS_ISSUED * self.shared / 128.0)
    }

    /// The estimated seconds of attention, with the numbers that are nearest to its times in the same file:
    /// keys and values at a part of the memory's rate, or the chunks of a block one after the other. Then, as
    /// assumed, parts go through the L2 cache, and the last block of a tile reads them in turn.
    pub fn attention_seconds(&self, work: &AttentionWork) -> f64 {
        let read = (work.blocks * work.chunks * work.chunk_bytes) as f64;
        let longest = (read / (0.78 * self.memory)).max(work.chunks as f64 * 1.7e-6);
        let combination = match work.parts {
            0 | 1 => 0.0,
            parts => parts as f64 * 0.7e-6 + 2.0 * work.partial_bytes as f64 / self.cache,
        };
        8.6e-6 + longest + combination
    }

    /// Rows of a step beyond which more rows take hardly less time each: the fewest, a power of two from 64
    /// to 2,048, whose time per row in the products of an 8B model is at most 1.05 times the shortest.
    pub fn enough_rows(&self, limits: DeviceLimits, format: MatrixFormat) -> u32 {
        let product = |rows: u32, [n, k]: [usize; 2]| {
            let sizes = ProductSizes { rows: rows as usize, n, k, format };
            self.seconds(&ProductLaunch::choose(sizes, limits, Division::Divided))
        };
        let time = |rows: u32| {
            LAYER.map(|shape| product(rows, shape)).iter().sum::<f64>() / f64::from(rows)
        };
        let candidates = (6..=11).map(|exponent| 1u32 << exponent);
        let shortest = candidates.clone().map(time).fold(f64::INFINITY, f64::min);
        let mut enough = candidates.filter(|rows| time(*rows) <= 1.05 * shortest);
        enough.next().unwrap_or(2_048)
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
    let input = tile.format.inputs().bytes();
    let written = tile.rows * input + tile.columns * tile.format.bits() / 8;
    let sums = match tile.held {
        true => (launch.segments() - 1) * 2 * tile.rows * tile.columns * 4,
        false => 0,
    };
    ((tile.read() + written) * k + sums) as f64
}
