//! Attention and the combination of its partitions.

use super::super::attention::{ATTEND, CHUNK, PARTITION, WIDTHS};
use super::super::batch::TILE_WORDS;
use super::super::{Kernel, args};
use super::{Launch, LaunchCost, PASS, SECTOR, Sum, Words, sectors};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

/// Heads of a block that combines partitions.
const HEADS: usize = 4;

/// The sector of the two sums of a query and partition, `[queries, partitions, 2]`.
fn sum_sector(query: u64, partition: u64, partitions: u32) -> u64 {
    (query * u64::from(partitions) + partition) * 8 / SECTOR
}

/// Adds what tensor cores compute for chunks of slots with all queries of a block of `threads`
/// threads, in a kernel for heads of `width` elements.
fn chunks_on_tensor_cores(cost: &mut LaunchCost, chunks: u64, [width, threads]: [u64; 2]) {
    // A warp has sixteen queries.
    let (warps, chunk) = (threads / 32, u64::from(CHUNK));
    let weights = (chunks * chunk * warps * 16) as f64;
    let tensor = 4.0 * weights * width as f64;
    // Keys and values are copied and loaded by every warp; queries are loaded once.
    let rows = (chunks * (2 * chunk * (1 + warps) + warps * 16)) as f64;
    let moved = rows * (width * 2) as f64;
    cost.tensor += tensor;
    cost.passes += moved / PASS as f64;
    // Products, copies and loads, and about ten operations for a weight of a lane.
    cost.instructions += tensor / 4096.0 + moved / 512.0 + 10.0 * weights / 32.0;
}

/// The work of a launch of attention, tile by tile.
struct Attention<'a> {
    a: &'a args::Attend,
    kernel: Kernel,
    /// Bytes of an element.
    wide: u64,
    /// The width of the heads that the kernel is for, on tensor cores.
    width: Option<u64>,
    /// The row of the first tile.
    first: u64,
    cost: LaunchCost,
    read: Sum,
    written: Sum,
    /// Sectors of the sums of partitions.
    sums: BTreeSet<u64>,
    /// The most slots of every table of pages.
    longest: BTreeMap<u64, u64>,
    rows: u64,
}

impl Attention<'_> {
    /// Blocks of one run of queries: on tensor cores a block has all heads of a group; otherwise one.
    fn across(&self) -> u64 {
        u64::from(match self.width {
            Some(_) => self.a.groups,
            None => self.a.heads,
        })
    }

    fn tile(&mut self, tile: [u32; TILE_WORDS], reaches: &[u32]) {
        let [row, count, pages, reach, holes] = tile.map(u64::from);
        let [heads, c, page] = [self.a.heads, self.a.c, self.a.page].map(u64::from);
        self.rows += count;
        let most = self.longest.entry(pages).or_default();
        *most = reach.max(*most);
        let runs = if self.width.is_some() { 1 } else { count };
        let blocks = self.across() * runs;
        // Rows with one partition have results instead of sums.
        let long = |query: &u64| reaches[*query as usize] as usize > PARTITION;
        let partial = (0..count).filter(long).count() as u64;
        let whole = (count - partial) * heads;
        let mut written = take(&mut self.written).add(c * self.wide, whole, whole);
        let mut read = take(&mut self.read);
        for begin in (0..reach).step_by(PARTITION) {
            let slots = (reach - begin).min(PARTITION as u64);
            read = read
                .add(c * self.wide, count * heads, 0)
                .add(c * self.wide, 2 * slots * blocks, 0)
                .add(slots.div_ceil(page) * 4, blocks, 0)
                .add(SECTOR, 2 * blocks, 0);
            if holes != 0 {
                read = read.add(count * 16, blocks, 0);
            }
            written = written.add(c * 4, partial * heads, partial * heads);
            let partition = begin / PARTITION as u64;
            let queries = (0..count)
                .filter(long)
                .map(|query| row - self.first + query);
            written = self.partition(partition, queries.collect(), written);
            self.cost.operations += 4.0 * (count * heads * slots * c) as f64;
            if let Some(width) = self.width {
                let chunks = slots.div_ceil(CHUNK.into()) * blocks;
                let threads = self.kernel.threads.into();
                chunks_on_tensor_cores(&mut self.cost, chunks, [width, threads]);
            }
        }
        (self.read, self.written) = (read, written);
    }

    /// The two sums of every query of a partition; `rows` count from the first tile's row.
    fn partition(&mut self, partition: u64, rows: Vec<u64>, mut written: Sum) -> Sum {
        let (heads, across) = (u64::from(self.a.heads), self.across());
        let share = heads / across;
        let mut block = BTreeSet::new();
        for of in 0..across {
            for row in &rows {
                for head in of * share..(of + 1) * share {
                    let query = row * heads + head;
                    block.insert(sum_sector(query, partition, self.a.partitions));
                    if self.width.is_none() {
                        written = written.add(SECTOR, 1, 0);
                    }
                }
            }
            if self.width.is_some() {
                written = written.add(SECTOR, block.len() as u64, 0);
            }
            self.sums.append(&mut block);
        }
        written
    }

    fn end(mut self, tiles: u64) -> LaunchCost {
        let [heads, groups, c, page] =
            [self.a.heads, self.a.groups, self.a.c, self.a.page].map(u64::from);
        let slots: u64 = self.longest.values().sum();
        let tables = self.longest.values();
        let tables: u64 = tables.map(|reach| sectors(reach.div_ceil(page) * 4)).sum();
        let read = self
            .read
            .add(c * self.wide, 0, self.rows * heads)
            .add(c * self.wide, 0, 2 * slots * groups)
            .add(SECTOR, 0, tables + sectors(self.rows * 4))
            .add(tiles, 0, TILE_WORDS as u64 * 4 / 32);
        self.cost.read = read.0;
        self.cost.fresh = sectors(c * self.wide) * 2 * slots * groups;
        self.cost.written = self.written.add(SECTOR, 0, self.sums.len() as u64).0;
        self.cost
    }
}

