//! An engine and a simulated model without a thread: every step is checked as it happens.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use asynclane_engine::{
    ByKind, ByRole, Engine, EngineConfig, Event, FinishReason, Finished, GrammarJob, Refusal,
    Request, SequenceId, SequenceStats, StepPlan, StepReport, StepTrace, TokenLogprob,
};
use sim::{SimConfig, SimExecutor};
use step::{Batch, BatchOutput, Executor, Segment, TokenId, TopToken};

use super::drafted;

/// The events of one sequence up to now.
#[derive(Clone, Debug, Default)]
pub struct Log {
    pub started: bool,
    pub tokens: Vec<TokenId>,
    pub logprobs: Vec<TokenLogprob>,
    pub steps: Vec<StepTrace>,
    pub labels: Vec<TopToken>,
    pub end: Option<End>,
    /// Batches with scored rows of the sequence, batches with chunks of its prompt, and the number of
    /// rows in all of them.
    pub forwards: u32,
    pub chunks: u32,
    pub positions: u64,
    /// Its commit rule keeps a position's noise in all steps.
    pub keeps_noise: bool,
    /// A forward of it may give several steps.
    pub is_guessed: bool,
}

/// The end of a sequence.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    Finished(Finished),
    Refused(String),
    Failed(String),
    Cancelled,
}

/// The outcome of a finished sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub tokens: Vec<TokenId>,
    pub logprobs: Vec<TokenLogprob>,
    pub reason: FinishReason,
    pub stats: SequenceStats,
}

/// The sums over all step reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub executed: u64,
    pub failed: u64,
    pub forwards: [u64; 3],
    pub chunks: u64,
    pub positions: [u64; 3],
    pub commits: [u64; 3],
    pub commit_latencies: u64,
    pub emitted: u64,
    pub lanes_started: ByRole,
    pub lanes_forked: u32,
    pub lanes_finished: ByRole,
    pub cancelled: u32,
    pub finished: u32,
    pub most_refine_lanes: u32,
    pub most_pages: u32,
}

/// See the module.
#[derive(Debug)]
pub struct Lab {
    pub engine: Engine,
    pub executor: SimExecutor,
    pub logs: BTreeMap<SequenceId, Log>,
    /// Sequences in the order in which they started.
    pub starts: Vec<SequenceId>,
    pub totals: Totals,
    /// Sequences by sampling seed; every request has its own.
    seeds: BTreeMap<u64, SequenceId>,
    planned: Option<StepPlan>,
    output: BatchOutput,
    time: Duration,
}

impl Lab {
    pub fn new(config: &EngineConfig, executor: SimExecutor) -> Self {
        Self {
            engine: Engine::new(config, executor.spec()),
            executor,
            logs: BTreeMap::new(),
            starts: Vec::new(),
            totals: Totals::default(),
            seeds: BTreeMap::new(),
            planned: None,
            output: BatchOutput::default(),
            time: Duration::ZERO,
        }
    }

    /// Submits a request whose sampling seed no other one has.
    pub fn submit(&mut self, request: Request) -> Result<SequenceId, Refusal> {
        let seed = request.sampling.seed;
        let decoder = &request.decoding.decoder;
        let keeps_noise = decoder.commit.info().requires.checks;
        let is_guessed = decoder.commit.branches().max(decoder.expected) > 0;
        let id = self.engine.submit(request)?;
        assert_eq!(self.seeds.insert(seed, id), None, "seeds tell sequences apart");
        let log = Log { keeps_noise, is_guessed, ..Log::default() };
        self.logs.insert(id, log);
        Ok(id)
    }

    /// Cancels a sequence; true if it had not ended.
    pub fn cancel(&mut self, id: SequenceId) -> bool {
        let log = self.logs.get_mut(&id).expect("a known sequence");
        let cancelled = self.engine.cancel(id);
        assert_eq!(cancelled, log.end.is_none(), "{id:?} is there until it ends");
        if cancelled {
            log.end = Some(End::Cancelled);
        }
        self.engine.validate().expect("valid after a cancel");
        cancelled
    }

    /// Takes back a job that has run.
    pub fn settle(&mut self, job: GrammarJob) {
        self.engine.settle(job, self.time);
        self.engine.validate().expect("valid after a job");
        let failures = self.drain();
        assert!(failures.is_empty(), "{failures:?} failed: {:?}", self.logs);
    }

