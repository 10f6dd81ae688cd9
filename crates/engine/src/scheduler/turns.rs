//! The order in which a step considers the running sequences.

use super::order::Rank;
use crate::request::ClientId;
use crate::sequence::SequenceId;

/// The progress of the planning of a step.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The running sequences by client and class, each group in its order.
    pub(super) turns: Vec<Turn>,
    /// The turns by client and class.
    pub(super) groups: Vec<Group>,
    /// Forwards that run, and their rows.
    pub(super) forwards: usize,
    pub(super) rows: usize,
}

impl Progress {
    pub(super) fn begin(&mut self) {
        self.turns.clear();
        self.groups.clear();
        self.forwards = 0;
        self.rows = 0;
    }

    /// All turns are considered once more.
    pub(super) fn consider_again(&mut self) {
        self.groups.iter_mut().for_each(|group| group.next = group.first);
    }

    /// The next turn to consider, and its group: of decode and of long forwards the first one of the
    /// client that has had the fewest rows, and of these two the one that waits longer.
    pub(super) fn take_turn(&mut self) -> Option<(usize, Turn)> {
        let first_of = |class: ForwardClass| {
            let groups = self.groups.iter().enumerate();
            let open = groups.filter(|(_, group)| group.class == class && group.next < group.end);
            open.min_by_key(|(_, group)| (group.had, self.turns[group.next].line_key()))
        };
        let firsts = [ForwardClass::Decode, ForwardClass::Long].into_iter().filter_map(first_of);
        let (index, group) = firsts.min_by_key(|(_, group)| self.turns[group.next].key())?;
        let turn = self.turns[group.next];
        self.groups[index].next += 1;
        Some((index, turn))
    }
}

/// The class of a forward, by which it is admitted under the row budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ForwardClass {
    /// A decode forward: runs wherever it fits.
    Decode,
    /// A prefill or refresh: admitted by the [`Deficit`].
    Long,
}

impl ForwardClass {
    /// The index of the class in lists by class.
    pub(super) const fn index(self) -> usize {
        match self {
            Self::Decode => 0,
            Self::Long => 1,
        }
    }
}

/// A running sequence in the order of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// Step of its last forward.
    pub(super) since: u64,
    /// Step of its last forward of this class.
    pub(super) line_since: u64,
    pub(super) class: ForwardClass,
    pub(super) rank: Rank,
    pub(super) id: SequenceId,
    pub(super) client: ClientId,
    /// Index into `running`.
    pub(super) index: usize,
}

/// The turns of one client and class.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) class: ForwardClass,
    /// Rows that the client has had.
    pub(super) had: u64,
    /// Its turns.
    pub(super) first: usize,
    /// The sequences that have not been considered: from `next` to `end`.
    pub(super) next: usize,
    pub(super) end: usize,
}

impl Turn {
    /// Lower goes first among the forwards of a class: the longest wait, then the lower rank, then the earlier
    /// submission.
    pub(super) fn line_key(&self) -> (u64, Rank, SequenceId) {
        (self.line_since, self.rank, self.id)
    }

    /// Lower goes first of two classes: the longest wait, then decode forwards, then the lower rank, then the
    /// earlier submission.
    pub(super) fn key(&self) -> (u64, ForwardClass, Rank, SequenceId) {
        (self.since, self.class, self.rank, self.id)
    }
}
