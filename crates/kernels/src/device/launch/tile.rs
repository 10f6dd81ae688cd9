//! The tiles that kernels exist for.

use super::super::Kernel;
use super::super::array::Precision;
use super::{DeviceLimits, HeadColumns, MatrixFormat};
use crate::simd::blocks::Form;

/// Bytes after the stages of a ring; of the same name in the kernels.
const RING_CONTROL: usize = 256;
/// Bytes of a row of inputs in a step of warpgroups; `GROUP_BYTES` of the kernels.
const GROUP_BYTES: usize = 128;

/// Columns of heads that tiles of one and a half heads share; `CUT_HEAD` of the kernels.
const CUT_HEAD: usize = 128;

/// The stages of a tile in shared memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pipeline {
    /// Inner elements of a stage.
    pub depth: usize,
    /// Number of stages; all but one are in flight.
    pub stages: usize,
}

/// A tile of a product and its kernels. A block computes one tile, or some segments of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProductTile {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// Rows and columns of warps, or of warpgroups.
    pub warps: (usize, usize),
    /// True if warpgroups multiply (`cuda/groups.cuh`, `cuda/groups_widened.cuh`), which devices of
    /// compute capability 9.0 can.
    pub warpgroups: bool,
    /// True if it has no registers for earlier segments: it is for products of one segment, or of a ring also for
    /// parts of one.
    pub single: bool,
    /// Multiplications and additions per second on an H200 for which the choice of launches is nearly
    /// the fastest of those measured (`tests/lab/records/h200/launches.json`); of f32, of int8 and of
    /// grouped rows, which are not in that file, assumed.
    pub rate: f64,
    /// Its stages in shared memory.
    pub pipeline: Pipeline,
    /// Blocks of a cluster, which have tiles one below the other and share loaded columns, of kernels whose
    /// operands bulk copies load (`cuda/ring.cuh`); 0 of others.
    pub cluster: usize,
    /// True if the sums of earlier segments are in shared memory instead of registers.
    pub held: bool,
    /// Blocks of a multiprocessor of an H200 at a time, which registers and shared memory allow.
    pub resident: usize,
    /// The number format of the matrix.
    pub format: MatrixFormat,
    /// The names of its kernels.
    pub names: TileNames,
}

/// The names of a tile's kernels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TileNames {
    /// A product.
    pub gemm: &'static str,
    /// The LM head, if there is one with this tile.
    pub head: Option<&'static str>,
    /// The product whose results are the heads of attention (`cuda/qkv.cuh`), if there is one with this tile.
    pub qkv: Option<&'static str>,
    /// The product that is added to the residual stream before a norm (`cuda/residual.cuh`), if there is one
    /// with this tile.
    pub residual: Option<&'static str>,
}

/// Bytes of the factors of a tile's rows; `TALLEST` of the kernels.
pub(in super::super) const FACTORS: usize = 128 * 4;

/// The names of kernels with a tile: of the product alone, of it and what is added to the residual stream, of
/// others, or of all.
macro_rules! names {
    ($tile:literal) => {
        TileNames { gemm: concat!("gemm_", $tile), head: None, qkv: None, residual: None }
    };
    (added $tile:literal) => {
        TileNames { residual: Some(concat!("residual_", $tile)), ..names!($tile) }
    };
    (heads $tile:literal) => {
        TileNames { qkv: Some(concat!("qkv_", $tile)), ..names!(added $tile) }
    };
    (split $tile:literal) => {
        TileNames { qkv: Some(concat!("qkv_", $tile)), ..names!($tile) }
    };
    (others $tile:literal) => {
        TileNames { head: Some(concat!("head_", $tile)), ..names!(split $tile) }
    };
    (all $tile:literal) => {
        TileNames { residual: Some(concat!("residual_", $tile)), ..names!(others $tile) }
    };
}

impl ProductTile {
    /// Stages that are on their way while one is multiplied.
    pub const fn ahead(&self) -> usize {
        // Warpgroups may still read the stage before.
        match self.pipeline.stages {
            0..=2 => 1,
            stages if self.warpgroups => stages - 2,
            stages => stages - 1,
        }
    }

