//! Sequences that wait to start, in turns of clients.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use decode::as_count;

use super::order::{Rank, WaitOrder};
use crate::request::{ClientId, Request};
use crate::sequence::{Sequence, SequenceId};

/// A sequence that waits to start.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) sequence: Sequence,
    pub(crate) rank: Rank,
    /// Steps planned before it was submitted.
    since: u64,
}

/// Waiting sequences by order of submission and by client.
///
/// Clients of one class take turns by deficit round robin with a quantum of one token: a sequence
/// starts once its client has had as many rounds as the sequence has tokens. Rounds are counted and
/// not walked through.
#[derive(Debug)]
pub(crate) struct WaitQueue {
    order: Arc<dyn WaitOrder>,
    by_arrival: BTreeMap<SequenceId, Waiting>,
    /// No line is empty.
    lines: BTreeMap<ClientId, Line>,
    /// Rounds that have passed.
    rounds: u64,
}

/// The waiting sequences of one client.
#[derive(Debug)]
struct Line {
    by_rank: BTreeSet<(Rank, SequenceId)>,
    by_arrival: BTreeSet<SequenceId>,
    /// The round of the client's last start, or in which the line began.
    since: u64,
}

/// The sequence of a line that starts before the others of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    /// `None` = it has aged: the first of all classes.
    class: Option<Rank>,
    /// The round in which it is covered.
    round: u64,
    id: SequenceId,
}

impl WaitQueue {
    pub(crate) fn new(order: Arc<dyn WaitOrder>) -> Self {
        Self { order, by_arrival: BTreeMap::new(), lines: BTreeMap::new(), rounds: 0 }
    }

    pub(crate) fn rank(&self, request: &Request) -> Rank {
        self.order.rank(request)
    }

    /// Adds the sequence that was submitted last; `since`: number of planned steps.
    pub(crate) fn push(&mut self, sequence: Sequence, rank: Rank, since: u64) {
        let (id, client) = (sequence.id, sequence.request.sender.client);
        let line = self.lines.entry(client).or_insert_with(|| Line {
            by_rank: BTreeSet::new(),
            by_arrival: BTreeSet::new(),
            since: self.rounds,
        });
        line.by_rank.insert((rank, id));
        line.by_arrival.insert(id);
        let waiting = Waiting { sequence, rank, since };
        self.by_arrival.insert(id, waiting);
    }

    /// The sequence that starts next among those that `may` start; `now`: number of planned steps.
    pub(crate) fn first(&self, now: u64, may: impl Fn(&Sequence) -> bool) -> Option<&Sequence> {
        let heads = self.lines.values().filter_map(|line| self.head(line, now));
        let sequence = |head: &Head| &self.by_arrival[&head.id].sequence;
        let may_start = heads.filter(|head| may(sequence(head)));
        may_start.min().map(|head| sequence(&head))
    }

    /// The head of a line: the oldest sequence if it has aged, else the one of lowest rank.
    fn head(&self, line: &Line, now: u64) -> Option<Head> {
        let oldest = line.by_arrival.first()?;
        let aged = now - self.by_arrival[oldest].since >= self.order.aging_steps();
        let (class, id) = match line.by_rank.first() {
            Some((rank, id)) if !aged => (Some(*rank), id),
            _ => (None, oldest),
        };
        let round = line.since + tokens(&self.by_arrival[id].sequence);
        let id = *id;
        Some(Head { class, round, id })
    }

    /// Takes out the sequence that starts now.
    pub(crate) fn start(&mut self, id: SequenceId) -> Option<Waiting> {
        let waiting = self.by_arrival.get(&id)?;
        let line = self.lines.get_mut(&waiting.sequence.request.sender.client)?;
        let covered = line.since + tokens(&waiting.sequence);
        // A sequence for which its client had no room may have been covered long ago.
        self.rounds = self.rounds.max(covered);
        line.since = self.rounds;
        self.remove(id)
    }

    /// Takes a sequence out, if it is there.
    pub(crate) fn remove(&mut self, id: SequenceId) -> Option<Waiting> {
        let waiting = self.by_arrival.remove(&id)?;
        let client = waiting.sequence.request.sender.client;
        if let Some(line) = self.lines.get_mut(&client) {
            line.by_rank.remove(&(waiting.rank, id));
            line.by_arrival.remove(&id);
            if line.by_arrival.is_empty() {
                self.lines.remove(&client);
            }
        }
        Some(waiting)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_arrival.len()
    }
}

/// The tokens that a sequence counts in its client's turn, `>= 1`.
fn tokens(sequence: &Sequence) -> u64 {
    let request = &sequence.request;
    let given = request.prompt.len() + request.given.suffix.len();
    (u64::from(as_count(given)) + u64::from(request.max_tokens)).max(1)
}
