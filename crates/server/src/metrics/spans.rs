//! Metrics of the log and of tracing spans.

use prometheus::IntCounter;

use super::register::Register;

/// Counts spans and lines of the log; cheap to clone. Without an exporter the spans stay 0.
#[derive(Clone, Debug)]
pub struct SpanCounters {
    ended: IntCounter,
    exported: IntCounter,
    lost_lines: IntCounter,
}

impl SpanCounters {
    pub(super) fn new(register: &Register<'_>) -> Self {
        let help = "Tracing spans that ended, and spans that a collector accepted";
        let states = ["ended", "exported"];
        let [ended, exported] = register.counters("trace_spans_total", help, "state", states);
        Self {
            ended,
            exported,
            lost_lines: register.counter(
                "log_lines_lost_total",
                "Lines of the log that were lost because standard error was not read",
            ),
        }
    }

    /// Counts a line that was not written.
    pub fn lost_line(&self) {
        self.lost_lines.inc();
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
