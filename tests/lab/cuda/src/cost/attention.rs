//! Attention and the combination of its parts.

mod exact;
mod wide;

use super::{Cost, Launch, LaunchCost, PASS, SECTOR, Seen, Sum, Words, sectors, view};
use crate::layout::{CHUNK, TILE_WORDS};
use kernels::device::Kernel;
use kernels::device::args;
use std::collections::BTreeMap;
use std::ops::Range;

/// Slots by which keys and values are counted; a divisor of every chunk.
const COUNTED: u64 = 32;
/// Slots whose scales are a sector.
const SCALES: u64 = SECTOR / 4;
/// Estimated instructions of a lane for an integer that becomes bf16.
const WIDENING: f64 = 2.0;
/// Words of what a row sees; `Visible` of the kernels.
const VISIBLE_WORDS: usize = 4;

/// The number of sectors of the scales of some slots.
fn scale_sectors(slots: &Range<u64>) -> u64 {
    match slots.is_empty() {
        true => 0,
        false => slots.end.div_ceil(SCALES) - slots.start / SCALES,
    }
}

/// Adds what tensor cores compute for chunks of slots with all queries of a block of `threads`
/// threads, in a kernel for heads of `width` elements, with keys and values of `held` bytes.
fn chunks_on_tensor_cores(cost: &mut LaunchCost, chunks: u64, [width, threads, held]: [u64; 3]) {
    // A warp has sixteen queries.
    let (warps, chunk) = (threads / 32, u64::from(CHUNK));
    let weights = (chunks * chunk * warps * 16) as f64;
    let tensor = 4.0 * weights * width as f64;
    // Keys and values are copied and loaded by every warp; queries are loaded once. Integers are copied, read
    // and written in bf16.
    let copied = if held == 1 { 2 } else { 1 };
    let rows = (chunks * (2 * chunk * (copied + warps) + warps * 16)) as f64;
    let moved = rows * (width * 2) as f64;
    cost.tensor += tensor;
    cost.passes += moved / PASS as f64;
    // Products, copies and loads, and about ten operations for a weight of a lane.
    cost.instructions += tensor / 4096.0 + moved / 512.0 + 10.0 * weights / 32.0;
    if held == 1 {
        cost.instructions += WIDENING * (chunks * 2 * chunk * width) as f64 / 32.0;
    }
}

/// Bytes that a block requests ahead: a chunk of keys and values. How many blocks a multiprocessor of an
/// H200 has at a time: its shared memory is the limit, and a block takes a KiB more than it asks
/// for.
pub(super) fn ahead(kernel: Kernel, width: u32, held: u64) -> [f64; 2] {
    let chunk = 2 * CHUNK * width * held as u32;
    let blocks = (228 << 10) / (kernel.shared + (1 << 10));
    [chunk, blocks].map(f64::from)
}

/// A tile of queries; `Tile` of the kernels.
struct Tile {
    /// The tile's address.
    address: u64,
    row: u64,
    rows: u64,
    /// The start of its page table.
    pages: u64,
    /// The first slot after all that one of the rows sees.
    reach: u64,
    /// Slots of a part.
    span: u64,
    /// True if one of the rows does not see all slots below.
    holes: bool,
    /// The reaches of the rows.
    reaches: Vec<u32>,
    /// The visibility of the rows.
    visible: Vec<[u32; VISIBLE_WORDS]>,
}

impl Tile {
    /// Number of parts with a result.
    fn parts(&self) -> u64 {
        self.reach.div_ceil(self.span).max(1)
    }

    fn slots(&self, part: u64) -> Range<u64> {
        let begin = part * self.span;
        begin..self.reach.clamp(begin, begin + self.span)
    }

    /// True if a row has several parts; those of other rows have results instead of sums.
    fn is_long(&self, row: u64) -> bool {
        u64::from(self.reaches[row as usize]) > self.span
    }
}

/// Equal blocks, one for each head or key head.
struct Blocks {
    count: u64,
    part: u64,
    /// The queries of a block, numbered within the tile by row and by the heads of a block.
    queries: Range<u64>,
    /// Heads of a block.
    share: u64,
    /// The slots whose keys and values are read.
    slots: Range<u64>,
    /// True if what the rows see is read.
    looks: bool,
}

