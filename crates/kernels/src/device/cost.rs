//! What a launch has to move and to compute, from its arguments.
//!
//! The formulas hold for aligned rows and complete pages. Tests compare them with what the emulation
//! observes.

use super::attention::{ATTEND, CHUNK, PARTITION, WIDTHS};
use super::batch::{SCORER_WORDS, TILE_WORDS};
use super::launch::partial_columns;
use super::score::{FIELDS, PARTIAL_BYTES};
use super::{Kernel, ProductTile, args};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a sector, the unit of the caches.
pub const SECTOR: u64 = 32;
/// Heads of a block that combines partitions.
const HEADS: usize = 4;
/// Bytes that a warp moves through shared memory in one pass.
const PASS: usize = 128;

/// Sectors of one direction in global memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Distinct sectors of every block, summed over the blocks: the traffic of the L2 cache.
    pub by_blocks: u64,
    /// Distinct sectors of all blocks: the least traffic of DRAM.
    pub distinct: u64,
}

/// The work of one launch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LaunchCost {
    /// The kernel's name.
    pub kernel: &'static str,
    /// Number of blocks.
    pub blocks: u64,
    /// Reads from global memory.
    pub read: Moved,
    /// Writes to global memory.
    pub written: Moved,
    /// Floating-point operations of the products that are asked for.
    pub operations: f64,
    /// Floating-point operations of tensor cores, with those of padding in tiles.
    pub tensor: f64,
    /// Passes of warps through shared memory.
    pub passes: f64,
    /// Estimated instructions of warps.
    pub instructions: f64,
}

/// Reads words of device memory that the host uploaded.
pub(super) type Words<'a> = &'a dyn Fn(u64, usize) -> Option<Vec<u32>>;

/// The work of a launch; `None` if the kernel is unknown or `words` has no data.
pub(super) fn cost(
    kernel: Kernel,
    grid: [u32; 3],
    args: &[u8],
    words: Words<'_>,
) -> Option<LaunchCost> {
    let wide = if kernel.name.contains("f32") { 4 } else { 2 };
    let launch = Launch { grid, wide };
    let name = kernel.name;
    let mut cost = match name {
        _ if name.starts_with("gemm_") => launch.gemm(&view(args)?, ProductTile::find(name)?),
        _ if name.starts_with("head_") => launch.head(&view(args)?, ProductTile::find(name)?)?,
        _ if name.starts_with("attend_") => launch.attend(&view(args)?, kernel, words)?,
        _ if name.starts_with("combine_") => launch.combine(&view(args)?, words)?,
        _ if name.starts_with("embed_") => launch.embed(&view(args)?, words)?,
        _ if name.starts_with("norm_") => launch.norm(&view(args)?),
        _ if name.starts_with("split_") => launch.split(&view(args)?, words)?,
        "fold_partials" => launch.fold(&view(args)?),
        "copy_pages" => launch.copies(&view(args)?),
        _ => return None,
    };
    cost.kernel = name;
    cost.blocks = grid.iter().map(|n| u64::from(*n)).product();
    if cost.instructions == 0.0 {
        // A load or store for every four bytes of a lane, and as many operations.
        let moved = (cost.read.by_blocks + cost.written.by_blocks) * SECTOR;
        cost.instructions = moved as f64 / (32 * 4) as f64 * 2.0;
    }
    Some(cost)
}

/// The argument of a kernel.
fn view<A>(bytes: &[u8]) -> Option<A> {
    if bytes.len() < size_of::<A>() {
        return None;
    }
    // SAFETY: arguments are plain numbers, and all bits are valid.
    Some(unsafe { bytes.as_ptr().cast::<A>().read_unaligned() })
}

fn sectors(bytes: u64) -> u64 {
    bytes.div_ceil(SECTOR)
}

/// Sectors of `count` adjacent records of `bytes` bytes from address `at` on, those that two records
/// share counted twice.
fn spanned(at: u64, bytes: u64, count: u64) -> u64 {
    let record = |i: u64| {
        let from = at + i * bytes;
        (from + bytes).div_ceil(SECTOR) - from / SECTOR
    };
    (0..count).map(record).sum()
}

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

