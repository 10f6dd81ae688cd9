//! Operations for canvas models: norms of sums and of denoised rows, factors, mean embeddings.

use super::{Cost, Launch, LaunchCost, Seen, Sum, Words, distinct, sectors, spanned, view};
use crate::layout::{CONDITIONED, DENOISED, NONE, SCORER_WORDS};
use kernels::device::args;

/// The kernels of this file.
pub(super) const COSTS: &[(&str, Cost)] = &[
    ("norm_add", |launch, args, _| Some(launch.norm_add(&view(args)))),
    ("norm_denoised", |launch, args, words| launch.norm_denoised(&view(args), words)),
    ("scale_rows", |launch, args, words| launch.scale(&view(args), words)),
    ("clear_rows", |launch, args, _| Some(launch.clear(&view(args)))),
    ("read_means", |launch, args, words| launch.read_means(&view(args), words)),
    ("keep_means", |launch, args, words| launch.keep_means(&view(args), words)),
    ("softmax", |launch, args, words| launch.softmax(&view(args), words)),
];

/// Word of a scored row's settings that names its set of allowed tokens; `Scored` of the kernels.
pub(super) const ALLOWED: u64 = 4;

impl Launch {
    /// Rows of `d` numbers of f32.
    fn f32_rows(&self, d: u32) -> [u64; 2] {
        [u64::from(self.grid[0]), u64::from(d) * 4]
    }

    /// The kinds of all rows, and the number of those with a bit.
    fn kinds(&self, address: u64, bit: u32, words: Words<'_>) -> Option<(Seen, Vec<bool>)> {
        let kinds = words(address, self.grid[0] as usize)?;
        let mut lists = Seen::default();
        for row in 0..kinds.len() as u64 {
            lists.touch(address + row * 4, 4);
            lists.end();
        }
        Some((lists, kinds.iter().map(|kind| kind & bit != 0).collect()))
    }

    pub(super) fn norm_add(&self, a: &args::Rowwise) -> LaunchCost {
        let [rows, bytes] = self.f32_rows(a.d);
        let read = Sum::default().add(bytes, 2 * rows, 2 * rows).add(bytes, rows, 1);
        LaunchCost {
            read: read.0,
            written: Sum::default().add(bytes, rows, rows).0,
            ..LaunchCost::default()
        }
    }

    pub(super) fn norm_denoised(&self, a: &args::Rowwise, words: Words<'_>) -> Option<LaunchCost> {
        let [_, bytes] = self.f32_rows(a.d);
        let (lists, denoised) = self.kinds(a.kinds, DENOISED, words)?;
        let rows = denoised.iter().filter(|row| **row).count() as u64;
        let read = Sum::default().seen(&lists).add(bytes, rows, rows).add(bytes, rows, rows.min(1));
        Some(LaunchCost {
            read: read.0,
            written: Sum::default().add(bytes, rows, rows).0,
            ..LaunchCost::default()
        })
    }

    pub(super) fn scale(&self, a: &args::Rowwise, words: Words<'_>) -> Option<LaunchCost> {
        let [rows, bytes] = self.f32_rows(a.d);
        let (lists, _) = self.kinds(a.kinds, DENOISED, words)?;
        Some(LaunchCost {
            read: Sum::default().seen(&lists).add(bytes, rows, rows).0,
            written: Sum::default().add(bytes, rows, rows).0,
            ..LaunchCost::default()
        })
    }

    pub(super) fn clear(&self, a: &args::Rowwise) -> LaunchCost {
        let [rows, bytes] = self.f32_rows(a.d);
        LaunchCost { written: Sum::default().add(bytes, rows, rows).0, ..LaunchCost::default() }
    }

    pub(super) fn read_means(&self, a: &args::Means, words: Words<'_>) -> Option<LaunchCost> {
        let [rows, bytes] = self.f32_rows(a.d);
        let (mut lists, has) = self.kinds(a.kinds, CONDITIONED, words)?;
        let slots = words(a.slots, rows as usize)?;
        let mut kept = Vec::new();
        for (row, slot) in (0..).zip(slots).filter(|(row, _)| has[*row as usize]) {
            lists.touch(a.slots + row * 4, 4);
            lists.end();
            kept.push(slot);
        }
        let (some, different) = (kept.len() as u64, distinct(kept));
        let read = Sum::default().seen(&lists).add(bytes, some, different);
        Some(LaunchCost {
            read: read.0,
            written: Sum::default().add(bytes, rows, rows).0,
            fresh: sectors(bytes) * different,
            ..LaunchCost::default()
        })
    }

    pub(super) fn keep_means(&self, a: &args::Means, words: Words<'_>) -> Option<LaunchCost> {
        let [rows, bytes] = self.f32_rows(a.d);
        let record = SCORER_WORDS as u64 * 4;
        let (mut lists, mut kept) = (Seen::default(), Vec::new());
        for number in 0..rows {
            // The input token comes first.
            let input = a.rows + number * record;
            lists.touch(input, 4);
            if *words(input, 1)?.first()? != NONE {
                let scored = a.scored + number * 4;
                lists.touch(scored, 4);
                let slot = a.slots + u64::from(*words(scored, 1)?.first()?) * 4;
                lists.touch(slot, 4);
                kept.push(*words(slot, 1)?.first()?);
            }
            lists.end();
        }
        let (some, different) = (kept.len() as u64, distinct(kept));
        Some(LaunchCost {
            read: Sum::default().seen(&lists).add(bytes, some, some).0,
            written: Sum::default().add(bytes, some, different).0,
            ..LaunchCost::default()
        })
    }

    pub(super) fn softmax(&self, a: &args::Softmax, words: Words<'_>) -> Option<LaunchCost> {
        let [rows, bytes] = self.f32_rows(a.vocab);
        let (out, stride) = (u64::from(a.vocab) * self.wide, u64::from(a.stride));
        let own = |address: u64, stride: u64, bytes: u64| -> u64 {
            (0..rows).map(|row| spanned(address + row * stride, bytes, 1)).sum()
        };
        // The sets of allowed tokens.
        let mut sets = Seen::default();
        for row in 0..rows {
            let allowed = a.rows + (row * SCORER_WORDS as u64 + ALLOWED) * 4;
            sets.touch(allowed, 4);
            let first = *words(allowed, 1)?.first()?;
            if first != NONE {
                sets.touch(a.words + u64::from(first) * 4, u64::from(a.vocab.div_ceil(32)) * 4);
            }
            sets.end();
        }
        let mut read = Sum::default();
        read.0.by_blocks = own(a.logits, bytes, bytes);
        read.0.distinct = sectors(rows * bytes);
        let read = read.seen(&sets);
        let mut written = Sum::default();
        written.0.by_blocks = own(a.out, stride * self.wide, out);
        written.0.distinct = written.0.by_blocks;
        Some(LaunchCost {
            read: read.0,
            written: written.0,
            // Three passes over the logits, two of them with an exponential.
            instructions: (rows * u64::from(a.vocab)) as f64 / 32.0 * 30.0,
            ..LaunchCost::default()
        })
    }
}