    /// One step; false if there was nothing to run.
    pub fn step(&mut self) -> bool {
        let planned = self.engine.plan();
        let ready = planned.is_some();
        let mut batch_of = BTreeSet::new();
        let mut rows = 0;
        let mut failed = false;
        if let Some(step) = planned {
            self.time += Duration::from_millis(10);
            (batch_of, rows) = self.book(step.batch());
            match self.executor.execute(step.batch(), &mut self.output) {
                Ok(()) => self.engine.apply(step, &self.output, self.time),
                Err(error) => {
                    self.engine.fail(step, &error.to_string());
                    failed = true;
                }
            }
        }
        self.engine.validate().expect("valid after a step");
        let failures = self.drain();
        if failed {
            assert_eq!(failures, batch_of, "a failed step fails its sequences and no others");
        } else {
            assert!(failures.is_empty(), "{failures:?} failed: {:?}", self.logs);
        }
        let report = self.engine.report();
        assert_eq!(report.work.sequences as usize, batch_of.len());
        assert_eq!((report.executed, report.failed), (ready && !failed, failed));
        let counts = report.work.positions;
        assert_eq!(counts.prefill + counts.decode + counts.refresh, rows);
        let report = report.clone();
        self.engine.clear_report();
        self.add_up(&report);
        ready
    }

    /// The batch of the next step, for a test that looks at it before [`Self::finish_planned`].
    pub fn plan(&mut self) -> &Batch {
        let step = self.engine.plan().expect("there is something to run");
        self.planned.insert(step).batch()
    }

    /// [`Self::finish`] after [`Self::plan`]: the planned step runs unchecked.
    pub fn finish_planned(&mut self) {
        let step = self.planned.take().expect("it was planned");
        self.book(step.batch());
        self.executor.execute(step.batch(), &mut self.output).expect("a sound batch");
        self.engine.apply(step, &self.output, self.time);
        self.drain();
        let report = self.engine.report().clone();
        self.engine.clear_report();
        self.add_up(&report);
        self.finish();
    }

    /// Steps until the engine is idle, then checks that everything was given back.
    pub fn finish(&mut self) {
        let mut steps = 0;
        while !self.engine.is_idle() {
            self.step();
            steps += 1;
            assert!(steps < 100_000, "the engine never ends");
        }
        assert!(!self.step(), "an idle engine has nothing to run");
        assert_eq!(self.engine.report().gauges.pages_used, 0, "all pages are free again");
        for (id, log) in &self.logs {
            assert!(log.end.is_some(), "{id:?} has no end");
        }
        let (born, dead) = (self.totals.lanes_started, self.totals.lanes_finished);
        assert_eq!(born.refine, dead.refine, "refine lanes started and finished");
        assert_eq!(
            born.generate,
            dead.generate + self.totals.lanes_forked,
            "generate lanes started, and forked or finished"
        );
    }

    /// The outcome of a sequence that finished.
    pub fn outcome(&self, id: SequenceId) -> Option<Outcome> {
        let log = &self.logs[&id];
        match &log.end {
            Some(End::Finished(Finished { reason, stats, .. })) => Some(Outcome {
                tokens: log.tokens.clone(),
                logprobs: log.logprobs.clone(),
                reason: *reason,
                stats: *stats,
            }),
            _ => None,
        }
    }

    /// Books the batch's rows on their sequences.
    fn book(&mut self, batch: &Batch) -> (BTreeSet<SequenceId>, u64) {
        let mut sequences = BTreeSet::new();
        let is_scored = |segment: &&Segment| {
            let mut rows = batch.rows_of(segment).iter();
            rows.any(|row| row.score.is_wanted())
        };
        let scored = batch.segments.iter().filter(is_scored);
        let scored: BTreeSet<u64> = scored.map(|segment| segment.sampling.seed).collect();
        for segment in &batch.segments {
            let id = self.seeds[&segment.sampling.seed];
            let log = self.logs.get_mut(&id).expect("a known sequence");
            let is_chunk = !scored.contains(&segment.sampling.seed);
            let counter = match is_chunk {
                true => &mut log.chunks,
                false => &mut log.forwards,
            };
            *counter += u32::from(sequences.insert(id));
            let clock = match log.keeps_noise || is_chunk {
                true => 0,
                false => log.forwards - 1,
            };
            let found = segment.sampling.clock;
            let is_step = found == clock || log.is_guessed && !is_chunk && found > clock;
            assert!(is_step, "{id:?}: the clock of its noise is {found}, not {clock}");
            log.positions += u64::from(segment.rows.end - segment.rows.start);
        }
        (sequences, batch.rows.len() as u64)
    }

