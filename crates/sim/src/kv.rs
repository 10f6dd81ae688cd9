//! The physical KV store: one record per slot, with enough history to check who reads it.
//!
//! It simulates two layers. In the first a slot holds its token and position; in the second its
//! content depends on everything that its row saw. With one layer alone, stale K/V would go
//! unnoticed.

use step::{
    Batch, ExecuteError, PageCopy, PageId, Position, Row, Segment, Slot, TokenId, as_count,
    as_index,
};

use crate::check::error;
use crate::context::shallow;
use crate::hash::mix;

/// Content of a slot that was never written, where reading one is no error.
const POISON: u64 = 0xDEAD_5107;

/// The view of a row that saw no prefix of its slots.
const NO_VIEW: (Slot, u64) = (Slot::new(u32::MAX), 0);

/// The content of a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub token: TokenId,
    pub position: Position,
    /// Content in the second layer.
    deep: u64,
    /// End of the slots that its row saw, and the sum of their first-layer contents. A row that
    /// did not see a prefix has no such end: nobody shares its view.
    saw: (Slot, u64),
    /// Number of the sequence that wrote it; a page table gets a new number whenever its slots are
    /// rewritten from slot 0 on without a gap.
    lineage: u64,
    /// The forward pass that wrote it.
    pass: u64,
}

/// All slots of all pages.
#[derive(Debug)]
pub(crate) struct KvStore {
    slots: Vec<Option<Record>>,
    page_size: u32,
    mask: TokenId,
    lineages: u64,
}

/// Running sums over the visible slots of one segment: entry `v` covers slots `[0, v)`.
pub(crate) type Sums = Vec<u64>;

impl KvStore {
    pub(crate) fn new(pages: u32, page_size: u32, mask: TokenId) -> Self {
        let slots = vec![None; as_index(pages) * as_index(page_size)];
        Self { slots, page_size, mask, lineages: 0 }
    }

    /// Copies a whole page.
    pub(crate) fn copy(&mut self, copy: PageCopy) {
        let size = as_index(self.page_size);
        let (source, destination) = (copy.source.index() * size, copy.destination.index() * size);
        self.slots.copy_within(source..source + size, destination);
    }

    /// Erases the slots that the batch's rows would have written.
    pub(crate) fn poison(&mut self, batch: &Batch) {
        for segment in &batch.segments {
            for row in batch.rows_of(segment) {
                let index = self.index(batch.table_of(segment), row.slot);
                self.slots[index] = None;
            }
        }
    }

    /// First layer of one segment: writes every row's token and position.
    ///
    /// # Errors
    /// If `strict` and two rows of the pass write one slot.
    pub(crate) fn write(
        &mut self,
        rows: &[Row],
        table: &[PageId],
        pass: u64,
        strict: bool,
    ) -> Result<(), ExecuteError> {
        let lineage = self.lineage_of(rows, table);
        for row in rows {
            let index = self.index(table, row.slot);
            if strict && self.slots[index].is_some_and(|record| record.pass == pass) {
                return error(format!("{row:?}: another row of the batch writes its slot"));
            }
            self.slots[index] = Some(Record {
                token: row.token,
                position: row.position,
                deep: 0,
                saw: NO_VIEW,
                lineage,
                pass,
            });
        }
        Ok(())
    }

    /// Second layer of one segment: every row sums the content that it sees and writes its own.
    pub(crate) fn deepen(&mut self, rows: &[Row], table: &[PageId]) {
        let sums = self.sums(rows, table, |record| shallow(record.position, record.token));
        for row in rows {
            let sum = seen(&sums, row);
            let index = self.index(table, row.slot);
            if let Some(record) = &mut self.slots[index] {
                record.deep = mix(shallow(row.position, row.token), sum);
                record.saw = match row.sees_prefix() {
                    true => (row.visible_end, sum),
                    false => NO_VIEW,
                };
            }
        }
    }

    /// Sums of the second layer's content that the rows of a segment see.
    pub(crate) fn contents(&self, rows: &[Row], table: &[PageId]) -> Sums {
        self.sums(rows, table, |record| record.deep)
    }

    /// The known tokens in the slots that a row sees, with their positions.
    pub(crate) fn known(
        &self,
        table: &[PageId],
        row: &Row,
    ) -> impl Iterator<Item = (Position, TokenId)> {
        Slot::ZERO
            .to(row.reach())
            .iter()
            .filter(|slot| row.sees(*slot))
            .filter_map(move |slot| self.slots[self.index(table, slot)])
            .filter(|record| record.token != self.mask)
            .map(|record| (record.position, record.token))
    }