    /// The tiles of a number format, those of warps before those of warpgroups, the smallest first.
    pub fn all(format: MatrixFormat) -> &'static [Self] {
        match format {
            MatrixFormat::F32 => &EXACT,
            MatrixFormat::Bf16 => &BF16,
            MatrixFormat::Int8 => &INT8,
            MatrixFormat::Int8w => &INT8W,
            MatrixFormat::Packed(_) => &PACKED,
        }
    }

    /// Threads of a block.
    pub const fn threads(&self) -> usize {
        let unit = if self.warpgroups { 128 } else { 32 };
        let loading = if self.cluster > 0 { 128 } else { 0 };
        self.warps.0 * self.warps.1 * unit + loading
    }

    /// Blocks with adjacent tiles.
    pub(in super::super) const fn blocks(&self) -> usize {
        if self.cluster > 1 { self.cluster } else { 1 }
    }

    /// Bytes of a stage.
    pub const fn stage(&self) -> usize {
        let Self { rows, columns, format, pipeline: Pipeline { depth, .. }, .. } = *self;
        match format {
            // Rows are padded by four numbers.
            MatrixFormat::F32 => (rows + columns + 8) * depth * 4,
            // Each step of warpgroups begins at a multiple of 1024.
            _ if self.warpgroups => {
                let inner = GROUP_BYTES / format.input_bytes();
                let step = rows * GROUP_BYTES + columns * format.bits() * inner / 8;
                step.next_multiple_of(1024) * (depth / inner)
            }
            _ => (rows * 8 * format.input_bytes() + columns * format.bits()) * depth / 8,
        }
    }

    /// Bytes of shared memory that the tile's warps or warpgroups read for an inner element. Tiles in f32
    /// are not counted.
    pub const fn read(&self) -> usize {
        let (down, across) = self.warps;
        match self.format {
            MatrixFormat::F32 => 0,
            // A product with 64 columns in registers reads all rows.
            MatrixFormat::Int8w | MatrixFormat::Packed(_) if self.warpgroups => {
                self.rows * self.columns / 64 * 2 + self.columns * self.format.bits() / 8
            }
            // Every warp reads its rows and its columns.
            format => {
                self.rows * across * format.input_bytes() + self.columns * down * format.bits() / 8
            }
        }
    }

    /// Bytes of shared memory of a block.
    pub const fn shared(&self) -> usize {
        let sums = if self.held { self.rows * self.columns * 4 } else { 0 };
        let control = if self.cluster > 0 { RING_CONTROL } else { 0 };
        self.pipeline.stages * self.stage() + sums + control
    }

    pub(in super::super) fn gemm_kernel(&'static self) -> Kernel {
        self.kernel(self.names.gemm, self.shared() + self.factors())
    }

    /// The kernel of the LM head, if there is one.
    pub(in super::super) fn head_kernel(&'static self) -> Option<Kernel> {
        let shared = if self.cluster > 0 { self.shared() } else { self.spread() };
        self.names.head.map(|name| self.kernel(name, shared))
    }

    /// The kernel of the product whose results are the heads of attention, if there is one.
    pub(in super::super) fn qkv_kernel(&'static self) -> Option<Kernel> {
        self.names.qkv.map(|name| self.kernel(name, self.spread() + self.factors()))
    }

    /// True if two tiles have three heads.
    pub const fn cuts_heads(&self) -> bool {
        2 * self.columns == 3 * CUT_HEAD
    }

    /// True if that kernel splits these heads.
    pub(in super::super) fn splits(&self, heads: HeadColumns) -> bool {
        match self.cuts_heads() {
            true => heads.cut && heads.width == CUT_HEAD,
            false => heads.width > 0 && self.window().is_multiple_of(heads.width),
        }
    }

    /// The kernel of the product that is added to the residual stream before a norm, if there is one.
    pub(in super::super) fn residual_kernel(&'static self) -> Option<Kernel> {
        // The kernels of rings have room for factors, which these products do not need.
        self.names.residual.map(|name| self.kernel(name, self.spread()))
    }

    /// Bytes for the factors of rows in bf16.
    fn factors(&self) -> usize {
        if self.format.inputs() == Precision::Bf16 { FACTORS } else { 0 }
    }

    fn kernel(&self, name: &'static str, shared: usize) -> Kernel {
        let (threads, shared) = (self.threads() as u32, shared as u32);
        Kernel { name, threads, shared, warpgroups: self.warpgroups, bulk: self.cluster > 0 }
    }

    /// Columns whose sums are in shared memory at a time, after the product; `WINDOW` of `cuda/ring.cuh`.
    const fn window(&self) -> usize {
        if self.cluster > 0 && self.columns == 256 { 128 } else { self.columns }
    }

    /// Bytes of shared memory of a block whose sums replace the operands; `spread` of the kernels. Those of a
    /// ring are beside them, some at a time.
    fn spread(&self) -> usize {
        if self.cluster > 0 {
            return self.shared() + self.rows / 2 * (self.window() + 8) * 4;
        }
        self.shared().max(self.rows * (self.columns + 8) * 4)
    }

    /// True if a device has what the tile needs.
    pub(super) fn runs_on(&'static self, limits: DeviceLimits) -> bool {
        self.gemm_kernel().runs_on(limits)
    }
}

