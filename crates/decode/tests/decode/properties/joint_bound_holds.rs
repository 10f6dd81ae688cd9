//! Rule B: the lanes of a sequence and their drafts share one entropy bound.

use proptest::prelude::*;

use crate::common::{Setup, Walk, asynclane_setup, cases, commit};

proptest! {
    #![proptest_config(cases())]

    /// EB-sampler over all lanes: what a step commits, without its largest entropy, sums to at most γ,
    /// and no mask that it could have committed fits as well.
    #[test]
    fn a_step_pays_for_all_lanes_and_drafts(setup in asynclane_setup(), bound in 0.0..3.0f64) {
        let mut setup = setup;
        setup.config.commit = commit("joint_bound").with("entropy_threshold", bound);
        setup.config.lone_stops = true;
        setup.config.schedule = setup.config.schedule.with("lane_budget", false);
        check(&setup, bound)?;
    }
}

fn check(setup: &Setup, bound: f64) -> Result<(), TestCaseError> {
    let walk = Walk::run(setup);
    let lanes = walk.asynclane().expect("the schedule is AsyncLane");
    for record in &walk.steps {
        let is_own = |offset| record.lanes.iter().any(|lane| lane.range.contains(offset));
        let entropy = |proposal: &asynclane_decode::Proposal| f64::from(proposal.candidate.entropy);
        let committed: Vec<_> = record.commits().map(|(offset, _)| offset).collect();
        let (taken, left): (Vec<_>, Vec<_>) =
            (record.proposals.iter()).partition(|proposal| committed.contains(&proposal.offset));
        let all: f64 = taken.iter().map(entropy).sum();
        let most = taken.iter().map(entropy).fold(0.0, f64::max);
        prop_assert!(all - most <= bound + 1e-9, "{} - {}", all, most);
        for proposal in left {
            let drafted = lanes
                .draft_threshold
                .is_some_and(|threshold| proposal.candidate.probability >= threshold);
            let stops = record.canvas_before.is_stop(proposal.candidate.token);
            let eligible = is_own(proposal.offset) || (drafted && !stops);
            let fits = all <= bound - 1e-9 || entropy(&proposal) < most - 1e-9;
            prop_assert!(!eligible || !fits, "{:?} fits as well", proposal);
        }
    }
    Ok(())
}
