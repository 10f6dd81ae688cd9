//! Rows near the last commits: masks have a row while a forward pass may change the decision about
//! them.

use decode::{Canvas, Decoder, Offset, Proposal, Span, as_index};

/// Masks of lower entropy keep their row, in nats: they are the next commits.
const SURE: f32 = 0.3;
/// The first masks of a lane always have a row: the text is read from left to right.
const FIRST: u32 = 4;

/// The masks that have a row. One far from every commit since its last row would get nearly the same
/// candidate again, so it has none; nor has a mask right of [`Self::end`], which the text has not
/// reached.
#[derive(Clone, Debug)]
pub(super) struct Near {
    /// Positions right of a commit in which masks get their first row.
    ahead: u32,
    /// Positions right of a commit in which masks get a row again; a third of it left of the commit.
    reach: u32,
    /// Masks from here on have never had a row; the slots before it are written.
    end: Offset,
    /// By offset: the mask has a row in the next forward. Offsets after the last are due.
    due: Vec<bool>,
}

impl Near {
    pub(super) fn new(ahead: u32, reach: u32) -> Self {
        Self { ahead, reach, end: Offset::new(ahead), due: Vec::new() }
    }

    /// End of the masks that have had a row, and of the pinned tokens, on `canvas`.
    pub(super) fn end(&self, canvas: &Canvas) -> Offset {
        self.end.max(canvas.pins_end()).min(canvas.end())
    }

    /// Returns true if the mask at `offset` has a row in the next forward.
    pub(super) fn is_due(&self, offset: Offset) -> bool {
        offset < self.end && self.due.get(offset.index()).is_none_or(|due| *due)
    }

    /// Notes which masks were scored; wakes those near a commit and the first ones of each lane.
    pub(super) fn observe(&mut self, decoder: &Decoder, scored: &[Proposal]) {
        let canvas = decoder.canvas();
        self.due.resize(as_index(canvas.budget()), true);
        for Proposal { offset, candidate } in scored {
            self.end = self.end.max(offset.next());
            self.due[offset.index()] = candidate.entropy <= SURE;
        }
        for Proposal { offset, .. } in scored {
            if canvas.written_at(*offset) == decoder.step() {
                let next = offset.next();
                self.end = self.end.max(next.plus(self.ahead));
                self.mark_due(offset.back(self.reach / 3).to(next.plus(self.reach)));
            }
        }
        for lane in decoder.lanes() {
            let masks = lane.range.iter().filter(|offset| canvas.is_mask(*offset));
            for offset in masks.take(as_index(FIRST)) {
                self.mark_due(offset.to(offset.next()));
                self.end = self.end.max(offset.next());
            }
        }
    }

    fn mark_due(&mut self, offsets: Span<Offset>) {
        let end = offsets.end.index().min(self.due.len());
        self.due[offsets.start.index().min(end)..end].fill(true);
    }
}
