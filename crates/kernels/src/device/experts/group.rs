//! Rows grouped by expert, and the products of the groups.

use super::super::array::select;
use super::super::array::{Array, Precision};
use super::super::launch::{MatrixFormat, segment};
use super::super::matrix::{Store, form_number};
use super::super::{DeviceLimits, Kernel, Result, args, refuse};
use super::scratch::{Grouped, LOW, TILE_WORDS};
use super::{ADDRESSES, DeviceExperts, ExpertScratch, ExpertSizes, kernel};
use crate::linear::Epilogue;

pub(super) const COUNT: Kernel = kernel("count_experts", 256, 128);
pub(super) const GROUP: Kernel = kernel("group_rows", 256, 128);
pub(super) const GATHER: [Kernel; 2] =
    [kernel("gather_f32", 128, 0), kernel("gather_bf16", 128, 0)];
pub(super) const GATHER_INT8: Kernel = kernel("gather_int8", 128, 0);
const LOW_BYTES: u32 = 5 * (16 + 64) * 64 * 2;
const TALL_BYTES: u32 = 4 * (64 + 128) * 64 * 2;
/// Gates and downs for few rows of each expert, and for many.
pub(super) const FEW: [Kernel; 2] =
    [kernel("gates_bf16_few", 128, LOW_BYTES), kernel("downs_bf16_few", 128, LOW_BYTES)];
pub(super) const MANY: [Kernel; 2] =
    [kernel("gates_bf16_many", 256, TALL_BYTES), kernel("downs_bf16_many", 256, TALL_BYTES)];
/// The same in int8, with steps of as many bytes.
pub(super) const FEW_INT8: [Kernel; 2] =
    [kernel("gates_int8_few", 128, LOW_BYTES), kernel("downs_int8_few", 128, LOW_BYTES)];
pub(super) const MANY_INT8: [Kernel; 2] =
    [kernel("gates_int8_many", 256, TALL_BYTES), kernel("downs_int8_many", 256, TALL_BYTES)];
const LOW_INT8W_BYTES: u32 = 5 * (16 * 2 + 64) * 64;
const TALL_INT8W_BYTES: u32 = 4 * (64 * 2 + 128) * 64;
/// The same for weights in int8 alone.
pub(super) const FEW_INT8W: [Kernel; 2] = [
    kernel("gates_int8w_few", 64, LOW_INT8W_BYTES),
    kernel("downs_int8w_few", 64, LOW_INT8W_BYTES),
];
pub(super) const MANY_INT8W: [Kernel; 2] = [
    kernel("gates_int8w_many", 256, TALL_INT8W_BYTES),
    kernel("downs_int8w_many", 256, TALL_INT8W_BYTES),
];
const LOW_PACKED_BYTES: u32 = 5 * (16 * 16 + 64 * 9) * 64 / 8;
const TALL_PACKED_BYTES: u32 = 4 * (64 * 16 + 128 * 9) * 64 / 8;
/// The same for packed weights; stages have room for the largest records.
pub(super) const FEW_PACKED: [Kernel; 2] = [
    kernel("gates_packed_few", 64, LOW_PACKED_BYTES),
    kernel("downs_packed_few", 64, LOW_PACKED_BYTES),
];
pub(super) const MANY_PACKED: [Kernel; 2] = [
    kernel("gates_packed_many", 256, TALL_PACKED_BYTES),
    kernel("downs_packed_many", 256, TALL_PACKED_BYTES),
];
/// A kernel of warpgroups.
const fn of_groups(name: &'static str, shared: u32) -> Kernel {
    Kernel { name, threads: 256, shared, warpgroups: true, bulk: false }
}
const NARROW_GROUPS: u32 = 6 * (64 + 64) * 128;
const GROUPS: u32 = 6 * (64 + 128) * 128;
/// Gates and downs on warpgroups, in the tiles of dense products with 64 rows: of 64 columns for few rows of
/// each expert, of 128 for many.
pub(super) const GROUPS_BF16: [[Kernel; 2]; 2] = [
    [
        of_groups("gates_bf16_groups_64x64", NARROW_GROUPS),
        of_groups("downs_bf16_groups_64x64", NARROW_GROUPS),
    ],
    [of_groups("gates_bf16_groups_64x128", GROUPS), of_groups("downs_bf16_groups_64x128", GROUPS)],
];
pub(super) const GROUPS_INT8: [[Kernel; 2]; 2] = [
    [
        of_groups("gates_int8_groups_64x64", NARROW_GROUPS),
        of_groups("downs_int8_groups_64x64", NARROW_GROUPS),
    ],
    [of_groups("gates_int8_groups_64x128", GROUPS), of_groups("downs_int8_groups_64x128", GROUPS)],
];
/// Bytes of stages with two steps of 64 inner elements and weights of `bits` bits.
const fn widened_bytes(stages: u32, rows: u32, bits: u32) -> u32 {
    2 * stages * (rows * 128 + 128 * 64 * bits / 8)
}
/// The same with weights that are widened: tiles of 128 columns, for few rows of 16 rows.
pub(super) const GROUPS_INT8W: [[Kernel; 2]; 2] = [
    [
        of_groups("gates_int8w_groups_16x128", widened_bytes(5, 16, 8)),
        of_groups("downs_int8w_groups_16x128", widened_bytes(5, 16, 8)),
    ],
    [
        of_groups("gates_int8w_groups_64x128", widened_bytes(6, 64, 8)),
        of_groups("downs_int8w_groups_64x128", widened_bytes(6, 64, 8)),
    ],
];
pub(super) const GROUPS_PACKED: [[Kernel; 2]; 2] = [
    [
        of_groups("gates_packed_groups_16x128", widened_bytes(5, 16, 9)),
        of_groups("downs_packed_groups_16x128", widened_bytes(5, 16, 9)),
    ],
    [
        of_groups("gates_packed_groups_64x128", widened_bytes(6, 64, 9)),
        of_groups("downs_packed_groups_64x128", widened_bytes(6, 64, 9)),
    ],
];
pub(super) const EXACT: Kernel = kernel("experts_f32", 256, 2 * 16 * 68 * 4);
pub(super) const MIX: Kernel = kernel("mix_experts", 256, 0);

