//! No cache: every forward computes the whole canvas.

use decode::{AttentionKind, ForwardKind, NameFilter, Rows};

use super::{CacheInfo, CachePolicy, ForwardPlan, Forwards, SHARED, View};

/// The policy's description.
pub static INFO: CacheInfo = CacheInfo {
    name: "none",
    summary: "nothing: the whole canvas is computed",
    paper: "LLaDA, arXiv 2502.09992",
    settings: &[],
    schedules: NameFilter::Only(&["block_wise", "adaptive_block", "multi_block", "window"]),
    forwards: Forwards { rows: Rows::Canvas, branches: true, whole: true, ..Forwards::OPEN },
    attention: &[AttentionKind::Full],
    check: |_, _| Ok(()),
    // A guessed canvas has a version of everything.
    pages: |footprint| footprint.table() * (1 + footprint.branches),
    build: |_, _| Box::new(NoCache),
};

/// Every forward computes the whole canvas.
#[derive(Clone, Copy, Debug)]
struct NoCache;

impl CachePolicy for NoCache {
    fn kind(&self, view: &View<'_>) -> ForwardKind {
        view.kind(false)
    }

    fn plan(&self, view: &View<'_>, plan: &mut ForwardPlan) {
        plan.full(view, view.end(), SHARED);
        if !view.first {
            plan.kind = ForwardKind::Decode;
            plan.push_branches(view);
        }
    }
}
