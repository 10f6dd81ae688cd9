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
            if let Effect::Advance(span) = *effect {
                prop_assert!(!span.is_empty());
                prop_assert_eq!(span.start.index(), streamed.len(), "no hole, no repetition");
                streamed.extend(span.iter().map(|offset| canvas.get(offset)));
            }
        }
        prop_assert_eq!(streamed.len(), canvas.emitted().index());
        let now: Vec<_> =
            Offset::ZERO.to(canvas.emitted()).iter().map(|offset| canvas.get(offset)).collect();
        prop_assert_eq!(&streamed, &now);
        let mut offsets = canvas.span().iter();
        let mask = offsets.find(|offset| canvas.is_mask(*offset));
        let frontier = mask.unwrap_or(canvas.end());
        prop_assert_eq!(canvas.frontier(), frontier);
        let mut prefix = Offset::ZERO.to(frontier).iter();
        let stop = prefix.find(|offset| canvas.is_stop_at(*offset));
        prop_assert_eq!(canvas.emitted(), stop.unwrap_or(frontier));
        prop_assert!(frontier >= record.canvas_before.frontier());
    }
    Ok(())
}
