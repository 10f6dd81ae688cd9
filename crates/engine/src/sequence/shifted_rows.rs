//! Models that predict a position at the row before it: which offset a row predicts, and which
//! rows a plan needs for that.

use decode::{Offset, Place, as_count, as_index};
use step::{Attention, LogitShift};

use super::Sequence;
use crate::cache::{ForwardPlan, PlanRow, Prediction};
use crate::decoding::Decoding;
use crate::limits::Limits;

/// Returns true if the row before a block is computed by the forward that begins the block and by no other
/// (Fast-dLLM and AdaBlock on Dream): that forward commits the block's first token, and nothing else.
pub(super) fn reads_the_row_before_once(limits: &Limits, decoding: &Decoding) -> bool {
    limits.logit_shift == LogitShift::One
        && limits.attention == Attention::Full
        && decoding.cache.info().forwards.from_block
        && decoding.decoder.schedule.info().shape.in_blocks
}

impl Sequence {
    /// The offset whose prediction a row gives, if one is wanted.
    pub(crate) fn predicted_by(&self, row: PlanRow) -> Option<Offset> {
        match row.prediction {
            Prediction::Trained => self.predicted_at(row.place),
            Prediction::Next => self.next_to(row.place),
            Prediction::None => None,
        }
    }

    /// The offset whose prediction the row of `place` gives.
    fn predicted_at(&self, place: Place) -> Option<Offset> {
        match self.logit_shift {
            LogitShift::None => self.layout.offset_of(place),
            LogitShift::One => self.next_to(place),
        }
    }

    /// The offset after the token of `place`.
    fn next_to(&self, place: Place) -> Option<Offset> {
        // The prompt's last token predicts the first offset, whatever lies between by place.
        if Some(place) == self.layout.last_of_prompt() {
            return Some(Offset::ZERO);
        }
        let predicted = self.layout.offset_of(place.next());
        predicted.filter(|offset| *offset > Offset::ZERO)
    }

    /// Adds to a plan, before every row whose prediction may be wanted, the row that gives it.
    pub(super) fn add_shifted_rows(&self, plan: &mut ForwardPlan) {
        for number in (0..plan.segments.len()).rev() {
            let begin = match number {
                0 => 0,
                _ => as_index(plan.segments[number - 1].end),
            };
            let before = plan.rows.len();
            // From the back: an added row moves no row that is still to be visited.
            for index in (begin..as_index(plan.segments[number].end)).rev() {
                let row = plan.rows[index];
                let earlier = plan.rows[begin..index].last();
                if let Some(place) = self.predicting_place(row.place, plan)
                    && earlier.is_none_or(|earlier| earlier.place < place)
                {
                    let row = PlanRow { visible_end: row.visible_end, ..PlanRow::at(place, place) };
                    plan.rows.insert(index, row);
                }
            }
            let added = as_count(plan.rows.len() - before);
            for segment in &mut plan.segments[number..] {
                segment.end += added;
            }
        }
    }

    /// The place whose row predicts `place`, if that prediction may be wanted.
    fn predicting_place(&self, place: Place, plan: &ForwardPlan) -> Option<Place> {
        let offset = self.layout.offset_of(place)?;
        let is_mask = self.decoder.canvas().get(offset).is_none();
        let mut lanes = self.decoder.lanes();
        let mut is_read = || lanes.any(|lane| lane.committed.contains(offset));
        let is_needed = is_mask || plan.tracked.contains(&offset) || is_read();
        match offset {
            _ if !is_needed => None,
            Offset::ZERO => self.layout.last_of_prompt(),
            _ => place.minus(1),
        }
    }
}
