//! Property 6: no refine lane commits a stop token; no draft is a stop token.

use asynclane_decode::{CommitKind, Effect, Role};
use proptest::prelude::*;

use crate::common::{STOPS, Setup, Walk, cases, setup};

proptest! {
    #![proptest_config(cases())]

    /// AsyncLane §2.2 and §2.3. The model proposes stop tokens wherever the decoder does not
    /// call the lane a refine lane, in lookaheads too.
    #[test]
    fn only_generate_lanes_commit_stop_tokens_of_their_own(setup in setup()) {
        check(&setup)?;
    }
}

fn check(setup: &Setup) -> Result<(), TestCaseError> {
    for record in &Walk::run(setup).steps {
        let lanes = || {
            record
                .lanes
                .iter()
                .map(|view| record.tree_before.get(view.id))
        };
        for effect in &record.effects {
            let Effect::Commit {
                offset,
                token,
                kind,
                ..
            } = *effect
            else {
                continue;
            };
            let stop = STOPS.contains(&token);
            prop_assert!(
                !stop || kind == CommitKind::Masked,
                "a draft is a stop token"
            );
            let owner = lanes().find(|lane| lane.range().contains(offset));
            if owner.is_some_and(|lane| lane.role == Role::Refine) {
                prop_assert!(!stop, "a refine lane committed a stop token at {}", offset);
            }
        }
        // Once a lane refines, no stop token can be left of its end.
        for lane in record
            .tree
            .lanes()
            .iter()
            .filter(|lane| lane.role == Role::Refine)
        {
            prop_assert!(
                !lane
                    .range()
                    .iter()
                    .any(|offset| record.canvas.is_stop_at(offset))
            );
        }
    }
    Ok(())
}
