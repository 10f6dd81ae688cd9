//! Under a grammar, the emitted text follows the grammar for every model.

use asynclane_decode::{Constraint, DoneReason, Effect, Span};
use proptest::prelude::*;

use super::{canvas_is_cut, effects_tell_all, progress};
use crate::common::{STOPS, Setup, Walk, cases, guarded_setup};

proptest! {
    #![proptest_config(cases())]

    /// Every emitted token is allowed after the text before it; a finished text is complete.
    #[test]
    fn the_emitted_text_follows_the_grammar(setup in guarded_setup()) {
        follows(&setup)?;
    }

    /// The frontier is a mask between two steps, it commits in every step, and what is
    /// committed stays.
    #[test]
    fn the_frontier_moves_in_every_step(setup in guarded_setup()) {
        moves(&setup)?;
    }

    /// The properties of effects, cuts and progress hold as without a grammar.
    #[test]
    fn the_other_properties_hold(setup in guarded_setup()) {
        effects_tell_all::check(&setup)?;
        canvas_is_cut::check(&setup)?;
        progress::check(&setup)?;
    }
}

fn follows(setup: &Setup) -> Result<(), TestCaseError> {
    let walk = Walk::run(setup);
    let mut grammar = setup.grammar.expect("the setup has one");
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
            prop_assert_eq!(walk.output().len() as u32, setup.budget);
            prop_assert!(!grammar.is_over());
        }
        other => prop_assert!(false, "{:?}", other),
    }
    Ok(())
}

fn moves(setup: &Setup) -> Result<(), TestCaseError> {
    let walk = Walk::run(setup);
    for record in &walk.steps {
        let (before, after) = (&record.canvas_before, &record.canvas);
        let frontier = before.frontier();
        prop_assert!(before.is_mask(frontier));
        prop_assert!(after.is_committed(frontier));
        for offset in Span::first(setup.budget) {
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
