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
        let canvas = self.decoder.canvas();
        let committed = self.decoder.lanes().any(|lane| lane.committed);
        let mut rows = Vec::with_capacity(plan.rows.len() + 2);
        let mut begin = 0;
        for segment in &mut plan.segments {
            let first = rows.len();
            for row in &plan.rows[begin..segment.end as usize] {
                let offset = row.place.checked_sub(self.prompt());
                let wanted = offset.filter(|at| {
                    committed || canvas.get(*at).is_none() || plan.tracked.contains(at)
                });
                let reader = wanted.and_then(|offset| match offset {
                    0 => (self.request.prompt.len() as u32).checked_sub(1),
                    _ => Some(row.place - 1),
                });
                let own: &[PlanRow] = &rows[first..];
                if let Some(place) = reader
                    && own.last().is_none_or(|last| last.place < place)
                {
                    rows.push(PlanRow::at(place, row.visible));
                }
                rows.push(*row);
            }
            begin = segment.end as usize;
            segment.end = rows.len() as u32;
        }
        plan.rows = rows;
    }
}
