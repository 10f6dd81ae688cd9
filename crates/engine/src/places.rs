//! Places in the queue, which clients share.

use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use decode::as_index;

use crate::request::ClientId;

/// Counters of clients. Clients whose ids fall on one counter are counted together.
const COUNTERS: usize = 1024;

/// A queue of `most` places. A client that holds at most an eighth of them finds further places, half
/// as many as the queue has, so that a flood of one client does not shut others out.
#[derive(Debug)]
pub struct Places {
    most: u32,
    taken: AtomicU32,
    by_client: Box<[AtomicU32]>,
}

/// A place; given back when dropped.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    client: ClientId,
}

impl Places {
    /// A queue of `most` places.
    pub fn new(most: u32) -> Self {
        Self {
            most,
            taken: AtomicU32::new(0),
            by_client: iter::repeat_with(AtomicU32::default).take(COUNTERS).collect(),
        }
    }

    /// Most places that all clients together can hold.
    pub fn capacity(&self) -> u32 {
        self.most.saturating_add(self.most / 2)
    }

    /// A place for a sequence of `client`, if there is one.
    pub fn take(self: &Arc<Self>, client: ClientId) -> Option<Place> {
        let own = self.of(client).fetch_add(1, Ordering::Relaxed) + 1;
        let limit = match own <= self.most / 8 {
            true => self.capacity(),
            false => self.most,
        };
        let take = |taken| (taken < limit).then_some(taken + 1);
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        if taken.is_err() {
            self.of(client).fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let places = Arc::clone(self);
        Some(Place { places, client })
    }

    fn of(&self, client: ClientId) -> &AtomicU32 {
        // Fibonacci hashing: ids in a row fall on counters far apart.
        let hash = client.0.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let upper = u32::try_from(hash >> 32).expect("32 bits are left");
        &self.by_client[as_index(upper) % COUNTERS]
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.of(self.client).fetch_sub(1, Ordering::Relaxed);
        self.places.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(places: &Arc<Places>, client: u64, count: usize) -> Vec<Place> {
        let all = iter::repeat_with(|| places.take(ClientId(client)));
        all.take(count).flatten().collect()
    }

    #[test]
    fn one_client_has_the_whole_queue_and_no_more() {
        let places = Arc::new(Places::new(16));
        let held = take(&places, 1, 40);
        assert_eq!(held.len(), 16);
        drop(held);
        assert_eq!(take(&places, 1, 40).len(), 16);
    }

    #[test]
    fn a_flood_leaves_an_eighth_to_others() {
        let places = Arc::new(Places::new(16));
        let flood = take(&places, 1, 40);
        let others: Vec<_> = (2..7).map(|client| take(&places, client, 40)).collect();
        let held: Vec<usize> = others.iter().map(Vec::len).collect();
        assert_eq!(held, [2, 2, 2, 2, 0], "24 places in all");
        drop(flood);
        assert_eq!(take(&places, 1, 40).len(), 8);
    }

    #[test]
    fn what_is_given_back_is_free_again() {
        let places = Arc::new(Places::new(3));
        for _ in 0..5 {
            assert_eq!(take(&places, 7, 9).len(), 3);
        }
        let free = |counter: &AtomicU32| counter.load(Ordering::Relaxed) == 0;
        assert!(free(&places.taken) && places.by_client.iter().all(free));
    }
}
