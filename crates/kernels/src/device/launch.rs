//! The division of a matrix product among the blocks of a launch.
//!
//! A launch is a pure function of the product's sizes and the device's limits, see [`ProductLaunch`].
//! It determines the speed and no bit of a result: every tile adds the same segments of the inner
//! dimension in the same order (`cuda/gemm.cuh`). Of all launches, the one with the least time on a
//! [`Roofline`] is taken. Its numbers are fitted to times measured on an H200.

mod format;
mod roofline;
#[cfg(test)]
mod tests;
mod tile;

pub use format::MatrixFormat;
pub use roofline::{AttentionWork, Roofline, row_instructions};
pub(super) use tile::{FACTORS, kernels};
pub use tile::{Pipeline, ProductTile, TileNames};

use super::{Result, refuse};
use std::cmp::Ordering;

/// Inner elements of the shortest segment.
const SHORTEST: usize = 256;
/// Maximum number of segments.
const MOST_SEGMENTS: usize = 4;
/// Rows of a matrix from which on a sum has one segment.
const ONE_SEGMENT_ROWS: usize = 8192;
/// Maximum bytes of the partial sums of a launch.
const MOST_BYTES: usize = 64 << 20;
/// Rows for whose partial sums every matrix has room, up to [`MOST_BYTES`].
const ROWS: usize = 1024;
/// Maximum number of divided tiles of a launch.
pub(super) const MOST_DIVIDED: usize = 4096;

/// Compute capabilities of cards on which the self-test of fused kernels held: splits have the bits of separate
/// ones, norms are as exact. On other cards the separate ones run ([`DeviceLimits::fused`]).
#[cfg(feature = "cuda")]
pub(super) const FUSED: [(i32, i32); 0] = [];

/// Compute capabilities of cards on which the self-test of products held whose operands bulk copies load: they
/// have the bits of the others. On other cards the others run ([`DeviceLimits::ring`]).
#[cfg(feature = "cuda")]
pub(super) const RINGS: [(i32, i32); 0] = [];

/// Compute capabilities of cards on which the self-test of overlapping launches held: steps have the bits of those
/// whose launches run one after the other. On other cards they do ([`DeviceLimits::overlap`]).
#[cfg(feature = "cuda")]
pub(super) const OVERLAPS: [(i32, i32); 0] = [];

/// The resources of a device for launches, and the memory that operations use at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceLimits {
    /// Number of multiprocessors.
    pub multiprocessors: usize,
    /// Maximum bytes of shared memory of a block.
    pub shared: usize,
    /// True if warpgroups multiply tiles in shared memory: on compute capability 9.0.
    pub warpgroups: bool,
    /// True if kernels run whose operands bulk copies load (`cuda/ring.cuh`).
    pub bulk: bool,
    /// Clusters of two blocks that run at a time, each block alone on its multiprocessor.
    pub pairs: usize,
    /// True if such kernels may be chosen.
    pub ring: bool,
    /// True if a launch may begin while the one before it runs: products fetch their first weights, and every kernel
    /// waits before it reads what a launch of a step writes (`launches_wait` of the kernels).
    pub overlap: bool,
    /// True if a kernel may do the work of several: the product of queries, keys and values that of their split,
    /// the products around a norm that of the norm.
    pub fused: bool,
    /// Gigabytes per second that copies within the memory read and write.
    pub memory_rate: u32,
    /// Maximum bytes of attention's partial results at a time, unless one tile has more.
    pub attention_bytes: usize,
    /// Maximum bytes of stored logits at a time, unless 64 rows have more.
    pub logit_bytes: usize,
    /// Maximum bytes of rows grouped by expert at a time, unless 64 rows have more.
    pub expert_bytes: usize,
}

impl DeviceLimits {
    /// An H200, whose memory was measured.
    pub const H200: Self = Self {
        multiprocessors: 132,
        shared: 227 << 10,
        warpgroups: true,
        bulk: true,
        pairs: 66,
        ring: false,
        overlap: false,
        fused: true,
        memory_rate: 4200,
        attention_bytes: 512 << 20,
        logit_bytes: 128 << 20,
        expert_bytes: 256 << 20,
    };

    /// A device whose memory was not measured: as fast as an H200's for each multiprocessor.
    pub const fn unmeasured(multiprocessors: usize) -> Self {
        let rate = Self::H200.memory_rate as usize * multiprocessors / Self::H200.multiprocessors;
        Self { multiprocessors, memory_rate: rate as u32, pairs: multiprocessors / 2, ..Self::H200 }
    }
}

impl Default for DeviceLimits {
    fn default() -> Self {
        Self::H200
    }
}

/// The sizes of a product `x [rows, k] w [n, k]'`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProductSizes {
    /// Rows of `x`.
    pub rows: usize,
    /// Rows of the matrix.
    pub n: usize,
    /// Inner elements with padding, a multiple of 64.
    pub k: usize,
    /// The number format of the matrix.
    pub format: MatrixFormat,
}

