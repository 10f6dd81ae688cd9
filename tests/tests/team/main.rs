//! The thread team of `kernels` under every order of its threads, by loom.
//!
//! The team's file is compiled here over `sync.rs` in place of the kernels' module of that name. loom
//! runs each model once per order of atomic accesses, and once per value that a load may read under
//! the memory model of C11. A model fails if a cell is accessed by two threads without
//! synchronisation, if all threads wait, or if an assertion fails. Orders with more preemptions than
//! [`TWO_THREADS`] or [`THREE_THREADS`] are left out.
#![expect(unsafe_code, reason = "the team's file")]

mod sync;
#[expect(dead_code, reason = "the models call regions directly")]
#[path = "../../../crates/kernels/src/parallel/team.rs"]
mod team;

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering::Relaxed;

use loom::sync::atomic::AtomicUsize;
use loom::sync::{Condvar, Mutex};
use team::{Body, Claims, Team};

/// Preemptions of a model with two threads.
const TWO_THREADS: usize = 3;
/// The same with three threads: one more would make the number of orders 30 times as large.
const THREE_THREADS: usize = 2;

/// The place where regions run; the models have no regions inside tasks.
pub(crate) enum Scope {
    #[expect(dead_code, reason = "the team names it, models call its regions directly")]
    Team(*const Team),
    Region,
}

/// Runs `f`. Thread-local scopes are tested in `kernels`.
pub(crate) fn within<R>(_scope: Scope, f: impl FnOnce() -> R) -> R {
    f()
}

/// Runs a region on this thread only.
pub(crate) fn alone(tasks: usize, body: &Body<'_>) {
    let next = AtomicUsize::new(0);
    body(&Claims { next: &next, tasks });
}

/// Explores the orders of a model up to a number of preemptions.
fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    // One model at a time: loom's threads are coroutines of one thread.
    let _one = ONE.lock();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

fn team(threads: usize) -> Team {
    Team::new(NonZeroUsize::new(threads)).expect("threads start")
}

/// Numbers that tasks have written, one per task. The accesses are relaxed: where the team does not
/// order two of them, loom lets a thread read the old number.
struct Written(Vec<AtomicUsize>);

impl Written {
    fn new(tasks: usize) -> Self {
        Self((0..tasks).map(|_| AtomicUsize::new(0)).collect())
    }

    /// Adds to the number of a task, in two accesses.
    fn add(&self, task: usize) {
        let before = self.0[task].load(Relaxed);
        self.0[task].store(before + 1, Relaxed);
    }

    fn values(&self) -> Vec<usize> {
        self.0.iter().map(|number| number.load(Relaxed)).collect()
    }
}

/// Runs a region of as many tasks as `written` has cells.
fn region(team: &Team, written: &Written) {
    team.region(written.0.len(), &|claims| {
        while let Some(task) = claims.claim() {
            written.add(task);
        }
    });
}

/// Waits until `count` threads have arrived.
struct Meeting {
    arrived: Mutex<usize>,
    all: Condvar,
    count: usize,
}

impl Meeting {
    fn of(count: usize) -> Self {
        Self { arrived: Mutex::new(0), all: Condvar::new(), count }
    }

    fn wait(&self) {
        let mut arrived = self.arrived.lock().expect("no task panics here");
        *arrived += 1;
        self.all.notify_all();
        while *arrived < self.count {
            arrived = self.all.wait(arrived).expect("no task panics here");
        }
    }
}

#[test]
fn two_helpers_share_a_region() {
    explore(THREE_THREADS, || {
        let (team, written) = (team(3), Written::new(2));
        region(&team, &written);
        assert_eq!(written.values(), [1, 1]);
    });
}

#[test]
fn regions_follow_each_other() {
    explore(TWO_THREADS, || {
        let (team, written) = (team(2), Written::new(2));
        for round in 1..=3 {
            region(&team, &written);
            assert_eq!(written.values(), [round, round]);
        }
    });
}

#[test]
fn two_helpers_share_two_regions() {
    explore(THREE_THREADS, || {
        let (team, written) = (team(3), Written::new(1));
        region(&team, &written);
        region(&team, &written);
        assert_eq!(written.values(), [2]);
    });
}

#[test]
fn a_helper_that_parks_is_woken_by_every_region() {
    explore(TWO_THREADS, || {
        let team = team(2);
        for _ in 0..2 {
            let meeting = Meeting::of(2);
            team.region(2, &|claims| {
                while claims.claim().is_some() {
                    meeting.wait();
                }
            });
        }
    });
}

#[test]
fn a_panic_of_a_task_reaches_the_opener() {
    explore(TWO_THREADS, || {
        let (team, written) = (team(2), Written::new(2));
        let panic = catch_unwind(AssertUnwindSafe(|| {
            team.region(2, &|claims| {
                while let Some(task) = claims.claim() {
                    written.add(task);
                    if task == 1 {
                        // Unlike `panic!`, this prints nothing.
                        resume_unwind(Box::new("intended"));
                    }
                }
            });
        }));
        let panic = panic.expect_err("a task panics");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"intended"));
        assert_eq!(written.values(), [1, 1]);
        region(&team, &written);
        assert_eq!(written.values(), [2, 2]);
    });
}

#[test]
fn a_team_ends_whatever_its_helpers_do() {
    explore(THREE_THREADS, || drop(team(3)));
    explore(TWO_THREADS, || {
        let (team, written) = (team(2), Written::new(1));
        region(&team, &written);
        drop(team);
        assert_eq!(written.values(), [1]);
    });
}

#[test]
fn two_threads_open_regions_of_one_team() {
    explore(THREE_THREADS, || {
        let team = loom::sync::Arc::new(team(2));
        let other = {
            let team = team.clone();
            loom::thread::spawn(move || {
                let written = Written::new(2);
                region(&team, &written);
                assert_eq!(written.values(), [1, 1]);
            })
        };
        let written = Written::new(2);
        region(&team, &written);
        assert_eq!(written.values(), [1, 1]);
        other.join().expect("its region ends");
    });
}
