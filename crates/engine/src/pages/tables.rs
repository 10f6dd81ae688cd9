//! Page tables with copy on write, and the tables of a sequence: one for all its lanes, or one per
//! lane under fork snapshots.

use decode::{Decoder, Effect, LaneId, Role, Slot, Span, Status, TokenId, as_count, as_index};
use step::{PageCopy, PageId};

use super::pool::{OutOfPages, PagePool};
use super::prefix::{Grid, Node};
use crate::layout::{Layout, slot_of};

/// The physical pages of a sequence's (or lane's) slots, in logical order. Give it back with
/// [`PageTable::release`].
#[derive(Debug, Default)]
pub struct PageTable {
    pages: Vec<PageId>,
}

impl PageTable {
    /// The physical pages.
    pub fn pages(&self) -> &[PageId] {
        &self.pages
    }

    /// A table that shares the pages of the slots `[0, end)`.
    pub fn prefix(&self, end: Slot, pool: &mut PagePool) -> Self {
        let mut table = Self::default();
        table.take_over(self, end, pool);
        table
    }

    /// Puts the pages of the slots `[0, end)` of `other` into this table, which must be empty.
    pub fn take_over(&mut self, other: &Self, end: Slot, pool: &mut PagePool) {
        let count = as_index(pool.pages_of(end)).min(other.pages.len());
        self.pages.extend_from_slice(&other.pages[..count]);
        for page in &self.pages {
            pool.retain(*page);
        }
    }

    /// Puts the cached pages of the text `tokens` into this table, which must be empty. Returns
    /// their number and the text in them.
    pub fn recall(&mut self, tokens: &[TokenId], grid: Grid, pool: &mut PagePool) -> (u32, Node) {
        let (pages, node) = pool.prefixes.find(tokens, grid);
        for page in &pages {
            pool.retain(*page);
        }
        self.pages.extend_from_slice(&pages);
        (as_count(pages.len()), node)
    }

    /// Gives every page back.
    pub fn release(&mut self, pool: &mut PagePool) {
        for page in self.pages.drain(..) {
            pool.release(page);
        }
    }

    /// Makes room for the addresses of `pages` pages.
    pub fn reserve(&mut self, pages: u32) {
        self.pages.reserve(as_index(pages));
    }

    /// Makes the slots `[0, end)` addressable.
    ///
    /// # Errors
    /// If the sequence took more pages than it was promised.
    pub fn grow(&mut self, end: Slot, pool: &mut PagePool) -> Result<(), OutOfPages> {
        while self.pages.len() < as_index(pool.pages_of(end)) {
            self.pages.push(pool.take()?);
        }
        Ok(())
    }

    /// Makes this table the only owner of the pages under `slots`: a shared page is replaced by a
    /// fresh one, and `copies` gets the copy of its content.
    ///
    /// # Errors
    /// If the sequence took more pages than it was promised.
    pub fn own(
        &mut self,
        slots: Span<Slot>,
        pool: &mut PagePool,
        copies: &mut Vec<PageCopy>,
    ) -> Result<(), OutOfPages> {
        let first = as_index(slots.start.block(pool.page_size));
        let last = as_index(pool.pages_of(slots.end));
        for page in &mut self.pages[first..last] {
            if pool.references[page.index()] > 1 {
                let fresh = pool.take()?;
                copies.push(PageCopy { source: *page, destination: fresh });
                pool.release(*page);
                *page = fresh;
            }
        }
        Ok(())
    }
}

/// Page tables by lane, in order of birth; never empty. With one table for all lanes its key
/// is [`Tables::SHARED`].
#[derive(Debug)]
pub(crate) struct Tables {
    tables: Vec<(LaneId, PageTable)>,
    /// Tables of the branches of the forward under way, then empty ones that are reused.
    branches: Vec<PageTable>,
    /// Branches of the forward under way.
    tried: usize,
    private: bool,
    layout: Layout,
}

impl Tables {
    /// Key of the only table; the root lane's table under fork snapshots.
    pub(crate) const SHARED: LaneId = LaneId(0);

    /// No pages yet. `private`: lanes own tables.
    pub(crate) fn new(private: bool, layout: Layout) -> Self {
        Self {
            tables: vec![(Self::SHARED, PageTable::default())],
            branches: Vec::new(),
            tried: 0,
            private,
            layout,
        }
    }

    /// Makes room for the addresses of `pages` pages, so that growing allocates nothing.
    pub(crate) fn reserve(&mut self, pages: u32) {
        self.tables[0].1.reserve(pages);
    }

