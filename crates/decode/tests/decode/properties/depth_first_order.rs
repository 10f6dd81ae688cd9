//! Property 4: depth-first order is position order.

use asynclane_decode::{Offset, Role};
use proptest::prelude::{TestCaseError, prop_assert_eq};

use super::leaves_tile::leaves;
use crate::common::{Record, Walk};

fn depth_first(record: &Record) -> Vec<Option<u32>> {
    let mut text = Vec::new();
    for leaf in leaves(&record.tree) {
        let lane = record.tree.get(leaf);
        for offset in lane.range() {
            let token = record.canvas.get(offset);
            let stops = lane.role == Role::Generate && record.canvas.is_stop_at(offset);
            if token.is_none() || stops {
                return text;
            }
            text.push(token);
        }
    }
    text
}

/// AsyncLane §5: depth-first, refine child before generate child, each leaf cut at its first
/// mask, generate leaves also at the first stop token. With forced progress this is the
/// prefix up to the first mask or stop token.
pub fn check(walk: &Walk) -> Result<(), TestCaseError> {
    for record in &walk.steps {
        let canvas = &record.canvas;
        let prefix: Vec<_> =
            Offset::ZERO.to(canvas.emitted()).iter().map(|offset| canvas.get(offset)).collect();
        prop_assert_eq!(depth_first(record), prefix);
    }
    Ok(())
}