impl Launch {
    pub(super) fn attend(
        &self,
        a: &args::Attend,
        kernel: Kernel,
        words: Words<'_>,
    ) -> Option<LaunchCost> {
        let tiles = words(a.tiles, self.grid[0] as usize * TILE_WORDS)?;
        let width = ATTEND
            .iter()
            .position(|kernels| kernels.iter().any(|one| one.name == kernel.name));
        let mut all = Attention {
            a,
            kernel,
            wide: self.wide,
            width: width.map(|at| WIDTHS[at] as u64),
            first: u64::from(*tiles.first()?),
            cost: LaunchCost::default(),
            read: Sum::default(),
            written: Sum::default(),
            sums: BTreeSet::new(),
            longest: BTreeMap::new(),
            rows: 0,
        };
        for tile in tiles.as_chunks::<TILE_WORDS>().0 {
            let reaches = words(a.reaches + u64::from(tile[0]) * 4, tile[1] as usize)?;
            all.tile(*tile, &reaches);
        }
        Some(all.end(self.grid[0].into()))
    }

    pub(super) fn combine(&self, a: &args::Combine, words: Words<'_>) -> Option<LaunchCost> {
        let tiles = words(a.tiles, TILE_WORDS)?;
        let end = match a.rows {
            0 => *words(a.tiles + u64::from(a.count) * TILE_WORDS as u64 * 4, 1)?.first()?,
            rows => rows,
        };
        let first = *tiles.first()?;
        let reaches = words(a.reaches, end as usize)?;
        let [heads, c] = [a.heads, a.c].map(u64::from);
        let (mut read, mut written) = (Sum::default(), Sum::default());
        let (mut sums, mut block) = (BTreeSet::new(), BTreeSet::new());
        // The first tile, the one after the last, the row's reach.
        let last = (a.tiles + u64::from(a.count) * TILE_WORDS as u64 * 4) / SECTOR;
        let tiles = 1 + u64::from(a.rows == 0 && last != a.tiles / SECTOR);
        let rows = &reaches[first as usize..];
        for (row, reach) in (0..).zip(rows) {
            // Rows with one partition have their results.
            let count = match u64::from(*reach).div_ceil(PARTITION as u64) {
                0 | 1 => {
                    let blocks = heads.div_ceil(HEADS as u64);
                    read = read.add(SECTOR, blocks * (tiles + 1), 0);
                    continue;
                }
                count => count,
            };
            read = read.add(c * 4, count * heads, count * heads);
            written = written.add(c * self.wide, heads, heads);
            for begin in (0..heads).step_by(HEADS) {
                for head in begin..heads.min(begin + HEADS as u64) {
                    let at = |part| sum_sector(row * heads + head, part, a.partitions);
                    block.extend((0..count).map(at));
                }
                read = read.add(SECTOR, block.len() as u64 + tiles + 1, 0);
                sums.append(&mut block);
            }
        }
        let reaches = sectors(rows.len() as u64 * 4);
        read = read.add(SECTOR, 0, sums.len() as u64 + tiles + reaches);
        // The grid has as many rows as the tiles may have.
        let [most, across] = [self.grid[0], self.grid[1]].map(u64::from);
        read = read.add(
            SECTOR,
            most.saturating_sub(rows.len() as u64) * across * tiles,
            0,
        );
        Some(LaunchCost {
            read: read.0,
            written: written.0,
            ..LaunchCost::default()
        })
    }
}
