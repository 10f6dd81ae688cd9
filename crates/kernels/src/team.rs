//! A fixed team of threads that share the tasks of one short region at a time.
//!
//! A forward pass has a few regions per layer, each tens of microseconds to milliseconds long.
//! A region begins with one atomic store and ends when its tasks are done: a thread that is not
//! awake by then is not waited for. Between regions threads spin for [`SPIN`], then they park.

use crate::parallel::{Place, alone, at};
use std::any::Any;
use std::cell::UnsafeCell;
use std::io;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How long a thread without work spins before it parks: longer than what lies between two
/// regions of a pass, short beside a pass.
const SPIN: Duration = Duration::from_micros(100);
/// Looks at the state between two looks at the time.
const LOOKS: usize = 64;

/// Bits of a team's state: helpers inside the region.
const INSIDE: u64 = 0xFFFF;
/// Whether helpers may enter the region.
const OPEN: u64 = 1 << 16;
/// Whether the one who opened the region has parked until the last helper leaves.
const WAITING: u64 = 1 << 17;
/// The region's number stands above these bits.
const REGION: u64 = 1 << 18;

/// What every member of the team runs once per region; it claims tasks until none is left.
pub(crate) type Body<'a> = dyn Fn(&Claims<'_>) + Sync + 'a;

/// Threads that compute together: the one that opens a region and its helpers.
pub struct Team {
    state: Arc<State>,
    /// Held while a region is open.
    entry: Mutex<()>,
    helpers: Vec<JoinHandle<()>>,
}

/// On cache lines of its own.
#[repr(align(128))]
struct Padded<T>(T);

struct State {
    word: Padded<AtomicU64>,
    /// The next task of the region.
    next: Padded<AtomicUsize>,
    /// What the region runs; written while no helper is inside.
    job: UnsafeCell<Job>,
    /// Of each helper, whether it has parked or is about to.
    asleep: Box<[AtomicBool]>,
    spin: Duration,
    stop: AtomicBool,
    panicked: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    opener: Mutex<Option<Thread>>,
}

#[derive(Clone, Copy)]
struct Job {
    body: *const Body<'static>,
    tasks: usize,
}

// SAFETY: `job` is written by the one holding `entry` while the region is closed and empty, and
// read by helpers inside an open one; entering acquires what opening released.
unsafe impl Sync for State {}
// SAFETY: the pointer in `job` is used inside regions only, where it is valid on every thread.
unsafe impl Send for State {}

/// Hands out the tasks of a region, each once.
pub(crate) struct Claims<'a> {
    pub(crate) next: &'a AtomicUsize,
    pub(crate) tasks: usize,
}

impl Claims<'_> {
    /// A task that no one has claimed.
    pub(crate) fn claim(&self) -> Option<usize> {
        let task = self.next.fetch_add(1, Relaxed);
        (task < self.tasks).then_some(task)
    }
}

