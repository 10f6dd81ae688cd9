//! Which waiting sequence starts next, and which running sequences are in a step.
//!
//! # Bounds on waiting
//!
//! B is the row budget of a step. Q is the quantum of rows for *long* forwards, which are prefills
//! and refreshes. W is [`WaitOrder::aging_steps`].
//!
//! **A waiting sequence.** Sequences start one by one, and the first in the order that does not fit
//! blocks all others. Once a sequence has waited W steps, no sequence submitted later starts before
//! it: sequences age in order of submission, the oldest aged one starts before all others, and a
//! sequence submitted later is either aged and younger, or not aged. So it waits at most W steps
//! and the time in which the sequences before it start and running ones make room. Running
//! sequences end: each step of a sequence commits a token or counts towards its limit, and the
//! bounds below hold between its steps. With equal ranks, sequences start in order of submission.
//!
//! **A running sequence.** A step goes through the running sequences in the order of [`Turn::key`]:
//! first those that wait longest since their last forward, or since they started. The key of a
//! sequence does not change while it waits, so two sequences that wait keep their order. A sequence
//! that has run, or that starts, goes behind all that wait. The rank only orders sequences that
//! have waited equally long, so it occurs in none of these bounds. The first forward that is
//! considered runs whatever its rows, unless it is long and not covered by the [`Deficit`].
//!
//! - Let a decode forward of d rows wait behind O sequences, whose next forwards have R rows. A step
//!   passes it over only if forwards before it leave less than d rows. Those have run, so they are
//!   behind it from then on: such a step takes at least one of the O sequences, and more than B - d
//!   of the R rows. The forward waits at most O steps, and at most R / (B - d + 1) if d <= B.
//! - The first waiting long forward, of r rows, gets Q rows of credit a step until it is covered:
//!   ⌈r / Q⌉ steps. From then on a step passes it over only if decode forwards before it leave no
//!   room, and each of those does so once. The long forwards before it go one after the other, so
//!   it waits less than Σ ⌈r / Q⌉ + O' steps: the sum is over its own rows and theirs, O' is the
//!   number of decode forwards before it. If nothing decodes, the first long forward runs at once.
//! - The credit stays below r + Q, where r are the rows of the first long forward, and a step that
//!   begins with r covered adds none. So n steps in a row hold less than n Q rows of long forwards
//!   and the rows of the longest one.
//! - A step holds at most B rows, or one forward.

mod deficit;
mod order;
mod queue;

use std::sync::Arc;

use decode::{ForwardKind, as_count, as_index};

use crate::cache::ForwardPlan;
use crate::request::Request;
use crate::sequence::{Sequence, SequenceId};

use deficit::Deficit;
pub use order::{ByPriority, Rank, WaitOrder};
use queue::WaitQueue;
pub(crate) use queue::Waiting;

/// Sizes of the batch and of a step; zeros count as ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepSizes {
    /// Most sequences that run.
    pub(crate) max_running: u32,
    /// Most rows of a step.
    pub(crate) row_budget: u32,
    /// Rows of a step for long forwards while other sequences decode.
    pub(crate) long_quantum: u32,
}

/// Waiting and running sequences, and the order of the step that is being planned.
#[derive(Debug)]
pub(crate) struct Scheduler {
    queue: WaitQueue,
    running: Vec<Running>,
    max_running: usize,
    row_budget: usize,
    deficit: Deficit,
    /// Steps planned so far, the present one included.
    steps: u64,
    step: Progress,
}

/// A sequence in the batch.
#[derive(Debug)]
struct Running {
    sequence: Sequence,
    rank: Rank,
    /// Step of its last forward; before the first one, the step before it started.
    since: u64,
    /// Rows of its next forward, once they are known.
    next_rows: Option<usize>,
}

/// How far the planning of a step has come.
#[derive(Debug, Default)]
struct Progress {
    /// The running sequences in the order of the step.
    turns: Vec<Turn>,
    /// Turns that were considered.
    considered: usize,
    /// Forwards that run, and their rows.
    forwards: usize,
    rows: usize,
}

impl Progress {
    fn begin(&mut self) {
        self.turns.clear();
        self.considered = 0;
        self.forwards = 0;
        self.rows = 0;
    }
}

/// How a forward shares the row budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Share {
    /// A decode forward: runs wherever it fits.
    Decode,
    /// A prefill or refresh: admitted by the [`Deficit`].
    Long,
}

/// A running sequence's place in the order of a step.
#[derive(Clone, Copy, Debug)]
struct Turn {
    since: u64,
    share: Share,
    rank: Rank,
    id: SequenceId,
    /// Index into `running`.
    index: usize,
}

impl Turn {
    /// Lower goes first: the longest wait, then decode forwards, then the lower rank, then the
    /// earlier submission.
    fn key(&self) -> (u64, Share, Rank, SequenceId) {
        (self.since, self.share, self.rank, self.id)
    }
}

