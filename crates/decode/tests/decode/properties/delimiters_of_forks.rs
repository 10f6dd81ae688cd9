//! Property 9: forks split after a valid delimiter.

use asynclane_decode::{AsyncLaneConfig, Effect, Role, Status};
use proptest::prelude::{TestCaseError, prop_assert, prop_assert_eq};

use crate::common::{Record, Setup, Walk, is_valid_delimiter, text};

/// AsyncLane §3 and §6.9: 0 < p <= b, a valid delimiter at s+p-1 by rules written out on
/// plain text, no stop token in [s, s+p), and the fork condition holds.
pub fn check(walk: &Walk) -> Result<(), TestCaseError> {
    let config = walk.asynclane().expect("the schedule is AsyncLane");
    for record in &walk.steps {
        for effect in &record.effects {
            if let Effect::Fork { lane, split } = *effect {
                check_fork(record, &config, &walk.setup, lane, split)?;
            }
        }
    }
    Ok(())
}

fn check_fork(
    record: &Record,
    config: &AsyncLaneConfig,
    setup: &Setup,
    lane: asynclane_decode::LaneId,
    split: u32,
) -> Result<(), TestCaseError> {
    let (lane, canvas) = (record.tree.get(lane), &record.canvas);
    prop_assert_eq!((lane.role, lane.status), (Role::Generate, Status::Forked));
    prop_assert!(0 < split && split <= lane.len);
    let border = lane.start.plus(split);
    let mut prefix = lane.start.to(border).iter();
    prop_assert!(!prefix.any(|offset| canvas.is_stop_at(offset)));
    let boundary = config.fork.expect("without a boundary nothing forks");
    let valid = |offset| is_valid_delimiter(canvas, offset, boundary, setup.code_prompt);
    prop_assert!(
        valid(border.back(1)),
        "{:?} is no delimiter",
        canvas.get(border.back(1)).map(text)
    );
    // A period that its own token sets apart from a digit on its left (` .`, `).`) may count as
    // numeric; every other valid delimiter further right would have been the split.
    let end = lane.range().end.min(canvas.end());
    let stop = border.to(end).iter().find(|offset| canvas.is_stop_at(*offset)).unwrap_or(end);
    for offset in border.to(stop) {
        let token = canvas.get(offset).map(text);
        let apart = matches!(token, Some(" ." | ")."));
        prop_assert!(apart || !valid(offset), "{:?} at {} is further right", token, offset);
    }
    let filled = lane.start.to(end).iter().filter(|offset| !canvas.is_mask(*offset)).count();
    prop_assert!(filled as f64 >= config.min_fill * f64::from(end.distance_from(lane.start)));
    prop_assert!(lane.clock >= config.min_clock);
    let open = lane.start.to(stop).iter().any(|offset| canvas.is_mask(offset));
    prop_assert!(config.fork_when_complete || open, "a complete lane forked");
    let children = lane.children.map(|child| child.map(|child| record.tree.get(child)));
    let refine = children[0].expect("a fork has a refine child");
    prop_assert_eq!((refine.role, refine.start, refine.len), (Role::Refine, lane.start, split));
    match children[1] {
        Some(next) => prop_assert_eq!((next.role, next.start), (Role::Generate, border)),
        None => prop_assert_eq!(border, canvas.end(), "only the canvas's end needs no child"),
    }
    Ok(())
}
