//! Pages that a sequence finds, and pages that it leaves.

use super::Sequence;
use crate::pages::{Grid, PagePool};

impl Sequence {
    /// Begins with the K/V of the prompt's first pages that other sequences have left.
    pub(crate) fn recall(&mut self, grid: Grid, pool: &mut PagePool) {
        let tokens = &self.request.prompt;
        self.known = self.tables.shared().recall(tokens, grid, pool);
        self.sealed = self.known.0 * grid.page_size;
        self.stats.cached_tokens = self.sealed;
    }

    /// Leaves the pages that a step has sealed to sequences that begin with the same tokens.
    pub(crate) fn remember(&mut self, grid: Grid, pool: &mut PagePool) {
        let (mut known, mut node) = self.known;
        while grid.places(known).end <= self.sealed {
            let places = grid.places(known);
            let tokens = places.map(|place| self.token(place, &[]));
            let Some(tokens) = tokens.collect::<Option<Vec<_>>>() else {
                debug_assert!(false, "sealed places hold tokens");
                return;
            };
            let page = self.tables.shared().pages()[known as usize];
            node = pool.remember(node, &tokens, page);
            known += 1;
        }
        self.known = (known, node);
    }
}
