//! Long time slices for the threads that compute.

use std::cell::Cell;

thread_local! {
    static ASKED: Cell<bool> = const { Cell::new(false) };
}

/// Asks the operating system for long time slices on this thread, once. A thread that wakes up to
/// answer a request has a shorter slice and then takes the processor at once, where it would wait
/// until this thread's slice ends. Linux does so from 6.12 on; elsewhere nothing changes.
pub(crate) fn compute_for_long() {
    if !ASKED.replace(true) {
        #[cfg(target_os = "linux")]
        lengthen();
    }
}

/// In nanoseconds. The kernel's own slice is about 3 ms, and the longest is 100 ms.
#[cfg(target_os = "linux")]
const LONG: u64 = 20_000_000;

/// Lengthens the slice of this thread and keeps its policy and niceness. A refusal changes nothing.
#[cfg(target_os = "linux")]
fn lengthen() {
    let Some(before) = attributes() else {
        return;
    };
    let fair = [libc::SCHED_OTHER, libc::SCHED_BATCH];
    if fair.contains(&before.sched_policy.cast_signed()) {
        let after = libc::sched_attr {
            size: size_of::<libc::sched_attr>() as u32,
            sched_flags: 0,
            sched_runtime: LONG,
            ..before
        };
        // SAFETY: the kernel reads as many bytes as `size` says.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const after, 0) };
    }
}

/// How this thread is scheduled; `None` if the kernel does not say.
#[cfg(target_os = "linux")]
fn attributes() -> Option<libc::sched_attr> {
    // SAFETY: plain numbers.
    let mut found: libc::sched_attr = unsafe { std::mem::zeroed() };
    let (at, size) = (&raw mut found, size_of::<libc::sched_attr>());
    // SAFETY: the kernel writes at most `size` bytes.
    let status = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, at, size, 0) };
    (status == 0).then_some(found)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// A kernel that knows no slices says 0 or keeps its own.
    #[test]
    fn a_longer_slice_keeps_policy_and_niceness() {
        let Some(before) = attributes() else {
            return;
        };
        compute_for_long();
        let after = attributes().expect("as before");
        let kept = |of: &libc::sched_attr| (of.sched_policy, of.sched_nice, of.sched_priority);
        assert_eq!(kept(&after), kept(&before));
        assert!([before.sched_runtime, LONG].contains(&after.sched_runtime));
    }
}
