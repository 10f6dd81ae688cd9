//! The slots of one chunk that a row sees.

use super::{CHUNK, Visible};
use std::ops::Range;

/// The slots of a chunk that a row sees, counted from the chunk's first slot.
#[derive(Clone, Copy, Default)]
pub(super) struct Seen {
    /// End of the last visible slot; 0 if the row sees none of the chunk.
    pub(super) end: usize,
    /// The visible slots below `end` if some of them are hidden, else nothing.
    holes: Option<u128>,
}

// One bit per slot of a chunk.
const _: () = assert!(CHUNK <= u128::BITS as usize);

impl Seen {
    /// The slots that a row sees in the chunk that starts at slot `start`.
    pub(super) fn of(row: Visible, start: usize) -> Self {
        let end = row.reach().saturating_sub(start).min(CHUNK);
        if row.is_prefix() || end == 0 {
            return Self { end, holes: None };
        }
        // The chunk starts below the row's reach, so its slots are numbers of 33 bits at most; the
        // tables of pages hold fewer.
        let sees = |slot: &usize| u32::try_from(start + slot).is_ok_and(|slot| row.sees(slot));
        let bits = (0..end).filter(sees).fold(0, |bits, slot| bits | 1 << slot);
        let end = (u128::BITS - u128::leading_zeros(bits)) as usize;
        let all = end == 0 || bits.count_ones() as usize == end;
        Self { end, holes: (!all).then_some(bits) }
    }

    /// Number of visible slots before the first hidden one.
    pub(super) fn prefix(&self) -> usize {
        self.holes.map_or(self.end, |bits| bits.trailing_ones() as usize)
    }

    /// Replaces the numbers of the hidden slots below `end`.
    pub(super) fn hide(&self, numbers: &mut [f32], by: f32) {
        let Some(bits) = self.holes else { return };
        for (slot, number) in numbers[..self.end].iter_mut().enumerate() {
            if bits >> slot & 1 == 0 {
                *number = by;
            }
        }
    }

    /// The visible slots from `first` on, as ranges in ascending order.
    pub(super) fn runs(&self, first: usize) -> impl Iterator<Item = Range<usize>> {
        let (end, bits) = (self.end, self.holes.unwrap_or(u128::MAX));
        let mut next = first;
        std::iter::from_fn(move || {
            while next < end && bits >> next & 1 == 0 {
                next += 1;
            }
            let start = next;
            while next < end && bits >> next & 1 == 1 {
                next += 1;
            }
            (start < next).then_some(start..next)
        })
    }
}
