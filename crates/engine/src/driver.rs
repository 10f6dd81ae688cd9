//! The one thread that owns the engine and the executor.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use step::{BatchOutput, ExecuteError, Executor};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::config::EngineConfig;
use crate::engine::Engine;
use crate::event::Event;
use crate::handle::{Handle, Shared, Submission};
use crate::report::Observer;
use crate::sequence::SequenceId;

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
    let engine = Engine::new(config, executor.spec());
    let (handle, inbox, shared) = Handle::new(engine.limits());
    let driver = Driver {
        engine,
        executor,
        observer,
        inbox,
        shared,
        clients: HashMap::new(),
        output: BatchOutput::default(),
        started: Instant::now(),
        emit_time: Duration::ZERO,
    };
    let thread = std::thread::Builder::new().name("engine".to_owned());
    let joined = thread.spawn(move || driver.run())?;
    Ok((handle, joined))
}

struct Driver {
    engine: Engine,
    executor: Box<dyn Executor>,
    observer: Box<dyn Observer>,
    inbox: mpsc::Receiver<Submission>,
    shared: Arc<Shared>,
    clients: HashMap<SequenceId, Client>,
    output: BatchOutput,
    started: Instant,
    /// Time spent on handing out the events of the last step.
    emit_time: Duration,
}

/// The receiver of a sequence's events.
struct Client {
    events: mpsc::Sender<Event>,
    /// The place in the queue, until the sequence starts.
    place: Option<OwnedSemaphorePermit>,
}

impl Driver {
    fn run(mut self) {
        while self.receive() {
            self.cancel_abandoned();
            self.step();
            // Before the events are handed out, so that a client that has its answer finds it in
            // the metrics.
            self.publish();
        }
        self.flush();
    }

    /// Takes submissions, and waits for one if the engine is idle. False once the engine is idle
    /// and all handles are gone.
    fn receive(&mut self) -> bool {
        if self.engine.is_idle() {
            self.flush();
            match self.inbox.blocking_recv() {
                Some(submission) => self.accept(submission),
                None => return false,
            }
        }
        while let Ok(submission) = self.inbox.try_recv() {
            self.accept(submission);
        }
        true
    }

    fn accept(&mut self, submission: Submission) {
        let Submission {
            request,
            events,
            place,
        } = submission;
        match self.engine.submit(request) {
            Ok(id) => {
                self.clients.insert(
                    id,
                    Client {
                        events,
                        place: Some(place),
                    },
                );
            }
            // The handle has checked the same limits, so this is a bug; the client is told.
            Err(refusal) => {
                let _ = events.try_send(Event::Failed {
                    message: refusal.to_string(),
                });
            }
        }
    }

    /// Drops every sequence whose stream has been dropped.
    fn cancel_abandoned(&mut self) {
        let engine = &mut self.engine;
        self.clients.retain(|id, client| {
            let abandoned = client.events.is_closed();
            if abandoned {
                engine.cancel(*id);
            }
            !abandoned
        });
    }

    /// Plans a step, runs it and applies its output. Events of the step before are handed out
    /// between `begin` and `execute`: a device works meanwhile, and on a CPU they need not wait for
    /// the whole pass.
    fn step(&mut self) {
        let planning = Instant::now();
        let Some(step) = self.engine.plan() else {
            self.flush();
            return;
        };
        let plan = planning.elapsed();
        let batch = step.batch();
        let (rows, segments) = (batch.rows.len(), batch.segments.len());
        let _span = tracing::debug_span!("step", rows, segments).entered();
        let beginning = Instant::now();
        let begun = guarded(|| self.executor.begin(batch));
        let begin = beginning.elapsed();
        self.flush();
        let executing = Instant::now();
        let (executor, output) = (&mut self.executor, &mut self.output);
        let result = begun.and_then(|()| guarded(|| executor.execute(step.batch(), output)));
        let applying = Instant::now();
        match result {
            Ok(()) => self
                .engine
                .apply(step, &self.output, self.started.elapsed()),
            Err(error) => self.engine.fail(step, &error.to_string()),
        }
        let times = self.engine.times();
        times.plan = plan;
        times.execute = begin + (applying - executing);
        times.apply = applying.elapsed();
    }

    /// Hands events to their streams. Never blocks: a stream has room for every event that its
    /// sequence can have.
    fn flush(&mut self) {
        let emitting = Instant::now();
        while let Some((id, event)) = self.engine.poll_event() {
            let Some(client) = self.clients.get_mut(&id) else {
                continue;
            };
            if matches!(event, Event::Started) {
                client.place = None;
            }
            let last = event.is_last();
            let _ = client.events.try_send(event);
            if last {
                self.clients.remove(&id);
            }
        }
        self.emit_time += emitting.elapsed();
    }

    fn publish(&mut self) {
        let emit = std::mem::take(&mut self.emit_time);
        self.engine.times().emit = emit;
        let report = self.engine.report();
        let gauges = report.gauges;
        self.observer.on_step(report);
        self.engine.clear_report();
        self.shared.running.store(gauges.running, Ordering::Relaxed);
        self.shared.waiting.store(gauges.waiting, Ordering::Relaxed);
        self.shared
            .pages_used
            .store(gauges.pages_used, Ordering::Relaxed);
    }
}

/// Turns a panic of the model into a failure of the step.
fn guarded(run: impl FnOnce() -> Result<(), ExecuteError>) -> Result<(), ExecuteError> {
    let done = catch_unwind(AssertUnwindSafe(run));
    done.unwrap_or_else(|_| Err(ExecuteError("the model panicked".to_owned())))
}
