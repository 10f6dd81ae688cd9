//! Tasks, panics and scopes of a team.

use super::{Shared, Team, for_each, for_each_with, threads};
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

/// A thread that has not come in this time never will.
const LIMIT: Duration = Duration::from_secs(20);

fn team(threads: usize) -> Team {
    Team::new(NonZeroUsize::new(threads)).expect("threads start")
}

/// The number of times that each of `tasks` tasks runs.
fn counts(tasks: usize) -> Vec<usize> {
    let counts: Vec<_> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
    for_each(tasks, |task| {
        counts[task].fetch_add(1, Relaxed);
    });
    counts.into_iter().map(AtomicUsize::into_inner).collect()
}

/// Runs as many tasks as `members`, each of which waits until all have begun. Tells for each task if all
/// had begun in time; they do only if as many threads take part.
fn met(members: usize) -> Vec<bool> {
    let (begun, start) = (AtomicUsize::new(0), Instant::now());
    let met: Vec<_> = (0..members).map(|_| AtomicBool::new(false)).collect();
    for_each(members, |task| {
        begun.fetch_add(1, Relaxed);
        while begun.load(Relaxed) < members && start.elapsed() < LIMIT {
            thread::yield_now();
        }
        met[task].store(begun.load(Relaxed) == members, Relaxed);
    });
    met.into_iter().map(AtomicBool::into_inner).collect()
}

#[test]
fn every_task_runs_once_in_every_region() {
    for members in [1, 2, 3, 8] {
        let team = team(members);
        assert_eq!(team.threads(), members);
        team.install(|| {
            for tasks in (0..40).chain([500, 10_000]) {
                assert_eq!(counts(tasks), vec![1; tasks], "{tasks} tasks on {members}");
            }
        });
    }
}

#[test]
fn writes_of_tasks_are_visible_when_the_region_ends() {
    let team = team(4);
    let mut sums = vec![0usize; 64];
    team.install(|| {
        for round in 0..500 {
            let shared = Shared::new(&mut sums);
            for_each(64, |task| {
                // SAFETY: one task per element.
                let sum = unsafe { shared.slice(task, 1) };
                sum[0] += round;
            });
        }
    });
    assert_eq!(sums, vec![(0..500).sum::<usize>(); 64]);
}

#[test]
fn all_members_take_part() {
    let team = team(3);
    for round in 0..50 {
        team.install(|| assert_eq!(met(3), [true; 3], "round {round}"));
    }
}

#[test]
fn helpers_that_have_parked_wake_up() {
    let team = team(2);
    for round in 0..3 {
        let start = Instant::now();
        while !team.state.asleep[0].load(Relaxed) {
            assert!(start.elapsed() < LIMIT, "no helper parks in round {round}");
            thread::yield_now();
        }
        team.install(|| assert_eq!(met(2), [true; 2], "round {round}"));
    }
}

#[test]
fn a_scratch_value_belongs_to_one_thread_and_is_made_when_needed() {
    let (team, made) = (team(3), AtomicUsize::new(0));
    let new = || {
        made.fetch_add(1, Relaxed);
        thread::current().id()
    };
    team.install(|| {
        for_each_with(100, new, |id, _| assert_eq!(*id, thread::current().id()));
        assert!((1..=3).contains(&made.load(Relaxed)));
        made.store(0, Relaxed);
        for_each_with(0, new, |_, _| {});
    });
    assert_eq!(made.into_inner(), 0);
}

#[test]
fn a_panic_reaches_the_caller_and_the_team_stays_usable() {
    let team = team(3);
    for culprit in 0..20 {
        let panic = catch_unwind(AssertUnwindSafe(|| {
            team.install(|| {
                for_each(20, |task| assert!(task != culprit, "task {task} fails"));
            });
        }));
        let panic = panic.expect_err("a task failed");
        let text = panic.downcast_ref::<String>().expect("a message");
        assert_eq!(text, &format!("task {culprit} fails"));
        team.install(|| assert_eq!(counts(50), vec![1; 50]));
    }
}

#[test]
fn panics_on_all_members_at_once_reach_the_caller_as_one() {
    let team = team(3);
    let barrier = Barrier::new(3);
    for _ in 0..20 {
        let all = || {
            for_each(3, |task| {
                barrier.wait();
                panic!("task {task}");
            });
        };
        assert!(catch_unwind(AssertUnwindSafe(|| team.install(all))).is_err());
        team.install(|| assert_eq!(counts(7), vec![1; 7]));
    }
}

#[test]
fn a_region_inside_a_task_runs_on_that_thread() {
    let team = team(4);
    team.install(|| {
        assert_eq!(threads(), 4);
        for_each(8, |_| {
            let here = thread::current().id();
            assert_eq!(threads(), 1);
            for_each(8, |_| assert_eq!(thread::current().id(), here));
            team.install(|| assert_eq!(counts(9), vec![1; 9]));
        });
        assert_eq!(threads(), 4);
    });
}

#[test]
fn threads_that_use_one_team_at_once_all_get_their_tasks_done() {
    let team = team(3);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                team.install(|| (0..200).for_each(|_| assert_eq!(counts(11), vec![1; 11])));
            });
        }
    });
}

#[test]
fn a_scope_is_restored_also_after_a_panic() {
    let (outer, inner) = (team(2), team(3));
    outer.install(|| {
        let panic = catch_unwind(AssertUnwindSafe(|| {
            inner.install(|| {
                assert_eq!(threads(), 3);
                panic!("intended");
            })
        }));
        assert!(panic.is_err());
        assert_eq!(threads(), 2);
    });
}

#[test]
fn dropping_a_team_ends_its_threads() {
    let team = team(4);
    team.install(|| assert_eq!(counts(5), vec![1; 5]));
    let state = Arc::downgrade(&team.state);
    drop(team);
    assert!(state.upgrade().is_none(), "a thread is still running");
}
