//! The signals of Unix.

use std::io;

use super::SignalRequest;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that this process handles.
pub struct Sources {
    term: Signal,
    int: Signal,
    hup: Signal,
}

impl Sources {
    /// Handles the signals from now on, in the present runtime.
    ///
    /// # Errors
    /// The operating system gives no handler.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            hup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for a signal.
    pub async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            _ = self.term.recv() => SignalRequest::End,
            _ = self.int.recv() => SignalRequest::End,
            _ = self.hup.recv() => SignalRequest::Reload,
        }
    }
}
