//! The properties of AsyncLane §6 that hold in `decode`, one file each.

mod canvas_is_cut;
mod checks;
mod commit_is_final;
mod coverage;
mod delimiters_of_forks;
mod depth_first_order;
mod edits;
mod effects_tell_all;
mod emitted_prefix_grows;
mod finished_output;
mod grammar;
mod joint_bound_holds;
mod lane_limits;
mod leaves_tile;
mod lossless;
mod one_generate_lane;
mod progress;
mod reduction_to_blocks;
mod stop_tokens;

use proptest::prelude::*;

use crate::common::{Setup, Walk, asynclane_setup, cases, guarded_setup, setup};

type Check = fn(&Walk) -> Result<(), TestCaseError>;

fn check(setup: &Setup, checks: &[Check]) -> Result<(), TestCaseError> {
    let walk = Walk::run(setup);
    checks.iter().try_for_each(|check| check(&walk))
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn every_walk_has_the_properties(setup in setup()) {
        check(&setup, &[
            canvas_is_cut::check,
            commit_is_final::check,
            depth_first_order::check,
            effects_tell_all::check,
            emitted_prefix_grows::check,
            finished_output::check,
            leaves_tile::check,
            leaves_tile::check_drafts,
            one_generate_lane::check,
            progress::check,
            stop_tokens::check,
        ])?;
    }

    #[test]
    fn every_walk_of_lanes_has_the_properties(setup in asynclane_setup()) {
        check(&setup, &[
            delimiters_of_forks::check,
            lane_limits::check,
            lane_limits::check_coupled,
        ])?;
    }

    #[test]
    fn every_walk_under_a_grammar_has_the_properties(setup in guarded_setup()) {
        check(&setup, &[
            canvas_is_cut::check,
            effects_tell_all::check,
            grammar::follows,
            grammar::moves,
            progress::check,
        ])?;
    }
}
