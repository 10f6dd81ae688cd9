//! Keys and values on a device, and attention over them.

use super::array::{Array, Buffer, Precision};
use super::batch::{DeviceBatch, Section, TILE_WORDS};
use super::launch::{AttentionWork, Roofline};
use super::{Device, DeviceLimits, Kernel, Result, args, kernel, refuse};
use crate::cache::{KvDtype, KvSizes};
use std::ops::Range;

/// Slots of a partition of a context; `PARTITION` of the kernels.
const PARTITION: usize = 512;
/// Slots of a segment of a partition; `SEGMENT` of the kernels.
const SEGMENT: usize = 128;
/// Partitions of more blocks are not divided: they keep the memory busy.
const MOST_DIVIDED: usize = 128;
/// Queries of the largest tile: rows with the same page table times query heads of one key head.
const QUERIES: usize = 64;
/// Maximum head width.
const WIDEST: usize = 512;
/// Maximum head width of the kernels whose warps have whole queries.
const NARROW: usize = 128;
/// Queries of a block for wider heads; `WIDE_QUERIES` of the kernels.
pub(super) const WIDE_QUERIES: usize = 16;
/// Slots of a chunk for wider heads; `WIDE_CHUNK` of the kernels.
pub(super) const WIDE_CHUNK: u32 = 32;

/// Slots of a chunk; `CHUNK` of the kernels.
pub(super) const CHUNK: u32 = 64;
/// Scales of adjacent slots that are copied at once.
const SCALES: usize = 4;

/// A kernel for heads of `width` elements and tiles of `queries` queries. Its shared memory holds
/// queries, two chunks of keys and values, and offsets of their slots; or in int8 two chunks and their scales,
/// and one in bf16.
const fn tile(name: &'static str, width: u32, queries: u32) -> Kernel {
    kernel(name, 2 * queries, (queries + 4 * CHUNK) * width * 2 + 2 * CHUNK * 8)
}

/// A kernel for heads of `width` elements. Its shared memory holds queries, a chunk of keys and values,
/// and its scores.
const fn wide(name: &'static str, width: u32) -> Kernel {
    let queries = WIDE_QUERIES as u32;
    kernel(name, 128, (queries + 2 * WIDE_CHUNK) * width * 2 + queries * WIDE_CHUNK * 4)
}

/// The same with keys and values in int8, whose scales it holds too.
const fn wide_bytes(name: &'static str, width: u32) -> Kernel {
    kernel(name, 128, wide(name, width).shared + 2 * WIDE_CHUNK * 4)
}

/// Head widths of the kernels whose warps have whole queries, but for the last one.
const WIDTHS: [usize; 2] = [32, 64];
/// By head width, then by queries of a tile: 16, 32, 64.
const ATTEND: [[Kernel; 3]; 3] = [
    [
        tile("attend_bf16_32x16", 32, 16),
        tile("attend_bf16_32x32", 32, 32),
        tile("attend_bf16_32x64", 32, 64),
    ],
    [
        tile("attend_bf16_64x16", 64, 16),
        tile("attend_bf16_64x32", 64, 32),
        tile("attend_bf16_64x64", 64, 64),
    ],
    [
        tile("attend_bf16_128x16", 128, 16),
        tile("attend_bf16_128x32", 128, 32),
        tile("attend_bf16_128x64", 128, 64),
    ],
];
/// The same with keys and values in int8.
const ATTEND_BYTES: [[Kernel; 3]; 3] = [
    [
        tile("attend_int8_32x16", 32, 16),
        tile("attend_int8_32x32", 32, 32),
        tile("attend_int8_32x64", 32, 64),
    ],
    [
        tile("attend_int8_64x16", 64, 16),
        tile("attend_int8_64x32", 64, 32),
        tile("attend_int8_64x64", 64, 64),
    ],
    [
        tile("attend_int8_128x16", 128, 16),
        tile("attend_int8_128x32", 128, 32),
        tile("attend_int8_128x64", 128, 64),
    ],
];
/// With keys and values in bf16 or int8, by head width: 256, 512.
const WIDE: [[Kernel; 2]; 2] = [
    [wide("attend_bf16_256", 256), wide("attend_bf16_512", 512)],
    [wide_bytes("attend_int8_256", 256), wide_bytes("attend_int8_512", 512)],
];
/// With keys and values in f32 or int8, by head width: up to [`NARROW`], and wider. Their shared memory holds
/// an answer.
const EXACT: [[Kernel; 2]; 2] = [
    [kernel("attend_f32", 32, 4), kernel("attend_f32_wide", 32, 4)],
    [kernel("attend_int8_f32", 32, 4), kernel("attend_int8_f32_wide", 32, 4)],
];

