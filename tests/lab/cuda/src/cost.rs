//! The traffic and the operations of a launch, from its arguments.
//!
//! The formulas hold for aligned rows and complete pages. Tests compare them with what the emulation
//! observes.

mod attention;
mod canvas;
mod experts;
mod filters;
mod heads;
mod products;
mod rows;

use crate::layout::{FEW, FEW_GROUPS_INT8W, FEW_GROUPS_PACKED, FEW_INT8, FEW_INT8W, FEW_PACKED};
use kernels::device::{Kernel, MatrixFormat, ProductTile, TensorMap, TileNames, args};
use std::collections::BTreeSet;
use std::mem::offset_of;

/// Bytes of a sector, the unit of the caches.
pub const SECTOR: u64 = 32;
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
    /// Blocks of them that end at once.
    pub idle: u64,
    /// Reads from global memory.
    pub read: Moved,
    /// Writes to global memory.
    pub written: Moved,
    /// Sectors of `read` that hold weights, keys, values or mean embeddings of slots: no launch before
    /// it left them in a cache.
    pub fresh: u64,
    /// Operations of the products that are asked for.
    pub operations: f64,
    /// True if they are of 8-bit integers.
    pub integers: bool,
    /// Operations of tensor cores, with those of padding in tiles.
    pub tensor: f64,
    /// Operations per second of this tile on an H200's tensor cores; 0: those of the
    /// [`Card`](crate::Card).
    pub rate: f64,
    /// Passes of warps through shared memory.
    pub passes: f64,
    /// Estimated instructions of warps.
    pub instructions: f64,
    /// Estimated instructions of warps after the products of a tile, which hide none of them.
    pub after: f64,
    /// Bytes that a block requests ahead of their use, and blocks of a multiprocessor of an H200 at a
    /// time; 0 and 0 if the number of requests does not limit the kernel.
    pub ahead: [f64; 2],
}

/// Reads words of device memory that the host uploaded.
pub(crate) type Words<'a> = &'a dyn Fn(u64, usize) -> Option<Vec<u32>>;

/// The tile of a kernel of products or of the LM head.
fn tile_of(name: &str) -> Option<&'static ProductTile> {
    let mut tiles = MatrixFormat::KERNELS.into_iter().flat_map(ProductTile::all);
    tiles.find(|tile| {
        let TileNames { gemm, head, qkv, residual } = tile.names;
        gemm == name || [head, qkv, residual].contains(&Some(name))
    })
}

/// The tile of a product of grouped rows.
fn group_tile(name: &str) -> &'static ProductTile {
    if let Some((_, groups)) = name.split_once('_').filter(|(_, rest)| rest.contains("_groups_")) {
        let few = match groups.starts_with("packed") {
            true => &FEW_GROUPS_PACKED,
            false => &FEW_GROUPS_INT8W,
        };
        return tile_of(&format!("gemm_{groups}")).unwrap_or(few);
    }
    let [exact, bf16, int8, int8w, packed] =
        MatrixFormat::KERNELS.map(|format| &ProductTile::all(format)[0]);
    let (few, many) = match name.split('_').nth(1) {
        Some("f32") => (exact, exact),
        Some("int8") => (&FEW_INT8, int8),
        Some("int8w") => (&FEW_INT8W, int8w),
        Some("packed") => (&FEW_PACKED, packed),
        _ => (&FEW, bf16),
    };
    if name.ends_with("_few") { few } else { many }
}

