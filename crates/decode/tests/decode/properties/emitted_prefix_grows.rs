//! Property 2: the emitted prefix only grows.

use asynclane_decode::{Effect, Offset};
use proptest::prelude::{TestCaseError, prop_assert, prop_assert_eq};

use crate::common::Walk;

/// AsyncLane §2.5: the frontier is the first mask, the emitted prefix ends there or at the
/// first stop token; what was streamed is final.
pub fn check(walk: &Walk) -> Result<(), TestCaseError> {
    let mut streamed = Vec::new();
    for record in &walk.steps {
        let canvas = &record.canvas;
        for effect in &record.effects {
            if let Effect::Advance { from, to } = *effect {
                prop_assert!(from < to);
                prop_assert_eq!(from.index(), streamed.len(), "no hole, no repetition");
                streamed.extend(from.to(to).iter().map(|at| canvas.get(at)));
            }
        }
        prop_assert_eq!(streamed.len(), canvas.emitted().index());
        let now: Vec<_> =
            Offset::ZERO.to(canvas.emitted()).iter().map(|at| canvas.get(at)).collect();
        prop_assert_eq!(&streamed, &now);
        let mut offsets = canvas.span().iter();
        let mask = offsets.find(|at| canvas.is_mask(*at));
        let frontier = mask.unwrap_or(canvas.end());
        prop_assert_eq!(canvas.frontier(), frontier);
        let mut prefix = Offset::ZERO.to(frontier).iter();
        let stop = prefix.find(|at| canvas.is_stop_at(*at));
        prop_assert_eq!(canvas.emitted(), stop.unwrap_or(frontier));
        prop_assert!(frontier >= record.canvas_before.frontier());
    }
    Ok(())
}
