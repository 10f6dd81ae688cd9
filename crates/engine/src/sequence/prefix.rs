//! Pages that a sequence leaves to the prefix cache.

use decode::as_index;

use super::Sequence;
use crate::pages::{Grid, PagePool};

impl Sequence {
    /// Leaves the pages that a step has sealed to sequences that begin with the same tokens.
    pub(super) fn remember(&mut self, grid: Grid, pages: &mut PagePool) {
        let (mut known, mut node) = self.kv.known;
        while grid.places(known).end <= self.kv.sealed {
            let places = grid.places(known);
            let tokens = places.iter().map(|place| self.token(place, &[]));
            let Some(tokens) = tokens.collect::<Option<Vec<_>>>() else {
                debug_assert!(false, "sealed places hold tokens");
                return;
            };
            let page = self.kv.tables.shared().pages()[as_index(known)];
            node = pages.remember(node, &tokens, page);
            known += 1;
        }
        self.kv.known = (known, node);
    }
}
