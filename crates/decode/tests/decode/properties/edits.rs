//! An edit rule changes tokens of the active block only, and it terminates.

use asynclane_decode::{Commit, CommitKind, Effect, Span};
use proptest::prelude::*;

use crate::common::{Setup, Walk, cases, edit_setup};

proptest! {
    #![proptest_config(cases())]

    /// LLaDA2.1: tokens of a block change until it is settled, at most `most_passes` forwards
    /// after its last mask; what was streamed is final.
    #[test]
    fn edits_stay_in_the_block_and_end(setup in edit_setup()) {
        check(&setup)?;
    }
}

fn check(setup: &Setup) -> Result<(), TestCaseError> {
    let walk = Walk::run(setup);
    prop_assert!(walk.decoder.is_done());
    prop_assert!(walk.steps.len() as u32 <= setup.most_steps());
    let mut streamed = Vec::new();
    for record in &walk.steps {
        let active = record.lanes.last().expect("an active lane").range;
        for effect in &record.effects {
            if let Effect::Commit(Commit { offset, token, kind, .. }) = *effect {
                prop_assert!(active.contains(offset));
                let before = record.canvas_before.get(offset);
                match kind {
                    CommitKind::Edit => prop_assert!(before.is_some_and(|old| old != token)),
                    CommitKind::Masked => prop_assert_eq!(before, None),
                    CommitKind::Draft => prop_assert!(false, "no drafts here"),
                }
            }
            if let Effect::Advance(span) = *effect {
                prop_assert_eq!(span.start.index(), streamed.len());
                streamed.extend(span.iter().map(|offset| record.canvas.get(offset)));
            }
        }
        let now: Vec<_> = Span::first(streamed.len() as u32)
            .iter()
            .map(|offset| record.canvas.get(offset))
            .collect();
        prop_assert_eq!(&streamed, &now, "a streamed token changed");
    }
    let canvas = walk.decoder.canvas();
    let stop = canvas.span().iter().find(|offset| canvas.is_stop_at(*offset));
    prop_assert_eq!(canvas.emitted(), stop.unwrap_or(canvas.end()));
    Ok(())
}
