//! No cache: every forward computes the whole canvas.

use decode::{AttentionKind, Company};

use super::CacheInfo;
use super::block::NoCache;

/// The policy's description.
pub static INFO: CacheInfo = CacheInfo {
    name: "none",
    summary: "every forward computes the whole canvas",
    paper: "LLaDA, arXiv 2502.09992",
    settings: &[],
    schedules: Company::Only(&[]),
    attention: &[AttentionKind::Full],
    check: |_, _| Ok(()),
    // A guessed canvas has a version of everything.
    pages: |of| of.table() * (1 + of.branches),
    build: |_, _| Box::new(NoCache),
};
