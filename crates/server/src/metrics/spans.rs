//! Metrics of tracing spans: ended and exported.

use prometheus::IntCounter;

use super::register::Register;

/// Counts spans; cheap to clone. Both counts stay 0 without an exporter.
#[derive(Clone, Debug)]
pub struct SpanCounters {
    ended: IntCounter,
    exported: IntCounter,
}

impl SpanCounters {
    pub(super) fn new(register: &Register<'_>) -> Self {
        let help = "Tracing spans that ended, and spans that a collector accepted";
        let name = ("trace_spans_total", help);
        let [ended, exported] = register.counters(name, "state", ["ended", "exported"]);
        Self { ended, exported }
    }

    /// Counts a span to export.
    pub fn ended(&self) {
        self.ended.inc();
    }

    /// Counts `count` spans that the collector accepted.
    pub fn exported(&self, count: usize) {
        self.exported.inc_by(count as u64);
    }
}
