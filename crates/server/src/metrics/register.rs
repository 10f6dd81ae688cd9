//! Creates metrics with the common prefix and label.

use prometheus::core::Collector;
use prometheus::{
    Counter, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec,
    Opts, Registry,
};

/// Prefix of every native name.
pub const PREFIX: &str = "asynclane";

/// Declares a struct of metrics, each with the call that registers it.
macro_rules! metrics {
    ($(#[$about:meta])* $visible:vis struct $name:ident($register:ident) {
        $($(#[$doc:meta])* $access:vis $metric:ident: $type:ty = $call:expr),* $(,)?
    }) => {
        $(#[$about])*
        #[derive(Debug)]
        $visible struct $name {
            $($(#[$doc])* $access $metric: $type),*
        }

        impl $name {
            /// Registers the metrics.
            $visible fn new($register: &$crate::metrics::register::Register<'_>) -> Self {
                Self { $($metric: $call),* }
            }
        }
    };
}

pub(super) use metrics;

/// Registers metrics that all carry the model's name.
#[derive(Debug)]
pub struct Register<'a> {
    registry: &'a Registry,
    model: &'a str,
}

impl<'a> Register<'a> {
    /// Registers with `registry`.
    pub fn new(registry: &'a Registry, model: &'a str) -> Self {
        Self { registry, model }
    }

    /// A counter.
    pub fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.add(IntCounter::with_opts(self.opts(name, help)))
    }

    /// One counter per value of `label`, in order.
    pub fn counters<const N: usize>(
        &self,
        name: &str,
        help: &str,
        label: &str,
        values: [&str; N],
    ) -> [IntCounter; N] {
        let family = self.add(IntCounterVec::new(self.opts(name, help), &[label]));
        values.map(|value| family.with_label_values(&[value]))
    }

    /// Counters by the values of two labels; the caller creates the series.
    pub fn counter_family(&self, name: &str, help: &str, labels: [&str; 2]) -> IntCounterVec {
        self.add(IntCounterVec::new(self.opts(name, help), &labels))
    }

    /// Gauges by the values of two labels; the caller creates the series.
    pub fn gauge_family(&self, name: &str, help: &str, labels: [&str; 2]) -> GaugeVec {
        self.add(GaugeVec::new(self.opts(name, help), &labels))
    }

    /// Histograms by the values of a label; the caller creates the series.
    pub fn histogram_family(
        &self,
        name: &str,
        help: &str,
        bounds: &[f64],
        label: &str,
    ) -> HistogramVec {
        let opts = self.histogram_opts(name, help, bounds);
        self.add(HistogramVec::new(opts, &[label]))
    }

    /// A gauge.
    pub fn gauge(&self, name: &str, help: &str) -> Gauge {
        self.add(Gauge::with_opts(self.opts(name, help)))
    }

    /// A gauge under a name that other programs use too, without the prefix.
    pub fn shared_gauge(&self, name: &str, help: &str) -> Gauge {
        self.add(Gauge::with_opts(self.shared_opts(name, help)))
    }

    /// A counter of fractions under such a name.
    pub fn shared_counter(&self, name: &str, help: &str) -> Counter {
        self.add(Counter::with_opts(self.shared_opts(name, help)))
    }

    /// One gauge per value of `label`, in order.
    pub fn gauges<const N: usize>(
        &self,
        name: &str,
        help: &str,
        label: &str,
        values: [&str; N],
    ) -> [Gauge; N] {
        let family = self.add(GaugeVec::new(self.opts(name, help), &[label]));
        values.map(|value| family.with_label_values(&[value]))
    }

    /// A constant gauge of 1 that carries labels.
    pub fn info(&self, name: &str, help: &str, labels: &[(&str, String)]) {
        let opts = labels.iter().fold(self.opts(name, help), |opts, (label, value)| {
            opts.const_label(*label, value.clone())
        });
        self.add(Gauge::with_opts(opts)).set(1.0);
    }

    /// A histogram with the given upper bounds.
    pub fn histogram(&self, name: &str, help: &str, bounds: &[f64]) -> Histogram {
        self.add(Histogram::with_opts(self.histogram_opts(name, help, bounds)))
    }

    fn opts(&self, name: &str, help: &str) -> Opts {
        self.shared_opts(name, help).namespace(PREFIX)
    }

    fn shared_opts(&self, name: &str, help: &str) -> Opts {
        Opts::new(name, help).const_label("model_name", self.model)
    }

    fn histogram_opts(&self, name: &str, help: &str, bounds: &[f64]) -> HistogramOpts {
        HistogramOpts::new(name, help)
            .namespace(PREFIX)
            .const_label("model_name", self.model)
            .buckets(bounds.to_vec())
    }

    fn add<M: Collector + Clone + 'static>(&self, metric: prometheus::Result<M>) -> M {
        let metric = metric.expect("names, labels and bounds are literals of this crate");
        let boxed = Box::new(metric.clone());
        self.registry.register(boxed).expect("every name is registered once, by test");
        metric
    }
}
