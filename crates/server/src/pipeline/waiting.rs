//! The number of prompt tokens of waiting sequences.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The count; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct WaitingTokens(Arc<AtomicU64>);

/// A sequence's share of the count; dropping it subtracts it.
#[derive(Debug)]
pub struct Share {
    count: Arc<AtomicU64>,
    tokens: u64,
}

impl WaitingTokens {
    /// Adds a sequence of `tokens` prompt tokens until the share is dropped.
    pub fn enter(&self, tokens: u64) -> Share {
        self.0.fetch_add(tokens, Ordering::Relaxed);
        let count = Arc::clone(&self.0);
        Share { count, tokens }
    }

    /// The count now.
    pub fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.count.fetch_sub(self.tokens, Ordering::Relaxed);
    }
}