/// The work of a launch of attention, block by block.
struct Attention<'a> {
    a: &'a args::Attend,
    grid: [u64; 3],
    /// Bytes of an element of queries and results, and of keys and values.
    wide: u64,
    kv: u64,
    cost: LaunchCost,
    read: Sum,
    written: Sum,
    /// Tiles, page tables, and what rows see.
    lists: Seen,
    /// The number of different slots by their table and [`COUNTED`] slots.
    held: BTreeMap<(u64, u64), u64>,
}

impl Attention<'_> {
    /// Blocks of a tile that end at once.
    fn idle(&mut self, tile: &Tile, count: u64) {
        self.cost.idle += count;
        self.lists.touch(tile.address, TILE_WORDS as u64 * 4);
        self.lists.end_all(count);
    }

    /// Adds the traffic of blocks on tensor cores.
    fn blocks(&mut self, tile: &Tile, blocks: &Blocks) {
        let c = u64::from(self.a.heads.c);
        let queries = blocks.queries.end - blocks.queries.start;
        let slots = blocks.slots.end - blocks.slots.start;
        self.read.put(c * self.wide, queries * blocks.count, 0);
        self.read.put(c * self.kv, 2 * slots * blocks.count, 0);
        self.read.put(SECTOR, self.scaled(2 * scale_sectors(&blocks.slots) * blocks.count), 0);
        self.lists(tile, blocks);
        self.hold(tile.pages, &blocks.slots);
        let rows = blocks.queries.clone().map(|query| query / blocks.share);
        let partial = rows.filter(|row| tile.is_long(*row)).count() as u64;
        let whole = match blocks.part {
            0 => (queries - partial) * blocks.count,
            _ => 0,
        };
        self.written.put(c * self.wide, whole, whole);
        self.parts(tile, blocks, blocks.part + 1 == tile.parts());
        self.cost.operations += 4.0 * (queries * blocks.count * slots * c) as f64;
    }

    /// The results of the blocks' part, and after the last part their combination.
    fn parts(&mut self, tile: &Tile, blocks: &Blocks, last: bool) {
        let c = u64::from(self.a.heads.c);
        for query in blocks.queries.clone() {
            let (row, count) = (query / blocks.share, blocks.count);
            if !tile.is_long(row) {
                continue;
            }
            self.written.put(c * 4, count, count);
            self.written.put(SECTOR, count, count);
            if last {
                let parts = u64::from(tile.reaches[row as usize]).div_ceil(tile.span) * count;
                self.read.put(c * 4, parts, parts);
                self.read.put(SECTOR, parts, parts);
                self.written.put(c * self.wide, count, count);
            }
        }
    }

    /// A number of sectors of scales; none if numbers have no scales.
    fn scaled(&self, sectors: u64) -> u64 {
        if self.kv == 1 { sectors } else { 0 }
    }

    /// The small numbers that blocks read.
    fn lists(&mut self, tile: &Tile, blocks: &Blocks) {
        let rows = blocks.queries.start / blocks.share..blocks.queries.end.div_ceil(blocks.share);
        let (row, count) = (tile.row + rows.start, rows.end - rows.start);
        let lists = &mut self.lists;
        lists.touch(tile.address, TILE_WORDS as u64 * 4);
        // The row of the first tile.
        lists.touch(self.a.rows.tiles, 4);
        lists.touch(self.a.rows.reaches + row * 4, count * 4);
        if blocks.looks {
            let bytes = VISIBLE_WORDS as u64 * 4;
            lists.touch(self.a.rows.visible + row * bytes, count * bytes);
        }
        let page = u64::from(self.a.heads.page);
        let pages = blocks.slots.start / page..blocks.slots.end.div_ceil(page);
        if !blocks.slots.is_empty() {
            let address = self.a.rows.pages + (tile.pages + pages.start) * 4;
            lists.touch(address, (pages.end - pages.start) * 4);
        }
        lists.end_all(blocks.count);
    }

    /// Remembers slots of a table, from a multiple of [`COUNTED`] on.
    fn hold(&mut self, table: u64, slots: &Range<u64>) {
        for first in slots.clone().step_by(COUNTED as usize) {
            let most = self.held.entry((table, first / COUNTED)).or_default();
            *most = (slots.end - first).min(COUNTED).max(*most);
        }
    }

    /// The work of all tiles.
    fn end(mut self, rows: u64) -> LaunchCost {
        let [heads, groups, c] =
            [self.a.heads.heads, self.a.heads.num_kv_heads, self.a.heads.c].map(u64::from);
        let slots: u64 = self.held.values().sum();
        self.read.put(c * self.wide, 0, rows * heads);
        let scales: u64 = self.held.values().map(|slots| slots.div_ceil(SCALES)).sum();
        let scales = self.scaled(2 * scales * groups);
        self.read.put(c * self.kv, 0, 2 * slots * groups);
        self.read.put(SECTOR, 0, scales);
        self.cost.read = self.read.seen(&self.lists).0;
        self.cost.fresh = sectors(c * self.kv) * 2 * slots * groups + scales;
        self.cost.written = self.written.0;
        self.cost
    }
}

