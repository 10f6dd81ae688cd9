//! The arguments of kernels, with the layouts of `cuda/*.cuh`. Addresses are device addresses. `pad` is 0
//! and completes the last eight bytes, which are read as bytes like the others.

/// `embed_*`.
#[repr(C)]
pub(super) struct Embed {
    pub(super) table: u64,
    pub(super) tokens: u64,
    pub(super) out: u64,
    pub(super) d: u32,
    pub(super) pad: u32,
}

/// `norm_*`.
#[repr(C)]
pub(super) struct Norm {
    pub(super) x: u64,
    pub(super) weight: u64,
    pub(super) gather: u64,
    pub(super) out: u64,
    pub(super) d: u32,
    pub(super) stride: u32,
    pub(super) eps: f32,
    pub(super) pad: u32,
}

/// `split_*`.
#[repr(C)]
pub(super) struct Split {
    pub(super) qkv: u64,
    pub(super) head_norms: u64,
    pub(super) angles: u64,
    pub(super) positions: u64,
    pub(super) slots: u64,
    pub(super) q: u64,
    pub(super) keys: u64,
    pub(super) values: u64,
    pub(super) heads: u32,
    pub(super) groups: u32,
    pub(super) c: u32,
    pub(super) half: u32,
    pub(super) page: u32,
    pub(super) normed: u32,
    pub(super) eps: f32,
    pub(super) pad: u32,
}

/// `copy_pages`.
#[repr(C)]
pub(super) struct CopyPages {
    pub(super) pool: u64,
    pub(super) copies: u64,
    pub(super) count: u32,
    pub(super) pages: u32,
    pub(super) words: u32,
    pub(super) pad: u32,
}

/// The operands of a matrix product.
#[repr(C)]
pub(super) struct Operands {
    pub(super) x: u64,
    pub(super) w: u64,
    pub(super) scales: u64,
    pub(super) rows: u32,
    pub(super) n: u32,
    pub(super) k: u32,
    pub(super) segment: u32,
}

/// How the tiles of a product are divided among blocks.
#[repr(C)]
pub(super) struct Share {
    pub(super) partials: u64,
    pub(super) ended: u64,
    pub(super) tall: u32,
    pub(super) whole: u32,
    pub(super) pieces: u32,
    pub(super) lead: u32,
}

/// `gemm_*`.
#[repr(C)]
pub(super) struct Gemm {
    pub(super) of: Operands,
    pub(super) share: Share,
    pub(super) bias: u64,
    pub(super) out: u64,
    pub(super) stride: u32,
    pub(super) finish: u32,
}

/// `attend_*`.
#[repr(C)]
pub(super) struct Attend {
    pub(super) q: u64,
    pub(super) keys: u64,
    pub(super) values: u64,
    pub(super) partial: u64,
    pub(super) sums: u64,
    pub(super) tiles: u64,
    pub(super) pages: u64,
    pub(super) reaches: u64,
    pub(super) visible: u64,
    pub(super) heads: u32,
    pub(super) groups: u32,
    pub(super) c: u32,
    pub(super) page: u32,
    pub(super) parts: u32,
    pub(super) span: u32,
    pub(super) scale: f32,
    pub(super) stride: u32,
    pub(super) out: u64,
}

/// `combine_*`.
#[repr(C)]
pub(super) struct Combine {
    pub(super) partial: u64,
    pub(super) sums: u64,
    pub(super) reaches: u64,
    pub(super) out: u64,
    pub(super) tiles: u64,
    pub(super) count: u32,
    pub(super) rows: u32,
    pub(super) heads: u32,
    pub(super) c: u32,
    pub(super) parts: u32,
    pub(super) span: u32,
    pub(super) stride: u32,
    pub(super) pad: u32,
}

/// `head_*`.
#[repr(C)]
pub(super) struct Head {
    pub(super) of: Operands,
    pub(super) bias: u64,
    pub(super) rows: u64,
    pub(super) words: u64,
    pub(super) partials: u64,
    pub(super) present: u64,
    pub(super) logits: u64,
    pub(super) plain: u64,
    pub(super) mask: u32,
    pub(super) count: u32,
    pub(super) cap: f32,
    pub(super) pad: u32,
}

