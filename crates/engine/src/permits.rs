//! Permits to wait in a queue that clients share.

use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use decode::as_index;

use crate::request::ClientId;

/// Counters of clients. Clients whose ids fall on one counter are counted together.
const COUNTERS: usize = 1024;

/// The permits of a queue, `most` of them. For a client that holds at most an eighth of `most` there are
/// half as many more, so that a flood of one client does not shut others out.
#[derive(Debug)]
pub struct QueuePermits {
    most: u32,
    taken: AtomicU32,
    by_client: Box<[AtomicU32]>,
}

/// A permit; given back when dropped.
#[derive(Debug)]
pub struct QueuePermit {
    permits: Arc<QueuePermits>,
    client: ClientId,
}

impl QueuePermits {
    /// The permits of a queue for `most` entries.
    pub fn new(most: u32) -> Self {
        Self {
            most,
            taken: AtomicU32::new(0),
            by_client: iter::repeat_with(AtomicU32::default).take(COUNTERS).collect(),
        }
    }

    /// Most permits that all clients together can hold.
    pub fn capacity(&self) -> u32 {
        self.most.saturating_add(self.most / 2)
    }

    /// A permit for an entry of `client`, if there is one.
    pub fn take(self: &Arc<Self>, client: ClientId) -> Option<QueuePermit> {
        let own = self.counter(client).fetch_add(1, Ordering::Relaxed) + 1;
        let limit = match own <= self.most / 8 {
            true => self.capacity(),
            false => self.most,
        };
        let take = |taken| (taken < limit).then_some(taken + 1);
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        if taken.is_err() {
            self.counter(client).fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let permits = Arc::clone(self);
        Some(QueuePermit { permits, client })
    }

    fn counter(&self, client: ClientId) -> &AtomicU32 {
        // Fibonacci hashing: ids in a row fall on counters far apart.
        let hash = client.0.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let upper = u32::try_from(hash >> 32).expect("32 bits are left");
        &self.by_client[as_index(upper) % COUNTERS]
    }
}

impl Drop for QueuePermit {
    fn drop(&mut self) {
        self.permits.counter(self.client).fetch_sub(1, Ordering::Relaxed);
        self.permits.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(permits: &Arc<QueuePermits>, client: u64, count: usize) -> Vec<QueuePermit> {
        let all = iter::repeat_with(|| permits.take(ClientId(client)));
        all.take(count).flatten().collect()
    }

    #[test]
    fn one_client_has_the_whole_queue_and_no_more() {
        let permits = Arc::new(QueuePermits::new(16));
        let held = take(&permits, 1, 40);
        assert_eq!(held.len(), 16);
        drop(held);
        assert_eq!(take(&permits, 1, 40).len(), 16);
    }

    #[test]
    fn a_flood_leaves_an_eighth_to_others() {
        let permits = Arc::new(QueuePermits::new(16));
        let flood = take(&permits, 1, 40);
        let others: Vec<_> = (2..7).map(|client| take(&permits, client, 40)).collect();
        let held: Vec<usize> = others.iter().map(Vec::len).collect();
        assert_eq!(held, [2, 2, 2, 2, 0], "24 permits in all");
        drop(flood);
        assert_eq!(take(&permits, 1, 40).len(), 8);
    }

    #[test]
    fn what_is_given_back_is_free_again() {
        let permits = Arc::new(QueuePermits::new(3));
        for _ in 0..5 {
            assert_eq!(take(&permits, 7, 9).len(), 3);
        }
        let free = |counter: &AtomicU32| counter.load(Ordering::Relaxed) == 0;
        assert!(free(&permits.taken) && permits.by_client.iter().all(free));
    }
}
