//! The context of a row: the known tokens of its visible slots, in order of position.

use step::{Position, TokenId};

use crate::hash::mix;
use crate::text::{HiddenText, Origin};

/// Distance up to which known tokens on either side of a position count.
const REACH: u8 = 8;

/// The known tokens, those that are not masks, among the visible slots.
#[derive(Debug, Default)]
pub(crate) struct Context {
    /// Known tokens by position, ascending.
    known: Vec<(Position, TokenId)>,
    /// The reader's origin before the known token of the same index, and one after the last.
    origins: Vec<Origin>,
}

impl Context {
    /// Replaces the known tokens; they may come in any order.
    pub(crate) fn fill(
        &mut self,
        text: &HiddenText,
        known: impl Iterator<Item = (Position, TokenId)>,
    ) {
        self.known.clear();
        self.known.extend(known);
        self.known.sort_unstable();
        self.origins.clear();
        let mut origin = text.origin();
        for &(position, token) in &self.known {
            self.origins.push(origin);
            origin = text.read(origin, position, token);
        }
        self.origins.push(origin);
    }

    /// The reader's origin after every known token left of a position.
    pub(crate) fn origin(&self, position: Position) -> Origin {
        self.origins[self.before(position)]
    }

    /// The shares of known tokens near a position, on its left and on its right, in `0.0..1.0`.
    pub(crate) fn support(&self, position: Position, decay: f64) -> (f64, f64) {
        let weight = |distance: u32| match u8::try_from(distance) {
            Ok(distance @ 1..=REACH) => (1.0 - decay) * decay.powi(i32::from(distance) - 1),
            _ => 0.0,
        };
        let (left, right) = self.known.split_at(self.before(position));
        let left = left.iter().rev().take(usize::from(REACH));
        let right = right.iter().take(usize::from(REACH) + 1);
        (
            left.map(|&(known, _)| weight(position.distance_from(known))).sum(),
            right.map(|&(known, _)| weight(known.distance_from(position))).sum(),
        )
    }

    fn before(&self, position: Position) -> usize {
        self.known.partition_point(|&(known, _)| known < position)
    }
}

/// A slot's content in the first layer: its token and position.
pub(crate) fn shallow(position: Position, token: TokenId) -> u64 {
    mix(mix(0x5A110, u64::from(position.get())), u64::from(token))
}
