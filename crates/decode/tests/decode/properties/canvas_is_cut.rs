//! Pruning: nothing after a committed stop token is computed.

use asynclane_decode::{Effect, Offset, Span};
use proptest::prelude::{TestCaseError, prop_assert, prop_assert_eq};

use crate::common::Walk;

/// AsyncLane §2.5: a committed stop token at e shortens the canvas to e + 1, a later one
/// further left shortens it again; lanes and lookahead end there from the next step on.
pub fn check(walk: &Walk) -> Result<(), TestCaseError> {
    for record in &walk.steps {
        let canvas = &record.canvas;
        let first_stop = Span::<Offset>::first(walk.setup.budget)
            .iter()
            .find(|offset| canvas.is_stop_at(*offset));
        let expected = match first_stop {
            Some(offset) if walk.setup.config.prune => offset.get() + 1,
            _ => walk.setup.budget,
        };
        prop_assert_eq!(canvas.len(), expected);
        let cut = record.effects.iter().find_map(|effect| match effect {
            Effect::Shorten { len } => Some(*len),
            _ => None,
        });
        let shorter = (canvas.len() < record.canvas_before.len()).then_some(canvas.len());
        prop_assert_eq!(cut, shorter);
        let limit = record.canvas_before.end();
        for view in &record.lanes {
            prop_assert!(view.range.end <= limit && view.lookahead.end <= limit, "{:?}", view);
        }
        prop_assert!(record.proposals.iter().all(|proposal| proposal.offset < limit));
    }
    Ok(())
}
