//! What one row sees: the known tokens of its visible slots, in order of position.

use step::{Position, TokenId};

use crate::hash::mix;
use crate::text::{HiddenText, Origin};

/// How far to either side of a position known tokens are felt.
const REACH: u8 = 8;

/// The known (not masked) tokens among some visible slots.
#[derive(Debug, Default)]
pub(crate) struct Context {
    /// Known tokens by position, ascending.
    known: Vec<(Position, TokenId)>,
    /// Where the text's reader stands before the known token of the same index; one more at the
    /// end.
    origins: Vec<Origin>,
}

impl Context {
    /// Takes over the known tokens of the visible slots, in any order.
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

    /// Where the reader stands after everything known left of a position.
    pub(crate) fn origin(&self, position: Position) -> Origin {
        self.origins[self.before(position)]
    }

    /// How much of the near left is known, and of the near right, each in `0.0..1.0`.
    pub(crate) fn support(&self, position: Position, decay: f64) -> (f64, f64) {
        let weight = |distance: u32| match u8::try_from(distance) {
            Ok(distance @ 1..=REACH) => (1.0 - decay) * decay.powi(i32::from(distance) - 1),
            _ => 0.0,
        };
        let (left, right) = self.known.split_at(self.before(position));
        let left = left.iter().rev().take(usize::from(REACH));
        let right = right.iter().take(usize::from(REACH) + 1);
        (
            left.map(|&(known, _)| weight(position.distance_from(known)))
                .sum(),
            right
                .map(|&(known, _)| weight(known.distance_from(position)))
                .sum(),
        )
    }

    fn before(&self, position: Position) -> usize {
        self.known.partition_point(|&(known, _)| known < position)
    }
}

/// What a slot's first-layer K/V holds: its token and position.
pub(crate) fn shallow(position: Position, token: TokenId) -> u64 {
    mix(mix(0x5A110, u64::from(position.get())), u64::from(token))
}