/// The tiles that may be divided among several blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Division {
    /// No tile is: the LM head reduces a tile's logits in the block that computes them.
    Whole,
    /// Every tile may be.
    Divided,
    /// Every tile may be, if it has kernels for these heads.
    Heads(HeadColumns),
    /// Every tile may be, if it has a kernel that adds to the residual stream before a norm.
    Residual,
}

/// The heads that the columns of a product are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeadColumns {
    /// Columns of a head.
    pub width: usize,
    /// True if two tiles may share a head: all its columns are rotated, it has no norm, and keys and values
    /// have no factor.
    pub cut: bool,
}

/// Inner elements of a segment, which is summed from zero; the segments of a sum are added in order.
/// One for a matrix of many rows, whose tiles keep the multiprocessors busy; otherwise at most four, so
/// that four blocks can share a tile. Depends on the matrix `[n, k]` alone.
pub fn segment(format: MatrixFormat, n: usize, k: usize) -> usize {
    let parts = if n >= ONE_SEGMENT_ROWS { 1 } else { MOST_SEGMENTS };
    format.inputs().padded(k.div_ceil(parts)).max(SHORTEST)
}

/// The launch of a product: its kernel and the work of its blocks.
///
/// Tiles are numbered column by column. The first [`Self::whole`] take a block each. The others are
/// divided: a block computes [`Self::lead`] segments and writes their sum; the block of a tile that
/// ends last adds the sums in order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProductLaunch {
    /// The kernel's tile.
    pub tile: &'static ProductTile,
    /// The product.
    pub sizes: ProductSizes,
    /// Number of tiles with one block.
    pub whole: usize,
    /// Segments of a block of a divided tile; its last block may have fewer.
    pub lead: usize,
}

impl ProductLaunch {
    /// The launch with the least estimated time.
    pub fn choose(sizes: ProductSizes, limits: DeviceLimits, division: Division) -> Self {
        let best = Self::fastest(sizes, limits, division);
        // Every device has what the first tile needs.
        let first = || Self::undivided(&ProductTile::all(sizes.format)[0], sizes);
        best.map_or_else(first, |(_, launch)| launch)
    }

    /// The launch of a product whose results are heads, if one is estimated to take no more time than the product
    /// and the split of its results.
    pub fn fused(sizes: ProductSizes, limits: DeviceLimits, heads: HeadColumns) -> Option<Self> {
        if !limits.fused {
            return None;
        }
        let (seconds, launch) = Self::fastest(sizes, limits, Division::Heads(heads))?;
        let (separate, _) = Self::fastest(sizes, limits, Division::Divided)?;
        let split = Roofline::of(limits).split_seconds(sizes);
        (seconds <= separate + split).then_some(launch)
    }

    /// The launch with the least estimated time, and its seconds.
    fn fastest(
        sizes: ProductSizes,
        limits: DeviceLimits,
        division: Division,
    ) -> Option<(f64, Self)> {
        let roofline = Roofline::of(limits);
        let seconds = |launch: &Self| match division {
            Division::Heads(HeadColumns { width, .. }) => {
                roofline.seconds(launch) + roofline.heads_seconds(launch, width)
            }
            _ => roofline.seconds(launch),
        };
        let timed = Self::all(sizes, limits, division).map(|launch| (seconds(&launch), launch));
        // The first of equals.
        timed.reduce(|best, next| match next.0.total_cmp(&best.0) {
            Ordering::Less => next,
            _ => best,
        })
    }

