//! Dual cache (Fast-dLLM §3.2): K/V of everything but the block are kept.

use decode::{AttentionKind, Company};

use super::CacheInfo;
use super::block::Dual;

/// The policy's description.
pub static INFO: CacheInfo = CacheInfo {
    name: "dual",
    summary: "K/V of the whole canvas but the block, from a full forward at its start",
    paper: "Fast-dLLM, arXiv 2505.22618",
    settings: &[],
    schedules: Company::Only(&[]),
    attention: &[AttentionKind::Full],
    check: |_, _| Ok(()),
    pages: |of| of.shared_table(of.schedule.longest_lane(of.budget)),
    build: |_, _| Box::new(Dual),
};
