//! Counts by kind, which sequences and steps have in common.

use decode::{CommitKind, ForwardKind, Role};

/// Counts per forward kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByKind<T> {
    /// First forwards.
    pub prefill: T,
    /// Forwards over lane rows.
    pub decode: T,
    /// Refreshes after the first forward.
    pub refresh: T,
}

impl<T> ByKind<T> {
    /// The count of `kind`.
    pub fn of(&mut self, kind: ForwardKind) -> &mut T {
        match kind {
            ForwardKind::Prefill => &mut self.prefill,
            ForwardKind::Decode => &mut self.decode,
            ForwardKind::Refresh => &mut self.refresh,
        }
    }
}

/// Counts per lane role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByRole {
    /// Generate lanes.
    pub generate: u32,
    /// Refine lanes.
    pub refine: u32,
}

impl ByRole {
    /// The count of `role`.
    pub fn of(&mut self, role: Role) -> &mut u32 {
        match role {
            Role::Generate => &mut self.generate,
            Role::Refine => &mut self.refine,
        }
    }
}

/// Commits by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitCounts {
    /// Masks of lanes.
    pub masked: u32,
    /// Masks of a lookahead window.
    pub drafts: u32,
    /// Tokens rewritten by an edit rule.
    pub edits: u32,
}

impl CommitCounts {
    /// The count of `kind`.
    pub fn of(&mut self, kind: CommitKind) -> &mut u32 {
        match kind {
            CommitKind::Masked => &mut self.masked,
            CommitKind::Draft => &mut self.drafts,
            CommitKind::Edit => &mut self.edits,
        }
    }

    /// All commits.
    pub fn total(&self) -> u32 {
        self.masked + self.drafts + self.edits
    }
}