/// Every kernel of attention.
pub(super) fn kernels() -> impl Iterator<Item = Kernel> {
    let tiles = ATTEND.into_iter().chain(ATTEND_BYTES).flatten();
    let others = WIDE.into_iter().chain(EXACT).flatten();
    tiles.chain(others)
}

/// The sizes of a pool, and the number format of the queries and results of its attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSizes {
    /// The number format of queries and results.
    pub precision: Precision,
    /// The sizes and the number format of keys and values: that of queries, or int8.
    pub kv: KvSizes,
}

impl PoolSizes {
    /// Bytes of the keys, or of the values, of a page of one layer.
    pub(super) fn page_bytes(&self) -> usize {
        let slot = self.kv.num_kv_heads * self.kv.dtype.head_bytes(self.kv.head_width);
        slot.saturating_mul(self.kv.page)
    }

    /// Bytes of the keys, or of the values, of one layer.
    fn half(&self) -> usize {
        self.page_bytes().saturating_mul(self.kv.pages)
    }

    /// True if keys and values are in int8.
    pub(super) fn in_bytes(&self) -> bool {
        self.kv.dtype == KvDtype::Int8
    }

    /// Checks that kernels exist for the head width, the number formats and the slots of a page.
    ///
    /// # Errors
    /// Names what is accepted.
    pub fn check(&self) -> Result<()> {
        let KvSizes { dtype, head_width: c, page, .. } = self.kv;
        let own = self.precision.kv_dtype();
        if dtype != own && dtype != KvDtype::Int8 {
            return refuse(format!(
                "no CUDA kernels for keys and values in {} beside queries in {}",
                dtype.name(),
                own.name()
            ));
        }
        let (multiple, format) = match (self.precision, dtype) {
            (Precision::F32, _) => (1, "f32"),
            (_, KvDtype::Int8) => (16, "int8"),
            _ => (8, "bf16"),
        };
        if !(1..=WIDEST).contains(&c) || !c.is_multiple_of(multiple) {
            return refuse(format!(
                "head width: expected at most {WIDEST}, with keys and values in {format} a multiple of \
                 {multiple}, found {c}"
            ));
        }
        match self.in_bytes() && !page.is_multiple_of(SCALES) {
            true => refuse(format!(
                "page size: expected a multiple of {SCALES} with keys and values in int8, found {page}"
            )),
            false => Ok(()),
        }
    }
}

/// Keys and values of all layers, `[layers, 2, pages, g, p, c]`; in int8 a page of a head has the scales of
/// its slots after its numbers, as the CPU has them.
pub struct DevicePool {
    buffer: Buffer,
    sizes: PoolSizes,
}

/// The keys and values of one layer.
#[derive(Clone, Copy)]
pub struct PoolLayer<'a> {
    /// The pool of all layers.
    pub pool: &'a DevicePool,
    /// The layer, from 0.
    pub layer: usize,
    /// True if rows see the window that a canvas model's batch has for some layers.
    pub windowed: bool,
}

impl DevicePool {
    /// Allocates a zeroed pool.
    ///
    /// # Errors
    /// If the device is out of memory, or there are no kernels ([`PoolSizes::check`]).
    pub fn new(device: &Device, sizes: PoolSizes) -> Result<Self> {
        sizes.check()?;
        let bytes = sizes.half().saturating_mul(2 * sizes.kv.layers);
        Ok(Self { buffer: Buffer::new(device, bytes)?, sizes })
    }

    /// The sizes of the pool.
    pub fn sizes(&self) -> PoolSizes {
        self.sizes
    }

    /// The device of the memory.
    pub fn device(&self) -> &Device {
        self.buffer.device()
    }

    /// The memory.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// The addresses of a layer's keys and values.
    pub(super) fn layer(&self, layer: usize) -> Result<args::KeysValues> {
        let half = self.sizes.half();
        Ok(args::KeysValues {
            keys: self.buffer.range(2 * layer * half, half)?,
            values: self.buffer.range((2 * layer + 1) * half, half)?,
        })
    }

    /// Maximum rows of an attention tile for a model with this many query heads.
    ///
    /// # Errors
    /// If the query heads of one key head exceed a block, or do not divide evenly.
    pub fn tile(&self, heads: usize) -> Result<usize> {
        let num_kv_heads = self.sizes.kv.num_kv_heads;
        if num_kv_heads == 0
            || !heads.is_multiple_of(num_kv_heads)
            || heads / num_kv_heads > QUERIES
        {
            return refuse(format!(
                "expected a multiple of {num_kv_heads} query heads, at most {QUERIES} per key head, found \
                 {heads}"
            ));
        }
        Ok(QUERIES / (heads / num_kv_heads).max(1))
    }
}

