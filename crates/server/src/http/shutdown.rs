//! The phases of a shutdown, and the requests in flight that it waits for.

use std::sync::Arc;

use tokio::sync::watch;

/// The phases, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Requests are accepted.
    Serving,
    /// Requests are accepted; `/ready` answers 503.
    Leaving,
    /// New requests are refused; accepted ones run.
    Draining,
    /// Accepted requests end with an error.
    Ending,
}

/// Shared by the accept loop and all requests.
#[derive(Clone, Debug)]
pub struct Shutdown {
    phase: Arc<watch::Sender<Phase>>,
    in_flight: Arc<watch::Sender<u32>>,
}

/// One generation request in flight; counts until dropped.
#[derive(Debug)]
pub struct InFlight {
    count: Arc<watch::Sender<u32>>,
}

impl Shutdown {
    /// Serving, nothing in flight.
    pub(crate) fn new() -> Self {
        let (phase, in_flight) = (watch::Sender::new(Phase::Serving), watch::Sender::new(0));
        Self { phase: Arc::new(phase), in_flight: Arc::new(in_flight) }
    }

    /// The current phase.
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Advances to `phase`; earlier phases change nothing.
    pub fn advance(&self, phase: Phase) {
        self.phase.send_if_modified(|current| {
            let later = phase > *current;
            *current = phase.max(*current);
            later
        });
    }

    /// Counts a request, unless new ones are refused.
    pub fn enter(&self) -> Option<InFlight> {
        // Count first: a drain that starts meanwhile must see the request.
        let guard = InFlight { count: Arc::clone(&self.in_flight) };
        self.in_flight.send_modify(|count| *count += 1);
        (self.phase() < Phase::Draining).then_some(guard)
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> u32 {
        *self.in_flight.borrow()
    }

    /// Completes when `phase` or a later one is reached.
    pub fn reached(&self, phase: Phase) -> impl Future<Output = ()> + Send + 'static {
        let mut phases = self.phase.subscribe();
        async move {
            // Fails only if the sender, and so the server, is gone.
            let _ = phases.wait_for(|current| *current >= phase).await;
        }
    }

    /// Completes when nothing is in flight.
    pub async fn drained(&self) {
        let mut counts = self.in_flight.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = counts.wait_for(|count| *count == 0).await;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.count.send_modify(|count| *count -= 1);
    }
}
