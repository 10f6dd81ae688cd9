//! A request that generates nothing, followed to its end.

use std::time::Instant;

use super::{Metrics, Outcome};
use crate::error::ApiError;

/// Counts a request to one path when it ends. Dropped without an outcome, it counts as cancelled.
#[derive(Debug)]
pub struct PathRequest {
    metrics: Metrics,
    path: &'static str,
    arrival: Instant,
    outcome: Outcome,
}

impl PathRequest {
    /// Follows a request to `path` that arrives now.
    pub fn new(metrics: Metrics, path: &'static str) -> Self {
        Self { metrics, path, arrival: Instant::now(), outcome: Outcome::Cancelled }
    }

    /// Ends with this `answer`.
    pub fn end<T>(mut self, answer: &Result<T, ApiError>) {
        self.outcome = match answer {
            Ok(_) => {
                let latency = self.arrival.elapsed();
                self.metrics.requests().answered(self.path, latency);
                Outcome::Ok
            }
            Err(error) => Outcome::new(error.code),
        };
    }
}

impl Drop for PathRequest {
    fn drop(&mut self) {
        self.metrics.requests().ended(self.path, self.outcome);
    }
}
