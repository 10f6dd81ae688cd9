//! Attention of heads wider than 128 on tensor cores: four warps share sixteen queries, and chunks before
//! the window of all of them are skipped.

use super::super::{Launch, LaunchCost, PASS, Words};
use super::{Blocks, Tile};
use crate::layout::{WIDE_CHUNK, WIDE_QUERIES};
use kernels::device::args;
use std::ops::Range;

/// Warps of a block.
const WARPS: u64 = 4;

/// The slots of a part that the rows' queries are multiplied with.
fn slots(tile: &Tile, rows: Range<u64>, part: u64) -> Range<u64> {
    let all = tile.slots(part);
    let starts = rows.map(|row| {
        let [begin, end, ..] = tile.visible[row as usize];
        u64::from(begin.min(end))
    });
    let least = starts.min().unwrap_or(all.end).min(all.end);
    let chunk = u64::from(WIDE_CHUNK);
    let skipped = least.saturating_sub(all.start) / chunk * chunk;
    all.start + skipped..all.end
}

/// Adds what blocks compute for their queries and chunks of slots.
fn compute(cost: &mut LaunchCost, [blocks, chunks]: [u64; 2], width: u64) {
    let (queries, chunk) = (WIDE_QUERIES as u64, u64::from(WIDE_CHUNK));
    let all = (blocks * chunks) as f64;
    let weights = all * (queries * chunk) as f64;
    let tensor = 4.0 * weights * width as f64;
    // Rows of a head that are copied: queries once, keys and values of every chunk.
    let copied = (blocks * queries) as f64 + all * (2 * chunk) as f64;
    // Rows that are loaded: every warp has all queries and its part of the keys and of the values.
    let loaded = all * (WARPS * queries + 2 * chunk) as f64;
    let moved = (copied + loaded) * (width * 2) as f64;
    // Scores are written once and read by every warp.
    let scores = weights * (1 + WARPS) as f64 / 32.0;
    cost.tensor += tensor;
    // Eight rows of scores are in the same banks.
    cost.passes += moved / PASS as f64 + 8.0 * scores;
    // Every warp has all weights, about ten operations each of a lane, and fades its results.
    let lanes = (weights * WARPS as f64 * 10.0 + all * (queries * width) as f64) / 32.0;
    cost.instructions += tensor / 4096.0 + moved / 512.0 + scores + lanes;
}

impl Launch {
    /// Attention in a kernel for heads of up to `width` elements; the blocks of a key head divide the
    /// queries of a tile.
    pub(in super::super) fn attend_wide(
        &self,
        a: &args::Attend,
        width: u32,
        words: Words<'_>,
    ) -> Option<LaunchCost> {
        let (mut all, tiles) = self.attention(a, words)?;
        let [groups, share] =
            [a.heads.num_kv_heads, a.heads.heads / a.heads.num_kv_heads].map(u64::from);
        for tile in &tiles {
            let (queries, mut busy) = (tile.rows * share, 0);
            for base in (0..queries).step_by(WIDE_QUERIES) {
                let own = base..queries.min(base + WIDE_QUERIES as u64);
                let rows = own.start / share..own.end.div_ceil(share);
                for part in 0..tile.parts() {
                    let slots = slots(tile, rows.clone(), part);
                    let chunks = (slots.end - slots.start).div_ceil(WIDE_CHUNK.into());
                    compute(&mut all.cost, [groups, chunks], width.into());
                    let blocks = Blocks {
                        count: groups,
                        part,
                        queries: own.clone(),
                        share,
                        slots,
                        looks: true,
                    };
                    all.blocks(tile, &blocks);
                    busy += groups;
                }
            }
            all.idle(tile, all.grid[1] * all.grid[2] - busy);
        }
        Some(all.end(tiles.iter().map(|tile| tile.rows).sum()))
    }
}
