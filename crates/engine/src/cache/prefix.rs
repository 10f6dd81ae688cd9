//! Prefix cache (Fast-dLLM §3.2): K/V left of the block are kept.

use decode::{AttentionKind, ForwardKind, NameFilter, Rows};

use super::{CacheInfo, CachePolicy, ForwardPlan, Forwards, View, rows};

/// The policy's description.
pub static INFO: CacheInfo = CacheInfo {
    name: "prefix",
    summary: "K/V left of the block, from a full forward pass at its start",
    paper: "Fast-dLLM, arXiv 2505.22618",
    settings: &[],
    schedules: NameFilter::Only(&["block_wise", "adaptive_block", "multi_block"]),
    forwards: Forwards {
        rows: Rows::Canvas,
        branches: true,
        from_block: true,
        whole: true,
        ..Forwards::OPEN
    },
    attention: &[AttentionKind::Full],
    check: |_, _| Ok(()),
    pages: |footprint| footprint.shared_table(footprint.budget),
    build: |_, _| Box::new(Prefix),
};

/// A full forward when a block starts; then the block and everything after it, reading the K/V
/// left of the block.
#[derive(Clone, Copy, Debug)]
struct Prefix;

impl CachePolicy for Prefix {
    fn kind(&self, view: &View<'_>) -> ForwardKind {
        view.kind(view.lane_started)
    }

    fn plan(&self, view: &View<'_>, plan: &mut ForwardPlan) {
        rows::block(view, plan, |_block_end| view.end());
    }
}