/// A tile that warps compute.
const fn of_warps(rows: usize, columns: usize, names: TileNames) -> ProductTile {
    ProductTile {
        rows,
        columns,
        warps: (4, 2),
        warpgroups: false,
        single: false,
        rate: 235e12,
        pipeline: Pipeline { depth: 64, stages: 4 },
        cluster: 0,
        held: false,
        resident: 1,
        format: MatrixFormat::Bf16,
        names,
    }
}

const EXACT: [ProductTile; 1] = [ProductTile {
    rate: 30e12,
    pipeline: Pipeline { depth: 16, stages: 1 },
    resident: 2,
    format: MatrixFormat::F32,
    ..of_warps(64, 64, TileNames { qkv: None, ..names!(others "f32") })
}];

/// For few rows.
const LOW: ProductTile =
    ProductTile { resident: 2, ..of_warps(64, 128, names!(all "bf16_64x128")) };
/// For many rows on devices with little shared memory.
const SQUARE: ProductTile = ProductTile {
    rate: 270e12,
    pipeline: Pipeline { depth: 64, stages: 3 },
    ..of_warps(128, 128, names!(all "bf16_128x128"))
};
/// For many rows.
const WIDE: ProductTile = ProductTile {
    warps: (2, 4),
    rate: 260e12,
    pipeline: Pipeline { depth: 32, stages: 4 },
    held: true,
    ..of_warps(128, 256, names!(all "bf16_128x256"))
};

/// A tile that warpgroups compute: its rows and columns, its rate in 10^12 operations per second, the
/// stages in shared memory, and its kernels.
const fn of_groups(
    [rows, columns]: [usize; 2],
    rate: f64,
    stages: usize,
    names: TileNames,
) -> ProductTile {
    ProductTile {
        rows,
        columns,
        warps: if rows == 64 { (1, 2) } else { (2, 1) },
        warpgroups: true,
        single: false,
        rate: rate * 1e12,
        pipeline: Pipeline { depth: 64, stages },
        cluster: 0,
        held: false,
        resident: 1,
        format: MatrixFormat::Bf16,
        names,
    }
}

/// A tile whose operands bulk copies load, in clusters of `cluster` blocks. Its rate is assumed.
const fn of_ring(
    [rows, columns]: [usize; 2],
    cluster: usize,
    rate: f64,
    stages: usize,
    names: TileNames,
) -> ProductTile {
    ProductTile { cluster, ..of_groups([rows, columns], rate, stages, names) }
}

/// A tile whose weights, in int8w or packed, are widened in registers (`cuda/groups_widened.cuh`).
const fn widened(
    [rows, columns]: [usize; 2],
    rate: f64,
    stages: usize,
    names: TileNames,
) -> ProductTile {
    ProductTile {
        warps: if columns == 192 { (1, 3) } else { (1, 2) },
        pipeline: Pipeline { depth: if rows == 64 { 128 } else { 64 }, stages },
        ..named(MatrixFormat::Int8w, of_groups([rows, columns], rate, stages, names), names)
    }
}

/// A tile with weights in another format.
const fn named(format: MatrixFormat, tile: ProductTile, names: TileNames) -> ProductTile {
    ProductTile { format, names, ..tile }
}

