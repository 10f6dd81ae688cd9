//! A gate in front of the forward passes.

use std::sync::{Arc, Condvar, Mutex};

use super::{Options, Server, server_where};

/// Holds forward passes, or lets them pass.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    /// Number of passes that may run.
    open: Arc<(Mutex<u64>, Condvar)>,
}

impl Gate {
    pub fn open(&self) {
        self.admit(u64::MAX);
    }

    /// Lets `passes` passes run.
    pub fn admit(&self, passes: u64) {
        *self.open.0.lock().unwrap() = passes;
        self.open.1.notify_all();
    }

    /// Waits until a pass may run, and counts it.
    pub fn pass(&self) {
        let open = self.open.0.lock().unwrap();
        *self.open.1.wait_while(open, |open| *open == 0).unwrap() -= 1;
    }
}

/// Opens the gate when a test ends, so that the engine thread can end too.
#[derive(Debug)]
pub struct OpenAtEnd(pub Gate);

impl Drop for OpenAtEnd {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// A server whose first pass waits at a gate, which opens at the end of the test.
pub fn gated(change: impl FnOnce(&mut Options)) -> (Server, OpenAtEnd) {
    let gate = Gate::default();
    let server = server_where(|options| {
        options.gate = Some(gate.clone());
        change(options);
    });
    (server, OpenAtEnd(gate))
}