impl Team {
    /// Starts `threads` minus one helpers; none = one thread per processor.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn new(threads: Option<NonZeroUsize>) -> io::Result<Self> {
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = threads.map_or(processors, NonZeroUsize::get);
        let helpers = threads.min(INSIDE as usize) - 1;
        let nothing: &Body<'static> = &|_| {};
        let mut team = Self {
            state: Arc::new(State {
                word: Padded(AtomicU64::new(0)),
                next: Padded(AtomicUsize::new(0)),
                job: UnsafeCell::new(Job {
                    body: nothing,
                    tasks: 0,
                }),
                asleep: (0..helpers).map(|_| AtomicBool::new(false)).collect(),
                // Who spins where others want to run only holds them up.
                spin: if threads <= processors {
                    SPIN
                } else {
                    Duration::ZERO
                },
                stop: AtomicBool::new(false),
                panicked: AtomicBool::new(false),
                panic: Mutex::new(None),
                opener: Mutex::new(None),
            }),
            entry: Mutex::new(()),
            helpers: Vec::new(),
        };
        for index in 0..helpers {
            let state = team.state.clone();
            let builder = thread::Builder::new().name(format!("kernel-{}", index + 1));
            let helper = builder.spawn(move || at(Place::Inside, || state.help(index)))?;
            team.helpers.push(helper);
        }
        Ok(team)
    }

    /// Threads that compute, the calling one included.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.helpers.len() + 1
    }

    /// Runs `f` on this thread; the regions in it run on this team, whose helpers wake up now.
    pub fn install<R>(&self, f: impl FnOnce() -> R) -> R {
        self.wake();
        at(Place::On(self), f)
    }

    /// One region of `tasks` tasks: every member that is awake in time runs `body`. On this
    /// thread alone while another one has a region open.
    ///
    /// # Panics
    /// If `body` does on any thread.
    pub(crate) fn region(&self, tasks: usize, body: &Body<'_>) {
        let Some(_entry) = self.enter() else {
            return alone(tasks, body);
        };
        let state = &*self.state;
        // SAFETY: the region is closed and empty, and `entry` is held. Only the body's lifetime
        // changes, and no one uses the pointer once `close` has returned.
        unsafe {
            let body = std::mem::transmute::<*const Body<'_>, *const Body<'static>>(body);
            *state.job.get() = Job { body, tasks };
        }
        state.next.0.store(0, Relaxed);
        let number = state.word.0.load(Relaxed) / REGION;
        state.word.0.store(((number + 1) * REGION) | OPEN, SeqCst);
        self.wake();
        let claims = Claims {
            next: &state.next.0,
            tasks,
        };
        let own = catch_unwind(AssertUnwindSafe(|| at(Place::Inside, || body(&claims))));
        state.close();
        let theirs = if state.panicked.swap(false, Relaxed) {
            lock(&state.panic).take()
        } else {
            None
        };
        if let Some(panic) = own.err().or(theirs) {
            resume_unwind(panic);
        }
    }

    fn enter(&self) -> Option<MutexGuard<'_, ()>> {
        if self.helpers.is_empty() {
            return None;
        }
        match self.entry.try_lock() {
            Ok(guard) => Some(guard),
            // A panic was passed on; the region is closed all the same.
            Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn wake(&self) {
        for (asleep, helper) in self.state.asleep.iter().zip(&self.helpers) {
            if asleep.load(SeqCst) && asleep.swap(false, SeqCst) {
                helper.thread().unpark();
            }
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.state.stop.store(true, SeqCst);
        for helper in self.helpers.drain(..) {
            helper.thread().unpark();
            // A helper catches every panic of a task and has none of its own.
            let _ = helper.join();
        }
    }
}

impl State {
    /// A helper's life.
    fn help(&self, index: usize) {
        let mut last = 0;
        while let Some(number) = self.join_region(index, last) {
            last = number;
            // SAFETY: inside an open region; entering acquired what opening wrote.
            let job = unsafe { *self.job.get() };
            let claims = Claims {
                next: &self.next.0,
                tasks: job.tasks,
            };
            // SAFETY: the one who opened the region keeps the body alive until all have left.
            let body = unsafe { &*job.body };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body(&claims))) {
                lock(&self.panic).get_or_insert(panic);
                self.panicked.store(true, Relaxed);
            }
            let before = self.word.0.fetch_sub(1, AcqRel);
            if before & WAITING != 0
                && before & INSIDE == 1
                && let Some(opener) = &*lock(&self.opener)
            {
                opener.unpark();
            }
        }
    }

    /// Waits for an open region other than `last` and enters it; none when the team ends.
    fn join_region(&self, index: usize, last: u64) -> Option<u64> {
        let mut since = Instant::now();
        loop {
            for _ in 0..LOOKS {
                let word = self.word.0.load(Acquire);
                if is_new(word, last) {
                    let entered = self
                        .word
                        .0
                        .compare_exchange(word, word + 1, AcqRel, Relaxed);
                    if entered.is_ok() {
                        return Some(word / REGION);
                    }
                }
                std::hint::spin_loop();
            }
            if self.stop.load(SeqCst) {
                return None;
            }
            if since.elapsed() >= self.spin {
                self.asleep[index].store(true, SeqCst);
                // Whoever opens a region or ends the team from here on sees a sleeper.
                let wanted = is_new(self.word.0.load(SeqCst), last) || self.stop.load(SeqCst);
                if !wanted {
                    thread::park();
                }
                self.asleep[index].store(false, SeqCst);
                since = Instant::now();
            }
        }
    }

    /// Lets no more helpers in and waits until the last one has left.
    fn close(&self) {
        self.word.0.fetch_and(!OPEN, AcqRel);
        let is_empty = || self.word.0.load(Acquire) & INSIDE == 0;
        let since = Instant::now();
        loop {
            for _ in 0..LOOKS {
                if is_empty() {
                    return;
                }
                std::hint::spin_loop();
            }
            if since.elapsed() >= self.spin {
                break;
            }
        }
        *lock(&self.opener) = Some(thread::current());
        self.word.0.fetch_or(WAITING, AcqRel);
        while !is_empty() {
            thread::park();
        }
    }
}

/// Whether a state invites a helper that has last been in region `last`.
fn is_new(word: u64, last: u64) -> bool {
    word & OPEN != 0 && word / REGION != last
}

/// What is behind a lock is whole after every statement, panics or not.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
