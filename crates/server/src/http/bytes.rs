//! The budget of bytes in flight: request bodies while they arrive, and what is made of them until
//! their request is admitted. Clients share it as they share the engine's queue: a quarter is open only
//! to those that hold at most an eighth, so that the bodies of one client do not shut others out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::ClientId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::settings::Settings;
use crate::error::ApiError;

/// The first bytes of every body count against a budget of their own, a quarter of the whole, so
/// that long bodies never keep short ones out.
const SHORT_BYTES: usize = 64 << 10;
/// Bytes per permit.
const PERMIT_BYTES: usize = 1 << 10;
/// A received byte counts for itself and for its decoded form.
const COPIES: usize = 2;
/// Time that a body waits for others to end before it is refused.
const WAIT_TIMEOUT: Duration = Duration::from_secs(2);
/// `retry-after` of a refused body, in seconds.
const RETRY_SECONDS: u32 = 5;

/// The budget; cheap to clone.
#[derive(Clone, Debug)]
pub struct BytesInFlight {
    short: Arc<Budget>,
    long: Arc<Budget>,
}

/// The part of the budget that one request holds; dropping it returns the part.
#[derive(Debug)]
pub struct Share {
    bytes: usize,
    short: Permits,
    long: Permits,
}

/// Permits that clients share.
#[derive(Debug)]
struct Budget {
    /// Three quarters, for everybody.
    common: Arc<Semaphore>,
    /// A quarter, for clients that hold at most `small`.
    reserve: Arc<Semaphore>,
    small: usize,
    /// Permits that each client holds or waits for.
    clients: Mutex<HashMap<ClientId, usize>>,
}

/// Permits of one request.
#[derive(Debug)]
struct Permits {
    budget: Arc<Budget>,
    client: ClientId,
    /// Counted for the client.
    count: usize,
    common: Option<OwnedSemaphorePermit>,
    reserve: Option<OwnedSemaphorePermit>,
}

impl BytesInFlight {
    /// A budget of `max_bytes_in_flight` bytes; at least one body of the greatest
    /// length always fits.
    pub fn new(settings: &Settings) -> Self {
        let short = settings.limits.max_bytes_in_flight / 4;
        let long = settings.limits.max_bytes_in_flight - short;
        Self {
            short: Arc::new(Budget::new(short, COPIES * SHORT_BYTES)),
            long: Arc::new(Budget::new(long, COPIES * settings.limits.max_body_bytes)),
        }
    }

    /// A share of no bytes for a body of `client`.
    pub fn share(&self, client: ClientId) -> Share {
        Share {
            bytes: 0,
            short: Permits::new(&self.short, client),
            long: Permits::new(&self.long, client),
        }
    }
}

impl Share {
    /// Takes room for `bytes` more bytes of a body; waits for it for at most 2 seconds.
    ///
    /// # Errors
    /// `overloaded`.
    pub async fn grow(&mut self, bytes: usize) -> Result<(), ApiError> {
        let before = self.bytes;
        let after = before.saturating_add(bytes);
        self.bytes = after;
        let short = |bytes: usize| permits(COPIES * bytes.min(SHORT_BYTES));
        let long = |bytes: usize| permits(COPIES.saturating_mul(bytes.saturating_sub(SHORT_BYTES)));
        self.short.grow(short(after) - short(before)).await?;
        self.long.grow(long(after) - long(before)).await
    }
}

