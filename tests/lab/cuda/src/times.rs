//! Estimated times of launches, from what they move and compute.

use crate::{LaunchCost, SECTOR};
use kernels::device::{DeviceLimits, Roofline};

/// Seconds from the end of a kernel to the start of the next; assumed.
pub const GAP: f64 = 2e-6;
/// Seconds from the end of a launch until the next, which waits for it, goes on; and those until its first rows come
/// from the L2 cache. Assumed.
const RELEASE: f64 = 0.5e-6;
const ANSWER: f64 = 0.5e-6;
/// Sectors of an H200's L2 cache.
const CACHE: u64 = (50 << 20) / SECTOR;
/// Bytes of a pass through shared memory, which takes a cycle.
const PASS: f64 = 128.0;
/// Instructions that a multiprocessor issues in a cycle.
const ISSUED: f64 = 4.0;
/// The same of the eight warps of a tile, each of which waits for its own; assumed.
const ISSUED_OF_EIGHT: f64 = 2.0;

/// The rates of a card.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Card {
    /// Memory, caches and multiprocessors.
    pub rates: Roofline,
    /// Multiplications and additions per second in bf16, of the best products. Of 8-bit integers there are
    /// twice as many.
    pub peak: f64,
    /// Multiplications and additions per second of attention.
    pub tensor: f64,
}

impl Card {
    /// An H200. Memory and tensor cores were measured.
    pub const H200: Self =
        Self { rates: Roofline::of(DeviceLimits::H200), peak: 790e12, tensor: 270e12 };
}

impl LaunchCost {
    /// Bytes from and to DRAM: weights, keys and values; activations and sums if they do not fit into
    /// the L2 cache.
    #[must_use]
    pub fn memory_bytes(&self) -> f64 {
        let others = (self.read.distinct + self.written.distinct).saturating_sub(self.fresh);
        let others = if others > CACHE { others } else { 0 };
        ((self.fresh + others) * SECTOR) as f64
    }

    /// Bytes from and to the L2 cache.
    #[must_use]
    pub fn cache_bytes(&self) -> f64 {
        ((self.read.by_blocks + self.written.by_blocks) * SECTOR) as f64
    }

    /// The estimated time in seconds: the longest of the times of DRAM, L2 cache, tensor cores, shared
    /// memory and instructions, those after the products, the first answer of the memory, and [`GAP`]. What multiprocessors do is
    /// limited by the one with the most blocks; requests to memory by the blocks that fit at a time, and
    /// the last ones take as long as the others.
    #[must_use]
    pub fn seconds(&self, card: &Card) -> f64 {
        self.work_seconds(card) + card.rates.latency + GAP
    }

    /// The same of a launch that begins while the one before runs. Its blocks are there when that one ends, so
    /// instead of [`GAP`] it takes what releases them. A product has fetched its first weights too, if blocks of both
    /// fit onto a multiprocessor; otherwise blocks begin as others end, and the memory's first answer is waited for.
    /// Early fetches shorten the work, which is not counted.
    #[must_use]
    pub fn seconds_over(&self, before: Option<&Self>, card: &Card) -> f64 {
        let Some(before) = before else {
            return self.seconds(card);
        };
        let product = ["gemm_", "qkv_", "residual_", "head_"];
        let early = product.iter().any(|start| self.kernel.starts_with(start))
            && ["_groups_", "_ring_", "_pair_"].iter().any(|kind| self.kernel.contains(kind));
        // Blocks of launches without a number are small.
        let small = |one: &Self| one.ahead[1] != 1.0;
        let first = match early && small(self) && small(before) {
            true => ANSWER,
            false => card.rates.latency,
        };
        self.work_seconds(card) + RELEASE + first
    }

    /// The seconds of the work, and of what follows products.
    fn work_seconds(&self, card: &Card) -> f64 {
        let blocks = self.blocks.saturating_sub(self.idle).max(1) as f64;
        let (busy, clock) = (blocks.min(card.rates.multiprocessors), card.rates.shared / PASS);
        let most = (blocks / card.rates.multiprocessors).ceil() / blocks;
        let [ahead, resident] = self.ahead;
        let room = card.rates.multiprocessors * resident;
        let flight = blocks.min(room) * ahead;
        let (filled, rounds) = match flight > 0.0 {
            true => (
                (flight / (card.rates.memory * card.rates.latency)).min(1.0),
                (blocks / room).ceil() * room / blocks.max(room),
            ),
            false => (1.0, 1.0),
        };
        let tensor = match self.rate > 0.0 {
            true => self.rate / Card::H200.rates.multiprocessors,
            false => card.tensor / card.rates.multiprocessors,
        };
        let times = [
            self.memory_bytes() / (card.rates.memory * filled) * rounds,
            self.cache_bytes() / card.rates.cache,
            self.cache_bytes() / (busy * card.rates.port),
            self.tensor * most / tensor,
            self.passes * most / clock,
            self.instructions * most / (ISSUED * clock),
        ];
        let after = self.after * most / (ISSUED_OF_EIGHT * clock);
        times.into_iter().fold(0.0, f64::max) + after
    }
}