    /// Takes all events; returns which sequences failed.
    fn drain(&mut self) -> BTreeSet<SequenceId> {
        let mut failures = BTreeSet::new();
        while let Some((id, event)) = self.engine.poll_event() {
            let log = self.logs.get_mut(&id).expect("a known sequence");
            assert_eq!(log.end, None, "{id:?} has ended, yet there is {event:?}");
            assert_eq!(log.started, !matches!(event, Event::Started), "{id:?}: {event:?}");
            match event {
                Event::Started => {
                    log.started = true;
                    self.starts.push(id);
                }
                Event::Tokens { chunk, stats, logprobs } => {
                    assert!(!chunk.as_slice().is_empty());
                    if let Some(logprobs) = logprobs {
                        assert_eq!(logprobs.len(), chunk.as_slice().len());
                        log.logprobs.extend(logprobs);
                    }
                    log.tokens.extend(chunk.as_slice());
                    assert!(log.tokens.len() <= stats.emitted_tokens as usize);
                    assert_eq!(stats.forwards(), log.forwards, "{id:?}: NFE so far");
                    assert_eq!(stats.chunks, log.chunks, "{id:?}: chunks");
                    assert_eq!(stats.positions, log.positions, "{id:?}: rows so far");
                }
                Event::Step(trace) => log.steps.push(*trace),
                Event::Labels(labels) => log.labels.extend(labels),
                Event::Finished(finished) => {
                    assert_eq!(finished.stats.forwards(), log.forwards, "{id:?}: NFE");
                    assert_eq!(finished.stats.positions, log.positions, "{id:?}: rows");
                    assert_eq!(finished.stats.emitted_tokens as usize, log.tokens.len());
                    log.end = Some(End::Finished(finished));
                }
                Event::Refused { message } => log.end = Some(End::Refused(message)),
                Event::Failed { message } => {
                    failures.insert(id);
                    log.end = Some(End::Failed(message));
                }
            }
        }
        failures
    }

    fn add_up(&mut self, report: &StepReport) {
        fn add(sums: &mut [u64; 3], more: [u64; 3]) {
            sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        }
        let all = &mut self.totals;
        let commits = [report.commits.masked, report.commits.drafts, report.commits.edits];
        add(&mut all.forwards, kinds(report.work.forwards));
        all.chunks += u64::from(report.work.chunks);
        add(&mut all.positions, kinds(report.work.positions));
        add(&mut all.commits, commits.map(u64::from));
        all.executed += u64::from(report.executed);
        all.failed += u64::from(report.failed);
        all.commit_latencies += report.delays.commit.len() as u64;
        all.emitted += report.delays.emit.len() as u64;
        all.lanes_started.generate += report.lanes.started.generate;
        all.lanes_started.refine += report.lanes.started.refine;
        all.lanes_finished.generate += report.lanes.finished.generate;
        all.lanes_finished.refine += report.lanes.finished.refine;
        all.lanes_forked += report.lanes.forked;
        all.cancelled += report.cancelled;
        all.finished += report.finished.len() as u32;
        all.most_refine_lanes = all.most_refine_lanes.max(report.gauges.lanes.refine);
        all.most_pages = all.most_pages.max(report.gauges.pages_used);
    }
}

/// The outcome of a request in an engine of its own, over the same model with large pages.
pub fn alone(request: &Request, model: &SimConfig) -> Outcome {
    let model = SimConfig { pages: 512, page_size: 16, ..model.clone() };
    let mut lab = Lab::new(&drafted(), SimExecutor::new(model).expect("a valid model"));
    let id = lab.submit(request.clone()).expect("there is room for one");
    lab.finish();
    lab.outcome(id).unwrap_or_else(|| panic!("{request:?} {:?}", lab.logs))
}

fn kinds<T: Into<u64>>(by: ByKind<T>) -> [u64; 3] {
    [by.prefill, by.decode, by.refresh].map(Into::into)
}
