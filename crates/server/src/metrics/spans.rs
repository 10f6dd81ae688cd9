//! Tracing spans: how many ended, how many a collector has.

use prometheus::IntCounter;

use super::register::Register;

/// Counts spans; cheap to clone. Both stay 0 where nothing is exported.
#[derive(Clone, Debug)]
pub struct SpanCounters {
    ended: IntCounter,
    exported: IntCounter,
}

impl SpanCounters {
    pub(super) fn new(register: &Register<'_>) -> Self {
        let help = "Tracing spans that ended, and those that a collector has taken";
        let name = ("trace_spans_total", help);
        let [ended, exported] = register.counters(name, "state", ["ended", "exported"]);
        Self { ended, exported }
    }

    /// A span ended that is to be exported.
    pub fn ended(&self) {
        self.ended.inc();
    }

    /// A collector took `count` spans.
    pub fn exported(&self, count: usize) {
        self.exported.inc_by(count as u64);
    }
}
