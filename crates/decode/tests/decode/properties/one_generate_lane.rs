//! Property 5: at most one active generate lane, always the last leaf.

use asynclane_decode::{Offset, Role, Status};
use proptest::prelude::{TestCaseError, prop_assert, prop_assert_eq};

use super::leaves_tile::leaves;
use crate::common::Walk;

/// AsyncLane §6.5. The views that the engine plans from agree with the tree.
pub fn check(walk: &Walk) -> Result<(), TestCaseError> {
    for record in &walk.steps {
        let active: Vec<_> = leaves(&record.tree)
            .into_iter()
            .filter(|leaf| record.tree.get(*leaf).status == Status::Active)
            .collect();
        prop_assert_eq!(record.tree.active(), &active[..]);
        let generating: Vec<_> =
            active.iter().filter(|leaf| record.tree.get(**leaf).role == Role::Generate).collect();
        prop_assert!(generating.len() <= 1);
        if let Some(leaf) = generating.first() {
            let leaves = leaves(&record.tree);
            prop_assert_eq!(leaves.last(), Some(*leaf));
        }
        let mut end = Offset::ZERO;
        for view in &record.lanes {
            let lane = record.tree_before.get(view.id);
            prop_assert_eq!(lane.status, Status::Active);
            prop_assert_eq!(view.role, lane.role);
            prop_assert!(view.range.start >= end, "views are disjoint and ascending");
            prop_assert!(view.range.end <= view.lookahead.start || view.lookahead.is_empty());
            prop_assert!(view.role == Role::Generate || view.lookahead.is_empty());
            end = view.range.end.max(view.lookahead.end);
        }
        prop_assert!(end <= record.canvas_before.end(), "views end with the canvas");
    }
    Ok(())
}
