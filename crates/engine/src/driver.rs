//! The one thread that owns the engine and the executor.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use step::{BatchOutput, ExecuteError, Executor};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::engine::{Engine, EngineConfig};
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
    /// Time that handing out the last step's events took.
    emit_time: Duration,
}

/// Who waits for a sequence's events.
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
            // Counted before the clients hear of it: whoever has its answer finds it in the
            // metrics.
            self.publish();
        }
        self.flush();
    }

    /// Takes what has been submitted, waiting if there is nothing else to do; false at the end.
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
            // The handle has checked the same limits; should they ever differ, say so.
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

    /// Plans a step and runs it. What the step before committed reaches the clients once a device
    /// has its work, and in front of a pass that keeps this thread busy.
    fn step(&mut self) {
        let planning = Instant::now();
        let ready = self.engine.plan();
        let plan = planning.elapsed();
        if !ready {
            self.flush();
            return;
        }
        let batch = self.engine.batch();
        let (rows, segments) = (batch.rows.len(), batch.segments.len());
        let _span = tracing::debug_span!("step", rows, segments).entered();
        let beginning = Instant::now();
        let begun = guarded(|| self.executor.begin(batch));
        let begin = beginning.elapsed();
        self.flush();
        let executing = Instant::now();
        let batch = self.engine.batch();
        let (executor, output) = (&mut self.executor, &mut self.output);
        let result = begun.and_then(|()| guarded(|| executor.execute(batch, output)));
        let applying = Instant::now();
        match result {
            Ok(()) => self.engine.apply(&self.output, self.started.elapsed()),
            Err(error) => self.engine.fail(&error.to_string()),
        }
        let times = &mut self.engine.report.times;
        times.plan = plan;
        times.execute = begin + (applying - executing);
        times.apply = applying.elapsed();
    }

    /// Hands events to their streams. A stream has room for every event its sequence can have,
    /// so nothing here waits.
    fn flush(&mut self) {
        let emitting = Instant::now();
        while let Some((id, event)) = self.engine.poll_event() {
            let Some(client) = self.clients.get_mut(&id) else {
                continue;
            };
            if matches!(event, Event::Started) {
                client.place = None;
            }
            let last = matches!(event, Event::Finished(_) | Event::Failed { .. });
            let _ = client.events.try_send(event);
            if last {
                self.clients.remove(&id);
            }
        }
        self.emit_time += emitting.elapsed();
    }

    fn publish(&mut self) {
        let emit = std::mem::take(&mut self.emit_time);
        self.engine.report.times.emit = emit;
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

/// A panic of the model is a failure of the step.
fn guarded(run: impl FnOnce() -> Result<(), ExecuteError>) -> Result<(), ExecuteError> {
    let done = catch_unwind(AssertUnwindSafe(run));
    done.unwrap_or_else(|_| Err(ExecuteError("the model panicked".to_owned())))
}
