//! Threads that run the grammars' jobs while the model computes.
//!
//! Jobs are taken in turns of clients, and those of one client in order. With C clients that have
//! jobs and T threads, a client's oldest job begins once C - 1 others have begun and one of the T
//! that run has ended, whatever the number of jobs: it waits for at most ⌈(C + T - 1) / T⌉ jobs one
//! after the other. The limits of a grammar bound one job.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::num::NonZero;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread;

use tokio::sync::mpsc;

use crate::request::ClientId;
use crate::sequence::{GrammarJob, SequenceId};

/// The threads and the jobs that they have.
#[derive(Debug)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
    ended: mpsc::UnboundedReceiver<GrammarJob>,
    /// Jobs that wait, run, or have ended and are not taken back.
    jobs: usize,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue<GrammarJob>>,
    /// Rings for every job and at the end.
    bell: Condvar,
}

impl Pool {
    /// Half of the machine's cores, rounded up: the other half is the model's.
    ///
    /// # Errors
    /// If the operating system gives no thread.
    pub(crate) fn new() -> io::Result<Self> {
        let (sender, ended) = mpsc::unbounded_channel();
        let pool = Self {
            shared: Arc::default(),
            ended,
            jobs: 0,
        };
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        for _ in 0..cores.div_ceil(2) {
            let (shared, ended) = (Arc::clone(&pool.shared), sender.clone());
            let worker = thread::Builder::new().name("grammar".to_owned());
            worker.spawn(move || work(&shared, &ended))?;
        }
        Ok(pool)
    }

    /// Whether a job is on its way.
    pub(crate) fn is_busy(&self) -> bool {
        self.jobs > 0
    }

    pub(crate) fn push(&mut self, job: GrammarJob) {
        self.jobs += 1;
        self.shared.queue().push(job.client(), job);
        self.shared.bell.notify_one();
    }

    /// Drops a sequence's job if no thread has begun it.
    pub(crate) fn forget(&mut self, id: SequenceId) {
        if self.is_busy() {
            self.jobs -= self.shared.queue().remove(|job| job.sequence() == id);
        }
    }

    /// A job that has ended.
    pub(crate) fn take(&mut self) -> Option<GrammarJob> {
        let job = self.ended.try_recv().ok()?;
        self.jobs -= 1;
        Some(job)
    }

    /// A job that has ended; wakes the caller once there is one.
    pub(crate) fn poll_take(&mut self, context: &mut Context<'_>) -> Poll<GrammarJob> {
        match self.ended.poll_recv(context) {
            Poll::Ready(Some(job)) => {
                self.jobs -= 1;
                Poll::Ready(job)
            }
            // The threads live as long as the pool.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for Pool {
    /// The threads end after the jobs that they run.
    fn drop(&mut self) {
        let mut queue = self.shared.queue();
        queue.remove(|_| true);
        queue.is_closed = true;
        self.shared.bell.notify_all();
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue<GrammarJob>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next job; `None` at the end.
    fn next(&self) -> Option<GrammarJob> {
        let waits = |queue: &mut Queue<_>| !queue.is_closed && queue.turns.is_empty();
        let queue = self.bell.wait_while(self.queue(), waits);
        queue.unwrap_or_else(PoisonError::into_inner).pop()
    }
}

fn work(shared: &Shared, ended: &mpsc::UnboundedSender<GrammarJob>) {
    while let Some(mut job) = shared.next() {
        job.run();
        if ended.send(job).is_err() {
            return;
        }
    }
}

/// Jobs in turns of clients.
#[derive(Debug)]
struct Queue<T> {
    /// No list is empty.
    by_client: BTreeMap<ClientId, VecDeque<T>>,
    /// The clients with jobs; the first one is next.
    turns: VecDeque<ClientId>,
    is_closed: bool,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            by_client: BTreeMap::new(),
            turns: VecDeque::new(),
            is_closed: false,
        }
    }
}

impl<T> Queue<T> {
    fn push(&mut self, client: ClientId, job: T) {
        let jobs = self.by_client.entry(client).or_default();
        if jobs.is_empty() {
            self.turns.push_back(client);
        }
        jobs.push_back(job);
    }

    fn pop(&mut self) -> Option<T> {
        let client = self.turns.pop_front()?;
        let jobs = self.by_client.get_mut(&client)?;
        let job = jobs.pop_front();
        if jobs.is_empty() {
            self.by_client.remove(&client);
        } else {
            self.turns.push_back(client);
        }
        job
    }

    /// Drops jobs; their number.
    fn remove(&mut self, drops: impl Fn(&T) -> bool) -> usize {
        let mut dropped = 0;
        for jobs in self.by_client.values_mut() {
            let before = jobs.len();
            jobs.retain(|job| !drops(job));
            dropped += before - jobs.len();
        }
        self.by_client.retain(|_, jobs| !jobs.is_empty());
        let by_client = &self.by_client;
        self.turns.retain(|client| by_client.contains_key(client));
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(jobs: &[(u64, &'static str)]) -> Queue<&'static str> {
        let mut queue = Queue::default();
        for (client, job) in jobs {
            queue.push(ClientId(*client), *job);
        }
        queue
    }

    fn drain(mut queue: Queue<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn clients_take_turns_and_keep_their_order() {
        let queue = queue(&[(7, "a"), (7, "b"), (7, "c"), (1, "x"), (9, "p"), (1, "y")]);
        assert_eq!(drain(queue), ["a", "x", "p", "b", "y", "c"]);
    }

    #[test]
    fn a_client_that_comes_later_waits_for_one_job_of_each_other() {
        let mut queue = queue(&[(1, "a"), (1, "b"), (1, "c"), (2, "p"), (2, "q")]);
        assert_eq!(queue.pop(), Some("a"));
        queue.push(ClientId(3), "x");
        assert_eq!(drain(queue), ["p", "b", "x", "q", "c"]);
    }

    #[test]
    fn dropped_jobs_take_no_turn() {
        let mut queue = queue(&[(1, "a"), (2, "b"), (2, "c"), (3, "d")]);
        assert_eq!(queue.remove(|job| ["b", "c", "d"].contains(job)), 3);
        assert_eq!(drain(queue), ["a"]);
    }
}