const BF16: [ProductTile; 15] = [
    LOW,
    SQUARE,
    WIDE,
    ProductTile { resident: 2, ..of_groups([64, 64], 265.0, 6, names!(added "bf16_groups_64x64")) },
    of_groups([64, 128], 350.0, 6, names!(all "bf16_groups_64x128")),
    ProductTile { single: true, ..of_groups([64, 192], 415.0, 6, names!("bf16_groups_64x192")) },
    of_groups([128, 128], 525.0, 4, names!(all "bf16_groups_128x128")),
    ProductTile {
        single: true,
        ..of_groups([128, 192], 700.0, 5, names!(split "bf16_groups_128x192"))
    },
    ProductTile {
        single: true,
        ..of_groups([128, 256], 630.0, 4, names!(others "bf16_groups_128x256"))
    },
    ProductTile { resident: 2, ..of_ring([64, 64], 1, 265.0, 6, names!(added "bf16_ring_64x64")) },
    ProductTile {
        resident: 2,
        ..of_ring([64, 128], 1, 350.0, 4, names!(heads "bf16_ring_64x128"))
    },
    of_ring([128, 128], 1, 600.0, 5, names!(heads "bf16_ring_128x128")),
    of_ring([128, 128], 2, 640.0, 5, names!(all "bf16_pair_128x128")),
    ProductTile {
        single: true,
        ..of_ring([128, 192], 2, 730.0, 4, names!(split "bf16_pair_128x192"))
    },
    ProductTile {
        single: true,
        ..of_ring([128, 256], 2, 760.0, 4, names!(all "bf16_pair_128x256"))
    },
];
/// The tiles of bf16. A step has as many bytes of a row, so twice the inner elements, and is assumed to
/// take as long. Sums are exact, so that no tile needs products of one segment or holds earlier sums.
const INT8: [ProductTile; 15] = [
    integers(BF16[0], names!(others "int8_64x128")),
    integers(BF16[1], names!(others "int8_128x128")),
    integers(BF16[2], names!(others "int8_128x256")),
    integers(BF16[3], names!("int8_groups_64x64")),
    integers(BF16[4], names!(others "int8_groups_64x128")),
    integers(BF16[5], names!("int8_groups_64x192")),
    integers(BF16[6], names!(others "int8_groups_128x128")),
    integers(BF16[7], names!("int8_groups_128x192")),
    integers(BF16[8], names!(others "int8_groups_128x256")),
    integers(BF16[9], names!("int8_ring_64x64")),
    integers(BF16[10], names!(split "int8_ring_64x128")),
    integers(BF16[11], names!(split "int8_ring_128x128")),
    integers(BF16[12], names!(others "int8_pair_128x128")),
    integers(BF16[13], names!("int8_pair_128x192")),
    integers(BF16[14], names!(others "int8_pair_128x256")),
];

/// A tile of bf16 with inputs and weights in int8.
const fn integers(tile: ProductTile, names: TileNames) -> ProductTile {
    let Pipeline { depth, stages } = tile.pipeline;
    ProductTile {
        single: false,
        rate: 2.0 * tile.rate,
        pipeline: Pipeline { depth: 2 * depth, stages },
        held: false,
        ..named(MatrixFormat::Int8, tile, names)
    }
}

const INT8W: [ProductTile; 7] = [
    named(MatrixFormat::Int8w, LOW, names!(all "int8w_64x128")),
    named(MatrixFormat::Int8w, SQUARE, names!(all "int8w_128x128")),
    named(MatrixFormat::Int8w, WIDE, names!(all "int8w_128x256")),
    widened([64, 128], 350.0, 6, names!(all "int8w_groups_64x128")),
    widened([64, 192], 375.0, 5, names!(added "int8w_groups_64x192")),
    widened([128, 128], 550.0, 8, names!(all "int8w_groups_128x128")),
    ProductTile { single: true, ..widened([128, 192], 580.0, 7, names!("int8w_groups_128x192")) },
];
const PACKED_WEIGHTS: MatrixFormat = MatrixFormat::Packed(Form::Eight);
/// The same tiles as in int8w, without the one that needs the most shared memory. A stage has room for the
/// largest records.
const PACKED: [ProductTile; 6] = [
    named(
        PACKED_WEIGHTS,
        ProductTile { warps: (2, 4), resident: 1, ..LOW },
        names!(all "packed_64x128"),
    ),
    named(PACKED_WEIGHTS, ProductTile { warps: (2, 4), ..SQUARE }, names!(all "packed_128x128")),
    named(PACKED_WEIGHTS, INT8W[3], names!(all "packed_groups_64x128")),
    named(PACKED_WEIGHTS, INT8W[4], names!(added "packed_groups_64x192")),
    named(PACKED_WEIGHTS, INT8W[5], names!(all "packed_groups_128x128")),
    named(PACKED_WEIGHTS, INT8W[6], names!("packed_groups_128x192")),
];

/// All kernels with a tile.
pub(in super::super) fn kernels() -> impl Iterator<Item = Kernel> {
    let tiles = MatrixFormat::KERNELS.into_iter().flat_map(ProductTile::all);
    tiles.flat_map(|tile| {
        let others = [tile.head_kernel(), tile.qkv_kernel(), tile.residual_kernel()];
        std::iter::once(tile.gemm_kernel()).chain(others.into_iter().flatten())
    })
}