    /// All launches that are considered.
    pub(super) fn all(
        sizes: ProductSizes,
        limits: DeviceLimits,
        division: Division,
    ) -> impl Iterator<Item = Self> {
        let all = ProductTile::all(sizes.format);
        // Tiles of warps are never faster. Those of rings are, if only a little.
        let by_groups = limits.warpgroups && all.iter().any(|tile| tile.warpgroups);
        let fits = move |tile: &&'static ProductTile| {
            // Its logits may take more shared memory than its operands.
            let scores = match division {
                Division::Divided => true,
                Division::Whole => tile.head_kernel().is_some_and(|head| head.runs_on(limits)),
                Division::Heads(heads) => {
                    tile.splits(heads) && tile.qkv_kernel().is_some_and(|qkv| qkv.runs_on(limits))
                }
                Division::Residual => {
                    tile.residual_kernel().is_some_and(|kernel| kernel.runs_on(limits))
                }
            };
            let one = segment(sizes.format, sizes.n, sizes.k) >= sizes.k;
            let sums = !tile.single || one || (tile.cluster > 0 && division != Division::Whole);
            let chosen = tile.cluster == 0 || limits.ring;
            scores && sums && chosen && tile.warpgroups == by_groups && tile.runs_on(limits)
        };
        let tiles = all.iter().filter(fits);
        tiles.flat_map(move |tile| Self::candidates(tile, sizes, limits, division))
    }

    /// A launch with one block for every tile.
    pub fn undivided(tile: &'static ProductTile, sizes: ProductSizes) -> Self {
        let launch = Self { tile, sizes, whole: usize::MAX, lead: 1 };
        let (whole, lead) = (launch.tiles(), launch.segments());
        Self { whole, lead, ..launch }
    }

    /// The launch with a block for every tile, and one with a block for every segment of a tile, without those for
    /// which the tile has no registers.
    pub fn ways(tile: &'static ProductTile, sizes: ProductSizes) -> impl Iterator<Item = Self> {
        let all = Self::undivided(tile, sizes);
        let one = all.segments() == 1;
        let whole = (one || !tile.single).then_some(all);
        let parted = !one && (!tile.single || tile.cluster > 0);
        let parted = parted.then_some(Self { whole: 0, lead: 1, ..all });
        whole.into_iter().chain(parted)
    }

    /// All launches with a tile whose partial sums fit: no tile is divided, all are, or those of the
    /// last round.
    fn candidates(
        tile: &'static ProductTile,
        sizes: ProductSizes,
        limits: DeviceLimits,
        division: Division,
    ) -> impl Iterator<Item = Self> {
        let all = Self::undivided(tile, sizes);
        let most = match division {
            Division::Whole => 1,
            Division::Divided | Division::Heads(_) | Division::Residual => all.segments(),
        };
        let rounds = all.tiles() / limits.multiprocessors.max(1);
        let even = rounds * limits.multiprocessors / tile.blocks() * tile.blocks();
        // A part of a tile without registers for earlier segments is one segment.
        let one = tile.single && most > 1;
        let divided = (1..if one { 2 } else { most }).flat_map(move |lead| {
            let candidate = |whole| Self { whole, lead, ..all };
            let some = (!one).then(|| candidate(even));
            std::iter::once(candidate(0)).chain(some)
        });
        let fits = move |launch: &Self| {
            let room = partial_bytes(sizes.format, sizes.n, sizes.k);
            launch.partial_bytes() <= room && launch.divided() <= MOST_DIVIDED
        };
        (!one).then_some(all).into_iter().chain(divided.filter(fits))
    }

    /// Tiles of a column: those with the same columns of the result, and one without rows if a cluster would have
    /// fewer than its blocks.
    pub fn tall(&self) -> usize {
        self.sizes.rows.div_ceil(self.tile.rows).next_multiple_of(self.tile.blocks())
    }

    /// Tiles of a row.
    pub fn wide(&self) -> usize {
        self.sizes.n.div_ceil(self.tile.columns)
    }

    /// Number of tiles.
    pub fn tiles(&self) -> usize {
        self.tall() * self.wide()
    }

    /// Segments of the inner dimension.
    pub fn segments(&self) -> usize {
        let ProductSizes { n, k, format, .. } = self.sizes;
        k.div_ceil(segment(format, n, k))
    }

    /// Number of divided tiles.
    pub fn divided(&self) -> usize {
        self.tiles().saturating_sub(self.whole)
    }

    /// Blocks of a divided tile.
    pub fn pieces(&self) -> usize {
        self.segments().div_ceil(self.lead)
    }

    /// Number of blocks, or of parts that a block or one of a cluster computes one after the other.
    pub fn blocks(&self) -> usize {
        self.whole.min(self.tiles()) + self.divided() * self.pieces()
    }

    /// The blocks of a grid.
    pub(super) fn grid(&self, limits: DeviceLimits) -> Result<u32> {
        let most = match self.tile.cluster {
            0 => usize::MAX,
            1 => limits.multiprocessors * self.tile.resident,
            _ => 2 * limits.pairs.max(1),
        };
        match i32::try_from(self.blocks().min(most)) {
            Ok(blocks) => Ok(blocks.cast_unsigned()),
            Err(_) => refuse(format!("a product of {} blocks is too large", self.blocks())),
        }
    }

    /// Partial sums of a divided tile: one of its first block, and one per segment of the others; of
    /// integers, one of every block.
    pub fn slots(&self) -> usize {
        match self.sizes.format {
            MatrixFormat::Int8 => self.pieces(),
            _ => self.segments() - self.lead + 1,
        }
    }

    /// Bytes of all partial sums.
    pub fn partial_bytes(&self) -> usize {
        let tile = self.tile.rows * self.tile.columns * size_of::<f32>();
        self.divided() * self.slots() * tile
    }

    /// Bytes that the multiprocessors read from the L2 cache and write to it: the matrix once per
    /// column of tiles, `x` once per row of tiles, the partial sums twice.
    pub fn cache_bytes(&self) -> usize {
        let ProductSizes { rows, n, k, format } = self.sizes;
        let weights = format.bytes(n * k) * self.tall() / self.tile.blocks();
        let inputs = rows * k * format.inputs().bytes() * self.wide();
        weights + inputs + 2 * self.partial_bytes()
    }
}

/// Bytes for the partial sums of a matrix `[n, k]`, 0 if its products have one segment.
pub(super) fn partial_bytes(format: MatrixFormat, n: usize, k: usize) -> usize {
    if k <= segment(format, n, k) {
        return 0;
    }
    let row = n.next_multiple_of(256).saturating_mul(size_of::<f32>());
    row.saturating_mul(MOST_SEGMENTS * ROWS).min(MOST_BYTES)
}
