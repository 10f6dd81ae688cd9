//! Pages that a sequence finds, and pages that it leaves.

use decode::{Place, as_index};

use super::Sequence;
use crate::pages::{Grid, PagePool};

impl Sequence {
    /// Begins with the K/V of the prompt's first pages that other sequences have left.
    pub(crate) fn recall(&mut self, grid: Grid, pool: &mut PagePool) {
        let tokens = &self.request.prompt;
        self.known = self.tables.shared().recall(tokens, grid, pool);
        self.stats.cached_tokens = self.known.0 * grid.page_size;
        self.sealed = Place::new(self.stats.cached_tokens);
    }

    /// Leaves the pages that a step has sealed to sequences that begin with the same tokens.
    pub(crate) fn remember(&mut self, grid: Grid, pool: &mut PagePool) {
        let (mut known, mut node) = self.known;
        while grid.places(known).end <= self.sealed {
            let places = grid.places(known);
            let tokens = places.iter().map(|place| self.token(place, &[]));
            let Some(tokens) = tokens.collect::<Option<Vec<_>>>() else {
                debug_assert!(false, "sealed places hold tokens");
                return;
            };
            let page = self.tables.shared().pages()[as_index(known)];
            node = pool.remember(node, &tokens, page);
            known += 1;
        }
        self.known = (known, node);
    }
}
