//! The split of queries, keys and values, alone or after their product.

use super::{Cost, Launch, LaunchCost, SECTOR, Seen, Sum, Words, distinct, view};
use crate::layout::NONE;
use kernels::device::args;
use std::ops::Range;

/// Slots whose scales are a sector.
const SCALES: u32 = SECTOR as u32 / 4;

/// The kernels of this file.
pub(super) const COSTS: &[(&str, Cost)] =
    &[("split", |launch, args, words| launch.split(&view(args), words))];

/// The work of blocks that split: rows, and the heads of each block of these rows.
pub(super) struct HeadBlocks {
    pub(super) rows: usize,
    pub(super) heads: Vec<Range<u32>>,
}

impl HeadBlocks {
    /// Blocks of `rows` rows and `across` of `count` heads each.
    pub(super) fn new(rows: usize, across: u32, count: u32) -> Self {
        let firsts = (0..count).step_by(across.max(1) as usize);
        let heads = firsts.map(|first| first..(first + across).min(count)).collect();
        Self { rows, heads }
    }
}

/// The traffic of the split of a step's heads.
pub(super) struct SplitWork {
    pub(super) read: Sum,
    pub(super) written: Sum,
}

impl Launch {
    fn split(&self, a: &args::Split, words: Words<'_>) -> Option<LaunchCost> {
        let rows = self.grid[0];
        let args::Heads { heads, num_kv_heads, c, .. } = a.heads.heads;
        let blocks = HeadBlocks::new(1, 4, heads + 2 * num_kv_heads);
        let SplitWork { read, written } =
            self.split_heads(&a.heads, [rows, self.wide as u32], &blocks, words)?;
        let slots = words(a.heads.slots, rows as usize)?;
        let kept = slots.iter().filter(|slot| **slot != NONE).count() as u64;
        let all = u64::from(rows * heads) + kept * u64::from(2 * num_kv_heads);
        let read = read.add(u64::from(c) * 4, all, all);
        Some(LaunchCost { read: read.0, written: written.0, ..LaunchCost::default() })
    }

    /// The split of `rows` rows, without the numbers that are split; of queries in `wide` bytes.
    pub(super) fn split_heads(
        &self,
        a: &args::HeadSplit,
        [rows, wide]: [u32; 2],
        HeadBlocks { rows: tall, heads: all }: &HeadBlocks,
        words: Words<'_>,
    ) -> Option<SplitWork> {
        let positions = words(a.positions, rows as usize)?;
        let slots = words(a.slots, rows as usize)?;
        let args::Heads { heads, num_kv_heads: groups, c, .. } = a.heads;
        // Blocks with queries, with keys and no queries, and with values alone.
        let before = |end: u32| all.iter().filter(|heads| heads.start < end).count() as u64;
        let asking = before(heads);
        let turning = before(heads + groups) - asking;
        let others = all.len() as u64 - turning - asking;
        let (mut seen, mut scales) = (Seen::default(), Seen::default());
        let angles = u64::from(a.half) * 8;
        let placed_at = |seen: &mut Seen, row: usize| {
            seen.touch(a.positions + row as u64 * 4, 4);
            seen.touch(a.slots + row as u64 * 4, 4);
        };
        let turn = |seen: &mut Seen, row: usize| {
            placed_at(seen, row);
            seen.touch(a.angles + u64::from(positions[row]) * angles, angles);
        };
        let mut normed = (0, 0);
        for first in (0..rows as usize).step_by(*tall) {
            let range = first..(first + tall).min(rows as usize);
            let placed = || range.clone().filter(|row| slots[*row] != NONE);
            range.clone().for_each(|row| turn(&mut seen, row));
            seen.end_all(asking);
            range.clone().for_each(|row| placed_at(&mut seen, row));
            placed().for_each(|row| turn(&mut seen, row));
            seen.end_all(turning);
            range.clone().for_each(|row| placed_at(&mut seen, row));
            seen.end_all(others);
            let list: Vec<u32> = placed().map(|row| slots[row] / SCALES).collect();
            scales.by_blocks += distinct(list) * u64::from(2 * groups);
            let own = a.normed.min(if placed().next().is_some() { u32::MAX } else { heads });
            normed = (normed.0 + u64::from(own), a.normed.into());
        }
        let read = Sum::default().seen(&seen).add(u64::from(c) * 4, normed.0, normed.1);
        let kept = slots.iter().filter(|slot| **slot != NONE);
        let (count, queries) = (kept.clone().count() as u64, u64::from(rows * heads));
        let (count, c) = (count * u64::from(2 * groups), u64::from(c));
        let held = if a.in_bytes == 1 { 1 } else { u64::from(wide) };
        let mut written =
            Sum::default().add(c * u64::from(wide), queries, queries).add(c * held, count, count);
        if a.in_bytes == 1 {
            let all = distinct(kept.map(|slot| slot / SCALES).collect());
            written.put(SECTOR, scales.by_blocks, all * u64::from(2 * groups));
        }
        Some(SplitWork { read, written })
    }
}