/// `fold_partials`.
#[repr(C)]
pub(super) struct Fold {
    pub(super) partials: u64,
    pub(super) present: u64,
    pub(super) rows: u64,
    pub(super) out: u64,
    pub(super) count: u32,
    pub(super) columns: u32,
    pub(super) vocab: u32,
    pub(super) pad: u32,
}

/// `filter_rows`.
#[repr(C)]
pub(super) struct Filters {
    pub(super) logits: u64,
    pub(super) rows: u64,
    pub(super) out: u64,
    pub(super) tops: u64,
    pub(super) vocab: u32,
    pub(super) mask: u32,
    pub(super) digits: u32,
    pub(super) pad: u32,
}

/// `route_*`.
#[repr(C)]
pub(super) struct Route {
    pub(super) x: u64,
    pub(super) gate: u64,
    pub(super) logits: u64,
    pub(super) rows: u32,
    pub(super) experts: u32,
    pub(super) k: u32,
    pub(super) pad: u32,
}

/// `choose_experts`.
#[repr(C)]
pub(super) struct Choose {
    pub(super) logits: u64,
    pub(super) slots: u64,
    pub(super) bias: u64,
    pub(super) scales: u64,
    pub(super) experts: u64,
    pub(super) weights: u64,
    pub(super) count: u32,
    pub(super) chosen: u32,
    pub(super) gating: u32,
    pub(super) groups: u32,
    pub(super) best: u32,
    pub(super) scale: f32,
}

/// `count_experts` and `group_rows`.
#[repr(C)]
pub(super) struct Group {
    pub(super) experts: u64,
    pub(super) counts: u64,
    pub(super) pairs_at: u64,
    pub(super) places: u64,
    pub(super) tiles: u64,
    pub(super) pairs: u32,
    pub(super) count: u32,
    pub(super) tile: u32,
    pub(super) tile_count: u32,
}

/// `gather_*`.
#[repr(C)]
pub(super) struct Gather {
    pub(super) x: u64,
    pub(super) pairs_at: u64,
    pub(super) out: u64,
    pub(super) chosen: u32,
    pub(super) k: u32,
}

/// `gates_*`, `downs_*` and `experts_f32`.
#[repr(C)]
pub(super) struct Grouped {
    pub(super) x: u64,
    pub(super) matrices: u64,
    pub(super) scales: u64,
    pub(super) tiles: u64,
    pub(super) out: u64,
    pub(super) step: u32,
    pub(super) n: u32,
    pub(super) k: u32,
    pub(super) stride: u32,
    pub(super) segment: u32,
    pub(super) finish: u32,
}

/// `mix_experts`.
#[repr(C)]
pub(super) struct Mix {
    pub(super) results: u64,
    pub(super) experts: u64,
    pub(super) places: u64,
    pub(super) weights: u64,
    pub(super) sum: u64,
    pub(super) chosen: u32,
    pub(super) d: u32,
}

/// `norm_add`, `norm_denoised`, `scale_rows` and `clear_rows`.
#[repr(C)]
pub(super) struct Rowwise {
    pub(super) x: u64,
    pub(super) weight: u64,
    pub(super) kinds: u64,
    pub(super) out: u64,
    pub(super) d: u32,
    pub(super) eps: f32,
    pub(super) encoded: f32,
    pub(super) denoised: f32,
}

/// `read_means` and `keep_means`.
#[repr(C)]
pub(super) struct Means {
    pub(super) kept: u64,
    pub(super) slots: u64,
    pub(super) kinds: u64,
    pub(super) scored: u64,
    pub(super) rows: u64,
    pub(super) x: u64,
    pub(super) d: u32,
    pub(super) pad: u32,
}

/// `softmax_*`.
#[repr(C)]
pub(super) struct Softmax {
    pub(super) logits: u64,
    pub(super) out: u64,
    pub(super) vocab: u32,
    pub(super) stride: u32,
}
