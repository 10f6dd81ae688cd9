//! The one thread that owns the engine and the executor.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use step::{BatchOutput, ExecuteError, Executor};
use tokio::sync::mpsc;

use crate::config::EngineConfig;
use crate::drafts::Drafter;
use crate::engine::Engine;
use crate::event::Event;
use crate::guarded::guarded;
use crate::handle::{Handle, Shared, Submission};
use crate::permits::QueuePermit;
use crate::pool::{GivenUp, Pool, PoolLoad};
use crate::report::Observer;
use crate::sequence::SequenceId;
use crate::step::StepPlan;

/// Starts the engine thread. It ends once every clone of the handle is gone and its last
/// sequence is done.
///
/// # Errors
/// If the operating system gives no thread.
pub fn spawn(
    config: &EngineConfig,
    executor: Box<dyn Executor>,
    observer: Box<dyn Observer>,
) -> std::io::Result<(Handle, JoinHandle<()>)> {
    spawn_with_drafter(config, executor, None, observer)
}

/// As [`spawn`], with a draft model for the schedule `speculative`, which
/// [`Capabilities::drafts`](crate::Capabilities) announces.
///
/// # Errors
/// As [`spawn`].
pub fn spawn_with_drafter(
    config: &EngineConfig,
    executor: Box<dyn Executor>,
    drafter: Option<Drafter>,
    observer: Box<dyn Observer>,
) -> std::io::Result<(Handle, JoinHandle<()>)> {
    let mut engine = Engine::new(config, executor.spec());
    engine.hand_out_jobs();
    if drafter.is_some() {
        engine.hand_out_drafts();
    }
    let pool = Pool::new(config.grammar_timeout)?;
    let (handle, inbox, shared) = Handle::new(engine.limits(), pool.monitor());
    let driver = Driver {
        engine,
        executor,
        drafter,
        observer,
        inbox,
        shared,
        pool,
        clients: HashMap::new(),
        output: BatchOutput::default(),
        times: Times { started: Instant::now(), emit: Duration::ZERO, last_pass: Duration::ZERO },
        blocked: false,
        lost: None,
    };
    let thread = std::thread::Builder::new().name("engine".to_owned());
    let joined = thread.spawn(move || driver.run())?;
    Ok((handle, joined))
}

/// The reason to refuse a sequence whose grammar takes too long.
const LATE: &str = "the grammar takes too long";

/// Longest wait for jobs between two passes.
const LONGEST_GATHER: Duration = Duration::from_millis(20);

struct Driver {
    engine: Engine,
    executor: Box<dyn Executor>,
    drafter: Option<Drafter>,
    observer: Box<dyn Observer>,
    inbox: mpsc::Receiver<Submission>,
    shared: Arc<Shared>,
    pool: Pool,
    clients: HashMap<SequenceId, Client>,
    output: BatchOutput,
    times: Times,
    /// Nothing can run before a job or a submission comes.
    blocked: bool,
    /// The reason for which the executor cannot run another pass.
    lost: Option<String>,
}

struct Times {
    /// The moment that times of the engine are counted from.
    started: Instant,
    /// Time spent on handing out the events of the last step.
    emit: Duration,
    /// Time of the last forward pass.
    last_pass: Duration,
}

/// The receiver of a sequence's events.
struct Client {
    events: mpsc::Sender<Event>,
    /// The permit of the queue, until the sequence starts.
    permit: Option<QueuePermit>,
}

impl Driver {
    fn run(mut self) {
        while self.receive() {
            self.cancel_abandoned();
            self.gather();
            self.give_up_jobs();
            self.blocked = !self.step() && self.pool.is_busy();
            // Before the events are handed out, so that a client that has its answer finds it in
            // the metrics.
            self.publish();
            if let Some(why) = self.lost.take() {
                return self.abandon(why);
            }
        }
        self.flush();
    }

    /// Fails every sequence, those that wait included.
    fn abandon(&mut self, why: String) {
        self.flush();
        let message = format!("the device failed: {why}");
        self.shared.heartbeat.lose(message.clone());
        self.inbox.close();
        let waiting = std::iter::from_fn(|| self.inbox.try_recv().ok()).map(|one| one.events);
        let open = self.clients.drain().map(|(_, client)| client.events);
        for events in open.chain(waiting) {
            let message = message.clone();
            let _ = events.try_send(Event::Failed { message });
        }
    }

