//! Threads that run the grammars' jobs while the model computes.
//!
//! Jobs are taken in turns of clients, and those of one client in order. With C clients that have
//! jobs and T threads, a client's oldest job begins once C - 1 others have begun and one of the T
//! that run has ended, whatever the number of jobs: it waits for at most ⌈(C + T - 1) / T⌉ jobs one
//! after the other.
//!
//! The limits of a grammar bound one job, as long as its library counts what it does. A job that runs
//! longer than the pool's limit all the same is given up, and another thread takes the place of the
//! one that runs it. Its time is counted in looks, a fixed part of the limit apart, so that a pause of
//! the process is one look. As many threads as the pool has may be replaced, at least two; one more is not.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZero;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use decode::as_count;
use tokio::sync::mpsc;

use crate::client_queue::ClientQueue;
use crate::sequence::{GrammarJob, SequenceId};

/// Looks in the limit of a job, which is given up at the next one.
const LOOKS: u32 = 4;

/// The threads and the jobs that they have.
#[derive(Debug)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
    ended: mpsc::UnboundedReceiver<GrammarJob>,
    sender: mpsc::UnboundedSender<GrammarJob>,
    /// Jobs that wait, run, or have ended and are not taken back.
    jobs: usize,
    /// Longest time of one job; zero = no limit.
    limit: Duration,
    /// When the jobs are looked at again.
    next_look: Option<Instant>,
}

/// The load of a pool of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolLoad {
    /// Jobs that run and are waited for.
    pub running: u32,
    /// Jobs that no thread has begun.
    pub waiting: u32,
    /// Jobs that were given up and have not ended: each keeps a thread, and perhaps a core, busy.
    pub stuck: u32,
    /// Most jobs that may be stuck before the pool takes no further one.
    pub most_stuck: u32,
}

impl PoolLoad {
    /// Most stuck jobs of a pool of `threads` threads.
    pub fn most_stuck(threads: usize) -> u32 {
        as_count(threads.max(2))
    }

    /// Returns true if the pool takes no further job because too many are stuck.
    pub fn is_exhausted(&self) -> bool {
        self.stuck >= self.most_stuck
    }
}

/// Sequences whose jobs do not come back.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct GivenUp {
    /// Their jobs were over their time.
    pub(crate) late: Vec<SequenceId>,
    /// No thread is left for their jobs.
    pub(crate) left: Vec<SequenceId>,
}

/// Reads the load of the pool from any thread.
#[derive(Clone, Debug)]
pub(crate) struct PoolMonitor(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    jobs: Mutex<Jobs>,
    /// Rings for every job and at the end.
    bell: Condvar,
    /// Threads that take jobs, unless too many are stuck.
    threads: u32,
    most_stuck: u32,
}

#[derive(Debug)]
struct Running {
    sequence: SequenceId,
    /// Number of looks that found it running.
    looks: u32,
}

#[derive(Debug, Default)]
struct Jobs {
    queue: ClientQueue<GrammarJob>,
    /// The jobs that run, by thread.
    running: BTreeMap<u64, Running>,
    /// Threads that take jobs.
    threads: u32,
    /// Threads of jobs that were given up and have not ended.
    stuck: u32,
    /// The next thread's number.
    next: u64,
    is_closed: bool,
}

impl Pool {
    /// Half of the machine's cores, rounded up: the other half is the model's. A job is given up after
    /// `limit`; zero = never.
    ///
    /// # Errors
    /// If the operating system gives no thread.
    pub(crate) fn new(limit: Duration) -> io::Result<Self> {
        let (sender, ended) = mpsc::unbounded_channel();
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let threads = cores.div_ceil(2);
        let shared = Shared {
            threads: as_count(threads),
            most_stuck: PoolLoad::most_stuck(threads),
            ..Shared::default()
        };
        let pool =
            Self { shared: Arc::new(shared), ended, sender, jobs: 0, limit, next_look: None };
        let mut jobs = pool.shared.jobs();
        (0..threads).try_for_each(|_| pool.start_thread(&mut jobs))?;
        drop(jobs);
        Ok(pool)
    }

    fn start_thread(&self, jobs: &mut Jobs) -> io::Result<()> {
        let (shared, ended) = (Arc::clone(&self.shared), self.sender.clone());
        let number = jobs.next;
        let thread = thread::Builder::new().name("grammar".to_owned());
        thread.spawn(move || work(&shared, &ended, number))?;
        jobs.next += 1;
        jobs.threads += 1;
        Ok(())
    }

    /// A view of the pool for other threads.
    pub(crate) fn monitor(&self) -> PoolMonitor {
        PoolMonitor(Arc::clone(&self.shared))
    }

    /// Returns true if a job is on its way.
    pub(crate) fn is_busy(&self) -> bool {
        self.jobs > 0
    }

    pub(crate) fn push(&mut self, job: GrammarJob) {
        self.jobs += 1;
        self.shared.jobs().queue.push(job.client(), job);
        self.shared.bell.notify_one();
    }

    /// Drops a sequence's job if no thread has begun it.
    pub(crate) fn forget(&mut self, id: SequenceId) {
        if self.is_busy() {
            let mut jobs = self.shared.jobs();
            self.jobs -= jobs.queue.remove(|job| job.sequence() == id);
        }
    }

