//! Property 3: the leaves tile the canvas up to the lanes' frontier; drafts lie only in the lookahead.

use asynclane_decode::{Commit, CommitKind, Effect, LaneId, LaneTree, Offset, Role, Span, Status};
use proptest::prelude::{TestCaseError, prop_assert, prop_assert_eq};

use crate::common::Walk;

/// AsyncLane §6.3: leaves in depth-first order tile [0, frontier of lanes) without gap or
/// overlap.
pub fn check(walk: &Walk) -> Result<(), TestCaseError> {
    for record in &walk.steps {
        let mut end = Offset::ZERO;
        for leaf in leaves(&record.tree) {
            let lane = record.tree.get(leaf);
            prop_assert_eq!(lane.start, end, "{:?}", leaf);
            end = end.plus(lane.len);
        }
        prop_assert!(end >= record.canvas.emitted());
        prop_assert_eq!(record.tree.validate(), Ok(()));
        prop_assert_eq!(record.tree.leaves(), leaves(&record.tree));
    }
    Ok(())
}

/// Leaves by walking the children, without the tree's own iterator.
pub fn leaves(tree: &LaneTree) -> Vec<LaneId> {
    fn descend(tree: &LaneTree, id: LaneId, leaves: &mut Vec<LaneId>) {
        let lane = tree.get(id);
        if lane.status != Status::Forked {
            leaves.push(id);
        }
        for child in lane.children.iter().flatten() {
            descend(tree, *child, leaves);
        }
    }
    let mut found = Vec::new();
    if let Some(root) = tree.lanes().first() {
        descend(tree, root.id, &mut found);
    }
    found
}

/// AsyncLane §2.3: drafts are committed in [s+b, s+b+w) of the generate lane, by nobody else
/// and nowhere else; whatever is committed after the generate lane is a draft.
pub fn check_drafts(walk: &Walk) -> Result<(), TestCaseError> {
    let lookahead = walk.asynclane().map_or(0, |config| config.lookahead);
    for record in &walk.steps {
        let lanes = record.lanes.iter().map(|view| record.tree_before.get(view.id));
        let generate = lanes.clone().find(|lane| lane.role == Role::Generate);
        let window = generate.map_or(Span::default(), |lane| Span::at(lane.range().end, lookahead));
        for effect in &record.effects {
            let Effect::Commit(Commit { offset, kind, probability, .. }) = *effect else {
                continue;
            };
            prop_assert_eq!(kind == CommitKind::Draft, window.contains(offset), "at {}", offset);
            prop_assert_eq!(record.canvas.is_draft(offset), kind == CommitKind::Draft);
            if kind == CommitKind::Draft {
                let least = walk.asynclane().and_then(|config| config.draft_threshold);
                prop_assert!(least.is_some_and(|least| probability >= least));
            }
        }
        let end =
            record.tree.generate().map_or(Offset::new(walk.setup.budget), |lane| lane.range().end);
        // The first step of a window's cycle commits anywhere, EoTP a stop token.
        let config = &walk.setup.config;
        let anywhere =
            config.schedule.name() == "window" || config.commit.name() == "learned_filter";
        for offset in end.to(record.canvas.end()).iter().filter(|_| !anywhere) {
            prop_assert!(record.canvas.is_mask(offset) || record.canvas.is_draft(offset));
        }
    }
    Ok(())
}
