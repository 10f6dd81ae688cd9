//! The physical KV store: one record per slot, with enough history to know who may read it.
//!
//! Two layers are simulated, because one would be too forgiving: what a slot holds in the first
//! is its token and position, what it holds in the second depends on everything its row saw.

use step::{Batch, ExecuteError, PageCopy, PageId, Row, Segment, TokenId};

use crate::check::{error, rows_of, table_of};
use crate::context::shallow;
use crate::hash::mix;

/// Stands for a record that was never written, where reading one is not an error.
const POISON: u64 = 0xDEAD_5107;

/// What a slot holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub token: TokenId,
    pub position: u32,
    /// The second layer's content.
    deep: u64,
    /// How many slots its row saw, and the sum of their first-layer contents.
    saw: (u32, u64),
    /// Who wrote it: a number given to a table whenever its slots are written anew from 0 on,
    /// without a gap.
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
        let slots = vec![None; pages as usize * page_size as usize];
        Self {
            slots,
            page_size,
            mask,
            lineages: 0,
        }
    }

    /// Copies a whole page.
    pub(crate) fn copy(&mut self, copy: PageCopy) {
        let size = self.page_size as usize;
        let (from, to) = (copy.from.0 as usize * size, copy.to.0 as usize * size);
        self.slots.copy_within(from..from + size, to);
    }

    /// Forgets what the batch's rows would have written.
    pub(crate) fn poison(&mut self, batch: &Batch) {
        for segment in &batch.segments {
            for row in rows_of(batch, segment) {
                let index = self.index(table_of(batch, segment), row.slot);
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
                saw: (u32::MAX, 0),
                lineage,
                pass,
            });
        }
        Ok(())
    }

    /// Second layer of one segment: every row sums what it sees and writes what follows from it.
    pub(crate) fn deepen(&mut self, rows: &[Row], table: &[PageId]) {
        let sums = self.sums(rows, table, |record| shallow(record.position, record.token));
        for row in rows {
            let sum = sums[row.visible as usize];
            let index = self.index(table, row.slot);
            if let Some(record) = &mut self.slots[index] {
                record.deep = mix(shallow(row.position, row.token), sum);
                record.saw = (row.visible, sum);
            }
        }
    }

    /// What each row of a segment sees in the second layer.
    pub(crate) fn contents(&self, rows: &[Row], table: &[PageId]) -> Sums {
        self.sums(rows, table, |record| record.deep)
    }

    /// The known tokens in slots `[0, visible)` with their positions.
    pub(crate) fn known(
        &self,
        table: &[PageId],
        visible: u32,
    ) -> impl Iterator<Item = (u32, TokenId)> {
        (0..visible)
            .filter_map(move |slot| self.slots[self.index(table, slot)])
            .filter(|record| record.token != self.mask)
            .map(|record| (record.position, record.token))
    }

    /// Checks that every slot a segment sees was written by its sequence, or by another one that
    /// had seen exactly what this table holds (a shared prefix), and that no position is seen
    /// twice.
    ///
    /// # Errors
    /// The first slot for which this does not hold.
    pub(crate) fn check_reads(&self, batch: &Batch, segment: &Segment) -> Result<(), ExecuteError> {
        let (rows, table) = (rows_of(batch, segment), table_of(batch, segment));
        let sums = self.sums(rows, table, |record| shallow(record.position, record.token));
        let mut seen = Vec::with_capacity(sums.len());
        let mut reader = None;
        for slot in 0..sums.len() as u32 - 1 {
            let page = table[(slot / self.page_size) as usize];
            let Some(record) = self.slots[self.index(table, slot)] else {
                return error(format!(
                    "slot {slot} ({page:?}) is read and was never written"
                ));
            };
            let reader = *reader.get_or_insert(record.lineage);
            let (visible, sum) = record.saw;
            let same_view = sums.get(visible as usize) == Some(&sum);
            if record.lineage != reader && !same_view {
                return error(format!(
                    "slot {slot} ({page:?}) is read and is another sequence's"
                ));
            }
            seen.push((record.position, slot));
        }
        seen.sort_unstable();
        match seen.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(&[(position, first), (_, second)]) => error(format!(
                "slots {first} and {second} both hold position {position}"
            )),
            _ => Ok(()),
        }
    }

    /// Whose rows these are: the owner of slot 0, or a new one if the rows write slot 0 and
    /// contradict what stands in the slots of its former owner.
    fn lineage_of(&mut self, rows: &[Row], table: &[PageId]) -> u64 {
        let former = table.first().and_then(|_| self.slots[self.index(table, 0)]);
        let starts = (0..).zip(rows).all(|(slot, row)| row.slot == slot);
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
        let visible = rows.iter().map(|row| row.visible).max().unwrap_or(0);
        let mut sum = 0u64;
        let slots = (0..visible).map(|slot| {
            let record = &self.slots[self.index(table, slot)];
            sum = sum.wrapping_add(record.as_ref().map_or(POISON, content));
            sum
        });
        std::iter::once(0).chain(slots).collect()
    }

    fn index(&self, table: &[PageId], slot: u32) -> usize {
        let page = table[(slot / self.page_size) as usize].0 as usize;
        page * self.page_size as usize + (slot % self.page_size) as usize
    }
}
