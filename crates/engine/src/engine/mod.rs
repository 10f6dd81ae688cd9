//! Continuous batching: owns sequences, pages and the batch of the coming step.

mod apply;
mod plan;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use decode::{Filter, ForwardKind, Proposal, TokenClasses};
use step::{Batch, BatchOutput, ExecutorSpec, TokenId};

use crate::cache::ForwardPlan;
use crate::event::Event;
use crate::limits::Limits;
use crate::pages::{Grid, PagePool};
use crate::report::{ByRole, Gauges, StepReport};
use crate::request::{Refusal, Request};
use crate::scheduler::Deficit;
use crate::sequence::{Sequence, SequenceId};
use crate::step::Wanted;
use plan::Turn;

/// What the engine is told about its work.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Most sequences in the batch, `>= 1`.
    pub max_running: u32,
    /// Most sequences that wait for a place.
    pub max_waiting: u32,
    /// Most rows of a step, `>= 1`; a single sequence's forward is never split and may exceed it.
    pub row_budget: u32,
    /// Rows that prefills and refreshes take of a step on average while other sequences decode,
    /// `>= 1`. A longer one saves up over several steps; from the longest forward on they are
    /// never held back.
    pub long_quantum: u32,
    /// Whether sequences leave the K/V of sealed pages to those that begin with the same tokens;
    /// of no effect under full attention, where K/V depend on what follows.
    pub prefix_cache: bool,
    /// Most positions of a sequence; `None` = what the model was built for.
    pub max_model_len: Option<u32>,
    /// Delimiter facts of the vocabulary.
    pub classes: Arc<TokenClasses>,
    /// What the model brings for commit rules that need more than any model has.
    pub skills: Skills,
}

/// What a model brings for commit rules that need more than any model has.
#[derive(Clone, Debug, Default)]
pub struct Skills {
    /// The network of `learned_filter`.
    pub filter: Option<Arc<Filter>>,
    /// The weights were trained to rewrite committed tokens (`edit`).
    pub edits: bool,
}

/// The engine without a clock, a thread or a device: `plan` a step, run it elsewhere, `apply`
/// its output.
///
/// Invariants: a running sequence holds at most the pages promised to it; a sequence that is
/// not running holds none; between `plan` and `apply` (or `fail`) nothing else is called but
/// `poll_event`.
#[derive(Debug)]
pub struct Engine {
    pub(crate) limits: Limits,
    pub(crate) row_budget: u32,
    /// How pages depend on tokens, where sequences share them.
    pub(crate) shared: Option<Grid>,
    pub(crate) mask: TokenId,
    classes: Arc<TokenClasses>,
    filter: Option<Arc<Filter>>,
    pub(crate) pool: PagePool,
    pub(crate) waiting: VecDeque<Sequence>,
    pub(crate) running: Vec<Sequence>,
    pub(crate) events: VecDeque<(SequenceId, Event)>,
    pub(crate) step: u64,
    next_id: u64,
    pub(crate) batch: Batch,
    pub(crate) planned: Vec<Planned>,
    pub(crate) scored: Vec<decode::Offset>,
    pub(crate) wanted: Vec<Wanted>,
    /// Entries of [`BatchOutput::tops`] that the batch asks for.
    pub(crate) tops: usize,
    /// The running sequences in the order of the step.
    pub(crate) order: Vec<Turn>,
    pub(crate) deficit: Deficit,
    pub(crate) forward: ForwardPlan,
    pub(crate) proposals: Vec<Proposal>,
    pub(crate) report: StepReport,
}

/// A sequence of the coming step.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    /// Index into `running`.
    pub(crate) index: usize,
    /// End of its offsets in `scored`; they begin where the last sequence's ended.
    pub(crate) scored_end: u32,
    /// What its forward is.
    pub(crate) kind: ForwardKind,
    /// What a traced sequence reports of this forward.
    pub(crate) trace: Option<Box<crate::event::StepTrace>>,
}

