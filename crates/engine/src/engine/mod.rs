//! The engine: one step at a time, without a clock, a thread or a device.

mod apply;
mod drafts;
mod jobs;
mod plan;

use std::collections::VecDeque;
use std::sync::Arc;

use decode::{as_count, as_index};
use step::{Attention, ExecutorSpec};

use crate::config::EngineConfig;
use crate::counts::ByRole;
use crate::draft_job::DraftJob;
use crate::event::Event;
use crate::limits::Limits;
use crate::pages::PagePool;
use crate::report::{Gauges, PhaseTimes, StepReport};
use crate::request::{Refusal, Request};
use crate::scheduler::{Scheduler, StepSizes};
use crate::sequence::GrammarJob;
use crate::sequence::{DecoderParts, Sequence, SequenceId};
use crate::step::StepBuffers;

/// Continuous batching as a state machine. The caller owns the executor and the clock.
///
/// Call order:
/// 1. [`submit`](Self::submit) and [`cancel`](Self::cancel), any number of times;
/// 2. [`plan`](Self::plan): the next step, if there is one;
/// 3. the caller runs [`StepPlan::batch`]; [`poll_event`](Self::poll_event) may be called
///    meanwhile;
/// 4. [`apply`](Self::apply) with the output, or [`fail`](Self::fail);
/// 5. with [`hand_out_jobs`](Self::hand_out_jobs): the caller runs the jobs of
///    [`take_job`](Self::take_job), anywhere and for as long as it takes, and gives them to
///    [`settle`](Self::settle) between two steps; without it, jobs run inside `plan` and `apply`;
///    with [`hand_out_drafts`](Self::hand_out_drafts) the same for
///    [`take_draft_job`](Self::take_draft_job) and [`settle_drafts`](Self::settle_drafts);
/// 6. [`poll_event`](Self::poll_event) until it returns `None`;
/// 7. [`report`](Self::report), then [`clear_report`](Self::clear_report), then step 1 again.
///
/// Invariants: a running sequence holds at most the pages promised to it; a sequence that does not
/// run holds none.
///
/// ```
/// # use std::time::Duration;
/// # use asynclane_engine::{Engine, Event};
/// # use step::{BatchOutput, ExecuteError, Executor};
/// fn run_to_end(engine: &mut Engine, executor: &mut dyn Executor) -> Result<(), ExecuteError> {
///     let mut output = BatchOutput::default();
///     while !engine.is_idle() {
///         if let Some(step) = engine.plan() {
///             executor.execute(step.batch(), &mut output)?;
///             engine.apply(step, &output, Duration::ZERO);
///         }
///         while let Some((id, event)) = engine.poll_event() {
///             if let Event::Tokens { chunk, .. } = event {
///                 println!("{id:?}: {:?}", chunk.as_slice());
///             }
///         }
///         engine.clear_report();
///     }
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Engine {
    limits: Limits,
    parts: DecoderParts,
    scheduler: Scheduler,
    buffers: StepBuffers,
    pages: PagePool,
    outbox: Outbox,
    report: StepReport,
    next_id: u64,
}

/// The output that the caller takes between two steps.
#[derive(Debug, Default)]
struct Outbox {
    events: VecDeque<(SequenceId, Event)>,
    /// Jobs for the caller; `None` = the engine runs them itself.
    jobs: Option<VecDeque<GrammarJob>>,
    /// Texts that want drafts; `None` = no drafts are asked for.
    drafts: Option<VecDeque<DraftJob>>,
}

impl Engine {
    /// An idle engine over the executor's pages.
    pub fn new(config: &EngineConfig, spec: ExecutorSpec) -> Self {
        let model = spec.max_positions;
        let filter = &config.capabilities.filter;
        let limits = Limits {
            max_model_len: config.max_model_len.map_or(model, |len| len.min(model)),
            vocab_size: spec.vocab_size,
            page_size: spec.page_size,
            pages: spec.pages,
            max_running: config.max_running.max(1),
            max_waiting: config.max_waiting,
            filter: filter.as_ref().map(|filter| filter.size()),
            edits: config.capabilities.edits,
            drafts: match spec.attention {
                Attention::OpenBlock(_) => config.capabilities.block_drafts,
                _ => config.capabilities.drafts,
            },
            masks: config.capabilities.masks && spec.mask.is_some(),
            attention: spec.attention,
            logit_shift: spec.logit_shift,
            prefill_chunk: config.prefill_chunk,
        };
        let sizes = StepSizes {
            max_running: config.max_running,
            pages: spec.pages,
            row_budget: config.row_budget,
            long_quantum: config.long_quantum,
        };
        let shared = limits.grid().filter(|_| config.prefix_cache);
        Self {
            limits,
            parts: DecoderParts { classes: Arc::clone(&config.classes), filter: filter.clone() },
            scheduler: Scheduler::new(Arc::clone(&config.wait_order), sizes),
            buffers: StepBuffers::new(&spec),
            pages: PagePool::new(spec.pages, spec.page_size, shared),
            outbox: Outbox::default(),
            report: StepReport::default(),
            next_id: 0,
        }
    }

