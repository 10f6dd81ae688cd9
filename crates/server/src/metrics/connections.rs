//! Metrics of the listener.

use prometheus::{Gauge, IntCounter};

use super::register::Register;

/// The metrics of the listener; counted once the model is loaded.
#[derive(Debug)]
pub struct Connections {
    /// Open connections.
    pub open: Gauge,
    /// Connections closed before their time to make room for another.
    pub evicted: IntCounter,
    /// Requests refused because every connection was in use.
    pub refused: IntCounter,
    /// Connections that the operating system did not hand over.
    pub accept_errors: IntCounter,
}

impl Connections {
    /// Registers them.
    pub fn new(register: &Register<'_>) -> Self {
        Self {
            open: register.gauge("connections", "Open connections"),
            evicted: register.counter(
                "connections_evicted_total",
                "Connections without a complete request that were closed to make room for another",
            ),
            refused: register.counter(
                "connections_refused_total",
                "Requests refused because every connection was in use",
            ),
            accept_errors: register.counter(
                "accept_errors_total",
                "Connections that could not be accepted, for example without free files",
            ),
        }
    }
}