    /// Returns true if the jobs are to be looked at again ([`Self::give_up`]).
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        if self.limit.is_zero() || !self.is_busy() {
            self.next_look = None;
            return false;
        }
        let next = *self.next_look.get_or_insert(now + self.limit / LOOKS);
        let jobs = self.shared.jobs();
        now >= next || jobs.threads == 0 && !jobs.queue.is_empty()
    }

    /// When [`Self::is_due`] is next true, as far as it has been asked.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        self.next_look
    }

    /// Looks at the jobs: gives up those that have run too long and replaces their threads.
    pub(crate) fn give_up(&mut self, now: Instant) -> GivenUp {
        self.next_look = Some(now + self.limit / LOOKS);
        let mut jobs = self.shared.jobs();
        jobs.running.values_mut().for_each(|job| job.looks += 1);
        let late = jobs.running.extract_if(.., |_, job| job.looks > LOOKS);
        let late: Vec<SequenceId> = late.map(|(_, job)| job.sequence).collect();
        jobs.threads -= as_count(late.len());
        jobs.stuck += as_count(late.len());
        let most = self.shared.threads + self.shared.most_stuck;
        while jobs.threads < self.shared.threads && jobs.threads + jobs.stuck < most {
            if let Err(error) = self.start_thread(&mut jobs) {
                tracing::error!(%error, "the system gives no thread for grammars");
                break;
            }
        }
        let mut left = Vec::new();
        if jobs.threads == 0 {
            left.extend(std::iter::from_fn(|| jobs.queue.pop()).map(|job| job.sequence()));
        }
        drop(jobs);
        self.jobs -= late.len() + left.len();
        GivenUp { late, left }
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
            // The pool has a sender itself.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for Pool {
    /// The threads end after the jobs that they run.
    fn drop(&mut self) {
        let mut jobs = self.shared.jobs();
        jobs.queue.remove(|_| true);
        jobs.is_closed = true;
        self.shared.bell.notify_all();
    }
}

impl PoolMonitor {
    /// The present load of the pool.
    pub(crate) fn load(&self) -> PoolLoad {
        let jobs = self.0.jobs();
        PoolLoad {
            running: as_count(jobs.running.len()),
            waiting: as_count(jobs.queue.len()),
            stuck: jobs.stuck,
            most_stuck: self.0.most_stuck,
        }
    }
}

impl Shared {
    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next job of the thread `number`, which begins now; `None` at the end.
    fn next(&self, number: u64) -> Option<GrammarJob> {
        let waits = |jobs: &mut Jobs| !jobs.is_closed && jobs.queue.is_empty();
        let jobs = self.bell.wait_while(self.jobs(), waits);
        let mut jobs = jobs.unwrap_or_else(PoisonError::into_inner);
        let job = jobs.queue.pop()?;
        let sequence = job.sequence();
        jobs.running.insert(number, Running { sequence, looks: 0 });
        Some(job)
    }

    /// The job of the thread `number` has ended.
    fn end(&self, number: u64) -> Fate {
        let mut jobs = self.jobs();
        if jobs.running.remove(&number).is_some() {
            return Fate::InTime;
        }
        jobs.stuck -= 1;
        if jobs.threads < self.threads {
            jobs.threads += 1;
            return Fate::Late;
        }
        Fate::Replaced
    }
}

/// The fate of a thread whose job has ended.
enum Fate {
    /// The job is taken back.
    InTime,
    /// The job was given up, and its thread takes others again.
    Late,
    /// The job was given up, and another thread has the place of this one.
    Replaced,
}

fn work(shared: &Shared, ended: &mpsc::UnboundedSender<GrammarJob>, number: u64) {
    while let Some(mut job) = shared.next(number) {
        job.run();
        match shared.end(number) {
            Fate::InTime if ended.send(job).is_err() => return,
            Fate::InTime | Fate::Late => {}
            Fate::Replaced => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_given_up_after_its_time_and_not_after_a_pause() {
        let limit = Duration::from_secs(4);
        let mut pool = Pool::new(limit).expect("the system gives threads");
        let begun = Instant::now();
        assert!(!pool.is_due(begun), "there is no job");
        pool.jobs = 1;
        let running = Running { sequence: SequenceId(7), looks: 0 };
        // The number of no thread.
        pool.shared.jobs().running.insert(u64::MAX, running);
        assert!(!pool.is_due(begun));
        let mut now = begun + Duration::from_secs(3600);
        for _ in 0..LOOKS {
            assert!(pool.is_due(now));
            assert_eq!(pool.give_up(now), GivenUp::default());
            assert!(!pool.is_due(now), "once a look");
            now += limit / LOOKS;
        }
        assert!(pool.is_due(now));
        let late = vec![SequenceId(7)];
        let left = Vec::new();
        assert_eq!(pool.give_up(now), GivenUp { late, left });
        let load = pool.monitor().load();
        assert_eq!((load.stuck, load.running), (1, 0));
        assert!(!pool.is_due(now + limit), "there is no job");
    }
}
