//! Property 7: every active lane with a mask commits in every step, so steps <= L.

use proptest::prelude::{TestCaseError, prop_assert, prop_assert_eq};

use crate::common::{Walk, is_joint};

/// AsyncLane §6.7. A lane's clock counts the steps it took part in. A rule with one choice for all
/// lanes may let one of them wait.
pub fn check(walk: &Walk) -> Result<(), TestCaseError> {
    for record in &walk.steps {
        prop_assert!(!record.lanes.is_empty(), "a sequence that is not done has an active lane");
        prop_assert!(record.commits().count() > 0, "a step committed nothing");
        for view in &record.lanes {
            let open = record.canvas_before.masks(view.range);
            prop_assert!(open > 0, "{:?} is active without a mask", view);
            let own = record.commits().filter(|(offset, _)| view.range.contains(*offset));
            let may_wait = is_joint(&walk.setup.config.commit);
            prop_assert!(may_wait || own.count() > 0, "{:?} committed nothing", view);
            let clock = |tree: &asynclane_decode::LaneTree| tree.get(view.id).clock;
            let steps = clock(&record.tree) - clock(&record.tree_before);
            // A guessed canvas that is right gives a step of its own.
            let most = 1 + walk.setup.config.commit.branches();
            prop_assert!((1..=most).contains(&steps), "{steps} steps of one forward");
        }
    }
    prop_assert!(walk.decoder.is_done());
    prop_assert!(walk.steps.len() as u32 <= walk.setup.budget);
    let steps = walk.steps.len() as u32;
    match walk.setup.config.commit.branches() {
        0 => prop_assert_eq!(walk.decoder.step(), steps),
        _ => prop_assert!(walk.decoder.step() >= steps),
    }
    Ok(())
}