/// The head width of a kernel of attention on tensor cores.
fn width_of(name: &str) -> u32 {
    let digits = name.split('_').nth(2).and_then(|size| size.split('x').next());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// The work of a launch; `None` if `words` does not have the words that it depends on.
///
/// # Panics
/// If `args` is not the argument of the kernel.
pub(crate) fn cost(
    kernel: Kernel,
    grid: [u32; 3],
    args: &[u8],
    words: Words<'_>,
) -> Option<LaunchCost> {
    let has = |part: &str| kernel.name.split('_').any(|word| word == part);
    // In attention, keys and values alone are integers.
    let attends = has("attend");
    let wide = match (has("f32"), has("int8") && !attends) {
        (true, _) => 4,
        (_, true) => 1,
        _ => 2,
    };
    let held = if has("int8") { 1 } else { wide };
    let mut launch = Launch { grid, wide, held, x_rows: 0 };
    let ring = kernel.bulk.then(|| view::<args::Ring>(args));
    let args = if ring.is_some() { &args[offset_of!(args::Ring, product)..] } else { args };
    launch.x_rows = ring.map_or(0, |ring| mapped_rows(&ring.maps[0]) - u64::from(ring.first));
    let mut cost = launch.work(kernel, args, words)?;
    cost.kernel = kernel.name;
    cost.blocks = match ring {
        // Parts that blocks compute one after the other.
        Some(ring) => u64::from(ring.parts) * tile_of(kernel.name)?.cluster as u64,
        None => grid.iter().map(|n| u64::from(*n)).product(),
    };
    if cost.instructions == 0.0 {
        // A load or store for every four bytes of a lane, and as many operations.
        let moved = (cost.read.by_blocks + cost.written.by_blocks) * SECTOR;
        cost.instructions = moved as f64 / (32 * 4) as f64 * 2.0;
    }
    Some(cost)
}

/// The argument of a kernel.
pub(crate) fn view<A>(bytes: &[u8]) -> A {
    assert!(bytes.len() >= size_of::<A>(), "the argument of a kernel");
    // SAFETY: arguments are plain numbers, and all bits are valid.
    unsafe { bytes.as_ptr().cast::<A>().read_unaligned() }
}

/// The rows of a map that `host_map` made.
fn mapped_rows(map: &TensorMap) -> u64 {
    map.0[2]
}

fn sectors(bytes: u64) -> u64 {
    bytes.div_ceil(SECTOR)
}

/// The sectors of `bytes` bytes from `address` on.
fn touched(address: u64, bytes: u64) -> std::ops::Range<u64> {
    address / SECTOR..(address + bytes).div_ceil(SECTOR)
}

/// The number of sectors of `count` adjacent records of `bytes` bytes from `address` on, those that
/// two records share counted twice.
fn spanned(address: u64, bytes: u64, count: u64) -> u64 {
    let record = |i: u64| {
        let sectors = touched(address + i * bytes, bytes);
        sectors.end - sectors.start
    };
    (0..count).map(record).sum()
}

/// The sectors of one block after the other.
#[derive(Default)]
struct Seen {
    block: BTreeSet<u64>,
    all: BTreeSet<u64>,
    by_blocks: u64,
}

impl Seen {
    /// The running block uses these bytes.
    fn touch(&mut self, address: u64, bytes: u64) {
        if bytes > 0 {
            self.block.extend(touched(address, bytes));
        }
    }

    /// The running block ends.
    fn end(&mut self) {
        self.end_all(1);
    }

    /// As many blocks with the same sectors end.
    fn end_all(&mut self, blocks: u64) {
        self.by_blocks += self.block.len() as u64 * blocks;
        match blocks {
            0 => self.block.clear(),
            _ => self.all.append(&mut self.block),
        }
    }
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
    /// Adds rows of `bytes` bytes: those of all blocks, and the distinct ones.
    fn add(mut self, bytes: u64, by_blocks: u64, distinct: u64) -> Self {
        self.put(bytes, by_blocks, distinct);
        self
    }

    fn put(&mut self, bytes: u64, by_blocks: u64, distinct: u64) {
        self.0.by_blocks += sectors(bytes) * by_blocks;
        self.0.distinct += sectors(bytes) * distinct;
    }

    /// Adds those of another sum.
    fn with(mut self, other: &Self) -> Self {
        self.0.by_blocks += other.0.by_blocks;
        self.0.distinct += other.0.distinct;
        self
    }

    fn seen(mut self, seen: &Seen) -> Self {
        self.0.by_blocks += seen.by_blocks;
        self.0.distinct += seen.all.len() as u64;
        self
    }
}

/// The work of a launch from its arguments.
type Cost = fn(&Launch, &[u8], Words<'_>) -> Option<LaunchCost>;

/// A launch whose work is computed.
struct Launch {
    grid: [u32; 3],
    /// Bytes of an element of the kernel's precision.
    wide: u64,
    /// Bytes of a number of keys and values; one has a scale for each slot.
    held: u64,
    /// Rows of the inputs that bulk copies may read.
    x_rows: u64,
}

impl Launch {
    /// The work of a launch, without the parts that all kernels have; `None` for an unknown kernel.
    fn work(&self, kernel: Kernel, args: &[u8], words: Words<'_>) -> Option<LaunchCost> {
        let ends = ["_f32", "_bf16", "_int8"];
        let plain = ends.iter().fold(kernel.name, |name, end| name.trim_end_matches(end));
        let all = [
            attention::COSTS,
            heads::COSTS,
            rows::COSTS,
            experts::COSTS,
            canvas::COSTS,
            filters::COSTS,
        ];
        match all.into_iter().flatten().find(|(name, _)| *name == plain) {
            Some((_, cost)) => cost(self, args, words),
            None if plain.starts_with("faulty") => Some(LaunchCost::default()),
            None => self.tiled(kernel, args, words),
        }
    }

    /// The work of kernels that exist for several tiles.
    fn tiled(&self, kernel: Kernel, args: &[u8], words: Words<'_>) -> Option<LaunchCost> {
        let name = kernel.name;
        let (start, _) = name.split_once('_')?;
        match start {
            "gemm" => Some(self.gemm(&view(args), tile_of(name)?)),
            "qkv" => self.qkv(&view(args), tile_of(name)?, words),
            "residual" => Some(self.residual(&view(args), tile_of(name)?)),
            "head" => self.head(&view(args), tile_of(name)?, words),
            "gates" | "downs" | "experts" => self.grouped(&view(args), group_tile(name), words),
            "attend" if name.contains('x') => {
                let width = width_of(name);
                Some(LaunchCost {
                    ahead: attention::ahead(kernel, width, self.held),
                    ..self.attend(&view(args), [width, kernel.threads], words)?
                })
            }
            "attend" => self.attend_wide(&view(args), width_of(name), words),
            _ => None,
        }
    }
}
