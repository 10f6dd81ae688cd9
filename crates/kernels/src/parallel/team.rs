//! A fixed team of threads that share the tasks of one short region at a time.
//!
//! A forward pass has a few regions per layer, each tens of microseconds to milliseconds long. A
//! region begins with one atomic store and ends when its tasks are done; it does not wait for threads
//! that have not woken up by then. Between regions threads spin for [`SPIN`], then park.

use super::{Scope, alone, within};
use crate::sync::{
    Arc, AtomicBool, AtomicU64, AtomicUsize, Builder, JoinHandle, Mutex, MutexGuard, Thread,
    UnsafeCell, current, fence, park, spin,
};
use std::any::Any;
use std::io;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::{PoisonError, TryLockError};
use std::thread::available_parallelism;
use std::time::Duration;

/// The time for which an idle thread spins before it parks: longer than the time between two regions of a
/// pass, short compared to a pass.
const SPIN: Duration = Duration::from_micros(100);

/// State bits: number of helpers inside the region.
const INSIDE: u64 = 0xFFFF;
/// State bit: helpers may enter the region.
const OPEN: u64 = 1 << 16;
/// State bit: the opener of the region is parked until the last helper leaves.
const WAITING: u64 = 1 << 17;
/// The bits from here on hold the region's number.
const REGION: u64 = 1 << 18;

/// Run by every member of the team once per region; claims tasks until none is left.
pub(crate) type Body<'a> = dyn Fn(&Claims<'_>) + Sync + 'a;

/// A team of threads: the thread that opens a region and its helpers.
pub struct Team {
    pub(super) state: Arc<State>,
    /// Held while a region is open.
    entry: Mutex<()>,
    helpers: Vec<JoinHandle<()>>,
}

/// A value on its own cache lines.
#[repr(align(128))]
struct Padded<T>(T);

pub(super) struct State {
    word: Padded<AtomicU64>,
    /// The next task of the region.
    next: Padded<AtomicUsize>,
    /// The region's job; written while no helper is inside.
    job: UnsafeCell<Job>,
    /// True if each helper is parked or about to park.
    pub(super) asleep: Box<[AtomicBool]>,
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

// SAFETY: `job` is written by the holder of `entry` while the region is closed and empty, and read by
// helpers inside an open region; entering acquires what opening released.
unsafe impl Sync for State {}
// SAFETY: the pointer in `job` is used only inside regions, where it is valid on every thread.
unsafe impl Send for State {}

/// Hands out the tasks of a region, each once.
pub(crate) struct Claims<'a> {
    pub(crate) next: &'a AtomicUsize,
    pub(crate) tasks: usize,
}

impl Claims<'_> {
    /// Claims the next task; `None` if all are claimed.
    pub(crate) fn claim(&self) -> Option<usize> {
        let task = self.next.fetch_add(1, Relaxed);
        (task < self.tasks).then_some(task)
    }
}

