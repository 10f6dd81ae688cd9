//! The scheduler: it chooses the waiting sequence that starts next, and the running sequences of a step.
//!
//! # Rules
//!
//! **Start.** A client's waiting sequences form a line, ordered by rank. A sequence that has waited
//! [`WaitOrder::aging_steps`] goes to the front of its line, and its line before all lines without
//! one. Otherwise the line whose first sequence has the lowest rank starts. Lines that are equal in
//! this take turns by deficit round robin over tokens, prompt and budget together. The first sequence
//! in this order that does not fit blocks all others, except those that the next rule excludes.
//!
//! **Shares of sequences and pages.** A step holds at most `max_running` sequences. While clients share
//! the engine, half as many more may run, for clients below an even share. A client that runs
//! something leaves one eighth of the pages to others.
//!
//! **Step.** Of the running sequences of a client, the one that has waited longest goes first: for a decode
//! forward since its last forward, for a long one (a prefill or refresh) since its last long one, so that a
//! sequence that is being answered refreshes before prompts that came after it. Of the clients, the one that
//! has had the fewest rows goes first, counted for decode forwards and for long ones apart. A client that was
//! served completely in the last step counts as the one that has had the most: it saves nothing up. Forwards
//! are added while the step has at most `row_budget` rows; the first one runs whatever its rows.
//!
//! **Long forwards.** Beside decode forwards, the first waiting long forward gains `long_quantum` rows
//! of credit a step and runs once they cover it (see [`Deficit`]). A prompt is split into chunks of
//! `prefill_chunk` rows where the attention allows it, and each chunk is a long forward.
//!
//! **Shares of rows.** While clients share the engine, a client has at most a quarter of `row_budget`
//! in a step, or one forward. Beside a client that had all the rows it wanted in the last step, it has
//! what that one had, at least a 32nd of the budget. Rows beyond the limit count in later steps. A
//! step that would be empty for these limits ignores them.
//!
//! # Bounds
//!
//! L is the number of tokens of the longest sequence, M the number of rows of the longest forward. Steps
//! count while a sequence is ready: it waits neither for its grammar nor for drafts. While clients share
//! the engine, a 32nd of `row_budget` stands for it below, and a forward of r rows that goes before counts
//! as 32 r / `row_budget` steps more.
//!
//! - *Start.* Before a sequence that has T tokens, with those before it in its line, another
//!   client starts at most T + L tokens: the turns are counted in tokens, and only the other client's
//!   first start may use turns from before. A line's own order is final after `aging_steps`.
//!   Running sequences end, since each step of theirs forwards a part of the prompt for the only
//!   time, commits a token or counts towards its limit. So every sequence starts.
//! - *A flood.* However many sequences one client has, another starts half of `max_running` at once, as
//!   long as an eighth of the pages holds them.
//! - *A decode forward* of d rows behind O forwards of R rows runs within O steps, and within
//!   R / min(`row_budget` - d + 1, `max_running`) steps if d fits the budget: a step that passes over
//!   it is filled by forwards before it, and whoever has run goes behind all that wait.
//! - *Another client's forwards* of the same kind before one of client c have at most D + R + M rows,
//!   where D are the rows that c has had more when the wait begins, and R those of c before it: beyond
//!   that, c has had fewer rows and goes first.
//! - *A long forward* of r rows that is the first of the long ones is covered after r / `long_quantum` steps;
//!   then only decode forwards before it, each once, can delay it. Before it is the first, each other sequence
//!   has at most one long forward. n steps in a row hold fewer than n times `long_quantum` rows of long forwards
//!   and one such forward more. So a prompt of any length makes a step longer by less than `long_quantum` + M
//!   rows, and delays no decode forward that fits beside them.

mod clients;
mod deficit;
mod order;
mod queue;
mod turns;

use std::sync::Arc;

use decode::{ForwardKind, as_count, as_index};

use crate::cache::ForwardPlan;
use crate::request::Request;
use crate::sequence::{Sequence, SequenceId};

use clients::Clients;
use deficit::Deficit;
pub use order::{ByPriority, Rank, WaitOrder};
use queue::WaitQueue;
pub(crate) use queue::Waiting;
use turns::{ForwardClass, Group, Progress, Turn};

/// Sizes of the batch and of a step; zeros count as ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepSizes {
    /// Maximum sequences that run; half as many more may run if clients share the engine.
    pub(crate) max_running: u32,
    /// KV pages in all.
    pub(crate) pages: u32,
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
    clients: Clients,
    max_running: usize,
    row_budget: usize,
    deficit: Deficit,
    /// Number of planned steps, the present one included.
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
    /// The same of its last long forward.
    long_since: u64,
    /// Rows of its next forward, once they are known.
    next_rows: Option<usize>,
}