/// The sizes that determine attention's scratch memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionSizes {
    /// Rows of the batch.
    pub rows: usize,
    /// Query heads `h`.
    pub heads: usize,
    /// Key/value heads `g`.
    pub num_kv_heads: usize,
    /// Head width `c`.
    pub head_width: usize,
    /// The first slot after all that any row sees.
    pub reach: usize,
}

impl AttentionSizes {
    /// Maximum rows of a tile.
    fn tile(&self) -> usize {
        QUERIES / (self.heads / self.num_kv_heads.max(1)).max(1)
    }

    /// Partial results of one row: one per head and part of `span` slots.
    fn row(&self, span: usize) -> usize {
        let parts = self.reach.div_ceil(span).max(1);
        self.heads.saturating_mul(parts)
    }

    /// Slots of a part, of which a block has one: a partition, or on tensor cores a segment where that is
    /// estimated to be faster. The speed depends on it and no bit.
    fn span(&self, limits: DeviceLimits, pool: PoolSizes, tiles: usize) -> usize {
        let blocks = self.blocks(PARTITION, tiles);
        let few = blocks <= MOST_DIVIDED.min(limits.multiprocessors);
        let divided = pool.precision == Precision::Bf16 && self.head_width <= NARROW;
        let number = if pool.in_bytes() { 1 } else { Precision::Bf16.bytes() };
        let roofline = Roofline::of(limits);
        let seconds = |span| roofline.attention_seconds(&self.work(span, tiles, number));
        match divided && few && seconds(SEGMENT) < seconds(PARTITION) {
            true => SEGMENT,
            false => PARTITION,
        }
    }

    /// Number of blocks for parts of `span` slots.
    fn blocks(&self, span: usize, tiles: usize) -> usize {
        let parts = self.reach.div_ceil(span).max(1);
        tiles.saturating_mul(self.num_kv_heads).saturating_mul(parts)
    }

    /// The work of parts of `span` slots, of keys and values of `number` bytes each.
    fn work(&self, span: usize, tiles: usize, number: usize) -> AttentionWork {
        let parts = self.reach.div_ceil(span).max(1);
        let results = if parts > 1 { self.rows.saturating_mul(self.row(span)) } else { 0 };
        AttentionWork {
            blocks: self.blocks(span, tiles),
            chunks: self.reach.min(span).div_ceil(CHUNK as usize),
            chunk_bytes: 2 * CHUNK as usize * self.head_width * number,
            parts,
            partial_bytes: results.saturating_mul(self.result_bytes()),
        }
    }

    /// Bytes of the result of a part; `part_stride` of the kernels.
    fn result_bytes(&self) -> usize {
        (self.head_width.next_multiple_of(8) + 8) * size_of::<f32>()
    }

    /// Maximum number of partial results at a time.
    fn most(&self, limits: DeviceLimits) -> usize {
        limits.attention_bytes / self.result_bytes()
    }

    /// Number of tiles processed at a time so that their partial results fit; at least one. Those of
    /// segments always fit.
    fn tiles(&self, limits: DeviceLimits, span: usize) -> usize {
        match span {
            SEGMENT => usize::MAX,
            _ => (self.most(limits) / self.row(span).saturating_mul(self.tile()).max(1)).max(1),
        }
    }

    /// Bytes of the partial results, for all rows or for the rows processed at a time, and of the counters of
    /// blocks. Monotonic in the number of rows and slots.
    pub fn bytes(&self, limits: DeviceLimits) -> [usize; 2] {
        let one = self.row(PARTITION).saturating_mul(self.tile());
        let results = |span| self.rows.saturating_mul(self.row(span));
        let whole = results(PARTITION).min(one.max(self.most(limits)));
        let divided = results(SEGMENT).min(MOST_DIVIDED * QUERIES * (PARTITION / SEGMENT));
        let results = whole.max(divided);
        let counters = self.rows.saturating_mul(self.heads);
        [results.saturating_mul(self.result_bytes()), counters.saturating_mul(size_of::<u32>())]
    }
}

/// Memory for the partial results of parts, reused between passes, and for the numbers of blocks that have
/// ended, which are zeros between launches.
#[derive(Default)]
pub struct AttentionScratch {
    partial: Option<Buffer>,
    ended: Option<Buffer>,
}

