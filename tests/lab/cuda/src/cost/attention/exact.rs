//! Attention in f32: a block has one query. It reads the keys that the query sees, and all values below
//! its reach.

use super::super::{Launch, LaunchCost, SECTOR, Words, sectors};
use super::{Attention, Blocks, SCALES, Tile, VISIBLE_WORDS};
use kernels::device::args;
use std::collections::BTreeMap;
use std::ops::Range;

/// True if a row sees a slot; as `visible` of the kernels.
fn sees([begin, end, low, high]: [u32; VISIBLE_WORDS], slot: u64) -> bool {
    match slot.checked_sub(end.into()) {
        None => slot >= u64::from(begin),
        Some(bit) => bit < 64 && (u64::from(high) << 32 | u64::from(low)) >> bit & 1 == 1,
    }
}

/// Slots that are seen, and sectors of their scales.
struct Sight {
    keys: u64,
    scales: u64,
}

impl Sight {
    fn of(seen: &[bool]) -> Self {
        let some = |slots: &&[bool]| slots.contains(&true);
        Self {
            keys: seen.iter().filter(|seen| **seen).count() as u64,
            scales: seen.chunks(SCALES as usize).filter(some).count() as u64,
        }
    }
}

/// The keys and values of a table that are read, by slot.
#[derive(Default)]
struct Table {
    keys: Vec<bool>,
    /// Slots from 0 on.
    values: u64,
}

/// A run of attention: what it moves, and the slots of every table.
struct Exact<'a> {
    all: Attention<'a>,
    tables: BTreeMap<u64, Table>,
    /// Distinct queries that are read.
    queries: u64,
}

impl Exact<'_> {
    /// The parts of a row, for all of its heads.
    fn row(&mut self, tile: &Tile, row: u64) {
        let reach = u64::from(tile.reaches[row as usize]);
        let [heads, c] = [self.all.a.heads.heads, self.all.a.heads.c].map(u64::from);
        let span = tile.span;
        let parts = reach.div_ceil(span).max(1);
        let mut looked = false;
        for part in 0..parts {
            let begin = part * span;
            let slots = begin..reach.min(begin + span);
            let Sight { keys, scales } = self.slots(tile, row, &slots);
            let (kv, scales) = (self.all.kv, self.all.scaled(2 * heads * scales));
            let read = &mut self.all.read;
            // A block whose query sees none of the slots does not read it.
            read.put(c * 4, heads * u64::from(keys > 0), 0);
            read.put(c * kv, heads * (keys + slots.end - slots.start), 0);
            read.put(SECTOR, scales, 0);
            looked |= keys > 0;
            self.all.cost.operations += 4.0 * (heads * (slots.end - slots.start) * c) as f64;
            let blocks = Blocks {
                count: heads,
                part,
                queries: row..row + 1,
                share: 1,
                looks: tile.holes && !slots.is_empty(),
                slots,
            };
            self.all.lists(tile, &blocks);
            match tile.is_long(row) {
                true => self.all.parts(tile, &blocks, part + 1 == parts),
                false => self.all.written.put(c * 4, heads, heads),
            }
        }
        self.queries += heads * u64::from(looked);
        // Blocks of the row after its last part.
        let lists = &mut self.all.lists;
        lists.touch(tile.address, super::TILE_WORDS as u64 * 4);
        lists.touch(self.all.a.rows.reaches + (tile.row + row) * 4, 4);
        lists.end_all(heads * (self.all.grid[2] - parts));
    }

    /// The part of these slots that a row reads.
    fn slots(&mut self, tile: &Tile, row: u64, slots: &Range<u64>) -> Sight {
        let table = self.tables.entry(tile.pages).or_default();
        table.values = table.values.max(slots.end);
        let least = table.keys.len().max(slots.end as usize);
        table.keys.resize(least, false);
        let visible = tile.visible[row as usize];
        let mut seen = vec![false; slots.end as usize];
        for slot in slots.clone() {
            if !tile.holes || sees(visible, slot) {
                table.keys[slot as usize] = true;
                seen[slot as usize] = true;
            }
        }
        Sight::of(&seen)
    }
}

impl Launch {
    /// Attention with a warp for every query.
    pub(in super::super) fn attend_exact(
        &self,
        a: &args::Attend,
        words: Words<'_>,
    ) -> Option<LaunchCost> {
        let (all, tiles) = self.attention(a, words)?;
        let mut exact = Exact { all, tables: BTreeMap::new(), queries: 0 };
        let [heads, groups, c] = [a.heads.heads, a.heads.num_kv_heads, a.heads.c].map(u64::from);
        for tile in &tiles {
            (0..tile.rows).for_each(|row| exact.row(tile, row));
            let [_, rows, parts] = exact.all.grid;
            exact.all.idle(tile, (rows - tile.rows * heads) * parts);
        }
        let Exact { mut all, tables, queries } = exact;
        let seen = |table: &Table| Sight::of(&table.keys);
        let held = tables.values().map(|table| seen(table).keys + table.values);
        let rows = held.sum::<u64>() * groups;
        let scales: u64 = tables.values().map(|table| seen(table).scales).sum();
        let (kv, scales) = (all.kv, all.scaled(2 * scales * groups));
        all.read.put(c * 4, 0, queries);
        all.read.put(c * kv, 0, rows);
        all.read.put(SECTOR, 0, scales);
        let mut cost = all.end(0);
        cost.fresh = sectors(c * kv) * rows + scales;
        Some(cost)
    }
}
