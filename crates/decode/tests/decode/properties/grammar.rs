//! Under a grammar, the emitted text follows the grammar for every model.

use asynclane_decode::{Constraint, DoneReason, Effect, Span};
use proptest::prelude::{TestCaseError, prop_assert, prop_assert_eq};

use crate::common::{STOPS, Walk};

/// Every emitted token is allowed after the text before it; a finished text is complete.
pub fn follows(walk: &Walk) -> Result<(), TestCaseError> {
    let mut grammar = walk.setup.grammar.expect("the setup has one");
    for token in walk.output() {
        prop_assert!(!STOPS.contains(&token));
        prop_assert_eq!(grammar.accept(token), Ok(true));
    }
    let Some(Effect::Done { reason }) = walk.effects().last() else {
        return Err(TestCaseError::fail("the last effect is the end"));
    };
    match reason {
        DoneReason::StopToken => prop_assert!(grammar.may_end()),
        DoneReason::Complete => prop_assert!(grammar.is_over()),
        DoneReason::Budget => {
            prop_assert_eq!(walk.output().len() as u32, walk.setup.budget);
            prop_assert!(!grammar.is_over());
        }
        other => prop_assert!(false, "{:?}", other),
    }
    Ok(())
}

/// The frontier is a mask between two steps, it commits in every step, and what is
/// committed stays.
pub fn moves(walk: &Walk) -> Result<(), TestCaseError> {
    for record in &walk.steps {
        let (before, after) = (&record.canvas_before, &record.canvas);
        let frontier = before.frontier();
        prop_assert!(before.is_mask(frontier));
        prop_assert!(after.is_committed(frontier));
        for offset in Span::first(walk.setup.budget) {
            if before.is_committed(offset) {
                prop_assert_eq!(after.get(offset), before.get(offset));
                prop_assert!(after.is_committed(offset));
            }
        }
        let forks = |effect: &Effect| matches!(effect, Effect::Fork { .. });
        prop_assert!(!record.effects.iter().any(forks));
    }
    Ok(())
}