impl AttentionScratch {
    /// Allocates memory for batches up to any of these sizes; they then allocate nothing.
    pub fn new(device: &Device, sizes: &[AttentionSizes]) -> Result<Self> {
        let most = |[a, b]: [usize; 2], [c, d]: [usize; 2]| [a.max(c), b.max(d)];
        let all = sizes.iter().map(|sizes| sizes.bytes(device.limits()));
        let [partial, ended] = all.fold([0; 2], most);
        Ok(Self {
            partial: Some(Buffer::new(device, partial)?),
            ended: Some(Buffer::new(device, ended)?),
        })
    }

    /// Overwrites `out [r, h c]`, padded, with the attention of every row of the batch: `q [r, h c]`
    /// to the slots of its segment that it sees in a layer of the pool. Rows are processed in
    /// several runs if the partial results of all rows would take too much memory.
    pub fn attend(
        &mut self,
        q: &Array,
        PoolLayer { pool, layer, windowed }: PoolLayer<'_>,
        batch: &DeviceBatch,
        out: &Array,
    ) -> Result<()> {
        let [visible, reaches, tiles] = Section::seen(windowed);
        let (shape, sizes) = (batch.shape(), pool.sizes());
        let KvSizes { num_kv_heads, head_width: c, page, .. } = sizes.kv;
        let heads = q.width() / c;
        pool.tile(heads)?;
        let needed = AttentionSizes {
            rows: shape.rows,
            heads,
            num_kv_heads,
            head_width: c,
            reach: shape.reach,
        };
        let device = pool.device();
        let limits = device.limits();
        let [partial, ended] = needed.bytes(limits);
        let results = grown(&mut self.partial, device, partial)?;
        let ended = grown(&mut self.ended, device, ended)?;
        let span = needed.span(limits, sizes, shape.tiles);
        let attend = args::Attend {
            q: q.checked(shape.rows, heads * c, sizes.precision)?,
            layer: pool.layer(layer)?,
            partial: args::Partial { results, ended },
            rows: args::TileList {
                tiles: batch.address(tiles, 0)?,
                pages: batch.address(Section::Words, 0)?,
                reaches: batch.address(reaches, 0)?,
                visible: batch.address(visible, 0)?,
            },
            heads: args::Heads {
                heads: heads as u32,
                num_kv_heads: num_kv_heads as u32,
                c: c as u32,
                page: page as u32,
            },
            parts: args::Parts {
                count: shape.reach.div_ceil(span).max(1) as u32,
                span: span as u32,
            },
            scale: (std::f64::consts::LOG2_E / (c as f64).sqrt()) as f32,
            stride: out.stride() as u32,
            out: out.checked(shape.rows, heads * c, sizes.precision)?,
        };
        let step = needed.tiles(limits, span).min(shape.tiles.max(1));
        for first in (0..shape.tiles).step_by(step) {
            let tiles = first..(first + step).min(shape.tiles);
            self::run(pool, batch, &attend, tiles)?;
        }
        Ok(())
    }
}

/// Computes the attention of the rows of some tiles.
fn run(
    pool: &DevicePool,
    batch: &DeviceBatch,
    attend: &args::Attend,
    tiles: Range<usize>,
) -> Result<()> {
    let (device, sizes) = (pool.device(), pool.sizes());
    let (shape, heads) = (batch.shape(), attend.heads.heads as usize);
    let skipped = (tiles.start * TILE_WORDS * size_of::<u32>()) as u64;
    let mut attend = *attend;
    attend.rows.tiles += skipped;
    let KvSizes { num_kv_heads, head_width, .. } = sizes.kv;
    let bytes = usize::from(sizes.in_bytes());
    let queries = shape.tallest * heads / num_kv_heads.max(1);
    let (kernel, across) = match sizes.precision {
        Precision::F32 => (EXACT[bytes][usize::from(head_width > NARROW)], shape.tallest * heads),
        Precision::Bf16 if head_width > NARROW => {
            let kernel = WIDE[bytes][usize::from(head_width > 256)];
            (kernel, num_kv_heads * queries.div_ceil(WIDE_QUERIES))
        }
        Precision::Bf16 => {
            let width = WIDTHS.iter().filter(|c| head_width > **c).count();
            let size = [16, 32].iter().filter(|size| queries > **size).count();
            ([ATTEND, ATTEND_BYTES][bytes][width][size], num_kv_heads)
        }
        Precision::Int8 => return refuse("no queries in int8"),
    };
    if across > 65_535 || attend.parts.count > 65_535 {
        return refuse(format!(
            "attention grid too large: {heads} heads, {} parts of contexts",
            attend.parts.count
        ));
    }
    let grid = [tiles.len() as u32, across as u32, attend.parts.count];
    // SAFETY: the arrays have these sizes; the batch was checked against the pool's pages, and its
    // tiles have at most `tile` rows.
    unsafe { device.launch(kernel, grid, &attend) }
}

