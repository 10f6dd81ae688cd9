//! Most probable tokens and filters. Rows have finite logits, and a filter chooses another token than
//! the best.

use super::{Cost, Launch, LaunchCost, Seen, Sum, Words, view};
use crate::layout::FIELDS;
use crate::layout::{NONE, SCORER_WORDS};
use kernels::device::args;

/// Words of a scored row's settings; `Scored` of the kernels.
const EXTRAS: usize = 9;
const TOPS: usize = 14;
const FIRST_TOP: usize = 15;
const AMONG: usize = 17;
/// Bits of the additional results of a row; `RowExtras` of the kernels.
const FILTERED: u32 = 1;
const LISTED: u32 = 2;
/// Bytes of a most probable token; `Top` of the kernels.
const TOP: u64 = 16;

/// The sectors that a launch reads and writes.
#[derive(Default)]
struct Both {
    read: Seen,
    written: Seen,
    /// Searches of ranks.
    searches: u64,
}

/// The kernels of this file.
pub(super) const COSTS: &[(&str, Cost)] = &[
    ("fold_partials", |launch, args, _| Some(launch.fold(&view(args)))),
    ("list_tops", |launch, args, words| launch.list(&view(args), words)),
    ("filter_rows", |launch, args, words| launch.filter(&view(args), words)),
];

impl Launch {
    /// The traffic of rows with additional results; `row` adds the rest of a row's, by its settings and
    /// the address of its record.
    fn wanted(
        &self,
        a: &args::Filters,
        (bit, words): (u32, Words<'_>),
        row: impl Fn(&mut Both, &[u32; SCORER_WORDS], u64),
    ) -> Option<LaunchCost> {
        let rows = words(a.rows, self.grid[0] as usize * SCORER_WORDS)?;
        let (vocab, mut both) = (u64::from(a.vocab), Both::default());
        for (number, settings) in (0..).zip(rows.as_chunks::<SCORER_WORDS>().0) {
            let scorer = SCORER_WORDS as u64 * 4;
            both.read.touch(a.rows + number * scorer, scorer);
            if bit == FILTERED {
                // The chosen token, before it is known whether the row has filters.
                both.read.touch(a.out + number * FIELDS as u64 * 8, 8);
            }
            if settings[EXTRAS] & bit != 0 {
                both.read.touch(a.logits + number * vocab * 4, vocab * 4);
                row(&mut both, settings, a.out + number * FIELDS as u64 * 8);
            }
            both.read.end();
            both.written.end();
        }
        // A search finds three binary digits of a rank in one pass over the logits, with about thirty
        // instructions for a token.
        let passes = f64::from((32 + a.digits).div_ceil(3)) * both.searches as f64;
        Some(LaunchCost {
            read: Sum::default().seen(&both.read).0,
            written: Sum::default().seen(&both.written).0,
            instructions: passes * vocab as f64 / 32.0 * 30.0,
            ..LaunchCost::default()
        })
    }

    pub(super) fn list(&self, a: &args::Filters, words: Words<'_>) -> Option<LaunchCost> {
        self.wanted(a, (LISTED, words), |both, settings, record| {
            both.read.touch(record, FIELDS as u64 * 8);
            if settings[AMONG] != NONE {
                let set = a.words + u64::from(settings[AMONG]) * 4;
                both.read.touch(set, u64::from(a.vocab).div_ceil(32) * 4);
            }
            let first = a.tops + u64::from(settings[FIRST_TOP]) * TOP;
            both.written.touch(first, u64::from(settings[TOPS]) * TOP);
            both.searches += 1;
        })
    }

    pub(super) fn filter(&self, a: &args::Filters, words: Words<'_>) -> Option<LaunchCost> {
        self.wanted(a, (FILTERED, words), |both, _, record| {
            both.read.touch(record, FIELDS as u64 * 8);
            // Token and runner-up, and their probabilities.
            both.written.touch(record, 32);
            // By number and by mass.
            both.searches += 2;
        })
    }
}
