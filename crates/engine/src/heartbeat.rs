//! The engine thread's sign of life, readable from any thread without waiting.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Value of `since` while the engine waits for a request.
const IDLE: u64 = 0;

/// Written by the engine thread alone, but for pauses.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    epoch: Instant,
    /// Milliseconds after `epoch`, plus 1, of the last beat; [`IDLE`] without work.
    since: AtomicU64,
    /// Milliseconds in which the process did not run: in all, and before the last beat.
    paused: AtomicU64,
    paused_before: AtomicU64,
    ended: AtomicBool,
    lost: OnceLock<String>,
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self {
            epoch: Instant::now(),
            since: AtomicU64::new(IDLE),
            paused: AtomicU64::new(0),
            paused_before: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            lost: OnceLock::new(),
        }
    }
}

impl Heartbeat {
    /// A step begins, or its pass makes progress.
    pub(crate) fn beat(&self) {
        let paused = self.paused.load(Ordering::Relaxed);
        self.paused_before.store(paused, Ordering::Relaxed);
        self.since.store(self.now() + 1, Ordering::Relaxed);
    }

    /// The engine waits for a request.
    pub(crate) fn rest(&self) {
        self.since.store(IDLE, Ordering::Relaxed);
    }

    /// The thread will end, because its device is of no use any more.
    pub(crate) fn lose(&self, why: String) {
        let _ = self.lost.set(why);
    }

    /// The thread ends.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    pub(crate) fn pulse(&self) -> Pulse {
        let age = match self.since.load(Ordering::Relaxed) {
            IDLE => 0,
            since => {
                let paused = self.paused.load(Ordering::Relaxed);
                let before = self.paused_before.load(Ordering::Relaxed);
                let age = self.now().saturating_sub(since - 1);
                age.saturating_sub(paused.saturating_sub(before))
            }
        };
        Pulse { alive: !self.ended.load(Ordering::Relaxed), age: Duration::from_millis(age) }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX - 1)
    }
}

/// The activity of the engine thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulse {
    /// True if the thread runs.
    pub alive: bool,
    /// Time since the present step began or its pass last made progress
    /// ([`step::Executor::execute_while`]), in whole milliseconds; 0 while the engine waits for a
    /// request. Grows on after the thread has died in a step.
    pub age: Duration,
}

/// Reads the pulse of an engine thread. Unlike a handle, it does not keep the thread running.
#[derive(Clone, Debug)]
pub struct Monitor(pub(crate) Arc<Heartbeat>);

impl Monitor {
    /// The present activity of the engine thread.
    pub fn pulse(&self) -> Pulse {
        self.0.pulse()
    }

    /// Tells that the process did not run for `time` (SIGSTOP, a paused container). The last beat is
    /// as much younger.
    pub fn pause(&self, time: Duration) {
        let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.0.paused.fetch_add(time, Ordering::Relaxed);
    }

    /// The reason for which the engine's device is unusable, if the thread ends because of it
    /// ([`step::Executor::lost`]).
    pub fn lost(&self) -> Option<&str> {
        self.0.lost.get().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_makes_the_present_step_younger_and_no_other() {
        let monitor = Monitor(Arc::default());
        monitor.0.beat();
        let hour = Duration::from_secs(3600);
        monitor.pause(hour);
        assert_eq!(monitor.pulse().age, Duration::ZERO);
        monitor.0.beat();
        let long = Duration::from_millis(5);
        std::thread::sleep(long);
        assert!(monitor.pulse().age >= Duration::from_millis(4));
    }

    #[test]
    fn the_age_grows_in_a_step_and_is_0_without_one() {
        let heartbeat = Heartbeat::default();
        let long = Duration::from_millis(5);
        std::thread::sleep(long);
        assert_eq!(heartbeat.pulse().age, Duration::ZERO);
        heartbeat.beat();
        std::thread::sleep(long);
        let first = heartbeat.pulse();
        assert!(first.alive && first.age >= Duration::from_millis(4), "{first:?}");
        heartbeat.end();
        std::thread::sleep(long);
        let dead = heartbeat.pulse();
        assert!(!dead.alive && dead.age > first.age, "{dead:?}");
        heartbeat.rest();
        assert_eq!(heartbeat.pulse().age, Duration::ZERO);
    }
}
