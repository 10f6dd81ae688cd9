//! The budget of bytes in flight: request bodies while they arrive, and what is made of them until
//! their request is admitted.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::settings::Settings;
use crate::error::ApiError;

/// The first bytes of every body count against a reserve of their own, a quarter of the budget, so
/// that long bodies never keep short ones out.
const SHORT: usize = 64 << 10;
/// Bytes per permit.
const UNIT: usize = 1 << 10;
/// A received byte counts for itself and for its decoded form.
const COPIES: usize = 2;
/// Time that a body waits for others to end before it is refused.
const PATIENCE: Duration = Duration::from_secs(2);
/// `retry-after` of a refused body, in seconds.
const RETRY: u32 = 5;

/// The budget; cheap to clone.
#[derive(Clone, Debug)]
pub struct BytesInFlight {
    short: Arc<Semaphore>,
    long: Arc<Semaphore>,
}

/// What one request holds of the budget; dropping it gives it back.
#[derive(Debug)]
pub struct Share {
    budget: BytesInFlight,
    bytes: usize,
    short: Option<OwnedSemaphorePermit>,
    long: Option<OwnedSemaphorePermit>,
}

impl BytesInFlight {
    /// A budget of [`Settings::max_bytes_in_flight`] bytes; at least one body of the greatest
    /// length always fits.
    pub fn new(settings: &Settings) -> Self {
        let short = settings.max_bytes_in_flight / 4;
        let long = (settings.max_bytes_in_flight - short).max(COPIES * settings.max_body_bytes);
        let semaphore = |bytes: usize, least: usize| {
            let permits = permits(bytes.max(least)).min(Semaphore::MAX_PERMITS);
            Arc::new(Semaphore::new(permits))
        };
        Self {
            short: semaphore(short, COPIES * SHORT),
            long: semaphore(long, UNIT),
        }
    }

    /// A share of no bytes.
    pub fn share(&self) -> Share {
        Share {
            budget: self.clone(),
            bytes: 0,
            short: None,
            long: None,
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
        let short = |bytes: usize| permits(COPIES * bytes.min(SHORT));
        let long = |bytes: usize| permits(COPIES.saturating_mul(bytes.saturating_sub(SHORT)));
        take(
            &self.budget.short,
            &mut self.short,
            short(after) - short(before),
        )
        .await?;
        take(
            &self.budget.long,
            &mut self.long,
            long(after) - long(before),
        )
        .await
    }
}

/// Adds `count` permits of `budget` to `held`.
async fn take(
    budget: &Arc<Semaphore>,
    held: &mut Option<OwnedSemaphorePermit>,
    count: usize,
) -> Result<(), ApiError> {
    if count == 0 {
        return Ok(());
    }
    let full = || {
        ApiError::busy(
            "too many bytes of requests are in flight, retry later",
            RETRY,
        )
    };
    let count = u32::try_from(count).map_err(|_| full())?;
    let room = Arc::clone(budget).acquire_many_owned(count);
    let more = tokio::time::timeout(PATIENCE, room).await;
    let more = more.map_err(|_| full())?.map_err(|_| full())?;
    match held {
        Some(held) => held.merge(more),
        None => *held = Some(more),
    }
    Ok(())
}

fn permits(bytes: usize) -> usize {
    bytes.div_ceil(UNIT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    fn budget() -> BytesInFlight {
        BytesInFlight::new(&Settings {
            max_bytes_in_flight: 4 << 20,
            max_body_bytes: 1 << 20,
            ..Settings::default()
        })
    }

    #[tokio::test(start_paused = true)]
    async fn long_bodies_wait_then_are_refused_and_short_ones_pass() {
        let budget = budget();
        let mut first = budget.share();
        let mut second = budget.share();
        first.grow(1 << 20).await.unwrap();
        // 3 MiB for long bodies, 2 bytes for each byte beyond the first 64 KiB.
        second.grow(600 << 10).await.unwrap();
        let error = second.grow(1 << 20).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::Overloaded);
        assert_eq!(error.retry_after, Some(RETRY));
        for _ in 0..8 {
            budget.share().grow(SHORT).await.unwrap();
        }
        drop(first);
        let mut third = budget.share();
        third.grow(1 << 20).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_share_grows_byte_by_byte_as_it_does_at_once() {
        let budget = budget();
        let (mut slow, mut fast) = (budget.share(), budget.share());
        for _ in 0..200 {
            slow.grow(1000).await.unwrap();
        }
        fast.grow(200_000).await.unwrap();
        let held = |share: &Share| {
            let count = |permit: &Option<OwnedSemaphorePermit>| {
                permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
            };
            (count(&share.short), count(&share.long))
        };
        assert_eq!(held(&slow), held(&fast));
        assert_eq!(held(&fast).0, 128);
        let all = (
            budget.short.available_permits(),
            budget.long.available_permits(),
        );
        drop((slow, fast));
        let free = (
            budget.short.available_permits(),
            budget.long.available_permits(),
        );
        assert_eq!((all.0 + 256, free.1), (free.0, 3 << 10));
    }
}
