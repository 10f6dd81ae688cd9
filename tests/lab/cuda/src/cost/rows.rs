//! Embedding, norms, page copies.

use super::{Cost, Launch, LaunchCost, SECTOR, Sum, Words, distinct, sectors, spanned, view};
use kernels::device::args;

/// The kernels of this file.
pub(super) const COSTS: &[(&str, Cost)] = &[
    ("embed", |launch, args, words| launch.embed(&view(args), words)),
    ("norm", |launch, args, _| Some(launch.norm(&view(args)))),
    ("round", |launch, args, _| Some(launch.round(&view(args)))),
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
