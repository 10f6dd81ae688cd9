//! What a launch has to move and to compute, from its arguments.
//!
//! The formulas hold for aligned rows and complete pages. Tests compare them with what the emulation
//! observes.

mod attention;
mod experts;
mod filters;
mod products;
mod rows;

use super::{Kernel, ProductTile};
use std::collections::BTreeSet;

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
    /// Reads from global memory.
    pub read: Moved,
    /// Writes to global memory.
    pub written: Moved,
    /// Sectors of `read` that hold weights, keys or values: no launch before it left them in a cache.
    pub fresh: u64,
    /// Floating-point operations of the products that are asked for.
    pub operations: f64,
    /// Floating-point operations of tensor cores, with those of padding in tiles.
    pub tensor: f64,
    /// Passes of warps through shared memory.
    pub passes: f64,
    /// Estimated instructions of warps.
    pub instructions: f64,
    /// Bytes that a block requests ahead of their use, and blocks of a multiprocessor of an H200 at a
    /// time; 0 and 0 if the number of requests does not limit the kernel.
    pub ahead: [f64; 2],
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
        _ if ["gates_", "downs_", "experts_"]
            .iter()
            .any(|start| name.starts_with(start)) =>
        {
            launch.grouped(&view(args)?, ProductTile::of_group(name)?, words)?
        }
        _ if name.starts_with("head_") => {
            launch.head(&view(args)?, ProductTile::find(name)?, words)?
        }
        // Attention of wide heads, and the kernels of canvas models, have no formula.
        "attend_bf16_256" | "attend_bf16_512" | "attend_f32_wide" => return None,
        _ if name.starts_with("attend_") => launch.attend(&view(args)?, kernel, words)?,
        _ if name.starts_with("combine_") => launch.combine(&view(args)?, words)?,
        _ if name.starts_with("embed_") => launch.embed(&view(args)?, words)?,
        _ if name.starts_with("norm_") => launch.norm(&view(args)?),
        _ if name.starts_with("split_") => launch.split(&view(args)?, words)?,
        _ if name.starts_with("route_") => launch.route(&view(args)?),
        _ if name.starts_with("gather_") => launch.gather(&view(args)?, words)?,
        "choose_experts" => launch.choose(&view(args)?, words)?,
        "count_experts" => launch.count(&view(args)?),
        "group_rows" => launch.group(&view(args)?, words)?,
        "mix_experts" => launch.mix(&view(args)?, words)?,
        "list_tops" => launch.list(&view(args)?, words)?,
        "filter_rows" => launch.filter(&view(args)?, words)?,
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

/// The sectors of `bytes` bytes from address `at` on.
fn touched(at: u64, bytes: u64) -> std::ops::Range<u64> {
    at / SECTOR..(at + bytes).div_ceil(SECTOR)
}

/// The number of sectors of `count` adjacent records of `bytes` bytes from address `at` on, those that
/// two records share counted twice.
fn spanned(at: u64, bytes: u64, count: u64) -> u64 {
    let record = |i: u64| {
        let of = touched(at + i * bytes, bytes);
        of.end - of.start
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
    fn touch(&mut self, at: u64, bytes: u64) {
        if bytes > 0 {
            self.block.extend(touched(at, bytes));
        }
    }

    /// The running block ends.
    fn end(&mut self) {
        self.by_blocks += self.block.len() as u64;
        self.all.append(&mut self.block);
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
        self.0.by_blocks += sectors(bytes) * by_blocks;
        self.0.distinct += sectors(bytes) * distinct;
        self
    }

    fn seen(mut self, seen: &Seen) -> Self {
        self.0.by_blocks += seen.by_blocks;
        self.0.distinct += seen.all.len() as u64;
        self
    }
}

/// A launch whose work is computed.
struct Launch {
    grid: [u32; 3],
    /// Bytes of an element of the kernel's precision.
    wide: u64,
}
