//! Dream's order `origin`: which masks a step commits is drawn by chance.

use asynclane_decode::{
    Candidate, CommitRule, Lane, LaneId, Offset, Proposal, Rank, Role, Scheduled, Status,
};

const STEPS: u32 = 4;
const MASKS: u32 = 64;

fn lane() -> Lane {
    Lane {
        id: LaneId(0),
        role: Role::Generate,
        start: Offset::ZERO,
        len: MASKS,
        clock: 0,
        parent: None,
        children: [None; 2],
        status: Status::Active,
    }
}

fn mask(offset: u32) -> Proposal {
    Proposal {
        offset: Offset::new(offset),
        candidate: Candidate {
            token: 3,
            // The surest is no likelier to be picked.
            probability: f64::from(offset + 1) / 100.0,
            runner_up: 4,
            runner_up_probability: 0.0,
            entropy: 1.0,
            gap: 0.0,
            present: 0.0,
        },
    }
}

/// The step, from 0, in which each mask is committed, of those that `starts` names.
fn steps_of(seed: u64, starts: impl Iterator<Item = u32>) -> Vec<(u32, u32)> {
    let mut rule = Scheduled::new(Some(STEPS), Rank::Origin(seed));
    let mut open: Vec<Proposal> = starts.map(mask).collect();
    let (lane, mut steps) = (lane(), Vec::new());
    for step in 0.. {
        if open.is_empty() {
            break;
        }
        let mut chosen = Vec::new();
        rule.select(&lane, &mut open, &mut chosen);
        assert!(!chosen.is_empty(), "every step commits");
        steps.extend(chosen.iter().map(|at| (open[*at].offset.get(), step)));
        let mut at = 0..;
        open.retain(|_| at.next().is_some_and(|at| !chosen.contains(&at)));
    }
    steps.sort_unstable();
    steps
}

/// t falls evenly, so the chance of a mask to be committed in step i is (t_i - t_(i+1)) / 1: a quarter
/// of all masks in each of four steps, whatever their probabilities.
#[test]
fn every_step_commits_as_many_masks_as_the_timetable_says() {
    let mut counts = [0u32; STEPS as usize];
    let mut left_half = 0u32;
    for seed in 0..200 {
        for (offset, step) in steps_of(seed, 0..MASKS) {
            counts[step as usize] += 1;
            left_half += u32::from(step == 0 && offset < MASKS / 2);
        }
    }
    let expected = 200 * MASKS / STEPS;
    for count in counts {
        // Five standard deviations of a binomial count.
        assert!(count.abs_diff(expected) < 250, "{counts:?}");
    }
    assert!(left_half.abs_diff(expected / 2) < 200, "{left_half}");
}

#[test]
fn the_order_depends_on_seed_and_offset_alone() {
    let all = steps_of(7, 0..MASKS);
    assert_eq!(steps_of(7, 0..MASKS), all);
    assert_ne!(steps_of(8, 0..MASKS), all);
    // Other masks change nothing for those that are left.
    let even = steps_of(7, (0..MASKS).filter(|offset| offset % 2 == 0));
    let expected: Vec<_> = all
        .into_iter()
        .filter(|(offset, _)| offset % 2 == 0)
        .collect();
    assert_eq!(even, expected);
}

/// With more steps than masks, steps that pick nothing are left out, and all masks are committed.
#[test]
fn a_step_that_picks_nothing_costs_no_forward() {
    let mut rule = Scheduled::new(Some(100), Rank::Origin(1));
    let mut open: Vec<Proposal> = (0..3).map(mask).collect();
    let mut passes = 0;
    while !open.is_empty() {
        let mut chosen = Vec::new();
        rule.select(&lane(), &mut open, &mut chosen);
        let mut at = 0..;
        open.retain(|_| at.next().is_some_and(|at| !chosen.contains(&at)));
        passes += 1;
    }
    assert!(passes <= 3, "{passes}");
}