/// The address of a buffer of at least `bytes` bytes; grows the buffer if needed.
fn grown(buffer: &mut Option<Buffer>, device: &Device, bytes: usize) -> Result<u64> {
    if buffer.as_ref().is_none_or(|buffer| buffer.bytes() < bytes) {
        *buffer = None;
        *buffer = Some(Buffer::new(device, bytes.next_power_of_two())?);
    }
    match buffer {
        Some(buffer) => buffer.range(0, bytes),
        None => refuse("out of device memory"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// So small that batches have blocks of both kinds and take several runs.
    const LIMITS: DeviceLimits =
        DeviceLimits { attention_bytes: 16 << 10, ..DeviceLimits::unmeasured(4) };

    /// Keys and values in the format of queries.
    fn pool(precision: Precision) -> PoolSizes {
        let kv = KvSizes {
            dtype: precision.kv_dtype(),
            layers: 1,
            num_kv_heads: 1,
            head_width: 128,
            page: 16,
            pages: 1,
        };
        PoolSizes { precision, kv }
    }

    #[test]
    fn scratch_memory_grows_with_rows_and_contexts_up_to_its_limit() {
        let sizes = |rows, reach| AttentionSizes {
            rows,
            heads: 32,
            num_kv_heads: 8,
            head_width: 128,
            reach,
        };
        let sum = |sizes: AttentionSizes| sizes.bytes(LIMITS)[0];
        let mut last = 0;
        for reach in (0..20).map(|i| 512 << i) {
            let (few, many) = (sizes(64, reach), sizes(1 << 20, reach));
            assert!(sum(few) <= sum(many) && last <= sum(many), "{reach}");
            let result = 136 * 4;
            let one = many.row(PARTITION) * many.tile() * result;
            let divided = MOST_DIVIDED * QUERIES * (PARTITION / SEGMENT) * result;
            assert!(sum(many) <= one.max(LIMITS.attention_bytes).max(divided), "{reach}");
            // The tiles processed at a time fit.
            assert!(many.tiles(LIMITS, PARTITION) * one <= sum(many).max(one), "{reach}");
            last = sum(many);
        }
    }

    /// On an H200 only contexts of few blocks are worth more parts; on a device with slow memory none is.
    #[test]
    fn contexts_are_divided_where_it_is_faster() {
        let span = |limits, rows: usize, reach| {
            let sizes =
                AttentionSizes { rows, heads: 32, num_kv_heads: 32, head_width: 128, reach };
            sizes.span(limits, pool(Precision::Bf16), rows.div_ceil(32))
        };
        let h200 = DeviceLimits::H200;
        assert_eq!(
            [32, 64, 128].map(|rows| span(h200, rows, 1024)),
            [SEGMENT, PARTITION, PARTITION]
        );
        assert_eq!(
            [64, 128, 4096].map(|reach| span(h200, 32, reach)),
            [PARTITION, PARTITION, PARTITION]
        );
        let slow = DeviceLimits { memory_rate: 500, ..h200 };
        assert_eq!(span(slow, 32, 1024), PARTITION);
    }

    /// The results of a run's tiles fit, whether their blocks have segments or partitions.
    #[test]
    fn scratch_memory_holds_the_results_of_a_run() {
        let mut spans = BTreeSet::new();
        for (heads, num_kv_heads) in [(1, 1), (4, 1), (64, 1), (2, 2), (32, 8)] {
            for reach in [128, 512, 1024, 2048, 16 << 10] {
                for rows in [1, 2, 8, 64, 500] {
                    let sizes =
                        AttentionSizes { rows, heads, num_kv_heads, head_width: 128, reach };
                    let span =
                        sizes.span(LIMITS, pool(Precision::Bf16), rows.div_ceil(sizes.tile()));
                    let rows = rows.min(sizes.tiles(LIMITS, span).saturating_mul(sizes.tile()));
                    let results = rows * sizes.row(span);
                    let [held, _] = sizes.bytes(LIMITS);
                    assert!(results * sizes.result_bytes() <= held, "{sizes:?}, {span} slots");
                    spans.insert(span);
                }
            }
        }
        assert_eq!(spans, BTreeSet::from([SEGMENT, PARTITION]));
    }
}