impl Budget {
    /// A budget of `bytes` bytes; at least `least` of them are for everybody.
    fn new(bytes: usize, least: usize) -> Self {
        let all = permits(bytes).min(Semaphore::MAX_PERMITS);
        let reserve = all / 4;
        let common = (all - reserve).max(permits(least));
        Self {
            common: Arc::new(Semaphore::new(common.min(Semaphore::MAX_PERMITS))),
            reserve: Arc::new(Semaphore::new(reserve)),
            small: all / 8,
            clients: Mutex::default(),
        }
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<ClientId, usize>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permits {
    fn new(budget: &Arc<Budget>, client: ClientId) -> Self {
        Self { budget: Arc::clone(budget), client, count: 0, common: None, reserve: None }
    }

    /// Takes `count` more permits.
    async fn grow(&mut self, count: usize) -> Result<(), ApiError> {
        if count == 0 {
            return Ok(());
        }
        self.count += count;
        let own = {
            let mut held = self.budget.clients();
            let own = held.entry(self.client).or_default();
            *own += count;
            *own
        };
        let count = u32::try_from(count).map_err(|_| full())?;
        let common = Arc::clone(&self.budget.common);
        if let Ok(more) = Arc::clone(&common).try_acquire_many_owned(count) {
            merge(&mut self.common, more);
            return Ok(());
        }
        let (from, held) = match own <= self.budget.small {
            true => (Arc::clone(&self.budget.reserve), &mut self.reserve),
            false => (common, &mut self.common),
        };
        let more = tokio::time::timeout(WAIT_TIMEOUT, from.acquire_many_owned(count)).await;
        merge(held, more.map_err(|_| full())?.map_err(|_| full())?);
        Ok(())
    }
}

impl Drop for Permits {
    fn drop(&mut self) {
        let mut held = self.budget.clients();
        if let Some(own) = held.get_mut(&self.client) {
            *own -= self.count;
            if *own == 0 {
                held.remove(&self.client);
            }
        }
    }
}

fn merge(held: &mut Option<OwnedSemaphorePermit>, more: OwnedSemaphorePermit) {
    match held {
        Some(held) => held.merge(more),
        None => *held = Some(more),
    }
}

fn full() -> ApiError {
    ApiError::busy("too many bytes of requests are in flight, retry later", RETRY_SECONDS)
}

fn permits(bytes: usize) -> usize {
    bytes.div_ceil(PERMIT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    const ONE: ClientId = ClientId(1);
    const OTHER: ClientId = ClientId(2);

    fn budget() -> BytesInFlight {
        let mut settings = Settings::default();
        settings.limits.max_bytes_in_flight = 4 << 20;
        settings.limits.max_body_bytes = 1 << 20;
        BytesInFlight::new(&settings)
    }

    /// Permits that nobody holds: short and long.
    fn free(budget: &BytesInFlight) -> (usize, usize) {
        let free = |budget: &Budget| {
            budget.common.available_permits() + budget.reserve.available_permits()
        };
        (free(&budget.short), free(&budget.long))
    }

    #[tokio::test(start_paused = true)]
    async fn long_bodies_wait_then_are_refused_and_short_ones_pass() {
        let budget = budget();
        let mut first = budget.share(ONE);
        let mut second = budget.share(ONE);
        first.grow(1 << 20).await.unwrap();
        // 2.25 MiB for the long bodies of a client, 2 bytes for each byte beyond the first 64 KiB.
        second.grow(200 << 10).await.unwrap();
        let error = second.grow(1 << 20).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::Overloaded);
        assert_eq!(error.retry_after, Some(RETRY_SECONDS));
        for _ in 0..8 {
            budget.share(ONE).grow(SHORT_BYTES).await.unwrap();
        }
        drop(first);
        let mut third = budget.share(ONE);
        third.grow(1 << 20).await.unwrap();
    }

    /// Unfinished bodies of one client, as many as it can hold.
    #[tokio::test(start_paused = true)]
    async fn the_bodies_of_one_client_leave_room_to_others() {
        let budget = budget();
        let mut flood = Vec::new();
        loop {
            let mut share = budget.share(ONE);
            if share.grow(100 << 10).await.is_err() {
                break;
            }
            flood.push(share);
        }
        assert!(flood.len() >= 6, "{}", flood.len());
        let begin = tokio::time::Instant::now();
        let mut other = budget.share(OTHER);
        other.grow(200 << 10).await.unwrap();
        assert!(begin.elapsed().is_zero(), "it waited");
        drop((flood, other));
        assert_eq!(free(&budget), (1 << 10, 3 << 10));
        assert!(budget.short.clients().is_empty() && budget.long.clients().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_share_grows_byte_by_byte_as_it_does_at_once() {
        let budget = budget();
        let (short, long) = free(&budget);
        let mut slow = budget.share(ONE);
        for _ in 0..200 {
            slow.grow(1000).await.unwrap();
        }
        let bit_by_bit = free(&budget);
        drop(slow);
        let mut fast = budget.share(OTHER);
        fast.grow(200_000).await.unwrap();
        assert_eq!(free(&budget), bit_by_bit);
        assert_eq!(short - bit_by_bit.0, 128);
        drop(fast);
        assert_eq!(free(&budget), (short, long));
    }
}
