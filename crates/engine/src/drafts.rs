//! A draft model beside the model: an engine of its own over an executor of its own, which continues
//! texts by a few tokens.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use step::{BatchOutput, Executor};

use crate::config::{Capabilities, EngineConfig};
use crate::decoding::Decoding;
use crate::draft_job::{DraftJob, Drafts};
use crate::engine::Engine;
use crate::event::Event;
use crate::guarded::guarded;
use crate::limits::Limits;
use crate::request::Request;
use crate::sequence::SequenceId;

/// Drafts by a second model of the same tokenizer (DiffuSpec, arXiv 2510.02358).
///
/// It is greedy and knows no stop tokens. What it drafts for a text depends on the text alone, so
/// a sequence's forward passes are the same whatever else runs. Whatever it drafts, or if it fails,
/// the verified text is the same.
pub struct Drafter {
    engine: Engine,
    executor: Box<dyn Executor>,
    decoding: Decoding,
    output: BatchOutput,
    /// By its own sequences.
    open: HashMap<SequenceId, Drafts>,
    done: VecDeque<Drafts>,
}

impl Drafter {
    /// A drafter for an engine of `config` that decodes by `decoding`, which goes with the executor.
    pub fn new(config: &EngineConfig, executor: Box<dyn Executor>, decoding: Decoding) -> Self {
        let most = config.max_running.max(1);
        let config = EngineConfig {
            // Every running sequence may wait for drafts at once.
            max_running: most.saturating_add(most.div_ceil(2)),
            max_model_len: None,
            capabilities: Capabilities::default(),
            ..config.clone()
        };
        Self {
            engine: Engine::new(&config, executor.spec()),
            executor,
            decoding,
            output: BatchOutput::default(),
            open: HashMap::new(),
            done: VecDeque::new(),
        }
    }

    /// The limits of a text.
    pub fn limits(&self) -> Limits {
        self.engine.limits()
    }

    /// Begins to draft. A text that the draft model cannot read has no drafts.
    pub fn accept(&mut self, job: DraftJob) {
        let drafts =
            Drafts { sequence: job.sequence, tokens: Vec::new(), forwards: 0, positions: 0 };
        let mut request = Request::new(job.text, job.count, self.decoding.clone());
        request.sender.client = job.client;
        match self.engine.submit(request) {
            Ok(id) => {
                self.open.insert(id, drafts);
            }
            Err(_) => self.done.push_back(drafts),
        }
    }

    /// Returns true if it drafts, or has drafts to give.
    pub fn is_busy(&self) -> bool {
        !self.open.is_empty() || !self.done.is_empty()
    }

    /// Takes the texts of `engine` that want drafts, runs a forward pass of the draft model if there is
    /// one to run, and gives the drafts that are done to their sequences. Call it between two steps of
    /// the engine; `now` as for [`Engine::apply`].
    pub fn advance(&mut self, engine: &mut Engine, now: Duration) {
        while let Some(job) = engine.take_draft_job() {
            self.accept(job);
        }
        self.step(now);
        while let Some(drafts) = self.take() {
            engine.settle_drafts(&drafts);
        }
    }

    /// Runs the next forward pass of the draft model; false if there is nothing to run. `now` as for
    /// [`Engine::apply`]. A pass that fails or panics leaves its texts without drafts.
    pub fn step(&mut self, now: Duration) -> bool {
        let planned = self.engine.plan();
        let ran = planned.is_some();
        if let Some(step) = planned {
            let (executor, output) = (&mut self.executor, &mut self.output);
            let batch = step.batch();
            let run = guarded(|| {
                executor.begin(batch)?;
                executor.execute(batch, output)
            });
            match run {
                Ok(()) => self.engine.apply(step, &self.output, now),
                Err(error) => {
                    tracing::warn!("the draft model failed: {error}");
                    self.engine.fail(step, &error.to_string());
                }
            }
        }
        self.collect();
        ran
    }

    /// Drafts that are done, if there are any.
    pub fn take(&mut self) -> Option<Drafts> {
        self.done.pop_front()
    }

    /// Drops what is drafted for a sequence that has ended.
    pub fn forget(&mut self, sequence: SequenceId) {
        let engine = &mut self.engine;
        self.open.retain(|id, drafts| {
            let ended = drafts.sequence == sequence;
            if ended {
                engine.cancel(*id);
            }
            !ended
        });
        self.done.retain(|drafts| drafts.sequence != sequence);
    }

    fn collect(&mut self) {
        while let Some((id, event)) = self.engine.poll_event() {
            let Some(drafts) = self.open.get_mut(&id) else {
                continue;
            };
            match &event {
                Event::Tokens { chunk, .. } => drafts.tokens.extend_from_slice(chunk.as_slice()),
                Event::Finished(finished) => {
                    drafts.forwards = finished.stats.forwards();
                    drafts.positions = finished.stats.positions;
                }
                _ => {}
            }
            if event.is_last() {
                self.done.extend(self.open.remove(&id));
            }
        }
        self.engine.clear_report();
    }
}

impl std::fmt::Debug for Drafter {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut fields = out.debug_struct("Drafter");
        fields.field("engine", &self.engine).finish_non_exhaustive()
    }
}