    /// Checks that every slot in the reach of a segment was written by its sequence, or by another
    /// one that had seen exactly the content of this table (a shared prefix), and that no position
    /// is seen twice: by all rows that see a prefix together, and by each other row.
    ///
    /// # Errors
    /// The first slot that fails the check.
    pub(crate) fn check_reads(&self, batch: &Batch, segment: &Segment) -> Result<(), ExecuteError> {
        let (rows, table) = (batch.rows_of(segment), batch.table_of(segment));
        let sums = self.sums(rows, table, |record| shallow(record.position, record.token));
        let mut reader = None;
        for slot in Slot::ZERO.to(reach(rows)) {
            let page = table[as_index(slot.block(self.page_size))];
            let Some(record) = self.slots[self.index(table, slot)] else {
                return error(format!("slot {slot} ({page:?}) is read and was never written"));
            };
            let reader = *reader.get_or_insert(record.lineage);
            let (end, sum) = record.saw;
            let same_view = sums.get(end.index()) == Some(&sum);
            if record.lineage != reader && !same_view {
                return error(format!("slot {slot} ({page:?}) is read and is another sequence's"));
            }
        }
        let prefixes = rows.iter().filter(|row| row.sees_prefix());
        let longest = prefixes.max_by_key(|row| row.visible_end);
        let others = rows.iter().filter(|row| !row.sees_prefix());
        longest.into_iter().chain(others).try_for_each(|row| self.check_positions(row, table))
    }

    /// Checks that a row sees no position twice.
    fn check_positions(&self, row: &Row, table: &[PageId]) -> Result<(), ExecuteError> {
        let slots = Slot::ZERO.to(row.reach()).iter();
        let mut seen: Vec<(Position, Slot)> = slots
            .filter(|slot| row.sees(*slot))
            .filter_map(|slot| Some((self.slots[self.index(table, slot)]?.position, slot)))
            .collect();
        seen.sort_unstable();
        match seen.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(&[(position, first), (_, second)]) => {
                error(format!("slots {first} and {second} both hold position {position}"))
            }
            _ => Ok(()),
        }
    }

    /// The sequence of these rows: that of slot 0, or a new one if the rows write slot 0, see no slot
    /// but their own, and differ from the content that its sequence left in their slots.
    fn lineage_of(&mut self, rows: &[Row], table: &[PageId]) -> u64 {
        let former = table.first();
        let former = former.and_then(|_| self.slots[self.index(table, Slot::ZERO)]);
        let own = as_count(rows.len());
        let starts =
            (0..).zip(rows).all(|(slot, row)| row.slot.get() == slot && row.reach().get() <= own);
        let contradicts = |row: &Row, lineage: u64| {
            self.slots[self.index(table, row.slot)].is_some_and(|old| {
                old.lineage == lineage
                    && (old.position != row.position
                        || (old.token != row.token
                            && old.token != self.mask
                            && row.token != self.mask))
            })
        };
        match former {
            Some(old) if !starts || !rows.iter().any(|row| contradicts(row, old.lineage)) => {
                old.lineage
            }
            _ => {
                self.lineages += 1;
                self.lineages
            }
        }
    }

    fn sums(&self, rows: &[Row], table: &[PageId], content: fn(&Record) -> u64) -> Sums {
        let mut sum = 0u64;
        let slots = Slot::ZERO.to(reach(rows)).iter().map(|slot| {
            let record = &self.slots[self.index(table, slot)];
            sum = sum.wrapping_add(record.as_ref().map_or(POISON, content));
            sum
        });
        std::iter::once(0).chain(slots).collect()
    }

    fn index(&self, table: &[PageId], slot: Slot) -> usize {
        let page = table[as_index(slot.block(self.page_size))];
        page.index() * as_index(self.page_size) + as_index(slot.in_block(self.page_size))
    }
}

/// End of the slots that any of the rows may see.
fn reach(rows: &[Row]) -> Slot {
    rows.iter().map(Row::reach).max().unwrap_or_default()
}

/// Sum over the slots that a row sees.
pub(crate) fn seen(sums: &Sums, row: &Row) -> u64 {
    let upto = |slot: Slot| sums[slot.index()];
    let beyond = row.visible_end.to(row.reach()).iter();
    let beyond = beyond.filter(|slot| row.sees(*slot));
    beyond.fold(upto(row.visible_end), |sum, slot| {
        sum.wrapping_add(upto(slot.next()).wrapping_sub(upto(slot)))
    })
}
