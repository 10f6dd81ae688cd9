//! The scheduler: it chooses the waiting sequence that starts next, and the running sequences of a step.
//!
//! # Bounds on waiting
//!
//! B is the row budget of a step. P is the number of places: most sequences of a step. Q is the
//! quantum of rows for *long* forwards, which are prefills and refreshes. W is
//! [`WaitOrder::aging_steps`]. L are the tokens of the longest sequence, prompt and budget. M are
//! the rows of the longest forward. A bound on running sequences counts the steps in which the
//! sequence is ready, that is, not waiting for a job of its grammar or for drafts.
//!
//! **Chunks.** C are the rows of a chunk of a prompt
//! ([`EngineConfig::prefill_chunk`](crate::EngineConfig::prefill_chunk)). With an exact cache under
//! causal and block-causal attention, a prefill of more than C rows is several long forwards, of which
//! each counts here by itself, and M is the largest of C, a block of the weights and the rows of one
//! decode forward: the length of a prompt does not occur in the bounds on others. Under full
//! attention and on canvas models a prefill is one forward, and M is at least the longest prompt.
//!
//! **A waiting sequence.** The sequences of a client form a line. Its head is the oldest sequence
//! once that has waited W steps, else the sequence of lowest rank. Heads that have aged start before
//! all others, then those of lower rank. Among heads that are equal in this, clients take turns by
//! deficit round robin with a quantum of one token: a head of k tokens starts k rounds after its
//! client's last start, or after its line began. The first head in this order that does not fit
//! blocks all others, except those that its client has no room for (see below).
//!
//! - Let x wait, and let T be the tokens of x and of those before it in its line. While its client
//!   has room, sequences of another client in the class of x that start before x have at most T + L
//!   tokens. For x starts within T rounds. The other client's first start may use at most L rounds
//!   that came before x, and every further start uses rounds that no start of its own has used.
//! - Within a client, once a sequence has waited W steps, no sequence submitted later starts before
//!   it. Among clients it is in the first class then, so the bound above holds whatever the ranks:
//!   it waits W steps, at most T + L tokens of each other client, and the time in which running
//!   sequences make room.
//! - Running sequences end: each step of a sequence forwards a part of its prompt for the only time,
//!   commits a token or counts towards its limit, and the bounds below hold between its steps.
//! - With one client and equal ranks, sequences start in order of submission.
//!
//! **Room.** While fewer than P sequences run, every client has a place. If clients share the
//! engine, further places are open to those who run less than an even share: with C clients that
//! run, a client that runs less than ⌊P / C⌋ sequences, or none, has a place, up to P + ⌈P / 2⌉
//! sequences in all. A client that already runs something leaves one eighth of the pages to others.
//! So however many sequences one client has, another one starts its first ⌊P / 2⌋ sequences at once,
//! in the next step, as long as they need no more pages than the eighth. Beyond that it waits until
//! running sequences end.
//!
//! **A running sequence.** A step goes through the running sequences of a client in the order of
//! [`Turn::key`]: first those that wait longest since their last forward, or since they started. The
//! key of a sequence does not change while it waits, so two sequences that wait keep their order. A
//! sequence that has run, or that starts, goes behind all that wait. The rank only orders sequences
//! that have waited equally long, so it occurs in none of these bounds. Among clients, the next
//! forward is that of the client that has had the fewest rows, counted for decode and for long
//! forwards apart; of the two kinds the one that waits longer is considered first. A client whose
//! forwards all ran in the last step counts as one that has had the most rows: it saves nothing up.
//! The first forward that is considered runs whatever its rows, unless it is long and not covered by
//! the [`Deficit`], or its client owes rows.
//!
//! - Let a forward of client c wait. Forwards of c before it have R rows. A forward of the same kind
//!   of another client goes before it only while that client has had no more rows than c. So the
//!   other client's forwards before it have at most D + R + M rows: D are the rows that c has had
//!   more than the other when the wait begins. If c runs only this sequence and one other client
//!   shares the engine, D is at most the rows of c's last forward: the number of the other's
//!   sequences does not occur.
//! - While clients share the engine, a client has at most A rows in a step, or one forward. A is
//!   ⌈B / 4⌉. Beside clients that had all the rows they wanted in the last step, it is what the
//!   largest of these had, but at least ⌈B / 32⌉ and at most ⌈B / 4⌉. Rows beyond A count in the
//!   steps that follow, unless all forwards of the client ran: its one long prompt comes in a chunk a
//!   step. So beside a client that has all it wants, another one, over any number of steps in which
//!   some of its forwards do not run, has at most as many rows as that client, or ⌈B / 32⌉ a step,
//!   and the rows of one forward. The limits are lifted in a step in which no forward ran under them,
//!   so that every step has a batch.
//! - In what follows B is ⌈B / 32⌉ for forwards of the same client while clients share the engine,
//!   and a forward of r rows that goes before counts as ⌈32 r / B⌉ steps more.
//! - Let a decode forward of d rows wait behind O forwards, which have R' rows: the earlier ones of c,
//!   and those of other clients that the point before allows. A step passes it over only if forwards
//!   before it leave less than d rows, or are P. Those have run: such a step takes at least one of
//!   the O forwards, and more than B - d of the R' rows, or P forwards. The forward waits at most O
//!   steps, and at most R' / min(B - d + 1, P) steps if d <= B.
//! - The first waiting long forward, of r rows, gets Q rows of credit a step until it is covered:
//!   ⌈r / Q⌉ steps. From then on a step passes it over only if decode forwards before it leave no
//!   room, and each of those does so once. The long forwards before it go one after the other, so
//!   it waits less than Σ ⌈r / Q⌉ + O' steps: the sum is over its own rows and theirs, O' is the
//!   number of decode forwards before it. If nothing decodes, the first long forward runs at once.
//! - The credit stays below r + Q, where r are the rows of the first long forward, and a step that
//!   begins with r covered adds none. So n steps in a row hold less than n Q rows of long forwards
//!   and the rows of the longest one.
//! - A step holds at most P forwards, and at most B rows or one forward.
//! - So while others decode, a step holds less than Q + M rows of long forwards. If these and the
//!   decode forwards that are ready fit into B and P, every one of the decode forwards is in the
//!   step: with chunks, a prompt of any length delays none of them, and makes a step longer by less
//!   than Q + M rows.
//! - With chunks, let C' be the whole blocks of C rows, but one block at least; under causal attention
//!   it is C. The prefill of a prompt of r rows is at most ⌈r / C'⌉ + 2 forwards: one more where the
//!   prefix cache ends within a block, one for the first window. They wait one after the other, each
//!   behind all that wait already.

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
    /// its client has a place.
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
        let placed = self.queue.first(now, may);
        let first = placed.or_else(|| self.queue.first(now, |_| true))?;
        let id = first.id;
        fits(first, placed.is_some()).then(|| self.queue.start(id))?
    }

    /// Gives a sequence a place in the batch, behind all that run.
    pub(crate) fn start(&mut self, Waiting { sequence, rank, .. }: Waiting) {
        let client = sequence.request.sender.client;
        self.clients.start(client, sequence.kv.promised);
        self.running.push(Running { sequence, rank, since: self.steps, next_rows: None });
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
        turns.extend(ready.map(|(index, running)| Turn {
            since: running.since,
            class: match running.sequence.kind() {
                ForwardKind::Decode => ForwardClass::Decode,
                ForwardKind::Prefill | ForwardKind::Refresh => ForwardClass::Long,
            },
            rank: running.rank,
            id: running.sequence.id,
            client: running.sequence.request.sender.client,
            index,
        }));
        turns.sort_unstable_by_key(|turn| (turn.client, turn.class, turn.key()));
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
        let has_place = self.step.forwards < self.max_running;
        let has_rows = self.step.rows + rows <= self.row_budget || self.step.forwards == 0;
        let fits = has_place && has_rows;
        if is_long && !self.deficit.admit(as_count(rows), fits) || !fits {
            return None;
        }
        if known.is_some() {
            running.sequence.plan(forward);
        }
        running.next_rows = None;
        running.since = self.steps;
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
        self.running().position(|of| of.id == id)
    }

    /// Puts a sequence whose job is back, or whose drafts are there, behind all that wait.
    pub(crate) fn wait_anew(&mut self, index: usize) {
        self.running[index].since = self.steps;
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
