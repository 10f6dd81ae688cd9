//! Sizes and marks that the kernels share with the launches. The comparison of formulas with observed
//! traffic fails if one of them differs.

use kernels::Form;
use kernels::device::{MatrixFormat, Pipeline, ProductTile, TileNames};

/// Slots of a chunk; `CHUNK` of the kernels.
pub(crate) const CHUNK: u32 = 64;
/// Slots of a chunk for wider heads; `WIDE_CHUNK` of the kernels.
pub(crate) const WIDE_CHUNK: u32 = 32;
/// Queries of a block for wider heads; `WIDE_QUERIES` of the kernels.
pub(crate) const WIDE_QUERIES: usize = 16;
/// Words of a tile of rows; `Tile` of the kernels.
pub(crate) const TILE_WORDS: usize = 5;
/// Words of a scored row's settings; `Scored` of the kernels.
pub(crate) const SCORER_WORDS: usize = 18;
/// Marks an absent number; `NONE` of the kernels.
pub(crate) const NONE: u32 = u32::MAX;
/// Bits of the kind of a row; `kinds` of the kernels.
pub(crate) const DENOISED: u32 = 1;
pub(crate) const CONDITIONED: u32 = 2;
/// Bytes of a partial record of the LM head; `Partial` of the kernels.
pub(crate) const PARTIAL_BYTES: usize = 32;
/// Columns of a partial record; `STRIP` of the kernels.
pub(crate) const STRIP: usize = 64;
/// Numbers of a record; `RECORD` of the kernels.
pub(crate) const FIELDS: usize = 8;

/// For few rows of every expert; `TileFew` of `cuda/experts.cuh`.
pub(crate) const FEW: ProductTile = ProductTile {
    rows: 16,
    columns: 64,
    warps: (1, 4),
    warpgroups: false,
    single: false,
    rate: 150e12,
    pipeline: Pipeline { depth: 64, stages: 5 },
    cluster: 0,
    held: false,
    resident: 4,
    format: MatrixFormat::Bf16,
    names: TileNames { gemm: "", head: None, qkv: None, residual: None },
};
/// `TileFewInt8` of `cuda/experts.cuh`.
pub(crate) const FEW_INT8: ProductTile = ProductTile {
    rate: 2.0 * FEW.rate,
    pipeline: Pipeline { depth: 128, stages: 5 },
    format: MatrixFormat::Int8,
    ..FEW
};
/// `TileFewInt8w` of `cuda/experts.cuh`.
pub(crate) const FEW_INT8W: ProductTile =
    ProductTile { warps: (1, 2), format: MatrixFormat::Int8w, ..FEW };
/// `TileFewPacked` of `cuda/experts.cuh`.
pub(crate) const FEW_PACKED: ProductTile =
    ProductTile { format: MatrixFormat::Packed(Form::Eight), ..FEW_INT8W };
/// For few rows of every expert on warpgroups; `Widened16x128` of `cuda/experts_groups.cuh`.
pub(crate) const FEW_GROUPS_INT8W: ProductTile = ProductTile {
    columns: 128,
    warps: (1, 2),
    warpgroups: true,
    pipeline: Pipeline { depth: 128, stages: 5 },
    resident: 2,
    ..FEW_INT8W
};
pub(crate) const FEW_GROUPS_PACKED: ProductTile =
    ProductTile { format: MatrixFormat::Packed(Form::Eight), ..FEW_GROUPS_INT8W };
/// Columns of a panel of packed weights; `PANEL` of the kernels.
pub(crate) const PANEL: u64 = 16;
