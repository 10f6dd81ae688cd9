//! Property 6: no refine lane commits a stop token; no draft is a stop token.

use asynclane_decode::{Commit, CommitKind, DecoderConfig, Effect, Role, Span, TokenId};
use proptest::prelude::*;

use crate::common::{STOPS, Setup, Walk, cases, setup};

proptest! {
    #![proptest_config(cases())]

    /// Without lone stops, a step whose commits are all stop tokens had no other mask to commit, or
    /// filled every mask left of the first one.
    #[test]
    fn no_step_is_spent_on_a_stop_token_behind_a_mask(setup in setup()) {
        let setup = Setup {
            config: DecoderConfig { lone_stops: false, ..setup.config },
            ..setup
        };
        check_alone(&setup)?;
    }
}

fn check_alone(setup: &Setup) -> Result<(), TestCaseError> {
    for record in &Walk::run(setup).steps {
        let commits: Vec<_> = record.commits().collect();
        let is_stop = |token: &TokenId| STOPS.contains(token);
        if commits.is_empty() || !commits.iter().all(|(_, token)| is_stop(token)) {
            continue;
        }
        let (before, first) = (&record.canvas_before, commits.iter().map(|commit| commit.0).min());
        let first = first.expect("one commit at least");
        let open = before.first_uncommitted(Span::first(first.get()));
        let others = record.proposals.iter().filter(|mask| {
            let owned = record.lanes.iter().any(|lane| lane.range.contains(mask.offset));
            owned && before.is_mask(mask.offset) && !is_stop(&mask.candidate.token)
        });
        prop_assert!(open.is_none() || others.count() == 0, "{:?}", commits);
    }
    Ok(())
}

/// AsyncLane §2.2 and §2.3. The model proposes stop tokens wherever the decoder does not
/// call the lane a refine lane, in lookaheads too.
pub fn check(walk: &Walk) -> Result<(), TestCaseError> {
    for record in &walk.steps {
        let lanes = || record.lanes.iter().map(|view| record.tree_before.get(view.id));
        for effect in &record.effects {
            let Effect::Commit(Commit { offset, token, kind, .. }) = *effect else {
                continue;
            };
            let stop = STOPS.contains(&token);
            prop_assert!(!stop || kind == CommitKind::Masked, "a draft is a stop token");
            let owner = lanes().find(|lane| lane.range().contains(offset));
            if owner.is_some_and(|lane| lane.role == Role::Refine) {
                prop_assert!(!stop, "a refine lane committed a stop token at {}", offset);
            }
        }
        // Once a lane refines, no stop token can be left of its end.
        for lane in record.tree.lanes().iter().filter(|lane| lane.role == Role::Refine) {
            prop_assert!(!lane.range().iter().any(|offset| record.canvas.is_stop_at(offset)));
        }
    }
    Ok(())
}
