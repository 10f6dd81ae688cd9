//! The arguments of kernels, with the layouts of `cuda/*.cuh`. Addresses are device addresses. `pad` is 0
//! and completes the last eight bytes, which are read as bytes like the others.

/// `embed_*`.
#[repr(C)]
pub struct Embed {
    pub table: u64,
    pub tokens: u64,
    pub out: u64,
    pub d: u32,
    pub pad: u32,
}

/// `norm_*`.
#[repr(C)]
pub struct Norm {
    pub x: u64,
    pub weight: u64,
    pub gather: u64,
    pub out: u64,
    pub d: u32,
    pub stride: u32,
    pub eps: f32,
    pub pad: u32,
}

/// Keys and values of a layer.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct KeysValues {
    pub keys: u64,
    pub values: u64,
}

/// The heads of a layer, and the slots of a page.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Heads {
    pub heads: u32,
    pub groups: u32,
    pub c: u32,
    pub page: u32,
}

/// `split_*`.
#[repr(C)]
pub struct Split {
    pub qkv: u64,
    pub head_norms: u64,
    pub angles: u64,
    pub positions: u64,
    pub slots: u64,
    pub q: u64,
    pub layer: KeysValues,
    pub heads: Heads,
    pub half: u32,
    pub normed: u32,
    pub eps: f32,
    pub pad: u32,
}

/// `copy_pages`.
#[repr(C)]
pub struct CopyPages {
    pub pool: u64,
    pub copies: u64,
    pub count: u32,
    pub pages: u32,
    pub words: u32,
    pub pad: u32,
}

/// The operands of a matrix product.
#[repr(C)]
pub struct Operands {
    pub x: u64,
    pub w: u64,
    pub scales: u64,
    pub rows: u32,
    pub n: u32,
    pub k: u32,
    pub segment: u32,
}

/// How the tiles of a product are divided among blocks.
#[repr(C)]
pub struct Share {
    pub partials: u64,
    pub ended: u64,
    pub tall: u32,
    pub whole: u32,
    pub pieces: u32,
    pub lead: u32,
}

/// `gemm_*`.
#[repr(C)]
pub struct Gemm {
    pub of: Operands,
    pub share: Share,
    pub bias: u64,
    pub out: u64,
    pub stride: u32,
    pub finish: u32,
}

/// Results of the parts of contexts, and their sums.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Partial {
    pub results: u64,
    pub sums: u64,
}

/// The tiles of a batch, and what their rows see.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct TileList {
    pub tiles: u64,
    pub pages: u64,
    pub reaches: u64,
    pub visible: u64,
}

/// Parts of a context, and slots of a part.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Parts {
    pub count: u32,
    pub span: u32,
}

/// `attend_*`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Attend {
    pub q: u64,
    pub layer: KeysValues,
    pub partial: Partial,
    pub rows: TileList,
    pub heads: Heads,
    pub parts: Parts,
    pub scale: f32,
    pub stride: u32,
    pub out: u64,
}

/// `combine_*`.
#[repr(C)]
pub struct Combine {
    pub partial: Partial,
    pub reaches: u64,
    pub out: u64,
    pub tiles: u64,
    pub count: u32,
    pub rows: u32,
    pub heads: u32,
    pub c: u32,
    pub parts: Parts,
    pub stride: u32,
    pub pad: u32,
}

/// `head_*`.
#[repr(C)]
pub struct Head {
    pub of: Operands,
    pub bias: u64,
    pub rows: u64,
    pub words: u64,
    pub partials: u64,
    pub present: u64,
    pub logits: u64,
    pub plain: u64,
    pub mask: u32,
    pub count: u32,
    pub cap: f32,
    pub pad: u32,
}

/// `fold_partials`.
#[repr(C)]
pub struct Fold {
    pub partials: u64,
    pub present: u64,
    pub rows: u64,
    pub out: u64,
    pub count: u32,
    pub columns: u32,
    pub vocab: u32,
    pub pad: u32,
}

/// `filter_rows`.
#[repr(C)]
pub struct Filters {
    pub logits: u64,
    pub rows: u64,
    pub out: u64,
    pub tops: u64,
    pub vocab: u32,
    pub mask: u32,
    pub digits: u32,
    pub pad: u32,
}

/// `route_*`.
#[repr(C)]
pub struct Route {
    pub x: u64,
    pub gate: u64,
    pub logits: u64,
    pub rows: u32,
    pub experts: u32,
    pub k: u32,
    pub pad: u32,
}

/// `choose_experts`.
#[repr(C)]
pub struct Choose {
    pub logits: u64,
    pub slots: u64,
    pub bias: u64,
    pub scales: u64,
    pub experts: u64,
    pub weights: u64,
    pub count: u32,
    pub chosen: u32,
    pub gating: u32,
    pub groups: u32,
    pub best: u32,
    pub scale: f32,
}

/// `count_experts` and `group_rows`.
#[repr(C)]
pub struct Group {
    pub experts: u64,
    pub counts: u64,
    pub pairs_at: u64,
    pub places: u64,
    pub tiles: u64,
    pub pairs: u32,
    pub count: u32,
    pub tile: u32,
    pub tile_count: u32,
}

/// `gather_*`.
#[repr(C)]
pub struct Gather {
    pub x: u64,
    pub pairs_at: u64,
    pub out: u64,
    pub chosen: u32,
    pub k: u32,
}

/// `gates_*`, `downs_*` and `experts_f32`.
#[repr(C)]
pub struct Grouped {
    pub x: u64,
    pub matrices: u64,
    pub scales: u64,
    pub tiles: u64,
    pub out: u64,
    pub step: u32,
    pub n: u32,
    pub k: u32,
    pub stride: u32,
    pub segment: u32,
    pub finish: u32,
}

/// `mix_experts`.
#[repr(C)]
pub struct Mix {
    pub results: u64,
    pub experts: u64,
    pub places: u64,
    pub weights: u64,
    pub sum: u64,
    pub chosen: u32,
    pub d: u32,
}

/// `norm_add`, `norm_denoised`, `scale_rows` and `clear_rows`.
#[repr(C)]
pub struct Rowwise {
    pub x: u64,
    pub weight: u64,
    pub kinds: u64,
    pub out: u64,
    pub d: u32,
    pub eps: f32,
    pub encoded: f32,
    pub denoised: f32,
}

/// `read_means` and `keep_means`.
#[repr(C)]
pub struct Means {
    pub kept: u64,
    pub slots: u64,
    pub kinds: u64,
    pub scored: u64,
    pub rows: u64,
    pub x: u64,
    pub d: u32,
    pub pad: u32,
}

/// `softmax_*`.
#[repr(C)]
pub struct Softmax {
    pub logits: u64,
    pub out: u64,
    pub vocab: u32,
    pub stride: u32,
}
