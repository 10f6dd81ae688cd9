//! Cells, atomics, locks, threads and spinning of the thread team.
//!
//! The team names them through this module only. `tests/tests/team` compiles the team's file over
//! another module of this name, whose items loom controls, and so runs it under every order of its
//! threads.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, fence};
pub(crate) use std::sync::{Arc, Mutex, MutexGuard};
pub(crate) use std::thread::{Builder, JoinHandle, Thread, current, park};

use std::time::{Duration, Instant};

/// Number of looks per check of the time.
const LOOKS: usize = 64;

/// [`std::cell::UnsafeCell`] with loom's interface, which sees where an access begins and ends.
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Runs `f` on the pointer for reading.
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// Runs `f` on the pointer for writing.
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Calls `look` until it returns a value or `limit` has passed, at least once.
pub(crate) fn spin<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let since = Instant::now();
    loop {
        for _ in 0..LOOKS {
            let found = look();
            if found.is_some() {
                return found;
            }
            std::hint::spin_loop();
        }
        if since.elapsed() >= limit {
            return None;
        }
    }
}
