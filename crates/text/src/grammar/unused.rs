//! Names that an object does not have yet, where a schema restricts names.

use std::collections::BTreeMap;

use llguidance::Matcher;

use super::names::{Names, PendingName};
use super::table::{TokenTable, members};
use crate::TokenId;

/// Maximum states whose tokens are computed in one search; beyond it every way counts as one to a name.
const MAX_STATES: usize = 256;

/// A search for names after a state of the grammar.
pub(super) struct UnusedNames<'a> {
    /// In that state between two calls.
    matcher: Matcher,
    table: &'a TokenTable,
    /// By depth and bytes of a name that has begun: true if it can become a name that its object does not have.
    known: BTreeMap<(usize, Vec<u8>), bool>,
    states: usize,
}

impl<'a> UnusedNames<'a> {
    pub(super) fn new(matcher: Matcher, table: &'a TokenTable) -> Self {
        Self { matcher, table, known: BTreeMap::new(), states: 0 }
    }

    /// True if after `token` the text can go on without the name of a member that its object has. `names` are those
    /// behind the token.
    pub(super) fn follow(&mut self, token: TokenId, names: &Names) -> bool {
        let Some(name) = names.pending_name() else {
            return true;
        };
        let PendingName { depth, has_begun, written } = name;
        let key = has_begun.then(|| (depth, written.to_vec()));
        if let Some(known) = key.as_ref().and_then(|key| self.known.get(key)) {
            return *known;
        }
        if self.states >= MAX_STATES {
            return true;
        }
        self.states += 1;
        let is_found = match self.matcher.try_consume_tokens(&[token]) {
            Ok(1) => {
                let is_found = self.search(names);
                if self.matcher.rollback(1).is_err() {
                    self.states = MAX_STATES;
                }
                is_found
            }
            _ => true,
        };
        self.known.extend(key.map(|key| (key, is_found)));
        is_found
    }

    /// The same in the present state.
    fn search(&mut self, names: &Names) -> bool {
        let Ok(mask) = self.matcher.compute_mask() else {
            return true;
        };
        let mut ways = Vec::new();
        for token in members(mask.as_slice(), self.table.usable(false)) {
            let mut next = names.clone();
            if !next.read(self.table.bytes(token)) {
                continue;
            }
            if next.pending_name().is_none() {
                return true;
            }
            ways.push((token, next));
        }
        ways.iter().any(|(token, names)| self.follow(*token, names))
    }
}
