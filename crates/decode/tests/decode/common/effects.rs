//! Short constructors of effects, for lists of expected values.

use core::ops::Range;

use asynclane_decode::{Birth, Commit, CommitKind, DoneReason, Effect, LaneId, Role, TokenId};

use super::{at, id};

/// A mask of a lane is committed.
pub fn masked(offset: u32, text: &str, probability: f64) -> Effect {
    Effect::Commit(token(offset, text, probability, CommitKind::Masked))
}

/// A mask of the lookahead is committed.
pub fn draft(offset: u32, text: &str, probability: f64) -> Effect {
    Effect::Commit(token(offset, text, probability, CommitKind::Draft))
}

/// A committed token is rewritten.
pub fn edited(offset: u32, text: &str, probability: f64) -> Effect {
    Effect::Commit(token(offset, text, probability, CommitKind::Edit))
}

/// A provisional token is placed.
pub fn place(offset: u32, text: &str, probability: f64) -> Effect {
    Effect::Place(token(offset, text, probability, CommitKind::Masked))
}

/// A provisional token is placed in the lookahead.
pub fn placed_draft(offset: u32, text: &str, probability: f64) -> Effect {
    Effect::Place(token(offset, text, probability, CommitKind::Draft))
}

fn token(offset: u32, text: &str, probability: f64, kind: CommitKind) -> Commit {
    Commit { offset: at(offset), token: id(text), probability, kind }
}

/// The tokens that a step commits, by offset.
pub fn committed(effects: &[Effect]) -> Vec<(u32, TokenId)> {
    let commits = effects.iter().filter_map(|effect| match effect {
        Effect::Commit(commit) => Some((commit.offset.get(), commit.token)),
        _ => None,
    });
    commits.collect()
}

/// A provisional token is a mask again.
pub fn revoke(offset: u32) -> Effect {
    Effect::Revoke { offset: at(offset) }
}

/// The end of a lane moves.
pub fn resize(lane: u32, len: u32) -> Effect {
    let lane = LaneId(lane);
    Effect::Resize { lane, len }
}

/// The canvas is cut.
pub fn shorten(len: u32) -> Effect {
    Effect::Shorten { len }
}

/// A lane becomes an inner node.
pub fn fork(lane: u32, split: u32) -> Effect {
    Effect::Fork { lane: LaneId(lane), split }
}

/// A generate lane starts; `parent` is `None` for the root.
pub fn generate(lane: u32, parent: Option<u32>, range: Range<u32>, birth: Birth) -> Effect {
    start(lane, Role::Generate, parent, range, birth)
}

/// A refine lane starts.
pub fn refine(lane: u32, parent: u32, range: Range<u32>, birth: Birth) -> Effect {
    start(lane, Role::Refine, Some(parent), range, birth)
}

fn start(lane: u32, role: Role, parent: Option<u32>, range: Range<u32>, birth: Birth) -> Effect {
    let (start, len) = (range.start, range.end - range.start);
    Effect::Start {
        lane: LaneId(lane),
        role,
        parent: parent.map(LaneId),
        start: at(start),
        len,
        birth,
    }
}

/// A waiting lane goes on.
pub fn wake(lane: u32) -> Effect {
    Effect::Wake { lane: LaneId(lane) }
}

/// A lane is done.
pub fn finish(lane: u32, valid: u32) -> Effect {
    Effect::Finish { lane: LaneId(lane), valid }
}

/// The emitted prefix grows.
pub fn advance(start: u32, end: u32) -> Effect {
    Effect::Advance(at(start).to(at(end)))
}

/// The sequence is done.
pub fn done(reason: DoneReason) -> Effect {
    Effect::Done { reason }
}