/// The kernels of both products, and the rows and the columns of their tiles.
struct Tiles {
    kernels: [Kernel; 2],
    tall: usize,
    broad: [usize; 2],
}

impl ExpertSizes {
    /// A row's sums are the same in all tiles of a device.
    fn tiles_for(&self, pairs: usize, limits: DeviceLimits) -> Tiles {
        let is_few = pairs <= LOW * self.count;
        if self.precision() != Precision::F32 && limits.warpgroups {
            return self.groups_for(is_few);
        }
        let kernel = |number: usize| {
            let [few, many] = match self.formats[number] {
                MatrixFormat::F32 => [[EXACT; 2]; 2],
                MatrixFormat::Bf16 => [FEW, MANY],
                MatrixFormat::Int8 => [FEW_INT8, MANY_INT8],
                MatrixFormat::Int8w => [FEW_INT8W, MANY_INT8W],
                MatrixFormat::Packed(_) => [FEW_PACKED, MANY_PACKED],
            };
            if is_few { few[number] } else { many[number] }
        };
        let (tall, broad) = match (self.precision(), is_few) {
            (Precision::F32, _) => (64, 64),
            (Precision::Bf16 | Precision::Int8, true) => (LOW, 64),
            (Precision::Bf16 | Precision::Int8, false) => (64, 128),
        };
        Tiles { kernels: [kernel(0), kernel(1)], tall, broad: [broad; 2] }
    }

    /// The tiles of warpgroups; both products have tiles of as many rows.
    fn groups_for(&self, is_few: bool) -> Tiles {
        let widens = |format| matches!(format, MatrixFormat::Int8w | MatrixFormat::Packed(_));
        let is_low = is_few && self.formats.into_iter().all(widens);
        let (size, height) = (usize::from(!is_few), usize::from(!is_low));
        let tile = |number: usize| match self.formats[number] {
            MatrixFormat::F32 | MatrixFormat::Bf16 => (GROUPS_BF16[size][number], 64 << size),
            MatrixFormat::Int8 => (GROUPS_INT8[size][number], 64 << size),
            MatrixFormat::Int8w => (GROUPS_INT8W[height][number], 128),
            MatrixFormat::Packed(_) => (GROUPS_PACKED[height][number], 128),
        };
        let [(gates, broad), (downs, other)] = [0, 1].map(tile);
        let tall = if is_low { LOW } else { 64 };
        Tiles { kernels: [gates, downs], tall, broad: [broad, other] }
    }
}

impl DeviceExperts {
    /// Adds the experts that [`Self::choose`] chose for the first rows of `x`, padded, to the same rows
    /// of `sum`, f32. A row's terms are added in the order of the experts' numbers.
    pub fn add(&self, x: &Array, rows: usize, scratch: &ExpertScratch, sum: &Array) -> Result<()> {
        let sizes = &self.sizes;
        let x = x.inputs(sizes.precision());
        let input = x.checked(rows, sizes.width, sizes.precision())?;
        let sum = sum.checked(rows, sizes.width, Precision::F32)?;
        let Some(grouped) = &scratch.grouped else {
            return refuse("no memory was reserved for experts");
        };
        if x.stride() != grouped.x.stride() {
            let (expected, found) = (grouped.x.stride(), x.stride());
            return refuse(format!("expected rows of {expected}, found {found}"));
        }
        let (chosen, weights) =
            (scratch.chosen(rows * sizes.chosen)?, scratch.weights(rows * sizes.chosen)?);
        let step = sizes.step(self.gate.device().limits());
        for first in (0..rows).step_by(step) {
            let count = step.min(rows - first);
            let skip = |width: usize, bytes: usize| (first * width * bytes) as u64;
            let part = Part {
                rows: count,
                x: input + skip(x.stride(), sizes.precision().bytes()),
                row_scales: x.row_scales(first)?,
                sum: sum + skip(sizes.width, 4),
                chosen: chosen + skip(sizes.chosen, 4),
                weights: weights + skip(sizes.chosen, 4),
            };
            self.part(&part, scratch, grouped)?;
        }
        Ok(())
    }

