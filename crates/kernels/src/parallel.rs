//! Splits work over the threads of the current team.

mod team;

pub use team::Team;

use crate::sync::AtomicUsize;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::OnceLock;
use team::{Body, Claims};

/// Number of elements below which a single thread is faster.
const SERIAL_NUMBERS: usize = 1 << 15;
/// Rows of one task.
const ROW_BLOCK: usize = 16;

/// Where the parallel regions of this thread run.
#[derive(Clone, Copy)]
pub(crate) enum Scope {
    /// On the process's default team, which starts on first use.
    Default,
    /// On this team, which is alive while the scope is set.
    Team(*const Team),
    /// On this thread only, because it is inside a region.
    Region,
}

thread_local! {
    static SCOPE: Cell<Scope> = const { Cell::new(Scope::Default) };
}

/// Runs `f` in a scope and restores the previous scope, also if `f` panics. Inside a region the scope
/// does not change.
pub(crate) fn within<R>(scope: Scope, f: impl FnOnce() -> R) -> R {
    struct Restore(Scope);
    impl Drop for Restore {
        fn drop(&mut self) {
            SCOPE.set(self.0);
        }
    }
    let before = SCOPE.get();
    let _restore = Restore(before);
    if !matches!(before, Scope::Region) {
        SCOPE.set(scope);
    }
    f()
}

/// Calls `f` with the team of the current scope, `None` inside a region.
fn current<R>(f: impl FnOnce(Option<&Team>) -> R) -> R {
    static DEFAULT: OnceLock<Option<Team>> = OnceLock::new();
    match SCOPE.get() {
        Scope::Region => f(None),
        // SAFETY: alive, because `Team::install` borrows it for as long as the scope is set.
        Scope::Team(team) => f(Some(unsafe { &*team })),
        Scope::Default => f(DEFAULT.get_or_init(|| Team::new(None).ok()).as_ref()),
    }
}

/// Runs a region on this thread only.
pub(crate) fn alone(tasks: usize, body: &Body<'_>) {
    let next = AtomicUsize::new(0);
    body(&Claims { next: &next, tasks });
}

fn region(tasks: usize, body: &Body<'_>) {
    if tasks <= 1 {
        return alone(tasks, body);
    }
    current(|team| match team {
        Some(team) => team.region(tasks, body),
        None => alone(tasks, body),
    });
}

/// Runs `task(0..tasks)`, on the calling thread if there is only one task.
pub(crate) fn for_each(tasks: usize, task: impl Fn(usize) + Sync) {
    region(tasks, &|claims| {
        while let Some(index) = claims.claim() {
            task(index);
        }
    });
}

/// Calls `task` with ranges that cover `rows` rows; with a single range if `numbers`, the number of
/// elements, is too small for several threads.
pub(crate) fn for_rows(rows: usize, numbers: usize, task: impl Fn(Range<usize>) + Sync) {
    let block = match numbers < SERIAL_NUMBERS {
        true => rows.max(1),
        false => ROW_BLOCK,
    };
    for_each(rows.div_ceil(block), |number| {
        task(number * block..((number + 1) * block).min(rows));
    });
}

/// Like [`for_each`], with a scratch value per thread that its tasks reuse.
pub(crate) fn for_each_with<T>(
    tasks: usize,
    scratch: impl Fn() -> T + Sync,
    task: impl Fn(&mut T, usize) + Sync,
) {
    region(tasks, &|claims| {
        let mut own = None;
        while let Some(index) = claims.claim() {
            task(own.get_or_insert_with(&scratch), index);
        }
    });
}

/// Number of threads of the current team; 1 inside a region.
pub(crate) fn threads() -> usize {
    current(|team| team.map_or(1, Team::threads))
}

/// A slice that several tasks write concurrently, each in its own range.
#[derive(Clone, Copy)]
pub(crate) struct Shared<T> {
    start: *mut T,
    len: usize,
}

// SAFETY: access goes through `part`, whose callers promise disjoint ranges.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// Shares `slice`; the caller must not use it otherwise meanwhile.
    pub(crate) fn new(slice: &mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len() }
    }

    /// Pointer to the start of the slice.
    pub(crate) fn start(&self) -> *const T {
        self.start
    }

    /// `len` elements from `first` on.
    ///
    /// # Safety
    /// The shared slice is alive, and no other slice in use overlaps this one.
    #[expect(clippy::mut_from_ref, reason = "slices are disjoint by the caller's promise")]
    pub(crate) unsafe fn slice(&self, first: usize, len: usize) -> &mut [T] {
        assert!(first + len <= self.len, "slice {first}+{len} of {}", self.len);
        // SAFETY: in bounds; disjoint by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(first), len) }
    }
}

/// A vector of `len` elements written by `fill`, without zeroing it first.
///
/// # Safety
/// `fill` writes every element before it returns.
pub(crate) unsafe fn filled<T>(len: usize, fill: impl FnOnce(Shared<MaybeUninit<T>>)) -> Vec<T> {
    let mut out = Vec::with_capacity(len);
    fill(Shared::new(&mut out.spare_capacity_mut()[..len]));
    // SAFETY: written, by the caller's promise.
    unsafe { out.set_len(len) };
    out
}

#[cfg(test)]
mod tests;
