//! Embedding, norms, the split of queries, keys and values, page copies.

use super::{Cost, Launch, LaunchCost, SECTOR, Sum, Words, distinct, sectors, spanned, view};
use crate::layout::NONE;
use kernels::device::args;

/// Slots whose scales are a sector.
const SCALES: u32 = SECTOR as u32 / 4;

/// The kernels of this file.
pub(super) const COSTS: &[(&str, Cost)] = &[
    ("embed", |launch, args, words| launch.embed(&view(args), words)),
    ("norm", |launch, args, _| Some(launch.norm(&view(args)))),
    ("round", |launch, args, _| Some(launch.round(&view(args)))),
    ("split", |launch, args, words| launch.split(&view(args), words)),
    ("copy_pages", |launch, args, _| Some(launch.copies(&view(args)))),
];

impl Launch {
    pub(super) fn embed(&self, a: &args::Embed, words: Words<'_>) -> Option<LaunchCost> {
        let [rows, d] = [self.grid[0], a.d].map(u64::from);
        let tokens = distinct(words(a.tokens, rows as usize)?);
        let read =
            Sum::default().add(d * self.wide, rows, tokens).add(SECTOR, rows, sectors(rows * 4));
        Some(LaunchCost {
            read: read.0,
            written: Sum::default().add(d * 4, rows, rows).0,
            ..LaunchCost::default()
        })
    }

    pub(super) fn norm(&self, a: &args::Norm) -> LaunchCost {
        let [rows, d] = [self.grid[0], a.d].map(u64::from);
        let gathered = u64::from(a.gather != 0);
        let read = Sum::default().add(d * 4, rows, rows).add(d * 4, rows, 1).add(
            SECTOR,
            rows * gathered,
            sectors(rows * 4) * gathered,
        );
        let mut written = Sum::default().add(d * self.wide, rows, rows);
        if a.scales != 0 {
            written = written.add(SECTOR, rows, sectors(rows * 4));
        }
        LaunchCost { read: read.0, written: written.0, ..LaunchCost::default() }
    }

    pub(super) fn round(&self, a: &args::Round) -> LaunchCost {
        let [rows, d] = [self.grid[0], a.d].map(u64::from);
        let written = Sum::default().add(d, rows, rows).add(SECTOR, rows, sectors(rows * 4));
        LaunchCost {
            read: Sum::default().add(d * self.wide, rows, rows).0,
            written: written.0,
            ..LaunchCost::default()
        }
    }

    pub(super) fn split(&self, a: &args::Split, words: Words<'_>) -> Option<LaunchCost> {
        let [rows, blocks] = [self.grid[0], self.grid[1]].map(u64::from);
        let positions = distinct(words(a.positions, rows as usize)?);
        let slots = words(a.slots, rows as usize)?;
        // Padding rows have queries alone.
        let idle = slots.iter().filter(|slot| **slot == NONE).count() as u64;
        let [heads, groups, c, half, normed] =
            [a.heads.heads, a.heads.num_kv_heads, a.heads.c, a.half, a.normed].map(u64::from);
        let sum = |own: u64, of_idle: u64| (rows - idle) * own + idle * of_idle;
        let all = sum(heads + 2 * groups, heads);
        // Blocks of four heads; the last ones may have only values, which are not rotated.
        let turning = sum((heads + groups).div_ceil(4), heads.div_ceil(4));
        // Blocks of queries alone need no slot.
        let placing = rows * (blocks - heads / 4);
        let read = Sum::default()
            .add(c * 4, all, all)
            .add(SECTOR, placing + turning, 2 * sectors(rows * 4))
            .add(2 * half * 4, turning, positions)
            .add(c * 4, sum(normed, normed.min(heads)), normed);
        let (kept, queries) = ((rows - idle) * 2 * groups, rows * heads);
        let mut written =
            Sum::default().add(c * self.wide, queries, queries).add(c * self.held, kept, kept);
        if self.held == 1 {
            let sectors = slots.iter().filter(|slot| **slot != NONE).map(|slot| slot / SCALES);
            written.put(SECTOR, kept, distinct(sectors.collect()) * 2 * groups);
        }
        Some(LaunchCost { read: read.0, written: written.0, ..LaunchCost::default() })
    }

    pub(super) fn copies(&self, a: &args::CopyPages) -> LaunchCost {
        let [count, words, parts] = [a.count, a.words, self.grid[1]].map(u64::from);
        let moved = Sum::default().add(words * 4, count * parts, count * parts);
        // Every block reads the list.
        let blocks = u64::from(self.grid[0]) * parts;
        let list = spanned(a.copies, count * 8, 1);
        let read = Sum(moved.0).add(SECTOR, list * blocks, list);
        LaunchCost { read: read.0, written: moved.0, ..LaunchCost::default() }
    }
}
