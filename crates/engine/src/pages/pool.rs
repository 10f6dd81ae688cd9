//! The pool of KV pages: a free list with reference counts, and the promises to sequences.

use decode::{Slot, TokenId, as_count, as_index};
use step::PageId;

use super::prefix::{Grid, Node, PrefixCache};

/// The physical pages of the executor. A sequence's worst case is promised to it when it starts, so
/// that taking a page never fails and a running sequence never waits for one.
#[derive(Clone, Debug)]
pub struct PagePool {
    free: Vec<PageId>,
    pub(super) references: Vec<u32>,
    reserved: u32,
    pub(super) page_size: u32,
    pub(super) prefixes: PrefixCache,
    /// The dependence of pages on tokens, if sequences share prefixes.
    shared: Option<Grid>,
    /// True if the prefix cache holds a page.
    cached: Vec<bool>,
    /// Pages that the prefix cache alone holds.
    idle: u32,
}

impl PagePool {
    /// `pages` free pages of `page_size` slots; `shared`: their dependence on tokens, if sequences
    /// share prefixes.
    pub fn new(pages: u32, page_size: u32, shared: Option<Grid>) -> Self {
        Self {
            free: (0..pages).rev().map(PageId).collect(),
            references: vec![0; as_index(pages)],
            reserved: 0,
            page_size,
            prefixes: PrefixCache::default(),
            shared,
            cached: vec![false; as_index(pages)],
            idle: 0,
        }
    }

    /// The dependence of pages on tokens, if sequences share prefixes.
    pub fn shared_prefixes(&self) -> Option<Grid> {
        self.shared
    }

    /// All pages.
    pub fn total(&self) -> u32 {
        as_count(self.references.len())
    }

    /// Pages that sequences hold.
    pub fn used(&self) -> u32 {
        self.total() - as_count(self.free.len()) - self.idle
    }

    /// Pages that the prefix cache alone holds; a sequence that needs one takes it.
    pub fn idle(&self) -> u32 {
        self.idle
    }

    /// Promises `pages` pages; false if that many are not left.
    pub fn reserve(&mut self, pages: u32) -> bool {
        let fits = self.reserved + pages <= self.total();
        if fits {
            self.reserved += pages;
        }
        fits
    }

    /// Takes a promise back.
    pub fn unreserve(&mut self, pages: u32) {
        self.reserved -= pages;
    }

    /// Pages that hold the slots `[0, end)`.
    pub(super) fn pages_of(&self, end: Slot) -> u32 {
        end.get().div_ceil(self.page_size)
    }

    pub(super) fn take(&mut self) -> Result<PageId, OutOfPages> {
        let free = self.free.pop().or_else(|| self.forget());
        let page = free.ok_or(OutOfPages)?;
        self.references[page.index()] = 1;
        Ok(page)
    }

    /// Takes a page that the prefix cache alone holds.
    fn forget(&mut self) -> Option<PageId> {
        let references = &self.references;
        let page = self.prefixes.forget(|page| references[page.index()] == 1)?;
        self.cached[page.index()] = false;
        self.idle -= 1;
        Some(page)
    }

    pub(super) fn retain(&mut self, page: PageId) {
        let index = page.index();
        self.idle -= u32::from(self.cached[index] && self.references[index] == 1);
        self.references[index] += 1;
    }

    pub(super) fn release(&mut self, page: PageId) {
        let index = page.index();
        self.references[index] -= 1;
        match self.references[index] {
            0 => self.free.push(page),
            1 if self.cached[index] => self.idle += 1,
            _ => {}
        }
    }

    /// Remembers that `page`, which a table holds, has final K/V that depend on `tokens` after the
    /// text `before`. Returns the text up to there.
    pub fn remember(&mut self, before: Node, tokens: &[TokenId], page: PageId) -> Node {
        let (node, fresh) = self.prefixes.insert(before, tokens, page);
        if fresh && !self.cached[page.index()] {
            self.cached[page.index()] = true;
            self.references[page.index()] += 1;
        }
        node
    }

    /// Checks the reference counts against the pages of all tables that exist; for tests.
    ///
    /// # Errors
    /// The first disagreement, in words.
    pub fn validate<'a>(
        &self,
        pages: impl Iterator<Item = &'a PageId>,
    ) -> Result<(), &'static str> {
        let mut counted = vec![0; self.references.len()];
        for page in pages {
            counted[page.index()] += 1;
        }
        let mut idle = 0;
        for page in self.prefixes.pages() {
            idle += u32::from(counted[page.index()] == 0);
            counted[page.index()] += 1;
        }
        if idle != self.idle {
            return Err("the count of idle pages is wrong");
        }
        if counted != self.references {
            return Err("reference counts differ from the tables that exist");
        }
        let unused = counted.iter().filter(|count| **count == 0).count();
        if unused != self.free.len() {
            return Err("the free list does not hold exactly the pages without reference");
        }
        if self.used() > self.reserved {
            return Err("more pages are in use than were promised");
        }
        Ok(())
    }
}

/// A broken promise: a sequence took more pages than its worst case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sequence outgrew the KV pages reserved for it")]
pub struct OutOfPages;
