//! Metrics of the listener.

use prometheus::{Gauge, IntCounter};

use super::register::metrics;

metrics! {
    /// The metrics of the listener; counted once the model is loaded.
    pub struct Connections(register) {
        /// Open connections.
        pub open: Gauge = register.gauge("connections", "Open connections"),
        /// Connections closed before their time to make room for another.
        pub evicted: IntCounter = register.counter("connections_evicted_total",
            "Connections without a complete request that were closed to make room for another"),
        /// Requests refused because every connection was in use.
        pub refused: IntCounter = register.counter("connections_refused_total",
            "Requests refused because every connection was in use"),
        /// Connections that the operating system did not hand over.
        pub accept_errors: IntCounter = register.counter("accept_errors_total",
            "Connections that could not be accepted, for example without free files"),
    }
}