impl Engine {
    /// An idle engine over the executor's pages.
    pub fn new(config: &EngineConfig, spec: ExecutorSpec) -> Self {
        let model = spec.max_positions;
        let limits = Limits {
            max_model_len: config.max_model_len.map_or(model, |len| len.min(model)),
            vocab_size: spec.vocab_size,
            page_size: spec.page_size,
            pages: spec.pages,
            max_running: config.max_running.max(1),
            max_waiting: config.max_waiting,
            filter: config.skills.filter.as_ref().map(|filter| filter.size()),
            edits: config.skills.edits,
            attention: spec.attention,
            readout: spec.readout,
        };
        Self {
            limits,
            row_budget: config.row_budget.max(1),
            shared: limits.grid().filter(|_| config.prefix_cache),
            mask: spec.mask,
            classes: Arc::clone(&config.classes),
            filter: config.skills.filter.clone(),
            pool: PagePool::new(spec.pages, spec.page_size),
            waiting: VecDeque::new(),
            running: Vec::new(),
            events: VecDeque::new(),
            step: 0,
            next_id: 0,
            batch: Batch::default(),
            planned: Vec::new(),
            scored: Vec::new(),
            wanted: Vec::new(),
            tops: 0,
            order: Vec::new(),
            deficit: Deficit::new(config.long_quantum),
            forward: ForwardPlan::default(),
            proposals: Vec::new(),
            report: StepReport::default(),
        }
    }

    /// What a single request may ask for.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Queues a request.
    ///
    /// # Errors
    /// If it can never be served here.
    pub fn submit(&mut self, request: Request) -> Result<SequenceId, Refusal> {
        self.limits.admit(&request)?;
        let id = SequenceId(self.next_id);
        self.next_id += 1;
        let facts = (Arc::clone(&self.classes), self.filter.clone());
        let sequence = Sequence::new(id, request, facts, &self.limits);
        self.waiting.push_back(sequence);
        Ok(id)
    }

    /// Drops a sequence in any state; no event follows. False if it is not there any more.
    pub fn cancel(&mut self, id: SequenceId) -> bool {
        if let Some(index) = self.waiting.iter().position(|sequence| sequence.id == id) {
            self.waiting.remove(index);
            self.report.cancelled += 1;
            return true;
        }
        let Some(index) = self.running.iter().position(|sequence| sequence.id == id) else {
            return false;
        };
        self.retire(index);
        self.report.cancelled += 1;
        true
    }

    /// Whether there is nothing to do.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// The next event of any sequence, in order.
    pub fn poll_event(&mut self) -> Option<(SequenceId, Event)> {
        self.events.pop_front()
    }

    /// The facts since the last [`Engine::clear_report`].
    pub fn report(&mut self) -> &mut StepReport {
        self.report.gauges = self.gauges();
        &mut self.report
    }

    /// Starts a new report.
    pub fn clear_report(&mut self) {
        self.report.clear();
    }

    /// The batch of the coming step: see [`Engine::plan`].
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    fn gauges(&self) -> Gauges {
        let mut lanes = ByRole::default();
        for sequence in &self.running {
            let tree = sequence.decoder.tree();
            for id in tree.active() {
                *lanes.of(tree.get(*id).role) += 1;
            }
        }
        Gauges {
            running: self.running.len() as u32,
            waiting: self.waiting.len() as u32,
            lanes,
            pages_used: self.pool.used(),
            pages_idle: self.pool.idle(),
            pages_total: self.pool.total(),
        }
    }

    /// Takes a sequence out of the batch and gives its pages back.
    pub(crate) fn retire(&mut self, index: usize) {
        let mut sequence = self.running.swap_remove(index);
        // Whatever has not finished is dropped with its sequence.
        self.report.lanes_finished.generate += sequence.open_lanes.generate;
        self.report.lanes_finished.refine += sequence.open_lanes.refine;
        sequence.tables.release(&mut self.pool);
        self.pool.unreserve(sequence.reserved);
    }

    /// Checks every invariant; for tests.
    ///
    /// # Errors
    /// The first broken one, in words.
    pub fn validate(&self) -> Result<(), String> {
        let tables = self
            .running
            .iter()
            .flat_map(|sequence| sequence.tables.iter());
        self.pool.validate(tables)?;
        for sequence in &self.running {
            sequence.decoder.tree().validate()?;
        }
        if self.running.len() > self.limits.max_running as usize {
            return Err("more sequences run than allowed".to_owned());
        }
        Ok(())
    }

    /// Applies the output of the planned batch. `now` is the time since any fixed moment.
    pub fn apply(&mut self, output: &BatchOutput, now: Duration) {
        apply::apply(self, output, now);
    }

    /// The planned batch failed: its sequences end with `message`, others go on.
    pub fn fail(&mut self, message: &str) {
        apply::fail(self, message);
    }

    /// Admits waiting sequences and packs the coming step; false if there is nothing to run.
    pub fn plan(&mut self) -> bool {
        plan::plan(self)
    }
}