    /// The only table of a sequence whose lanes share it.
    pub(crate) fn shared(&mut self) -> &mut PageTable {
        &mut self.tables[0].1
    }

    /// All tables, for checks.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &PageTable> {
        let tables = self.tables.iter().map(|(_, table)| table);
        tables.chain(&self.branches)
    }

    /// Gives every page back.
    pub(crate) fn release(&mut self, pool: &mut PagePool) {
        for (_, table) in &mut self.tables {
            table.release(pool);
        }
        self.release_branches(pool);
    }

    fn release_branches(&mut self, pool: &mut PagePool) {
        for table in &mut self.branches[..self.tried] {
            table.release(pool);
        }
        self.tried = 0;
    }

    /// Follows births and ends of lanes: a child starts with its parent's K/V, a refine child with
    /// those up to its own end.
    pub(crate) fn observe(&mut self, effects: &[Effect], decoder: &Decoder, pool: &mut PagePool) {
        self.release_branches(pool);
        if !self.private || decoder.is_done() {
            return;
        }
        for effect in effects {
            if let Effect::Start { lane, parent: Some(parent), .. } = *effect {
                let end = self.visible_end(lane, decoder);
                let (_, inherited) = &self.tables[self.index(parent)];
                let table = inherited.prefix(end, pool);
                self.tables.push((lane, table));
            }
        }
        self.tables.retain_mut(|(lane, table)| {
            let status = decoder.tree().get(*lane).status;
            let live = matches!(status, Status::Active | Status::Waiting);
            if !live {
                table.release(pool);
            }
            live
        });
    }

    /// The table for a forward that rewrites `[0, end)`. No page is copied: all other tables give
    /// their pages back first and share the rewritten ones afterwards.
    ///
    /// # Errors
    /// If the sequence took more pages than it was promised.
    pub(crate) fn rewrite(
        &mut self,
        end: Slot,
        decoder: &Decoder,
        pool: &mut PagePool,
    ) -> Result<&[PageId], OutOfPages> {
        let last = self.tables.len() - 1;
        for (_, table) in &mut self.tables[..last] {
            table.release(pool);
        }
        self.tables[last].1.grow(end, pool)?;
        for index in 0..last {
            let end = self.visible_end(self.tables[index].0, decoder);
            self.tables[index].1 = self.tables[last].1.prefix(end, pool);
        }
        Ok(self.tables[last].1.pages())
    }

    /// The table of `lane` for rows that write into `slots` and see no further than its end.
    ///
    /// # Errors
    /// If the sequence took more pages than it was promised.
    pub(crate) fn write(
        &mut self,
        lane: LaneId,
        slots: Span<Slot>,
        pool: &mut PagePool,
        copies: &mut Vec<PageCopy>,
    ) -> Result<&[PageId], OutOfPages> {
        let index = self.index(lane);
        let table = &mut self.tables[index].1;
        table.grow(slots.end, pool)?;
        table.own(slots, pool, copies)?;
        Ok(table.pages())
    }

    /// A table for the rows of a branch, which write `slots`, ascending; given back with the step. If
    /// the rows see older slots too, the table shares the sequence's pages.
    ///
    /// # Errors
    /// If the sequence took more pages than it was promised.
    pub(crate) fn branch(
        &mut self,
        slots: impl DoubleEndedIterator<Item = Slot> + Clone,
        sees_older: bool,
        pool: &mut PagePool,
        copies: &mut Vec<PageCopy>,
    ) -> Result<&[PageId], OutOfPages> {
        if self.tried == self.branches.len() {
            self.branches.push(PageTable::default());
        }
        let table = &mut self.branches[self.tried];
        self.tried += 1;
        if sees_older {
            table.take_over(&self.tables[0].1, Slot::new(u32::MAX), pool);
        }
        let end = slots.clone().next_back().map_or(Slot::ZERO, Slot::next);
        table.grow(end, pool)?;
        // Row by row: a page between two rows is only read, and stays shared.
        for slot in slots {
            table.own(slot.to(slot.next()), pool, copies)?;
        }
        Ok(table.pages())
    }

    /// End of the slots that a lane can ever see: a refine lane sees nothing right of itself.
    fn visible_end(&self, lane: LaneId, decoder: &Decoder) -> Slot {
        let lane = decoder.tree().get(lane);
        match lane.role {
            Role::Refine => slot_of(self.layout.place_of(lane.range().end)),
            Role::Generate => Slot::new(u32::MAX),
        }
    }

    fn index(&self, lane: LaneId) -> usize {
        let found = self.tables.iter().position(|(key, _)| *key == lane);
        found.expect("every live lane has a table, by `observe`")
    }
}