impl Team {
    /// Starts a team of `threads` threads, including the calling one; `None`: one per processor.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn new(threads: Option<NonZeroUsize>) -> io::Result<Self> {
        let processors = available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = threads.map_or(processors, NonZeroUsize::get);
        let helpers = threads.min(INSIDE as usize) - 1;
        let nothing: &Body<'static> = &|_| {};
        let mut team = Self {
            state: Arc::new(State {
                word: Padded(AtomicU64::new(0)),
                next: Padded(AtomicUsize::new(0)),
                job: UnsafeCell::new(Job { body: nothing, tasks: 0 }),
                asleep: (0..helpers).map(|_| AtomicBool::new(false)).collect(),
                // With more threads than processors, a spinning thread would delay the others.
                spin: if threads <= processors { SPIN } else { Duration::ZERO },
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
            let builder = Builder::new().name(format!("kernel-{}", index + 1));
            let helper = builder.spawn(move || within(Scope::Region, || state.help(index)))?;
            team.helpers.push(helper);
        }
        Ok(team)
    }

    /// Number of threads, including the calling one.
    pub fn threads(&self) -> usize {
        self.helpers.len() + 1
    }

    /// Wakes the helpers and runs `f` on this thread; the regions in it run on this team.
    pub fn install<R>(&self, f: impl FnOnce() -> R) -> R {
        self.wake();
        within(Scope::Team(self), f)
    }

    /// Runs a region of `tasks` tasks: every member that wakes up in time runs `body`. Runs on this
    /// thread only if another thread has a region open.
    ///
    /// # Panics
    /// If `body` panics on any thread.
    pub(crate) fn region(&self, tasks: usize, body: &Body<'_>) {
        let Some(entry) = self.enter() else {
            return alone(tasks, body);
        };
        let state = &*self.state;
        // SAFETY: only the lifetime changes, and no thread uses the pointer after `close` has
        // returned.
        let erased = unsafe { std::mem::transmute::<*const Body<'_>, *const Body<'static>>(body) };
        // SAFETY: the region is closed and empty, and `entry` is held.
        state.job.with_mut(|job| unsafe {
            *job = Job { body: erased, tasks };
        });
        state.next.0.store(0, Relaxed);
        let number = state.word.0.load(Relaxed) / REGION;
        let open = ((number + 1) * REGION) | OPEN;
        state.word.0.store(open, Release);
        self.wake();
        let claims = Claims { next: &state.next.0, tasks };
        let own = catch_unwind(AssertUnwindSafe(|| within(Scope::Region, || body(&claims))));
        state.close();
        let theirs =
            if state.panicked.swap(false, Relaxed) { lock(&state.panic).take() } else { None };
        drop(entry);
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
            // The lock guards no data.
            Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Unparks the helpers that are asleep.
    fn wake(&self) {
        // A thread opens a region, then looks who is asleep. A helper is marked asleep, then looks for
        // a region. With a fence between the two on either side, one of them sees the other.
        fence(SeqCst);
        for (asleep, helper) in self.state.asleep.iter().zip(&self.helpers) {
            if asleep.load(Relaxed) && asleep.swap(false, Relaxed) {
                helper.thread().unpark();
            }
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        // Every helper is unparked afterwards, and sees it then at the latest.
        self.state.stop.store(true, Relaxed);
        for helper in self.helpers.drain(..) {
            helper.thread().unpark();
            // A helper catches the panics of tasks and does not panic itself.
            let _ = helper.join();
        }
    }
}

impl State {
    /// The main loop of a helper.
    fn help(&self, index: usize) {
        let mut last = 0;
        while let Some(number) = self.join_region(index, last) {
            last = number;
            // SAFETY: inside an open region; entering acquired what opening wrote.
            let job = self.job.with(|job| unsafe { *job });
            let claims = Claims { next: &self.next.0, tasks: job.tasks };
            // SAFETY: the opener of the region keeps the body alive until all helpers have left.
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

    /// Waits for an open region other than `last` and enters it; `None` when the team ends.
    fn join_region(&self, index: usize, last: u64) -> Option<u64> {
        loop {
            if let Some(number) = spin(self.spin, || self.try_enter(last)) {
                return Some(number);
            }
            if self.stop.load(Relaxed) {
                return None;
            }
            let asleep = &self.asleep[index];
            asleep.store(true, Relaxed);
            // See `wake`.
            fence(SeqCst);
            if !is_new(self.word.0.load(Relaxed), last) {
                park();
            }
            asleep.store(false, Relaxed);
        }
    }

    /// Enters the open region and returns the region's number; `None` if none but `last` is open, or another
    /// thread has changed the state meanwhile.
    fn try_enter(&self, last: u64) -> Option<u64> {
        let word = self.word.0.load(Relaxed);
        if !is_new(word, last) {
            return None;
        }
        let entered = self.word.0.compare_exchange(word, word + 1, AcqRel, Relaxed);
        entered.is_ok().then_some(word / REGION)
    }

    /// Closes the region to helpers and waits until the last one has left.
    fn close(&self) {
        self.word.0.fetch_and(!OPEN, AcqRel);
        let is_empty = || self.word.0.load(Acquire) & INSIDE == 0;
        if spin(self.spin, || is_empty().then_some(())).is_some() {
            return;
        }
        *lock(&self.opener) = Some(current());
        self.word.0.fetch_or(WAITING, AcqRel);
        while !is_empty() {
            park();
        }
    }
}

/// True if a region is open that a helper last in region `last` has not entered.
fn is_new(word: u64, last: u64) -> bool {
    word & OPEN != 0 && word / REGION != last
}

/// Locks a mutex and ignores poisoning: the protected values are consistent even after a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
