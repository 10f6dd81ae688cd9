//! Ctrl-C and the end of the session on Windows.

use std::io;

use super::SignalRequest;
use tokio::signal::windows::{CtrlC, CtrlClose, CtrlShutdown, ctrl_c, ctrl_close, ctrl_shutdown};

/// The events that this process handles.
pub struct Sources {
    interrupt: CtrlC,
    close: CtrlClose,
    shutdown: CtrlShutdown,
}

impl Sources {
    /// Handles the events from now on, in the present runtime.
    ///
    /// # Errors
    /// The operating system gives no handler.
    pub fn new() -> io::Result<Self> {
        Ok(Self { interrupt: ctrl_c()?, close: ctrl_close()?, shutdown: ctrl_shutdown()? })
    }

    /// Waits for an event.
    pub async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            _ = self.interrupt.recv() => SignalRequest::End,
            _ = self.close.recv() => SignalRequest::End,
            _ = self.shutdown.recv() => SignalRequest::End,
        }
    }
}
