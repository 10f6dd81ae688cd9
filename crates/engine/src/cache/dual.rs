//! Dual cache (Fast-dLLM §3.2): K/V of everything but the block are kept.

use decode::{AttentionKind, ForwardKind, NameFilter, Rows};

use super::{CacheInfo, CachePolicy, ForwardPlan, Forwards, View, rows};

/// The policy's description.
pub static INFO: CacheInfo = CacheInfo {
    name: "dual",
    summary: "K/V of everything but the block, from a full forward pass at its start",
    paper: "Fast-dLLM, arXiv 2505.22618",
    settings: &[],
    schedules: NameFilter::Only(&["block_wise", "adaptive_block", "multi_block", "window"]),
    forwards: Forwards {
        rows: Rows::Lane,
        branches: true,
        from_block: true,
        whole: true,
        ..Forwards::OPEN
    },
    attention: &[AttentionKind::Full],
    check: |_, _| Ok(()),
    pages: |footprint| footprint.shared_table(footprint.schedule.longest_lane(footprint.budget)),
    build: |_, _| Box::new(Dual),
};

/// A full forward when a block starts; then the block alone, reading the K/V of the whole canvas, or
/// up to the lane's horizon where the schedule drops masks far away.
#[derive(Clone, Copy, Debug)]
struct Dual;

impl CachePolicy for Dual {
    fn kind(&self, view: &View<'_>) -> ForwardKind {
        view.kind(view.lane_started)
    }

    fn plan(&self, view: &View<'_>, plan: &mut ForwardPlan) {
        rows::block(view, plan, |block_end| block_end);
    }
}