    /// The limits of a single request. Callable at any time.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Queues a request. Callable at any time; the sequence starts in a later [`Self::plan`].
    ///
    /// # Errors
    /// If it can never be served here.
    pub fn submit(&mut self, request: Request) -> Result<SequenceId, Refusal> {
        self.limits.admit(&request)?;
        let id = SequenceId(self.next_id);
        self.next_id += 1;
        let rank = self.scheduler.rank(&request);
        let sequence = Sequence::new(id, request, &self.parts, &self.limits);
        self.scheduler.enqueue(sequence, rank);
        Ok(id)
    }

    /// From now on the caller runs the jobs of sequences under a grammar. A sequence is in no step
    /// until its job is back, all others go on.
    pub fn hand_out_jobs(&mut self) {
        self.outbox.jobs.get_or_insert_default();
    }

    /// The next job to run, if there is one. Callable at any time.
    pub fn take_job(&mut self) -> Option<GrammarJob> {
        self.outbox.jobs.as_mut()?.pop_front()
    }

    /// Ends a running sequence whose job does not come back; `event` is its last one,
    /// [`Event::Refused`] or [`Event::Failed`]. The job may still be given to [`Self::settle`] later.
    /// Nothing happens if the sequence has ended. Not callable between [`Self::plan`] and
    /// [`Self::apply`] or [`Self::fail`].
    pub fn end(&mut self, id: SequenceId, event: Event) {
        self.check_between_steps();
        if let Some(index) = self.scheduler.index_of(id) {
            self.retire(index);
            self.outbox.events.push_back((id, event));
        }
    }

    /// From now on the caller gives drafts to sequences whose schedule takes them. A sequence is in no
    /// step until its drafts are there, all others go on.
    pub fn hand_out_drafts(&mut self) {
        self.outbox.drafts.get_or_insert_default();
    }

    /// The next text that wants drafts, if there is one. Callable at any time.
    pub fn take_draft_job(&mut self) -> Option<DraftJob> {
        self.outbox.drafts.as_mut()?.pop_front()
    }

    /// Returns true if texts want drafts. Callable at any time.
    pub fn wants_drafts(&self) -> bool {
        let drafts = self.outbox.drafts.as_ref();
        drafts.is_some_and(|drafts| !drafts.is_empty())
    }

    /// Drops a sequence and its job; no event follows. False if it has ended already. Not callable between
    /// [`Self::plan`] and [`Self::apply`] or [`Self::fail`].
    pub fn cancel(&mut self, id: SequenceId) -> bool {
        self.check_between_steps();
        if !self.scheduler.remove_waiting(id) {
            let Some(index) = self.scheduler.index_of(id) else {
                return false;
            };
            self.retire(index);
            if let Some(jobs) = &mut self.outbox.jobs {
                jobs.retain(|job| job.id != id);
            }
            if let Some(drafts) = &mut self.outbox.drafts {
                drafts.retain(|job| job.sequence != id);
            }
        }
        self.report.cancelled += 1;
        true
    }

    /// Returns true if no sequence waits or runs. Callable at any time.
    pub fn is_idle(&self) -> bool {
        self.scheduler.is_idle()
    }

    /// The next event of any sequence, in order. Callable at any time.
    pub fn poll_event(&mut self) -> Option<(SequenceId, Event)> {
        self.outbox.events.pop_front()
    }

    /// The facts since the last [`Self::clear_report`], with the gauges of this moment. Complete
    /// once a step has been handed back.
    pub fn report(&mut self) -> &mut StepReport {
        self.report.gauges = self.gauges();
        &mut self.report
    }

    /// Starts a new report. Call it between two steps.
    pub fn clear_report(&mut self) {
        self.report.clear();
    }

    /// The phase times of the present report, for the caller to fill.
    pub(crate) fn times(&mut self) -> &mut PhaseTimes {
        &mut self.report.times
    }

    fn gauges(&self) -> Gauges {
        let mut lanes = ByRole::default();
        for sequence in self.scheduler.running() {
            let own = sequence.decoder.active_lanes();
            lanes.generate += own.generate;
            lanes.refine += own.refine;
        }
        Gauges {
            running: as_count(self.scheduler.running().len()),
            waiting: as_count(self.scheduler.waiting()),
            lanes,
            pages_used: self.pages.used(),
            pages_idle: self.pages.idle(),
            pages_total: self.pages.total(),
        }
    }

    /// Asserts that no planned step waits for its output.
    fn check_between_steps(&self) {
        debug_assert!(!self.buffers.is_under_way(), "a planned step is handed back");
    }

    /// Checks every invariant; for tests. Callable between two steps.
    ///
    /// # Errors
    /// The first broken one, in words.
    pub fn validate(&self) -> Result<(), String> {
        let running = self.scheduler.running();
        let tables = running.flat_map(|sequence| sequence.kv.tables.iter());
        self.pages.validate(tables.flat_map(|table| table.pages()))?;
        for sequence in self.scheduler.running() {
            if !sequence.decoder.is_lent() {
                sequence.decoder.tree().validate()?;
            }
        }
        let most = as_index(self.limits.max_running);
        if self.scheduler.running().len() > most + most.div_ceil(2) {
            return Err("more sequences run than allowed".to_owned());
        }
        Ok(())
    }
}
