//! `max_lanes` bounds the lanes of a step; `coupled` lanes wait for each other.

use asynclane_decode::{Role, Status, Value};
use proptest::prelude::*;

use crate::common::{Setup, Walk, asynclane_setup, cases};

proptest! {
    #![proptest_config(cases())]

    /// No step has more active lanes than `max_lanes`.
    #[test]
    fn never_more_lanes_than_allowed(setup in asynclane_setup()) {
        let walk = Walk::run(&setup);
        for record in &walk.steps {
            prop_assert!(record.lanes.len() as u32 <= setup.config.schedule.max_lanes());
        }
    }

    /// AsyncLane §4, coupled: a continuation never runs in a step of its refine sibling, and
    /// only such a continuation ever waits.
    #[test]
    fn coupled_continuations_wait_for_their_refine_lanes(setup in asynclane_setup()) {
        check_coupled(&setup)?;
    }
}

fn check_coupled(setup: &Setup) -> Result<(), TestCaseError> {
    let coupled = setup.config.schedule.settings().get("coupled");
    let coupled = coupled == Some(Value::Flag(true));
    for record in &Walk::run(setup).steps {
        for lane in record.tree.lanes() {
            let sibling = lane
                .parent
                .and_then(|parent| record.tree.get(parent).children[0]);
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
