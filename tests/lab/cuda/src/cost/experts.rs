//! The router, the choice of experts, the grouping of rows, and the sums of experts. Their products:
//! `products.rs`.

use super::{Cost, Launch, LaunchCost, SECTOR, Seen, Sum, Words, distinct, sectors, view};
use crate::layout::NONE;
use kernels::device::args;

/// Rows and experts of a block of the router; `ROUTED` of the kernels.
const ROUTED: u64 = 8;

/// The kernels of this file.
pub(super) const COSTS: &[(&str, Cost)] = &[
    ("route", |launch, args, _| Some(launch.route(&view(args)))),
    ("choose_experts", |launch, args, words| launch.choose(&view(args), words)),
    ("count_experts", |launch, args, _| Some(launch.count(&view(args)))),
    ("group_rows", |launch, args, words| launch.group(&view(args), words)),
    ("gather", |launch, args, words| launch.gather(&view(args), words)),
    ("mix_experts", |launch, args, words| launch.mix(&view(args), words)),
];

impl Launch {
    pub(super) fn route(&self, a: &args::Route) -> LaunchCost {
        let [tall, across] = [self.grid[0], self.grid[1]].map(u64::from);
        let [rows, experts, k] = [a.rows, a.experts, a.k].map(u64::from);
        let read = Sum::default().add(k * self.wide, rows * across, rows).add(
            k * 4,
            experts * tall,
            experts,
        );
        let mut written = Seen::default();
        for first in (0..rows).step_by(ROUTED as usize) {
            for expert in (0..experts).step_by(ROUTED as usize) {
                for row in first..rows.min(first + ROUTED) {
                    let some = ROUTED.min(experts - expert);
                    written.touch(a.logits + (row * experts + expert) * 4, some * 4);
                }
                written.end();
            }
        }
        LaunchCost {
            read: read.0,
            written: Sum::default().seen(&written).0,
            operations: 2.0 * (rows * experts * k) as f64,
            // A load for every product.
            instructions: (rows * experts * k) as f64 / 32.0 * 2.0,
            ..LaunchCost::default()
        }
    }

    pub(super) fn choose(&self, a: &args::Choose, words: Words<'_>) -> Option<LaunchCost> {
        let rows = u64::from(self.grid[0]);
        let [count, chosen] = [a.count, a.chosen].map(u64::from);
        let slots = words(a.slots, rows as usize)?;
        let experts = words(a.experts, (rows * chosen) as usize)?;
        let (mut read, mut written) = (Seen::default(), Seen::default());
        let lists = slots.iter().zip(experts.chunks(a.chosen as usize));
        for (row, (slot, experts)) in (0..).zip(lists) {
            read.touch(a.slots + row * 4, 4);
            written.touch(a.experts + row * chosen * 4, chosen * 4);
            if *slot != NONE {
                written.touch(a.weights + row * chosen * 4, chosen * 4);
                read.touch(a.logits + row * count * 4, count * 4);
                if a.bias != 0 {
                    read.touch(a.bias, count * 4);
                }
                for expert in experts.iter().filter(|expert| a.scales != 0 && **expert != NONE) {
                    read.touch(a.scales + u64::from(*expert) * 4, 4);
                }
            }
            read.end();
            written.end();
        }
        // Every choice of an expert reads all scores in shared memory, and finds the best of a warp.
        let rounds = (count.div_ceil(32) * 6 + 40) * chosen + count.div_ceil(32) * 30;
        Some(LaunchCost {
            read: Sum::default().seen(&read).0,
            written: Sum::default().seen(&written).0,
            instructions: (rows * rounds) as f64,
            ..LaunchCost::default()
        })
    }

    pub(super) fn count(&self, a: &args::Group) -> LaunchCost {
        let [count, pairs] = [a.count, a.pairs].map(u64::from);
        LaunchCost {
            read: Sum::default().add(pairs * 4, count, 1).0,
            written: Sum::default().add(SECTOR, count, sectors(count * 4)).0,
            ..LaunchCost::default()
        }
    }

    pub(super) fn group(&self, a: &args::Group, words: Words<'_>) -> Option<LaunchCost> {
        let experts = words(a.experts, a.pairs as usize)?;
        let [count, pairs, tile] = [a.count, a.pairs, a.tile].map(u64::from);
        let (mut read, mut written) = (Seen::default(), Seen::default());
        let (mut place, mut first) = (0, 0);
        // Tiles have three words.
        let tiles = |start: u64, end: u64| (a.tiles + start * 12, (end - start) * 12);
        for expert in 0..a.count {
            read.touch(a.counts, (u64::from(expert) + 1) * 4);
            read.touch(a.experts, pairs * 4);
            let own = (0..).zip(&experts).filter(|(_, chosen)| **chosen == expert);
            let own: Vec<u64> = own.map(|(pair, _)| pair).collect();
            let rows = own.len() as u64;
            for pair in own {
                written.touch(a.places + pair * 4, 4);
            }
            let last = expert + 1 == a.count;
            let end = if last { pairs } else { place + rows };
            written.touch(a.pairs_at + place * 4, (end - place) * 4);
            let next = first + rows.div_ceil(tile);
            let (address, bytes) = tiles(first, if last { a.tile_count.into() } else { next });
            written.touch(address, bytes);
            (place, first) = (place + rows, next);
            read.end();
            written.end();
        }
        Some(LaunchCost {
            read: Sum::default().seen(&read).0,
            written: Sum::default().seen(&written).0,
            // About twenty for 32 pairs.
            instructions: (count * pairs.div_ceil(32) * 20) as f64,
            ..LaunchCost::default()
        })
    }

    pub(super) fn gather(&self, a: &args::Gather, words: Words<'_>) -> Option<LaunchCost> {
        let pairs = u64::from(self.grid[0]);
        let mut rows = words(a.pairs_at, pairs as usize)?;
        rows.retain(|pair| *pair != NONE);
        let (some, row) = (rows.len() as u64, u64::from(a.k) * self.wide);
        let different = distinct(rows.iter().map(|pair| pair / a.chosen).collect());
        let mut read =
            Sum::default().add(row, some, different).add(SECTOR, pairs, sectors(pairs * 4));
        let mut written = Sum::default().add(row, some, some);
        if a.row_scales != 0 {
            let factors = distinct(rows.iter().map(|pair| pair / a.chosen / 8).collect());
            read = read.add(SECTOR, some, factors);
            written = written.add(SECTOR, some, sectors(some * 4));
        }
        Some(LaunchCost { read: read.0, written: written.0, ..LaunchCost::default() })
    }

    pub(super) fn mix(&self, a: &args::Mix, words: Words<'_>) -> Option<LaunchCost> {
        let [rows, chosen, d] = [self.grid[0], a.chosen, a.d].map(u64::from);
        let experts = words(a.experts, (rows * chosen) as usize)?;
        let mut lists = Seen::default();
        for (pair, expert) in (0..).zip(&experts) {
            lists.touch(a.experts + pair * 4, 4);
            if *expert != NONE {
                lists.touch(a.places + pair * 4, 4);
                lists.touch(a.weights + pair * 4, 4);
            }
            if (pair + 1) % chosen == 0 {
                lists.end();
            }
        }
        let some = experts.iter().filter(|expert| **expert != NONE).count() as u64;
        let read = Sum::default().seen(&lists);
        Some(LaunchCost {
            read: read.add(d * 4, some + rows, some + rows).0,
            written: Sum::default().add(d * 4, rows, rows).0,
            ..LaunchCost::default()
        })
    }
}
