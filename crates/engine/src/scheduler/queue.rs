//! Sequences that wait to start.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::order::{Rank, WaitOrder};
use crate::request::Request;
use crate::sequence::{Sequence, SequenceId};

/// A sequence that waits to start.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) sequence: Sequence,
    pub(crate) rank: Rank,
    /// Steps planned before it was submitted.
    since: u64,
}

/// Waiting sequences by order of submission and by rank.
#[derive(Debug)]
pub(crate) struct WaitQueue {
    order: Arc<dyn WaitOrder>,
    by_arrival: BTreeMap<SequenceId, Waiting>,
    by_rank: BTreeSet<(Rank, SequenceId)>,
}

impl WaitQueue {
    pub(crate) fn new(order: Arc<dyn WaitOrder>) -> Self {
        Self {
            order,
            by_arrival: BTreeMap::new(),
            by_rank: BTreeSet::new(),
        }
    }

    /// The rank of a request.
    pub(crate) fn rank(&self, request: &Request) -> Rank {
        self.order.rank(request)
    }

    /// Adds the sequence that was submitted last; `since`: steps planned so far.
    pub(crate) fn push(&mut self, sequence: Sequence, rank: Rank, since: u64) {
        self.by_rank.insert((rank, sequence.id));
        let waiting = Waiting {
            sequence,
            rank,
            since,
        };
        self.by_arrival.insert(waiting.sequence.id, waiting);
    }

    /// Takes out the sequence that starts next if it `fits`; `now`: steps planned so far.
    pub(crate) fn pop_if(
        &mut self,
        now: u64,
        fits: impl FnOnce(&Sequence) -> bool,
    ) -> Option<Waiting> {
        let id = self.first(now)?;
        fits(&self.by_arrival[&id].sequence).then(|| self.remove(id))?
    }

    /// The sequence that starts next: the oldest one if it has aged, else the one of lowest rank.
    fn first(&self, now: u64) -> Option<SequenceId> {
        let (oldest, waiting) = self.by_arrival.first_key_value()?;
        if now - waiting.since >= self.order.aging_steps() {
            return Some(*oldest);
        }
        self.by_rank.first().map(|(_, id)| *id)
    }

    /// Takes a sequence out, if it is there.
    pub(crate) fn remove(&mut self, id: SequenceId) -> Option<Waiting> {
        let waiting = self.by_arrival.remove(&id)?;
        self.by_rank.remove(&(waiting.rank, id));
        Some(waiting)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_arrival.len()
    }
}