/// The number of different ones.
fn distinct(mut all: Vec<u32>) -> u64 {
    all.sort_unstable();
    all.dedup();
    all.len() as u64
}

/// Adds up reads or writes: bytes of one row, and the number of rows in all blocks and distinct ones.
#[derive(Default)]
struct Sum(Moved);

impl Sum {
    fn add(mut self, bytes: u64, by_blocks: u64, distinct: u64) -> Self {
        self.0.by_blocks += sectors(bytes) * by_blocks;
        self.0.distinct += sectors(bytes) * distinct;
        self
    }
}

struct Launch {
    grid: [u32; 3],
    /// Bytes of an element of the kernel's precision.
    wide: u64,
}

impl Launch {
    /// The operands of a product in `tall` by `broad` tiles, and what the tiles compute.
    fn product(
        &self,
        of: &args::Operands,
        tile: &ProductTile,
        [tall, broad]: [u64; 2],
    ) -> (Sum, LaunchCost) {
        let [rows, n, k] = [of.rows, of.n, of.k].map(u64::from);
        let weight = tile.format.bytes() as u64;
        let mut read =
            Sum::default()
                .add(k * self.wide, rows * broad, rows)
                .add(k * weight, n * tall, n);
        if of.scales != 0 {
            read = read.add(n * 4, tall, 1);
        }
        let mut cost = LaunchCost {
            operations: 2.0 * (rows * n * k) as f64,
            ..LaunchCost::default()
        };
        let tiles = (tall * broad) as f64;
        let outputs = (tile.rows * tile.columns) as f64;
        if self.wide == 2 {
            let (down, across) = tile.warps;
            cost.tensor = 2.0 * tiles * outputs * k as f64;
            let steps = tiles * k as f64 / tile.depth as f64;
            let copied = tile.stage() as f64;
            // Every warp loads its rows and columns.
            let bytes = across * tile.rows * 2 + down * tile.columns * tile.format.bytes();
            let loaded = (bytes * tile.depth) as f64;
            cost.passes = steps * (copied + loaded) / PASS as f64;
            // Copies of 16 bytes per lane, loads of four matrices, products of 16 x 8 x 16.
            let products = cost.tensor / (2 * 16 * 8 * 16) as f64;
            cost.instructions = steps * (copied + loaded) / 512.0 + products;
        } else {
            cost.instructions = tiles * outputs * k as f64 / 32.0 * 1.5;
        }
        (read, cost)
    }

    fn gemm(&self, a: &args::Gemm, tile: &ProductTile) -> LaunchCost {
        let tall = u64::from(a.share.tall);
        let broad = u64::from(a.of.n).div_ceil(tile.columns as u64);
        let (mut read, mut cost) = self.product(&a.of, tile, [tall, broad]);
        let [rows, n] = [a.of.rows, a.of.n].map(u64::from);
        if a.bias != 0 {
            read = read.add(n * 4, tall, 1);
        }
        // As `Store` of products.
        let (added, gated) = (a.finish == 1, a.finish >= 2);
        if added {
            read = read.add(n * 4, rows, rows);
        }
        let width = if gated { n / 2 * self.wide } else { n * 4 };
        let mut written = Sum::default().add(width, rows, rows);
        // The sums of divided tiles, which the last block of a tile reads again.
        let divided = tall * broad - u64::from(a.share.whole);
        if divided > 0 {
            let segments = a.of.k.div_ceil(a.of.segment);
            let sums = divided * u64::from(segments - a.share.lead + 1);
            let bytes = (tile.rows * tile.columns * size_of::<f32>()) as u64;
            (read, written) = (read.add(bytes, sums, sums), written.add(bytes, sums, sums));
        }
        (cost.read, cost.written) = (read.0, written.0);
        cost
    }