    /// As [`Self::add`], for rows that are grouped at a time.
    fn part(&self, part: &Part, scratch: &ExpertScratch, grouped: &Grouped) -> Result<()> {
        let sizes = &self.sizes;
        let pairs = part.rows * sizes.chosen;
        let tiles = sizes.tiles_for(pairs, self.gate.device().limits());
        let tile_count = sizes.tiles(pairs, tiles.tall);
        let lists = [sizes.count, pairs, pairs, tile_count * TILE_WORDS];
        let [counts, pairs_at, places, tiles_at] = scratch.lists(lists)?;
        let group = args::Group {
            experts: part.chosen,
            counts,
            pairs_at,
            places,
            tiles: tiles_at,
            pairs: pairs as u32,
            count: sizes.count as u32,
            tile: tiles.tall as u32,
            tile_count: tile_count as u32,
        };
        let gather = args::Gather {
            x: part.x,
            pairs_at,
            out: grouped.x.checked(pairs, sizes.width, sizes.precision())?,
            row_scales: part.row_scales,
            out_scales: grouped.x.row_scales(0)?,
            chosen: sizes.chosen as u32,
            k: grouped.x.stride() as u32,
        };
        let mix = args::Mix {
            results: grouped.results.checked(pairs, sizes.width, Precision::F32)?,
            experts: part.chosen,
            places,
            weights: part.weights,
            sum: part.sum,
            chosen: sizes.chosen as u32,
            d: sizes.width as u32,
        };
        let device = self.gate.device();
        // SAFETY: the scratch memory has room for these rows; places and tiles are those of the
        // grouping, and matrices have the sizes that were checked.
        unsafe {
            let experts = [sizes.count as u32, 1, 1];
            device.launch(COUNT, experts, &group)?;
            device.launch(GROUP, experts, &group)?;
            let gathering = match sizes.precision() {
                Precision::Int8 => GATHER_INT8,
                precision => select(GATHER, precision)?,
            };
            device.launch(gathering, [pairs as u32, 1, 1], &gather)?;
            self.products(&tiles, [pairs, tile_count], tiles_at, grouped)?;
            device.launch(MIX, [part.rows as u32, 1, 1], &mix)
        }
    }

    /// Both products of every tile of some pairs of rows and experts.
    ///
    /// # Safety
    /// The tiles are those of the grouped rows.
    unsafe fn products(
        &self,
        tiles: &Tiles,
        [pairs, count]: [usize; 2],
        tiles_at: u64,
        grouped: &Grouped,
    ) -> Result<()> {
        let sizes = &self.sizes;
        let device = self.gate.device();
        let addresses = self.addresses.range(0, ADDRESSES * sizes.count * 8)?;
        let gate = match self.experts.first().map(|[gate_up, _]| gate_up.epilogue()) {
            Some(Epilogue::GeluGate) => Store::GeluGate,
            _ => Store::Gate,
        };
        let arrays = [(&grouped.x, &grouped.gated), (&grouped.gated, &grouped.results)];
        let widths = [2 * sizes.inner, sizes.width];
        for (number, ((x, out), n)) in arrays.into_iter().zip(widths).enumerate() {
            let x = x.inputs(sizes.precision());
            let args = args::Grouped {
                x: x.checked(0, x.width(), sizes.precision())?,
                row_scales: x.row_scales(0)?,
                matrices: addresses + number as u64 * 8,
                scales: match sizes.formats[number] {
                    format if format.is_scaled() => addresses + (2 + number as u64) * 8,
                    _ => 0,
                },
                tiles: tiles_at,
                out: out.checked(0, out.width(), out.precision())?,
                step: ADDRESSES as u32,
                n: n as u32,
                k: x.stride() as u32,
                stride: out.stride() as u32,
                segment: segment(sizes.formats[number], n, x.stride()) as u32,
                finish: [gate, Store::Overwrite][number] as u32,
                form: form_number(sizes.formats[number]),
                pad: 0,
            };
            let across = n.div_ceil(tiles.broad[number]) as u32;
            if across > 65_535 {
                return refuse(format!("experts of {n} rows are too large"));
            }
            // SAFETY: by the caller's promise; the matrices have these sizes.
            unsafe { device.launch(tiles.kernels[number], [count as u32, across, 1], &args)? };
            out.round(pairs)?;
        }
        Ok(())
    }
}

/// Rows that are grouped at a time; device addresses.
struct Part {
    rows: usize,
    x: u64,
    /// The factors of rows of integers, or 0.
    row_scales: u64,
    sum: u64,
    chosen: u64,
    weights: u64,
}
