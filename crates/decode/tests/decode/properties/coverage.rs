//! The random walks contain every case that the properties are about, so no property holds vacuously.

use std::collections::BTreeMap;

use asynclane_decode::{Birth, Commit, CommitKind, DoneReason, Effect, Role};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use crate::common::{STOPS, Setup, Walk, cases, guarded_setup, setup};

#[test]
fn random_walks_reach_every_kind_of_effect() {
    let expected = [
        "mask committed",
        "draft committed",
        "stop token committed",
        "canvas cut",
        "lane forked",
        "refine lane active",
        "refine lane born finished",
        "generate lane active",
        "generate lane waiting",
        "generate lane born finished",
        "lane resized",
        "lane woken",
        "lane finished",
        "stopped at a stop token",
        "stopped at the budget",
        "three lanes at once",
    ];
    check(setup(), &expected);
}

#[test]
fn random_walks_under_a_grammar_reach_every_kind_of_effect() {
    let expected = [
        "mask committed",
        "draft committed",
        "stop token committed",
        "provisional token placed",
        "provisional token revoked",
        "stopped at a stop token",
        "stopped at the budget",
        "stopped by the grammar",
    ];
    check(guarded_setup(), &expected);
}

/// Every name occurs in many of the walks.
fn check(setups: impl Strategy<Value = Setup>, expected: &[&str]) {
    let mut runner = TestRunner::new(cases());
    let mut counts = BTreeMap::<&str, u32>::new();
    for _ in 0..512 {
        let setup = setups.new_tree(&mut runner).expect("the strategy never rejects").current();
        let walk = Walk::run(&setup);
        for name in walk.effects().flat_map(names) {
            *counts.entry(name).or_default() += 1;
        }
        let lanes = walk.steps.iter().map(|record| record.lanes.len()).max();
        *counts.entry("three lanes at once").or_default() += u32::from(lanes >= Some(3));
    }
    for name in expected {
        let count = counts.get(name).copied().unwrap_or(0);
        assert!(count >= 10, "{name}: only {count} times in {counts:?}");
    }
}

fn names(effect: &Effect) -> Vec<&'static str> {
    match *effect {
        Effect::Commit(Commit { token, kind, .. }) => {
            let kind = match kind {
                CommitKind::Masked => "mask committed",
                CommitKind::Draft => "draft committed",
                CommitKind::Edit => "edit",
            };
            let stop = STOPS.contains(&token).then_some("stop token committed");
            [kind].into_iter().chain(stop).collect()
        }
        Effect::Place(_) => vec!["provisional token placed"],
        Effect::Revoke { .. } => vec!["provisional token revoked"],
        Effect::Shorten { .. } => vec!["canvas cut"],
        Effect::Fork { .. } => vec!["lane forked"],
        Effect::Start { role, birth, .. } => vec![match (role, birth) {
            (Role::Refine, Birth::Active) => "refine lane active",
            (Role::Refine, Birth::Finished) => "refine lane born finished",
            (Role::Refine, Birth::Waiting) => "refine lane waiting",
            (Role::Generate, Birth::Active) => "generate lane active",
            (Role::Generate, Birth::Waiting) => "generate lane waiting",
            (Role::Generate, Birth::Finished) => "generate lane born finished",
        }],
        Effect::Resize { .. } => vec!["lane resized"],
        Effect::Wake { .. } => vec!["lane woken"],
        Effect::Finish { .. } => vec!["lane finished"],
        Effect::Advance(_) => Vec::new(),
        Effect::Done { reason } => vec![match reason {
            DoneReason::StopToken => "stopped at a stop token",
            DoneReason::Budget => "stopped at the budget",
            DoneReason::LaneBudget => "stopped at a lane's budget",
            DoneReason::Complete => "stopped by the grammar",
            DoneReason::Failed => "failed",
        }],
    }
}