/// The estimated seconds of the launches of a step, one after the other or overlapping.
#[must_use]
pub fn step_seconds(launches: &[LaunchCost], overlap: bool, card: &Card) -> f64 {
    let before = std::iter::once(None).chain(launches.iter().map(Some));
    let seconds = |(one, before): (&LaunchCost, Option<&LaunchCost>)| match overlap {
        true => one.seconds_over(before, card),
        false => one.seconds(card),
    };
    launches.iter().zip(before).map(seconds).sum()
}

/// The least time of a step in seconds: weights, keys and values once from DRAM, or the products at the
/// peak.
#[must_use]
pub fn floor(launches: &[LaunchCost], card: &Card) -> f64 {
    let read: u64 = launches.iter().map(|launch| launch.fresh).sum();
    let products = launches.iter().map(|launch| match launch.integers {
        true => launch.operations / (2.0 * card.peak),
        false => launch.operations / card.peak,
    });
    ((read * SECTOR) as f64 / card.rates.memory).max(products.sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Moved;

    /// Each limit in turn is the time of a launch.
    #[test]
    fn the_longest_part_is_the_time() {
        let card = Card::H200;
        let sectors = |count| Moved { by_blocks: count, distinct: count };
        let launch = LaunchCost { blocks: 264, ..LaunchCost::default() };
        let start = card.rates.latency + GAP;
        let near = |cost: &LaunchCost, want: f64| {
            let seconds = cost.seconds(&card) - start;
            assert!((seconds / want - 1.0).abs() < 1e-9, "{seconds}, expected {want}");
        };
        let memory = LaunchCost { read: sectors(1 << 20), fresh: 1 << 20, ..launch.clone() };
        near(&memory, (32 << 20) as f64 / card.rates.memory);
        // Activations beyond the L2 cache come from DRAM too.
        let more = LaunchCost { written: sectors(1 << 21), ..memory.clone() };
        near(&more, (96 << 20) as f64 / card.rates.memory);
        // Half of the bytes that fill the memory's pipe are requested at a time.
        let half = LaunchCost {
            ahead: [card.rates.memory * card.rates.latency / 2.0 / 264.0, 2.0],
            ..memory.clone()
        };
        near(&half, (64 << 20) as f64 / card.rates.memory);
        // 265 of 396 blocks are at work, and 264 fit at a time.
        let idle = LaunchCost { blocks: 396, idle: 131, ahead: [1e6, 2.0], ..memory.clone() };
        near(&idle, 2.0 * 264.0 / 265.0 * (32 << 20) as f64 / card.rates.memory);
        let tensor = LaunchCost { tensor: card.tensor, ..launch.clone() };
        near(&tensor, 1.0);
        // A tile of half that speed.
        let slow = LaunchCost { rate: card.tensor / 2.0, ..tensor.clone() };
        near(&slow, 2.0);
        // 265 blocks take three rounds.
        let odd = LaunchCost { blocks: 265, ..tensor };
        near(&odd, 3.0 * 132.0 / 265.0);
        let passes = LaunchCost { passes: 264.0 * 1.755e9, ..launch };
        near(&passes, 2.0);
    }

    /// Only what is fixed in a launch is hidden, and more of it for products whose blocks fit beside others.
    #[test]
    fn overlapping_launches_hide_what_is_fixed() {
        let card = Card::H200;
        let one = |kernel, resident| LaunchCost {
            kernel,
            blocks: 132,
            fresh: 1 << 20,
            read: Moved { by_blocks: 1 << 20, distinct: 1 << 20 },
            ahead: [1e6, resident],
            ..LaunchCost::default()
        };
        let norm = LaunchCost { kernel: "norm_bf16", ..LaunchCost::default() };
        let all = [norm, one("gemm_bf16_groups_64x64", 2.0), one("gemm_bf16_groups_64x128", 1.0)];
        let hidden = step_seconds(&all, false, &card) - step_seconds(&all, true, &card);
        let (fixed, latency) = (card.rates.latency + GAP, card.rates.latency);
        let want = 2.0 * fixed - (RELEASE + ANSWER) - (RELEASE + latency);
        assert!((hidden / want - 1.0).abs() < 1e-9, "{hidden}, expected {want}");
    }

    #[test]
    fn the_floor_is_one_read_or_the_products() {
        let launch = |fresh, operations| LaunchCost {
            read: Moved { by_blocks: 100 << 20, distinct: 10 << 20 },
            fresh,
            operations,
            ..LaunchCost::default()
        };
        let card = Card::H200;
        // Norms read what is in the cache.
        let all = [launch(1 << 20, 1.0), launch(0, 0.0)];
        assert_eq!(floor(&all, &card), (32 << 20) as f64 / card.rates.memory);
        let all = [launch(1, 1e15)];
        assert_eq!(floor(&all, &card), 1e15 / card.peak);
        let integers = LaunchCost { integers: true, ..launch(1, 1e15) };
        assert_eq!(floor(&[integers], &card), 0.5e15 / card.peak);
    }
}
