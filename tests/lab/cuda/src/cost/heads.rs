//! The split of queries, keys and values, alone or after their product.

use super::{Cost, Launch, LaunchCost, SECTOR, Seen, Sum, Words, distinct, view};
use crate::layout::NONE;
use kernels::device::args;

/// Slots whose scales are a sector.
const SCALES: u32 = SECTOR as u32 / 4;

/// The kernels of this file.
pub(super) const COSTS: &[(&str, Cost)] =
    &[("split", |launch, args, words| launch.split(&view(args), words))];

/// What a block splits: rows, and adjacent heads.
#[derive(Clone, Copy)]
pub(super) struct HeadBlocks {
    pub(super) rows: usize,
    pub(super) across: u32,
}

/// What the split of a step's heads moves.
pub(super) struct SplitWork {
    pub(super) read: Sum,
    pub(super) written: Sum,
}

impl Launch {
    fn split(&self, a: &args::Split, words: Words<'_>) -> Option<LaunchCost> {
        let rows = self.grid[0];
        let blocks = HeadBlocks { rows: 1, across: 4 };
        let SplitWork { read, written } =
            self.split_heads(&a.heads, [rows, self.wide as u32], blocks, words)?;
        let args::Heads { heads, num_kv_heads, c, .. } = a.heads.heads;
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
        HeadBlocks { rows: tall, across }: HeadBlocks,
        words: Words<'_>,
    ) -> Option<SplitWork> {
        let positions = words(a.positions, rows as usize)?;
        let slots = words(a.slots, rows as usize)?;
        let args::Heads { heads, num_kv_heads: groups, c, .. } = a.heads;
        // Blocks with queries, with keys and no queries, and with keys or values.
        let asking = heads.div_ceil(across);
        let turning = (heads + groups).div_ceil(across).saturating_sub(asking);
        let placing = (heads + 2 * groups).div_ceil(across) - heads / across;
        let (mut seen, mut scales) = (Seen::default(), Seen::default());
        let angles = u64::from(a.half) * 8;
        let turn = |seen: &mut Seen, row: usize| {
            seen.touch(a.positions + row as u64 * 4, 4);
            seen.touch(a.angles + u64::from(positions[row]) * angles, angles);
        };
        let mut normed = (0, 0);
        for first in (0..rows as usize).step_by(tall) {
            let range = first..(first + tall).min(rows as usize);
            let placed = || range.clone().filter(|row| slots[*row] != NONE);
            range.clone().for_each(|row| turn(&mut seen, row));
            seen.end_all(asking.into());
            placed().for_each(|row| turn(&mut seen, row));
            seen.end_all(turning.into());
            range.clone().for_each(|row| seen.touch(a.slots + row as u64 * 4, 4));
            seen.end_all(placing.into());
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
