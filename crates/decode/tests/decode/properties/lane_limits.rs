//! `max_lanes` bounds the lanes of a step; `coupled` lanes wait for each other.

use asynclane_decode::{Role, Status, Value};
use proptest::prelude::{TestCaseError, prop_assert, prop_assert_eq};

use crate::common::Walk;

/// No step has more active lanes than `max_lanes`.
pub fn check(walk: &Walk) -> Result<(), TestCaseError> {
    for record in &walk.steps {
        prop_assert!(record.lanes.len() as u32 <= walk.setup.config.schedule.max_lanes());
    }
    Ok(())
}

/// AsyncLane §4, coupled: a continuation never runs in a step of its refine sibling, and
/// only such a continuation ever waits.
pub fn check_coupled(walk: &Walk) -> Result<(), TestCaseError> {
    let coupled = walk.setup.config.schedule.settings().get("coupled");
    let coupled = coupled == Some(Value::Flag(true));
    for record in &walk.steps {
        for lane in record.tree.lanes() {
            let sibling = lane.parent.and_then(|parent| record.tree.get(parent).children[0]);
            let sibling = sibling.map(|id| record.tree.get(id));
            let refines = sibling.is_some_and(|sibling| {
                sibling.role == Role::Refine && sibling.status == Status::Active
            });
            let continues = lane.role == Role::Generate && refines;
            let expected = coupled && continues;
            prop_assert_eq!(lane.status == Status::Waiting, expected, "{:?}", lane);
        }
    }
    Ok(())
}