    /// Takes submissions, and waits for one if there is nothing to do. False once the engine is
    /// idle and all handles are gone.
    fn receive(&mut self) -> bool {
        if self.engine.is_idle() || self.blocked {
            // Before the events, so that a client that has its answer finds the engine at rest.
            if self.engine.is_idle() {
                self.shared.heartbeat.rest();
            }
            self.flush();
            if !self.wait(None) && self.engine.is_idle() {
                return false;
            }
        }
        self.shared.heartbeat.beat();
        while let Ok(submission) = self.inbox.try_recv() {
            self.accept(submission);
        }
        true
    }

    /// Waits for a submission or for the end of a job, or until a moment comes. False if all handles
    /// are gone.
    fn wait(&mut self, until: Option<Instant>) -> bool {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(job) = self.pool.poll_take(&mut context) {
                self.engine.settle(job, self.times.started.elapsed());
                return true;
            }
            let closed = match self.inbox.poll_recv(&mut context) {
                Poll::Ready(Some(submission)) => {
                    self.accept(submission);
                    return true;
                }
                Poll::Ready(None) => true,
                Poll::Pending => false,
            };
            if closed && (self.engine.is_idle() || !self.pool.is_busy()) {
                return false;
            }
            if self.give_up_jobs() {
                return true;
            }
            let now = Instant::now();
            let first = [until, self.pool.next_look()].into_iter().flatten().min();
            match first.map(|first| first.saturating_duration_since(now)) {
                None => std::thread::park(),
                Some(Duration::ZERO) if until.is_some_and(|until| until <= now) => return !closed,
                Some(Duration::ZERO) => {}
                Some(rest) => std::thread::park_timeout(rest),
            }
        }
    }

    /// Takes back the jobs that have ended. Waits for the others for an eighth of the last pass, so
    /// that quick ones cost their sequences no step and slow ones cost the others little.
    fn gather(&mut self) {
        let most = (self.times.last_pass / 8).min(LONGEST_GATHER);
        let until = Instant::now() + most;
        while self.pool.is_busy() {
            if let Some(job) = self.pool.take() {
                self.engine.settle(job, self.times.started.elapsed());
            } else if Instant::now() >= until || !self.wait(Some(until)) {
                return;
            }
        }
    }

    /// Ends the sequences whose grammars take too long; false if there are none.
    fn give_up_jobs(&mut self) -> bool {
        let now = Instant::now();
        if !self.pool.is_due(now) {
            return false;
        }
        let GivenUp { late, left } = self.pool.give_up(now);
        let ended = !late.is_empty() || !left.is_empty();
        let PoolLoad { stuck, most_stuck, .. } = self.pool.monitor().load();
        if !late.is_empty() {
            let sequences = late.len();
            tracing::error!(sequences, stuck, most_stuck, "a grammar is given up: {LATE}");
        }
        for id in late {
            let message = LATE.to_owned();
            self.engine.end(id, Event::Refused { message });
        }
        for id in left {
            let message = format!("no thread is left for its grammar: {stuck} are stuck");
            self.engine.end(id, Event::Failed { message });
        }
        ended
    }

    /// Gives the engine's jobs to the pool.
    fn hand_out(&mut self) {
        while let Some(job) = self.engine.take_job() {
            self.pool.push(job);
        }
    }

    fn accept(&mut self, submission: Submission) {
        let (events, permit) = (submission.events, submission.permit);
        match self.engine.submit(submission.request) {
            Ok(id) => {
                let permit = Some(permit);
                self.clients.insert(id, Client { events, permit });
            }
            // The handle has checked the same limits, so this is a bug; the client is told.
            Err(refusal) => {
                let message = refusal.to_string();
                let _ = events.try_send(Event::Failed { message });
            }
        }
    }

    /// Drops every sequence whose stream has been dropped.
    fn cancel_abandoned(&mut self) {
        let (engine, pool) = (&mut self.engine, &mut self.pool);
        let drafter = &mut self.drafter;
        self.clients.retain(|id, client| {
            let abandoned = client.events.is_closed();
            if abandoned {
                engine.cancel(*id);
                pool.forget(*id);
                if let Some(drafter) = drafter {
                    drafter.forget(*id);
                }
            }
            !abandoned
        });
    }

    /// Runs a forward pass of each model that has one to run. False if nothing ran and no drafts are
    /// under way.
    fn step(&mut self) -> bool {
        if let Some(drafter) = &mut self.drafter {
            drafter.advance(&mut self.engine, self.times.started.elapsed());
            self.shared.heartbeat.beat();
        }
        let verified = self.run_step();
        let drafts = self.drafter.as_ref().is_some_and(Drafter::is_busy);
        verified || drafts || self.engine.wants_drafts()
    }

    /// Plans a step, runs it and applies its output. Events of the step before are handed out
    /// between `begin` and `execute`: a device works meanwhile, and on a CPU they need not wait for
    /// the whole pass. False if there is nothing to run.
    fn run_step(&mut self) -> bool {
        let planning = Instant::now();
        let planned = self.engine.plan();
        self.hand_out();
        let Some(step) = planned else {
            self.flush();
            return false;
        };
        let plan = planning.elapsed();
        let batch = step.batch();
        let (rows, segments) = (batch.rows.len(), batch.segments.len());
        let _span = tracing::debug_span!("step", rows, segments).entered();
        let beginning = Instant::now();
        let begun = guarded(|| self.executor.begin(batch));
        let begin = beginning.elapsed();
        if self.flush() {
            // A pass on the CPU occupies every processor; what the events have woken runs first.
            std::thread::yield_now();
        }
        let executing = Instant::now();
        let given_up = Cell::new(false);
        let result = begun.and_then(|()| self.execute(&step, &given_up));
        let applying = Instant::now();
        match result {
            Ok(()) => self.engine.apply(step, &self.output, self.times.started.elapsed()),
            Err(_) if given_up.get() => self.engine.give_up(step),
            Err(error) => {
                self.engine.fail(step, &error.to_string());
                self.lost = self.executor.lost();
            }
        }
        self.hand_out();
        self.times.last_pass = begin + (applying - executing);
        let times = self.engine.times();
        times.plan = plan;
        times.begin = begin;
        times.wait = applying - executing;
        times.apply = applying.elapsed();
        true
    }

    /// Runs the pass of a step. A long one is `given_up` with an error once nobody waits for any of its
    /// sequences.
    fn execute(&mut self, step: &StepPlan, given_up: &Cell<bool>) -> Result<(), ExecuteError> {
        let (engine, clients, heartbeat) = (&self.engine, &self.clients, &self.shared.heartbeat);
        let (executor, output) = (&mut self.executor, &mut self.output);
        let waits = |id| clients.get(&id).is_some_and(|client| !client.events.is_closed());
        let goes_on = || {
            heartbeat.beat();
            given_up.set(!engine.members(step).any(waits));
            !given_up.get()
        };
        guarded(|| executor.execute_while(step.batch(), output, &goes_on))
    }

    /// Hands events to their streams; false if there were none. Never blocks: a stream has room for
    /// every event that its sequence can have.
    fn flush(&mut self) -> bool {
        let emitting = Instant::now();
        let mut sent = false;
        while let Some((id, event)) = self.engine.poll_event() {
            sent = true;
            let Some(client) = self.clients.get_mut(&id) else {
                continue;
            };
            if matches!(event, Event::Started) {
                client.permit = None;
            }
            let last = event.is_last();
            let _ = client.events.try_send(event);
            if last {
                self.clients.remove(&id);
            }
        }
        self.times.emit += emitting.elapsed();
        sent
    }

    fn publish(&mut self) {
        let emit = std::mem::take(&mut self.times.emit);
        self.engine.times().emit = emit;
        let report = self.engine.report();
        let gauges = report.gauges;
        self.observer.on_step(report);
        self.engine.clear_report();
        self.shared.running.store(gauges.running, Ordering::Relaxed);
        self.shared.waiting.store(gauges.waiting, Ordering::Relaxed);
        self.shared.pages_used.store(gauges.pages_used, Ordering::Relaxed);
    }
}

/// Wakes the engine thread.
struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Also when the thread panics.
impl Drop for Driver {
    fn drop(&mut self) {
        self.shared.heartbeat.end();
    }
}