/// The kernels of this file.
pub(super) const COSTS: &[(&str, Cost)] = &[
    ("attend", |launch, args, words| launch.attend_exact(&view(args), words)),
    ("attend_f32_wide", |launch, args, words| launch.attend_exact(&view(args), words)),
    ("attend_int8_f32_wide", |launch, args, words| launch.attend_exact(&view(args), words)),
];

impl Launch {
    /// The launch, and its tiles.
    fn attention<'a>(
        &self,
        a: &'a args::Attend,
        words: Words<'_>,
    ) -> Option<(Attention<'a>, Vec<Tile>)> {
        let list = words(a.rows.tiles, self.grid[0] as usize * TILE_WORDS)?;
        let tile = |(number, tile): (usize, &[u32; TILE_WORDS])| {
            let [row, rows, pages, reach, holes] = tile.map(u64::from);
            let bytes = VISIBLE_WORDS as u64 * 4;
            let visible = words(a.rows.visible + row * bytes, rows as usize * VISIBLE_WORDS)?;
            Some(Tile {
                address: a.rows.tiles + (number * TILE_WORDS * 4) as u64,
                row,
                rows,
                pages,
                reach,
                span: a.parts.span.into(),
                holes: holes != 0,
                reaches: words(a.rows.reaches + row * 4, rows as usize)?,
                visible: visible.as_chunks().0.to_vec(),
            })
        };
        let tiles = list.as_chunks::<TILE_WORDS>().0.iter().enumerate();
        let tiles = tiles.map(tile).collect::<Option<Vec<_>>>()?;
        let all = Attention {
            a,
            grid: self.grid.map(u64::from),
            wide: self.wide,
            kv: self.held,
            cost: LaunchCost::default(),
            read: Sum::default(),
            written: Sum::default(),
            lists: Seen::default(),
            held: BTreeMap::new(),
        };
        Some((all, tiles))
    }

    /// Attention of heads whose results fit the registers of a warp; a block of `threads` threads has
    /// all queries of a tile with the heads of one key head.
    pub(super) fn attend(
        &self,
        a: &args::Attend,
        [width, threads]: [u32; 2],
        words: Words<'_>,
    ) -> Option<LaunchCost> {
        let (mut all, tiles) = self.attention(a, words)?;
        let [groups, share] =
            [a.heads.num_kv_heads, a.heads.heads / a.heads.num_kv_heads].map(u64::from);
        for tile in &tiles {
            let parts = match tile.rows {
                0 => 0,
                _ => tile.parts(),
            };
            for part in 0..parts {
                let slots = tile.slots(part);
                let chunks = (slots.end - slots.start).div_ceil(CHUNK.into()) * groups;
                let [width, threads] = [width, threads].map(u64::from);
                chunks_on_tensor_cores(&mut all.cost, chunks, [width, threads, all.kv]);
                let blocks = Blocks {
                    count: groups,
                    part,
                    queries: 0..tile.rows * share,
                    share,
                    looks: tile.holes && !slots.is_empty(),
                    slots,
                };
                all.blocks(tile, &blocks);
            }
            all.idle(tile, (all.grid[2] - parts) * groups);
        }
        Some(all.end(tiles.iter().map(|tile| tile.rows).sum()))
    }
}
