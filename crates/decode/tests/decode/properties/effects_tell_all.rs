//! The effects of a step describe its whole change of state; the engine performs nothing else.

use asynclane_decode::{Birth, Effect, Lane, LaneId, Offset, Role, Span, Status, TokenId};
use proptest::prelude::{TestCaseError, prop_assert, prop_assert_eq};

use crate::common::Walk;

/// Canvas and lanes, rebuilt from the effects alone.
#[derive(Default)]
struct Replay {
    cells: Vec<Option<TokenId>>,
    /// Role, start, length and status by number.
    lanes: Vec<(Role, Offset, u32, Status)>,
    emitted: Offset,
    done: bool,
}

impl Replay {
    fn perform(&mut self, effect: &Effect) {
        let status = |replay: &mut Self, lane: LaneId, status| {
            replay.lanes[lane.0 as usize].3 = status;
        };
        match *effect {
            Effect::Commit(commit) | Effect::Place(commit) => {
                let (offset, token) = (commit.offset, commit.token);
                self.cells[offset.index()] = Some(token);
            }
            Effect::Revoke { offset } => self.cells[offset.index()] = None,
            // The cells after the cut keep their tokens; nothing reads them again.
            Effect::Shorten { .. } => {}
            Effect::Fork { lane, .. } => status(self, lane, Status::Forked),
            Effect::Start { lane, role, start, len, birth, .. } => {
                assert_eq!(lane.0 as usize, self.lanes.len(), "lanes are numbered by birth");
                let status = match birth {
                    Birth::Active => Status::Active,
                    Birth::Waiting => Status::Waiting,
                    Birth::Finished => Status::Finished,
                };
                self.lanes.push((role, start, len, status));
            }
            Effect::Resize { lane, len } => self.lanes[lane.0 as usize].2 = len,
            Effect::Wake { lane } => status(self, lane, Status::Active),
            Effect::Finish { lane, valid } => {
                self.lanes[lane.0 as usize].2 = valid;
                status(self, lane, Status::Finished);
            }
            Effect::Advance(span) => self.emitted = span.end,
            Effect::Done { .. } => {
                self.done = true;
                for lane in &mut self.lanes {
                    if lane.3 == Status::Active {
                        lane.3 = Status::Finished;
                    }
                }
            }
        }
    }
}

/// Replaying the effects rebuilds canvas and lanes.
pub fn check(walk: &Walk) -> Result<(), TestCaseError> {
    let mut replay = Replay { cells: vec![None; walk.setup.budget as usize], ..Replay::default() };
    for effect in &walk.born {
        replay.perform(effect);
    }
    for record in &walk.steps {
        prop_assert!(!replay.done);
        for effect in &record.effects {
            replay.perform(effect);
        }
        let cells: Vec<_> =
            Span::first(walk.setup.budget).iter().map(|offset| record.canvas.get(offset)).collect();
        prop_assert_eq!(&replay.cells, &cells);
        let state = |lane: &Lane| (lane.role, lane.start, lane.len, lane.status);
        let lanes: Vec<_> = record.tree.lanes().iter().map(state).collect();
        prop_assert_eq!(&replay.lanes, &lanes);
        prop_assert_eq!(replay.emitted, record.canvas.emitted());
    }
    prop_assert!(replay.done);
    Ok(())
}
