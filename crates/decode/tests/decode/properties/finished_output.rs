//! Property 11: the output of a finished sequence.

use asynclane_decode::{DoneReason, Effect, Offset};
use proptest::prelude::{TestCaseError, prop_assert, prop_assert_eq};

use crate::common::{STOPS, Walk};

/// AsyncLane §6.11: no mask, no stop token, length <= L; `stop` iff a stop token follows.
pub fn check(walk: &Walk) -> Result<(), TestCaseError> {
    let canvas = walk.decoder.canvas();
    let output = walk.output();
    prop_assert!(!output.iter().any(|token| *token == 0 || STOPS.contains(token)));
    let end = Offset::new(output.len() as u32);
    let reason = if canvas.is_stop_at(end) {
        DoneReason::StopToken
    } else if end.get() == walk.setup.budget {
        DoneReason::Budget
    } else {
        // A lane runs out of steps before its first offset is settled only after a cut.
        prop_assert!(walk.setup.config.prune && canvas.is_stop_at(canvas.end().back(1)));
        prop_assert!(canvas.is_mask(end), "{:?}", output);
        let lanes = walk.asynclane().expect("only lanes have budgets");
        prop_assert!(lanes.lane_budget);
        DoneReason::LaneBudget
    };
    let ends = walk.effects().filter(|effect| matches!(effect, Effect::Done { .. })).count();
    prop_assert_eq!(ends, 1, "exactly one end");
    let last = walk.effects().last();
    prop_assert_eq!(last, Some(&Effect::Done { reason }), "and it is last");
    prop_assert!(walk.decoder.lanes().next().is_none(), "every lane was dropped");
    if !walk.setup.config.early_stop {
        prop_assert_eq!(canvas.frontier().get(), walk.setup.budget, "the whole canvas is filled");
    }
    Ok(())
}
