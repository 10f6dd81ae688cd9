//! Splitting work over the threads of the current rayon pool.

use rayon::prelude::*;

/// Runs `task(0..tasks)`, on the calling thread if there is only one task.
pub(crate) fn for_each(tasks: usize, task: impl Fn(usize) + Sync + Send) {
    if tasks <= 1 {
        (0..tasks).for_each(task);
    } else {
        (0..tasks).into_par_iter().with_max_len(1).for_each(task);
    }
}

/// Like [`for_each`], with a scratch value that a thread reuses between its tasks.
pub(crate) fn for_each_with<T: Send>(
    tasks: usize,
    scratch: impl Fn() -> T + Sync + Send,
    task: impl Fn(&mut T, usize) + Sync + Send,
) {
    if tasks <= 1 {
        let mut one = scratch();
        (0..tasks).for_each(|i| task(&mut one, i));
    } else {
        (0..tasks)
            .into_par_iter()
            .with_max_len(1)
            .for_each_init(scratch, task);
    }
}

/// Threads of the current pool.
pub(crate) fn threads() -> usize {
    rayon::current_num_threads()
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