impl Scheduler {
    pub(crate) fn new(order: Arc<dyn WaitOrder>, sizes: StepSizes) -> Self {
        let max_running = as_index(sizes.max_running.max(1));
        Self {
            queue: WaitQueue::new(order),
            running: Vec::new(),
            clients: Clients::new(sizes),
            max_running,
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
        self.clients.visit(sequence.request.sender.client, self.steps);
        self.queue.push(sequence, rank, self.steps);
    }

    /// Takes out the waiting sequence that starts next if it `fits`, which is asked with whether
    /// its client has room.
    pub(crate) fn pop_waiting(
        &mut self,
        fits: impl FnOnce(&Sequence, bool) -> bool,
    ) -> Option<Waiting> {
        let (now, running) = (self.steps, self.running.len());
        let may = |sequence: &Sequence| {
            let pages = sequence.kv.promised;
            let client = sequence.request.sender.client;
            self.clients.may_start(client, pages, running)
        };
        let admitted = self.queue.first(now, may);
        let first = admitted.or_else(|| self.queue.first(now, |_| true))?;
        let id = first.id;
        fits(first, admitted.is_some()).then(|| self.queue.start(id))?
    }

    /// Lets a sequence run, behind all that run.
    pub(crate) fn start(&mut self, Waiting { sequence, rank, .. }: Waiting) {
        let client = sequence.request.sender.client;
        self.clients.start(client, sequence.kv.promised);
        let since = self.steps;
        self.running.push(Running { sequence, rank, since, long_since: since, next_rows: None });
    }

    /// Drops a waiting sequence; false if it does not wait.
    pub(crate) fn remove_waiting(&mut self, id: SequenceId) -> bool {
        self.queue.remove(id).is_some()
    }

    /// Begins a step: orders the running sequences of each client by how long they wait.
    pub(crate) fn order_by_wait(&mut self) {
        self.steps += 1;
        self.step.begin();
        self.clients.begin_step(self.steps);
        let turns = &mut self.step.turns;
        let running = self.running.iter().enumerate();
        let ready = running.filter(|(_, running)| running.sequence.is_ready());
        turns.extend(ready.map(|(index, running)| {
            let (class, line_since) = match running.sequence.kind() {
                ForwardKind::Decode => (ForwardClass::Decode, running.since),
                ForwardKind::Prefill | ForwardKind::Refresh => {
                    (ForwardClass::Long, running.long_since)
                }
            };
            Turn {
                since: running.since,
                line_since,
                class,
                rank: running.rank,
                id: running.sequence.id,
                client: running.sequence.request.sender.client,
                index,
            }
        }));
        turns.sort_unstable_by_key(|turn| (turn.client, turn.class, turn.line_key()));
        let mut end = 0;
        for group in turns.chunk_by(|a, b| (a.client, a.class) == (b.client, b.class)) {
            let (next, Turn { client, class, .. }) = (end, group[0]);
            end += group.len();
            self.step.groups.push(Group {
                class,
                had: self.clients.had(client, class),
                first: next,
                next,
                end,
            });
        }
        let decoding = turns.iter().any(|turn| turn.class == ForwardClass::Decode);
        self.deficit.begin(decoding);
    }

    /// The index of the next sequence of the step, with its forward in `forward`. `None` ends the
    /// step.
    pub(crate) fn next(&mut self, forward: &mut ForwardPlan) -> Option<usize> {
        loop {
            while let Some((group, turn)) = self.step.take_turn() {
                if let Some(rows) = self.runs(turn, forward) {
                    let had = self.clients.charge(turn.client, turn.class, rows);
                    self.step.groups[group].had = had;
                    return Some(turn.index);
                }
                self.clients.passed_over(turn.client, turn.class);
            }
            if self.step.forwards > 0 || !self.clients.lift_limits() {
                self.deficit.end();
                return None;
            }
            self.step.consider_again();
        }
    }

    /// The rows of a sequence if it is in this step; its forward is in `forward` then. The first one
    /// fits whatever its rows, so that every step has a batch. One that its client has no rows for
    /// leaves the [`Deficit`] to the clients after it.
    fn runs(&mut self, turn: Turn, forward: &mut ForwardPlan) -> Option<usize> {
        let is_long = turn.class == ForwardClass::Long;
        if is_long && self.deficit.is_closed() {
            return None;
        }
        let running = &mut self.running[turn.index];
        let known = running.next_rows;
        let rows = known.unwrap_or_else(|| {
            running.sequence.plan(forward);
            forward.rows.len()
        });
        running.next_rows = Some(rows);
        if !self.clients.may_have(turn.client, rows) {
            return None;
        }
        let has_room = self.step.forwards < self.max_running;
        let has_rows = self.step.rows + rows <= self.row_budget || self.step.forwards == 0;
        let fits = has_room && has_rows;
        if is_long && !self.deficit.admit(as_count(rows), fits) || !fits {
            return None;
        }
        if known.is_some() {
            running.sequence.plan(forward);
        }
        running.next_rows = None;
        running.since = self.steps;
        if is_long {
            running.long_since = self.steps;
        }
        self.step.forwards += 1;
        self.step.rows += rows;
        Some(rows)
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
        self.running().position(|sequence| sequence.id == id)
    }

    /// Puts a sequence whose job is back, or whose drafts are there, behind all that wait.
    pub(crate) fn wait_anew(&mut self, index: usize) {
        let running = &mut self.running[index];
        (running.since, running.long_since) = (self.steps, self.steps);
    }

    /// Takes a sequence out of the batch. The last one gets its index.
    pub(crate) fn retire(&mut self, index: usize) -> Sequence {
        let sequence = self.running.swap_remove(index).sequence;
        let client = sequence.request.sender.client;
        self.clients.end(client, sequence.kv.promised);
        sequence
    }

    /// Sequences that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Returns true if no sequence waits or runs.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.len() == 0 && self.running.is_empty()
    }
}