    /// The LM head; `None` if it keeps logits, because their number depends on the rows.
    fn head(&self, a: &args::Head, tile: &ProductTile) -> Option<LaunchCost> {
        if a.logits != 0 {
            return None;
        }
        let [tall, broad] = [self.grid[0], self.grid[1]].map(u64::from);
        let (mut read, mut cost) = self.product(&a.of, tile, [tall, broad]);
        let [rows, n] = [a.of.rows, a.of.n].map(u64::from);
        if a.bias != 0 {
            read = read.add(n * 4, tall, 1);
        }
        let scorers = sectors(rows * SCORER_WORDS as u64 * 4);
        cost.read = read.add(SECTOR, scorers * broad, scorers).0;
        // A block has one record of a row, or several that are adjacent.
        let (record, count) = (PARTIAL_BYTES as u64, u64::from(a.count));
        let each = (tile.columns / partial_columns(tile.format)) as u64;
        let firsts = (0..rows).flat_map(|row| {
            let blocks = (0..count).step_by(each as usize);
            blocks.map(move |first| (row * count + first, each.min(count - first)))
        });
        let by_blocks = firsts.map(|(first, some)| {
            let from = a.partials + first * record;
            (from + some * record).div_ceil(SECTOR) - from / SECTOR
        });
        cost.written = Sum::default()
            .add(SECTOR, by_blocks.sum(), sectors(rows * count * record))
            .add(SECTOR, sectors(rows * 4), sectors(rows * 4))
            .0;
        Some(cost)
    }

    fn attend(&self, a: &args::Attend, kernel: Kernel, words: Words<'_>) -> Option<LaunchCost> {
        let tiles = words(a.tiles, self.grid[0] as usize * TILE_WORDS)?;
        let width = ATTEND
            .iter()
            .position(|kernels| kernels.iter().any(|one| one.name == kernel.name));
        let width = width.map(|at| WIDTHS[at] as u64);
        let [heads, groups, c, page] = [a.heads, a.groups, a.c, a.page].map(u64::from);
        let (mut read, mut written) = (Sum::default(), Sum::default());
        let (first, mut sums) = (u64::from(*tiles.first()?), BTreeSet::new());
        let (mut longest, mut rows) = (BTreeMap::<u32, u64>::new(), 0);
        let mut cost = LaunchCost::default();
        // On tensor cores a block has all heads of a group; otherwise one.
        let across = if width.is_some() { groups } else { heads };
        for tile in tiles.as_chunks::<TILE_WORDS>().0 {
            let [row, count, pages, reach, holes] = tile.map(u64::from);
            let reaches = words(a.reaches + row * 4, count as usize)?;
            rows += count;
            let most = longest.entry(pages as u32).or_default();
            *most = reach.max(*most);
            for begin in (0..reach).step_by(PARTITION) {
                let slots = (reach - begin).min(PARTITION as u64);
                let blocks = if width.is_some() {
                    across
                } else {
                    across * count
                };
                read = read
                    .add(c * self.wide, count * heads, 0)
                    .add(c * self.wide, 2 * slots * blocks, 0)
                    .add(slots.div_ceil(page) * 4, blocks, 0)
                    .add(SECTOR, 2 * blocks, 0);
                if holes != 0 {
                    read = read.add(count * 16, blocks, 0);
                }
                // Rows with one partition have results instead of sums.
                let long = |query: &u64| reaches[*query as usize] as usize > PARTITION;
                let partial = (0..count).filter(long).count() as u64;
                if begin == 0 {
                    let whole = (count - partial) * heads;
                    written = written.add(c * self.wide, whole, whole);
                }
                written = written.add(c * 4, partial * heads, partial * heads);
                // The two sums of every query and partition, from the first tile's row on.
                let (mut block, share) = (BTreeSet::new(), heads / across);
                let at = |query| sum_sector(query, begin / PARTITION as u64, a.partitions);
                for of in 0..across {
                    for query in (0..count * share).filter(|query| long(&(query / share))) {
                        let row = row - first + query / share;
                        block.insert(at(row * heads + of * share + query % share));
                        if width.is_none() {
                            written = written.add(SECTOR, 1, 0);
                        }
                    }
                    if width.is_some() {
                        written = written.add(SECTOR, block.len() as u64, 0);
                    }
                    sums.append(&mut block);
                }
                cost.operations += 4.0 * (count * heads * slots * c) as f64;
                if let Some(width) = width {
                    let chunks = slots.div_ceil(CHUNK.into()) * blocks;
                    chunks_on_tensor_cores(&mut cost, chunks, [width, kernel.threads.into()]);
                }
            }
        }
        written = written.add(SECTOR, 0, sums.len() as u64);
        let slots: u64 = longest.values().sum();
        let tables: u64 = longest
            .values()
            .map(|reach| sectors(reach.div_ceil(page) * 4))
            .sum();
        read = read
            .add(c * self.wide, 0, rows * heads)
            .add(c * self.wide, 0, 2 * slots * groups)
            .add(SECTOR, 0, tables + sectors(rows * 4))
            .add(self.grid[0].into(), 0, TILE_WORDS as u64 * 4 / 32);
        (cost.read, cost.written) = (read.0, written.0);
        Some(cost)
    }

