//! Prefix cache (Fast-dLLM §3.2): K/V left of the block are kept.

use decode::{AttentionKind, Company};

use super::CacheInfo;
use super::block::Prefix;

/// The policy's description.
pub static INFO: CacheInfo = CacheInfo {
    name: "prefix",
    summary: "K/V left of the block, from a full forward at its start",
    paper: "Fast-dLLM, arXiv 2505.22618",
    settings: &[],
    schedules: Company::Only(&[]),
    attention: &[AttentionKind::Full],
    check: |_, _| Ok(()),
    pages: |of| of.shared_table(of.budget),
    build: |_, _| Box::new(Prefix),
};
