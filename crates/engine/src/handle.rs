//! The async side of the engine: submit requests, read their events.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use decode::as_index;
use tokio::sync::mpsc;

use crate::event::Event;
use crate::heartbeat::{Heartbeat, Monitor, Pulse};
use crate::limits::Limits;
use crate::permits::{QueuePermit, QueuePermits};
use crate::pool::{PoolLoad, PoolMonitor};
use crate::request::{Refusal, Request};

/// A cheap, cloneable sender of requests to the engine thread. The thread ends once every
/// handle is gone and its last sequence is done.
#[derive(Clone, Debug)]
pub struct Handle {
    inbox: mpsc::Sender<Submission>,
    permits: Arc<QueuePermits>,
    shared: Arc<Shared>,
    limits: Limits,
    grammars: PoolMonitor,
}

/// The state that the engine thread publishes: counters once a step, and its sign of life.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) running: AtomicU32,
    pub(crate) waiting: AtomicU32,
    pub(crate) pages_used: AtomicU32,
    pub(crate) heartbeat: Arc<Heartbeat>,
}

/// One sequence on its way to the engine thread.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) request: Request,
    pub(crate) events: mpsc::Sender<Event>,
    /// Given back when the sequence leaves the queue.
    pub(crate) permit: QueuePermit,
}

/// The reason for which a submission was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The queue has no room for all sequences of the request; try again later.
    #[error("{waiting} sequences are waiting, the queue is full")]
    Overloaded {
        /// Sequences in the queue.
        waiting: u32,
    },
    /// The engine thread is gone.
    #[error("the engine has stopped")]
    Stopped,
    /// One of the requests can never be served.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// The engine's load, as of its last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Sequences that run.
    pub running: u32,
    /// Sequences that wait to start.
    pub waiting: u32,
    /// KV pages in use.
    pub pages_used: u32,
}

impl Handle {
    pub(crate) fn new(
        limits: Limits,
        grammars: PoolMonitor,
    ) -> (Self, mpsc::Receiver<Submission>, Arc<Shared>) {
        let permits = Arc::new(QueuePermits::new(limits.max_waiting));
        let (inbox, outbox) = mpsc::channel(as_index(permits.capacity()).max(1));
        let shared = Arc::new(Shared::default());
        (Self { inbox, permits, shared: Arc::clone(&shared), limits, grammars }, outbox, shared)
    }

    /// Queues all of `requests`, or none. Streams come back in the same order.
    ///
    /// # Errors
    /// The queue is full, the engine has stopped, or one request can never be served.
    pub fn submit(&self, requests: Vec<Request>) -> Result<Vec<EventStream>, SubmitError> {
        for request in &requests {
            self.limits.admit(request)?;
        }
        let mut streams = Vec::with_capacity(requests.len());
        let overloaded = || SubmitError::Overloaded { waiting: self.load().waiting };
        let take = |request: &Request| self.permits.take(request.sender.client);
        let permits: Option<Vec<QueuePermit>> = requests.iter().map(take).collect();
        let permits = permits.ok_or_else(overloaded)?;
        let entries = self.inbox.try_reserve_many(requests.len()).map_err(|error| match error {
            mpsc::error::TrySendError::Full(()) => overloaded(),
            mpsc::error::TrySendError::Closed(()) => SubmitError::Stopped,
        })?;
        for ((request, permit), entry) in requests.into_iter().zip(permits).zip(entries) {
            // Every event carries at least one token or one step, but for a few at
            // the start and at the end. So the channel never overflows and the engine never waits
            // for a reader.
            let steps = match request.extras.trace {
                true => request.decoding.most_steps(request.max_tokens),
                false => 0,
            };
            let room = as_index(request.max_tokens) + as_index(steps) + 8;
            let (events, stream) = mpsc::channel(room);
            entry.send(Submission { request, events, permit });
            streams.push(EventStream { events: stream });
        }
        Ok(streams)
    }

    /// The limits of a single request.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The load as of the last step.
    pub fn load(&self) -> Load {
        let read = |counter: &AtomicU32| counter.load(Ordering::Relaxed);
        Load {
            running: read(&self.shared.running),
            waiting: read(&self.shared.waiting),
            pages_used: read(&self.shared.pages_used),
        }
    }

    /// The present activity of the engine thread.
    pub fn pulse(&self) -> Pulse {
        self.shared.heartbeat.pulse()
    }

    /// The present load of the threads that ask grammars. Never waits for the engine thread or a grammar.
    pub fn grammar_threads(&self) -> PoolLoad {
        self.grammars.load()
    }

    /// Reads the pulse without keeping the engine thread running.
    pub fn monitor(&self) -> Monitor {
        Monitor(Arc::clone(&self.shared.heartbeat))
    }

    /// Returns true if the engine thread lives.
    pub fn is_alive(&self) -> bool {
        !self.inbox.is_closed()
    }
}

/// The events of one sequence. Dropping it cancels the sequence at the next step boundary,
/// and ends the present pass of an executor that can be interrupted if nobody waits for its other sequences.
#[derive(Debug)]
pub struct EventStream {
    events: mpsc::Receiver<Event>,
}

impl EventStream {
    /// The next event; `None` after the last one, or if the engine died.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// The next event if there is one already.
    pub fn try_next(&mut self) -> Option<Event> {
        self.events.try_recv().ok()
    }

    /// The next event, blocking the thread; not for async code.
    pub fn blocking_next(&mut self) -> Option<Event> {
        self.events.blocking_recv()
    }
}
