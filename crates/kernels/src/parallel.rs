//! Splitting work over the threads of the current team.

use crate::team::{Body, Claims, Team};
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

/// Numbers below which one thread is done before others have begun.
const SERIAL_NUMBERS: usize = 1 << 15;
/// Rows of one task.
const ROW_BLOCK: usize = 16;

/// Where regions of this thread run.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// On the process's own team, which starts when it is first needed.
    Outside,
    /// On this team, which is alive while the place says so.
    On(*const Team),
    /// Inside a region: on this thread alone.
    Inside,
}

thread_local! {
    static PLACE: Cell<Place> = const { Cell::new(Place::Outside) };
}

/// Runs `f` at a place and returns to the one before, also if it panics. Inside a region every
/// place is inside.
pub(crate) fn at<R>(place: Place, f: impl FnOnce() -> R) -> R {
    struct Back(Place);
    impl Drop for Back {
        fn drop(&mut self) {
            PLACE.set(self.0);
        }
    }
    let before = PLACE.get();
    let _back = Back(before);
    if !matches!(before, Place::Inside) {
        PLACE.set(place);
    }
    f()
}

/// Calls `f` with the team of the current place, none inside a region.
fn current<R>(f: impl FnOnce(Option<&Team>) -> R) -> R {
    static OWN: OnceLock<Option<Team>> = OnceLock::new();
    match PLACE.get() {
        Place::Inside => f(None),
        // SAFETY: alive, as `Team::install` borrows it for as long as the place stands.
        Place::On(team) => f(Some(unsafe { &*team })),
        Place::Outside => f(OWN.get_or_init(|| Team::new(None).ok()).as_ref()),
    }
}

/// A region on this thread alone.
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

/// Calls `task` with ranges of `rows` rows that cover them all; with one of all rows where the
/// `numbers` to be worked on are too few for threads.
pub(crate) fn for_rows(rows: usize, numbers: usize, task: impl Fn(Range<usize>) + Sync) {
    let block = match numbers < SERIAL_NUMBERS {
        true => rows.max(1),
        false => ROW_BLOCK,
    };
    for_each(rows.div_ceil(block), |number| {
        task(number * block..((number + 1) * block).min(rows));
    });
}

/// Like [`for_each`], with a scratch value that a thread reuses between its tasks.
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

/// Threads of the current team; one inside a region.
pub(crate) fn threads() -> usize {
    current(|team| team.map_or(1, Team::threads))
}

/// A slice that several tasks write at once, each its own part.
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
    /// Shares `slice` for as long as no one else uses it.
    pub(crate) fn new(slice: &mut [T]) -> Self {
        Self {
            start: slice.as_mut_ptr(),
            len: slice.len(),
        }
    }

    /// Where the slice begins.
    pub(crate) fn start(&self) -> *const T {
        self.start
    }

    /// `len` elements from `from` on.
    ///
    /// # Safety
    /// The shared slice is alive, and no other part in use overlaps this one.
    #[expect(
        clippy::mut_from_ref,
        reason = "parts are disjoint by the caller's promise"
    )]
    pub(crate) unsafe fn part(&self, from: usize, len: usize) -> &mut [T] {
        assert!(from + len <= self.len, "part {from}+{len} of {}", self.len);
        // SAFETY: in bounds; disjoint by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(from), len) }
    }
}

/// `len` elements that `fill` writes; zeroing them first would cost more than some kernels.
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