impl Scheduler {
    pub(crate) fn new(order: Arc<dyn WaitOrder>, sizes: StepSizes) -> Self {
        Self {
            queue: WaitQueue::new(order),
            running: Vec::new(),
            max_running: as_index(sizes.max_running.max(1)),
            row_budget: as_index(sizes.row_budget.max(1)),
            deficit: Deficit::new(sizes.long_quantum),
            steps: 0,
            step: Progress::default(),
        }
    }

    /// The rank under which a request will wait.
    pub(crate) fn rank(&self, request: &Request) -> Rank {
        self.queue.rank(request)
    }

    /// Queues the sequence that was submitted last.
    pub(crate) fn enqueue(&mut self, sequence: Sequence, rank: Rank) {
        self.queue.push(sequence, rank, self.steps);
    }

    /// Takes out the waiting sequence that starts next if it `fits`, which is asked with whether
    /// the batch has a place.
    pub(crate) fn pop_waiting(
        &mut self,
        fits: impl FnOnce(&Sequence, bool) -> bool,
    ) -> Option<Waiting> {
        let has_place = self.running.len() < self.max_running;
        let fits = |sequence: &Sequence| fits(sequence, has_place);
        self.queue.pop_if(self.steps, fits)
    }

    /// Gives a sequence a place in the batch, behind all that run.
    pub(crate) fn start(&mut self, Waiting { sequence, rank, .. }: Waiting) {
        self.running.push(Running {
            sequence,
            rank,
            since: self.steps,
            next_rows: None,
        });
    }

    /// Drops a waiting sequence; false if it does not wait.
    pub(crate) fn remove_waiting(&mut self, id: SequenceId) -> bool {
        self.queue.remove(id).is_some()
    }

    /// Begins a step: orders the running sequences by how long they wait.
    pub(crate) fn order_by_wait(&mut self) {
        self.steps += 1;
        self.step.begin();
        let turns = &mut self.step.turns;
        let running = self.running.iter().enumerate();
        let ready = running.filter(|(_, running)| !running.sequence.decoder.is_lent());
        turns.extend(ready.map(|(index, running)| Turn {
            since: running.since,
            share: match running.sequence.kind() {
                ForwardKind::Decode => Share::Decode,
                ForwardKind::Prefill | ForwardKind::Refresh => Share::Long,
            },
            rank: running.rank,
            id: running.sequence.id,
            index,
        }));
        turns.sort_unstable_by_key(Turn::key);
        let decoding = turns.iter().any(|turn| turn.share == Share::Decode);
        self.deficit.begin(decoding);
    }

    /// The index of the next sequence of the step, with its forward in `forward`. `None` ends the
    /// step.
    pub(crate) fn next(&mut self, forward: &mut ForwardPlan) -> Option<usize> {
        while let Some(turn) = self.step.turns.get(self.step.considered).copied() {
            self.step.considered += 1;
            if self.runs(turn, forward) {
                return Some(turn.index);
            }
        }
        self.deficit.end();
        None
    }

    /// Whether a sequence is in this step; its forward is in `forward` then. The first one fits
    /// whatever its rows, so that every step has a batch.
    fn runs(&mut self, turn: Turn, forward: &mut ForwardPlan) -> bool {
        let is_long = turn.share == Share::Long;
        if is_long && self.deficit.is_closed() {
            return false;
        }
        let running = &mut self.running[turn.index];
        let known = running.next_rows;
        let rows = known.unwrap_or_else(|| {
            running.sequence.plan(forward);
            forward.rows.len()
        });
        running.next_rows = Some(rows);
        let fits = self.step.rows + rows <= self.row_budget || self.step.forwards == 0;
        if is_long && !self.deficit.admit(as_count(rows), fits) || !fits {
            return false;
        }
        if known.is_some() {
            running.sequence.plan(forward);
        }
        running.next_rows = None;
        running.since = self.steps;
        self.step.forwards += 1;
        self.step.rows += rows;
        true
    }

    /// A running sequence.
    pub(crate) fn sequence(&self, index: usize) -> &Sequence {
        &self.running[index].sequence
    }

    /// A running sequence.
    pub(crate) fn sequence_mut(&mut self, index: usize) -> &mut Sequence {
        &mut self.running[index].sequence
    }

    /// All running sequences, by index.
    pub(crate) fn running(&self) -> impl ExactSizeIterator<Item = &Sequence> {
        self.running.iter().map(|running| &running.sequence)
    }

    /// The index of a running sequence.
    pub(crate) fn index_of(&self, id: SequenceId) -> Option<usize> {
        self.running().position(|of| of.id == id)
    }

    /// Puts a sequence whose job is back behind all that wait.
    pub(crate) fn wait_anew(&mut self, index: usize) {
        self.running[index].since = self.steps;
    }

    /// Takes a sequence out of the batch. The last one gets its index.
    pub(crate) fn retire(&mut self, index: usize) -> Sequence {
        self.running.swap_remove(index).sequence
    }

    /// Sequences that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Whether no sequence waits or runs.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.len() == 0 && self.running.is_empty()
    }
}
