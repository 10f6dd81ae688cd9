//! The phases of a shutdown, and the count of requests that it waits for.

use std::sync::Arc;

use tokio::sync::watch;

/// How far a shutdown has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Requests are taken.
    Serving,
    /// Requests are taken, but `/ready` asks not to send more.
    Leaving,
    /// New requests are refused, accepted ones go on.
    Draining,
    /// Accepted requests are ended with an error.
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
        Self {
            phase: Arc::new(phase),
            in_flight: Arc::new(in_flight),
        }
    }

    /// The current phase.
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Goes on to `phase`; never back.
    pub fn advance(&self, phase: Phase) {
        self.phase.send_if_modified(|current| {
            let later = phase > *current;
            *current = phase.max(*current);
            later
        });
    }

    /// Counts a request in, unless the server no longer takes any.
    pub fn enter(&self) -> Option<InFlight> {
        // Counted first: whoever starts draining in between sees the request.
        let guard = InFlight {
            count: Arc::clone(&self.in_flight),
        };
        self.in_flight.send_modify(|count| *count += 1);
        (self.phase() < Phase::Draining).then_some(guard)
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> u32 {
        *self.in_flight.borrow()
    }

    /// Ends once `phase` or a later one is reached.
    pub fn reached(&self, phase: Phase) -> impl Future<Output = ()> + Send + 'static {
        let mut phases = self.phase.subscribe();
        async move {
            // An error means that the sender is gone, and with it the server.
            let _ = phases.wait_for(|current| *current >= phase).await;
        }
    }

    /// Ends once nothing is in flight.
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
