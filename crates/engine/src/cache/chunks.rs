//! Chunked prefill (SARATHI, arXiv 2308.16369): a long prompt is forwarded over several steps.

use decode::{ForwardKind, Place, Span};

use super::{ForwardPlan, PlanRow, SHARED, View};

/// The division of a prompt where the K/V of its tokens do not depend on tokens after their block. Every
/// row sees in a chunk what it sees in a whole prefill: the chunks before have left their K/V in the
/// pages. So the result is the same, bit for bit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunks {
    /// Most rows of a chunk, and of a prefill that is not split; 0 = no prefill is split.
    pub(super) most: u32,
    /// Positions of a block, at least 1; a chunk has whole blocks, and one at least.
    pub(super) block: u32,
}

impl Chunks {
    /// The places of the next chunk; none if the next forward is the whole rest of the prefill, up to
    /// `end`. Rows whose candidates may be wanted are left to that one.
    pub(super) fn next(self, view: &View<'_>, end: Place) -> Option<Span<Place>> {
        let start = view.sealed;
        if self.most == 0 || !view.first || start.to(end).len() <= self.most {
            return None;
        }
        let unscored = view.layout.generation().back(u32::from(view.shifted));
        let fits = start.plus(self.most).block_start(self.block);
        let chunk = fits.max(start.block_end(self.block));
        let places = start.to(chunk.min(unscored.block_start(self.block)));
        (!places.is_empty()).then_some(places)
    }

    /// A forward over a chunk.
    pub(super) fn push(self, places: Span<Place>, plan: &mut ForwardPlan) {
        plan.begin(ForwardKind::Prefill);
        plan.is_chunk = true;
        let row = |place: Place| PlanRow::at(place, place.block_end(self.block));
        plan.rows.extend(places.iter().map(row));
        plan.close(SHARED);
        plan.sealed = places.end;
    }
}
