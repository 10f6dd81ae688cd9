//! Ends the process when the engine thread has died or hangs, or when its device has failed for good,
//! so that a supervisor restarts it; tells a service manager with a watchdog that the engine lives.

use std::fmt;
use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use engine::{Monitor, Pulse};

use crate::exit;
use crate::supervisor;

/// Time between two looks at the engine.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Watches an engine thread until it is dropped.
pub struct Watchdog {
    /// Never sent to: its end ends the thread.
    _stop: Sender<()>,
}

/// The reason why the process must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Dead,
    Stuck { age: Duration, limit: Duration },
}

impl Watchdog {
    /// Watches the engine thread of `monitor`. Its steps may take `limit`; zero = any time.
    ///
    /// # Errors
    /// The operating system gives no thread.
    pub fn start(monitor: Monitor, limit: Duration) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new().name("watchdog".to_owned());
        thread.spawn(move || {
            let clock = Instant::now();
            let looks = Sources {
                pulse: || monitor.pulse(),
                clock: || clock.elapsed(),
                pause: |time| monitor.pause(time),
            };
            if let Some(fault) = watch(looks, limit, POLL_INTERVAL, &stopped) {
                let (line, code) = last_words(fault, monitor.lost());
                // Also if nobody reads the line.
                exit::bound();
                say!("asynclane: {line}; the process ends");
                exit::at_once(code);
            }
        })?;
        Ok(Self { _stop: stop })
    }
}

/// The last line of the process, and its exit code. An engine whose device is lost has ended.
fn last_words(fault: Fault, lost: Option<&str>) -> (String, u8) {
    match lost {
        Some(why) => (why.to_owned(), exit::DEVICE),
        None => (fault.to_string(), exit::ENGINE),
    }
}

/// The sources that the watchdog reads.
struct Sources<P, C, T> {
    pulse: P,
    /// The time since any fixed moment.
    clock: C,
    /// Told of a time in which the process did not run.
    pause: T,
}

/// The first fault; `None` if it was told to stop. A look that ends late by more than a few means that
/// the process did not run (SIGSTOP, a paused container): this time is not the engine's, and what the
/// look saw does not count.
fn watch(
    looks: Sources<impl Fn() -> Pulse, impl Fn() -> Duration, impl Fn(Duration)>,
    limit: Duration,
    look: Duration,
    stopped: &Receiver<()>,
) -> Option<Fault> {
    let watched = supervisor::watches();
    let mut last = None;
    let mut seen = (looks.clock)();
    while stopped.recv_timeout(look) == Err(RecvTimeoutError::Timeout) {
        // Before the clock: a pause between the two makes the look late.
        let fault = fault((looks.pulse)(), limit);
        let now = (looks.clock)();
        let late = now.saturating_sub(seen + look);
        seen = now;
        if late > 4 * look {
            (looks.pause)(late);
            continue;
        }
        // Clients whose sequences ended with the engine get their errors in between.
        if fault.is_some() && last == Some(Fault::Dead)
            || matches!(fault, Some(Fault::Stuck { .. }))
        {
            return fault;
        }
        last = fault;
        if watched && fault.is_none() {
            supervisor::alive();
        }
    }
    None
}

fn fault(pulse: Pulse, limit: Duration) -> Option<Fault> {
    let Pulse { alive, age } = pulse;
    match alive {
        false => Some(Fault::Dead),
        true if !limit.is_zero() && age > limit => Some(Fault::Stuck { age, limit }),
        true => None,
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dead => f.write_str("the engine thread has ended"),
            Self::Stuck { age, limit } => write!(
                f,
                "the engine has made no progress for {} s, longer than engine.step_timeout ({} s)",
                age.as_secs(),
                limit.as_secs()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(300);
    const NOW: Duration = Duration::from_millis(1);

    fn pulse(alive: bool, seconds: u64) -> Pulse {
        Pulse { alive, age: Duration::from_secs(seconds) }
    }

    /// The fault that the watchdog finds in the pulses `seen`, the last of which stays.
    fn fault(seen: &[Pulse], limit: Duration) -> (Option<Fault>, usize) {
        let (stop, stopped) = mpsc::channel();
        let (looks, stop) = (Cell::new(0), Cell::new(Some(stop)));
        let next = || {
            let look = looks.get();
            looks.set(look + 1);
            if look == 9 {
                drop(stop.take());
            }
            seen[look.min(seen.len() - 1)]
        };
        let looked =
            Sources { pulse: next, clock: || Duration::ZERO, pause: |_| panic!("no time passes") };
        (watch(looked, limit, NOW, &stopped), looks.get())
    }

    #[test]
    fn time_in_which_the_process_does_not_run_is_not_the_engines() {
        let (stop, stopped) = mpsc::channel();
        // Two looks in time, one after a pause, one in time.
        let times = [0, 1, 3, 903, 904].map(Duration::from_millis);
        let (ticks, stop) = (Cell::new(0), Cell::new(Some(stop)));
        let paused = Cell::new(Duration::ZERO);
        let looks = Sources {
            // The age at the time at which the look ends, as if every pause came before it.
            pulse: || Pulse { age: times[ticks.get()].saturating_sub(paused.get()), alive: true },
            clock: || {
                ticks.set(ticks.get() + 1);
                if ticks.get() == times.len() {
                    drop(stop.take());
                }
                times[ticks.get() - 1]
            },
            pause: |time| paused.set(paused.get() + time),
        };
        let limit = Duration::from_millis(300);
        assert_eq!(watch(looks, limit, NOW, &stopped), None);
        assert_eq!((ticks.get(), paused.get()), (5, Duration::from_millis(899)));
    }

    #[test]
    fn dead_and_stuck_engines_are_found_and_others_are_not() {
        let dead = Some(Fault::Dead);
        let stuck =
            |seconds| Some(Fault::Stuck { age: Duration::from_secs(seconds), limit: LIMIT });
        assert_eq!(fault(&[pulse(true, 0)], LIMIT), (None, 10));
        assert_eq!(fault(&[pulse(true, 300)], LIMIT), (None, 10));
        let hangs = [pulse(true, 299), pulse(true, 301)];
        assert_eq!(fault(&hangs, LIMIT), (stuck(301), 2));
        assert_eq!(fault(&[pulse(true, 301)], Duration::ZERO), (None, 10));
        // One look later, so that clients get their errors.
        assert_eq!(fault(&[pulse(true, 0), pulse(false, 1)], LIMIT), (dead, 3));
        assert_eq!(fault(&[pulse(false, 1)], Duration::ZERO), (dead, 2));
    }

    #[test]
    fn a_fault_is_one_line() {
        let stuck = Fault::Stuck { age: Duration::from_secs(301), limit: LIMIT };
        let text =
            "the engine has made no progress for 301 s, longer than engine.step_timeout (300 s)";
        assert_eq!(stuck.to_string(), text);
        assert!(!Fault::Dead.to_string().contains('\n'));
        let lost = "the device failed: CUDA: step: an illegal memory access was encountered";
        assert_eq!(last_words(Fault::Dead, Some(lost)), (lost.to_owned(), 71));
        assert_eq!(last_words(stuck, None), (text.to_owned(), 70));
    }
}