    fn combine(&self, a: &args::Combine, words: Words<'_>) -> Option<LaunchCost> {
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

    fn embed(&self, a: &args::Embed, words: Words<'_>) -> Option<LaunchCost> {
        let [rows, d] = [self.grid[0], a.d].map(u64::from);
        let tokens = distinct(words(a.tokens, rows as usize)?);
        let read =
            Sum::default()
                .add(d * self.wide, rows, tokens)
                .add(SECTOR, rows, sectors(rows * 4));
        Some(LaunchCost {
            read: read.0,
            written: Sum::default().add(d * 4, rows, rows).0,
            ..LaunchCost::default()
        })
    }

    fn norm(&self, a: &args::Norm) -> LaunchCost {
        let [rows, d] = [self.grid[0], a.d].map(u64::from);
        let gathered = u64::from(a.gather != 0);
        let read = Sum::default()
            .add(d * 4, rows, rows)
            .add(d * 4, rows, 1)
            .add(SECTOR, rows * gathered, sectors(rows * 4) * gathered);
        LaunchCost {
            read: read.0,
            written: Sum::default().add(d * self.wide, rows, rows).0,
            ..LaunchCost::default()
        }
    }

    fn split(&self, a: &args::Split, words: Words<'_>) -> Option<LaunchCost> {
        let [rows, blocks] = [self.grid[0], self.grid[1]].map(u64::from);
        let positions = distinct(words(a.positions, rows as usize)?);
        let [heads, groups, c, half] = [a.heads, a.groups, a.c, a.half].map(u64::from);
        let all = heads + 2 * groups;
        // Blocks of four heads; the last ones may have only values, which are not rotated.
        let turning = (heads + groups).div_ceil(4);
        let mut read = Sum::default()
            .add(c * 4, rows * all, rows * all)
            .add(SECTOR, rows * (blocks + turning), 2 * sectors(rows * 4))
            .add(2 * half * 4, rows * turning, positions);
        if a.head_norms != 0 {
            read = read.add(c * 4, rows * (heads + groups), heads + groups);
        }
        Some(LaunchCost {
            read: read.0,
            written: Sum::default().add(c * self.wide, rows * all, rows * all).0,
            ..LaunchCost::default()
        })
    }

    fn fold(&self, a: &args::Fold) -> LaunchCost {
        let [rows, count] = [self.grid[0], a.count].map(u64::from);
        let [scorer, record] = [SCORER_WORDS as u64 * 4, FIELDS as u64 * 8];
        let partials = count * PARTIAL_BYTES as u64;
        let scorers = spanned(a.rows, scorer, rows);
        let read = Sum::default()
            .add(
                SECTOR,
                spanned(a.partials, partials, rows),
                sectors(partials * rows),
            )
            .add(
                SECTOR,
                scorers + rows,
                sectors(rows * scorer) + sectors(rows * 4),
            );
        let written = spanned(a.out, record, rows);
        LaunchCost {
            read: read.0,
            written: Sum::default()
                .add(SECTOR, written, sectors(rows * record))
                .0,
            ..LaunchCost::default()
        }
    }

    fn copies(&self, a: &args::CopyPages) -> LaunchCost {
        let [count, words, parts] = [a.count, a.words, self.grid[1]].map(u64::from);
        let moved = Sum::default().add(words * 4, count * parts, count * parts);
        LaunchCost {
            read: moved.0,
            written: moved.0,
            ..LaunchCost::default()
        }
    }
}
