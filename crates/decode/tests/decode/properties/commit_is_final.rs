//! Property 1: commit is final.

use asynclane_decode::{CommitKind, Effect, Span};
use proptest::prelude::{TestCaseError, prop_assert, prop_assert_eq};

use crate::common::Walk;

/// AsyncLane §2: "a committed token is never rewritten by this schedule".
pub fn check(walk: &Walk) -> Result<(), TestCaseError> {
    for record in &walk.steps {
        for offset in Span::first(walk.setup.budget) {
            if let Some(token) = record.canvas_before.get(offset) {
                prop_assert_eq!(record.canvas.get(offset), Some(token), "offset {}", offset);
            }
        }
        for (offset, _) in record.commits() {
            prop_assert!(record.canvas_before.is_mask(offset), "{} committed twice", offset);
        }
        let edits = |effect: &Effect| matches!(effect, Effect::Commit(commit) if commit.kind == CommitKind::Edit);
        prop_assert!(!record.effects.iter().any(edits), "no schedule here has an edit rule");
    }
    Ok(())
}
