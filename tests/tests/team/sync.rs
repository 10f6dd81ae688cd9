//! loom's counterpart of `crates/kernels/src/sync.rs`: the same names, with which loom decides what
//! every load reads and which thread goes on.

pub(crate) use loom::cell::UnsafeCell;
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, fence};
pub(crate) use loom::sync::{Arc, Mutex, MutexGuard};
pub(crate) use loom::thread::{Builder, JoinHandle, Thread, current, park};

use std::time::Duration;

/// Looks once: time does not exist in a model, and another look would find what an order of the
/// threads in which this one comes later finds.
pub(crate) fn spin<T>(_limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    look()
}
