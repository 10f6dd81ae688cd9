//! Threads for blocking work on requests: bounded in number, and never waited for when the process
//! ends.

use std::sync::{Arc, Weak};

use tokio::sync::{Semaphore, oneshot};

use crate::error::ApiError;

/// Bodies of at most this many bytes have threads of their own, so that no short request waits
/// behind a long one.
pub(crate) const SHORT_BODY: usize = 64 << 10;
/// Grammars that wait for a thread of their pool; further ones get 429.
pub(crate) const WAITING_GRAMMARS: usize = 32;

/// The pools of a server.
#[derive(Debug)]
pub(crate) struct Pools {
    /// Reading and encoding bodies of at most [`SHORT_BODY`] bytes: one thread per core.
    pub short: Pool,
    /// Reading and encoding longer bodies: one thread per two cores, which bounds the memory of
    /// decoded requests too.
    pub long: Pool,
    /// Compiling grammars: one thread per two cores, at most [`WAITING_GRAMMARS`] in the queue.
    pub grammars: Pool,
}

impl Pools {
    /// Pools for this machine; no thread runs yet.
    pub fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let half = (cores / 2).max(1);
        let endless = Semaphore::MAX_PERMITS - cores;
        Self {
            short: Pool::new("encode", cores, endless),
            long: Pool::new("encode long", half, endless),
            grammars: Pool::new("grammars", half, WAITING_GRAMMARS),
        }
    }

    /// The pool for a body of `bytes` bytes.
    pub fn of_body(&self, bytes: usize) -> &Pool {
        if bytes <= SHORT_BODY {
            &self.short
        } else {
            &self.long
        }
    }
}

/// At most a fixed number of threads, each with one job.
///
/// A job holds its place until it ends, also if its request is gone by then. A job whose request
/// is gone before it begins does not begin. The runtime does not know these threads, so that its
/// end waits for none of them.
#[derive(Debug)]
pub(crate) struct Pool {
    name: &'static str,
    threads: usize,
    /// One permit per running job.
    running: Arc<Semaphore>,
    /// One permit per job that runs or waits.
    places: Arc<Semaphore>,
}

/// Tells a job whether its request still waits for it.
#[derive(Clone, Debug)]
pub(crate) struct Wanted(Weak<()>);

impl Wanted {
    /// A request that waits until the first value is dropped.
    pub fn new() -> (Arc<()>, Self) {
        let request = Arc::new(());
        let wanted = Self(Arc::downgrade(&request));
        (request, wanted)
    }

    /// Ends a job whose request is gone.
    ///
    /// # Errors
    /// The request is gone; nobody reads the error.
    pub fn check(&self) -> Result<(), ApiError> {
        match self.0.strong_count() {
            0 => Err(ApiError::internal()),
            _ => Ok(()),
        }
    }
}

impl Pool {
    /// At most `threads` jobs at a time, and `waiting` in the queue.
    pub fn new(name: &'static str, threads: usize, waiting: usize) -> Self {
        Self {
            name,
            threads,
            running: Arc::new(Semaphore::new(threads)),
            places: Arc::new(Semaphore::new(threads + waiting)),
        }
    }

    /// Runs `work` on a thread of the pool.
    ///
    /// # Errors
    /// Those of `work`; `overloaded` if the queue is full or the system gives no thread;
    /// `internal_error` if `work` panics.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Wanted) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_| self.full())?;
        let permit = Arc::clone(&self.running).acquire_owned().await;
        let permit = permit.map_err(|_| ApiError::internal())?;
        let (request, wanted) = Wanted::new();
        let (sender, result) = oneshot::channel();
        let job = move || {
            // Given back when the work ends, whether or not somebody still waits for it.
            let _held = (place, permit);
            if wanted.check().is_ok() {
                // Fails if the request is gone.
                let _ = sender.send(work(&wanted));
            }
        };
        let thread = std::thread::Builder::new().name(self.name.to_owned());
        thread.spawn(job).map_err(|error| {
            tracing::error!(%error, pool = self.name, "the system gives no thread");
            self.full()
        })?;
        let done = result.await;
        drop(request);
        done.map_err(|_| ApiError::internal())?
    }

    fn full(&self) -> ApiError {
        let jobs = u32::try_from(WAITING_GRAMMARS / self.threads).unwrap_or(u32::MAX);
        let message = format!("too many requests wait for the pool `{}`", self.name);
        ApiError::busy(message, jobs)
    }
}

#[cfg(test)]
mod tests;
