//! Rows at which predictions are read, where that is the row before.

use step::Readout;

use super::Sequence;
use crate::cache::{ForwardPlan, PlanRow};

impl Sequence {
    /// The offset whose prediction is read at the row of `place`.
    pub(crate) fn read_at(&self, place: u32) -> Option<u32> {
        match (self.readout, self.request.prompt.len() as u32) {
            (Readout::Own, _) => place.checked_sub(self.prompt()),
            // The prompt's last token stands before the first offset, whatever the slots between.
            (Readout::Previous, prompt) if place + 1 == prompt => Some(0),
            (Readout::Previous, _) => (place + 1).checked_sub(self.prompt()).filter(|at| *at > 0),
        }
    }

    /// Adds to a plan, before every row whose prediction may be wanted, the row where it is read.
    pub(super) fn add_readers(&self, plan: &mut ForwardPlan) {
        for number in (0..plan.segments.len()).rev() {
            let begin = match number {
                0 => 0,
                _ => plan.segments[number - 1].end as usize,
            };
            let before = plan.rows.len();
            // From the back, so that what is added moves no row that is still to be looked at.
            for at in (begin..plan.segments[number].end as usize).rev() {
                let row = plan.rows[at];
                let earlier = plan.rows[begin..at].last();
                if let Some(place) = self.reader(row.place, plan)
                    && earlier.is_none_or(|earlier| earlier.place < place)
                {
                    plan.rows.insert(at, PlanRow::at(place, row.visible));
                }
            }
            let added = (plan.rows.len() - before) as u32;
            for segment in &mut plan.segments[number..] {
                segment.end += added;
            }
        }
    }

    /// The place at whose row the prediction for `place` is read, if it may be wanted.
    fn reader(&self, place: u32, plan: &ForwardPlan) -> Option<u32> {
        let offset = place.checked_sub(self.prompt())?;
        let is_mask = self.decoder.canvas().get(offset).is_none();
        let committed = || self.decoder.lanes().any(|lane| lane.committed);
        let wanted = is_mask || plan.tracked.contains(&offset) || committed();
        match offset {
            _ if !wanted => None,
            0 => (self.request.prompt.len() as u32).checked_sub(1),
            _ => Some(place - 1),
        }
    }
}
