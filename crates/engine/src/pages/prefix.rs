//! The prefix cache: sealed pages by the tokens in them and in all pages before them.
//!
//! Under causal attention the K/V of a sealed page depend on these tokens alone, under block-causal
//! attention also on the tokens up to the end of its last block. So another sequence that begins
//! with them reads the same bits. Whole tokens are compared, not only their hashes: two texts never
//! share a page by accident.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use decode::{Place, Span, TokenId};
use step::PageId;

/// A text of whole pages that is or was in the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Node(u64);

/// The division of places into pages and blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Slots of a page.
    pub page_size: u32,
    /// Positions of a block; 1 under causal attention.
    pub block: u32,
}

impl Grid {
    /// The places whose tokens the K/V of a page depend on, in addition to all tokens before the page.
    pub fn places(self, page: u32) -> Span<Place> {
        let (begin, end) = (page * self.page_size, (page + 1) * self.page_size);
        Place::new(begin).to(Place::new(end.next_multiple_of(self.block)))
    }
}

/// The text before a page, and the tokens of [`Grid::places`].
type Key = (Node, Arc<[TokenId]>);

#[derive(Clone, Debug)]
struct Entry {
    node: Node,
    page: PageId,
    used: u64,
}

/// Pages by their texts and by their last use.
#[derive(Clone, Debug, Default)]
pub(crate) struct PrefixCache {
    entries: HashMap<Key, Entry>,
    by_use: BTreeMap<u64, Key>,
    nodes: u64,
    clock: u64,
}

impl PrefixCache {
    /// The cached pages that hold the beginning of `tokens`, and the text in them.
    pub(crate) fn find(&mut self, tokens: &[TokenId], grid: Grid) -> (Vec<PageId>, Node) {
        let mut keys = Vec::new();
        let (mut pages, mut node) = (Vec::new(), Node::default());
        for page in 0.. {
            let places = grid.places(page);
            let Some(page_tokens) = tokens.get(places.start.index()..places.end.index()) else {
                break;
            };
            let key = (node, Arc::from(page_tokens));
            let Some(entry) = self.entries.get(&key) else {
                break;
            };
            pages.push(entry.page);
            node = entry.node;
            keys.push(key);
        }
        // The last page becomes the oldest: pages leave in reverse order of their text.
        for key in keys.iter().rev() {
            self.touch(key);
        }
        (pages, node)
    }

    /// Remembers a page that depends on `tokens` after the text `before`. Returns the text up to
    /// there, and whether the page is new: another page may hold the same.
    pub(crate) fn insert(
        &mut self,
        before: Node,
        tokens: &[TokenId],
        page: PageId,
    ) -> (Node, bool) {
        let key = (before, Arc::from(tokens));
        if let Some(entry) = self.entries.get(&key) {
            let node = entry.node;
            self.touch(&key);
            return (node, false);
        }
        self.nodes += 1;
        self.clock += 1;
        let (node, used) = (Node(self.nodes), self.clock);
        self.by_use.insert(used, key.clone());
        self.entries.insert(key, Entry { node, page, used });
        (node, true)
    }

    /// Forgets the least recently used page among those that `may_go`.
    pub(crate) fn forget(&mut self, may_go: impl Fn(PageId) -> bool) -> Option<PageId> {
        let page = |key: &Key| self.entries[key].page;
        let (used, key) = self.by_use.iter().find(|(_, key)| may_go(page(key)))?;
        let (used, key) = (*used, key.clone());
        self.by_use.remove(&used);
        self.entries.remove(&key).map(|entry| entry.page)
    }

    /// Every page, for checks.
    pub(crate) fn pages(&self) -> impl Iterator<Item = PageId> {
        self.entries.values().map(|entry| entry.page)
    }

    fn touch(&mut self, key: &Key) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        self.by_use.remove(&entry.used);
        self.clock += 1;
        entry.used = self.clock;
        self.by_use.insert(entry.used, key.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(ids: &[u32]) -> Vec<PageId> {
        ids.iter().map(|id| PageId(*id)).collect()
    }

    const PAIRS: Grid = Grid { page_size: 2, block: 1 };

    #[test]
    fn a_text_is_found_by_its_whole_pages() {
        let mut cache = PrefixCache::default();
        let (first, fresh) = cache.insert(Node::default(), &[1, 2], PageId(7));
        assert!(fresh);
        let (second, _) = cache.insert(first, &[3, 4], PageId(8));
        assert_eq!(cache.find(&[1, 2, 3, 4, 5], PAIRS), (pages(&[7, 8]), second));
        assert_eq!(cache.find(&[1, 2, 3], PAIRS), (pages(&[7]), first));
        // The same tokens after another text are another page.
        assert_eq!(cache.find(&[3, 4], PAIRS).0, pages(&[]));
        assert_eq!(cache.insert(first, &[3, 4], PageId(9)), (second, false));
    }

    /// Pages of two, blocks of three: the second page sees places 4 and 5 as well.
    #[test]
    fn a_page_is_found_by_its_last_block_too() {
        let grid = Grid { page_size: 2, block: 3 };
        let places = [0, 1, 2].map(|page| {
            let places = grid.places(page);
            places.start.get()..places.end.get()
        });
        assert_eq!(places, [0..3, 2..6, 4..6]);
        let mut cache = PrefixCache::default();
        let (first, _) = cache.insert(Node::default(), &[1, 2, 3], PageId(7));
        cache.insert(first, &[3, 4, 5, 6], PageId(8));
        assert_eq!(cache.find(&[1, 2, 3, 4, 5, 6], grid).0, pages(&[7, 8]));
        assert_eq!(cache.find(&[1, 2, 3, 4, 5, 9], grid).0, pages(&[7]));
        assert_eq!(cache.find(&[1, 2, 3, 4, 5], grid).0, pages(&[7]));
    }

    #[test]
    fn the_longest_text_that_nobody_used_leaves_first() {
        let mut cache = PrefixCache::default();
        let (first, _) = cache.insert(Node::default(), &[1, 2], PageId(1));
        cache.insert(first, &[3, 4], PageId(2));
        cache.insert(Node::default(), &[5, 6], PageId(3));
        cache.find(&[1, 2, 3, 4], PAIRS);
        assert_eq!(cache.forget(|_| true), Some(PageId(3)));
        assert_eq!(cache.forget(|page| page != PageId(2)), Some(PageId(1)));
        assert_eq!(cache.forget(|_| true), Some(PageId(2)));
        assert_eq!(cache.forget(|_| true), None);
    }
}
