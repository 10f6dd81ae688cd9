//! The arguments of kernels, with the layouts of `cuda/*.cuh`. Addresses are device addresses. `pad` is 0
//! and completes the last eight bytes, which are read as bytes like the others.

use super::tensor_map::TensorMap;

/// Declares structures of public fields, those of one type together.
macro_rules! arguments {
    ($($(#[$doc:meta])* $name:ident { $($($field:ident)+: $kind:ty,)+ })+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        #[repr(C)]
        pub struct $name {
            $($(pub $field: $kind,)+)+
        }
    )+};
}

/// The arguments of kernels whose operands bulk copies load: the maps of both, the number of parts, and those of
/// the product.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Ring {
    /// The maps of the inputs and of the weights.
    pub maps: [TensorMap; 2],
    /// Parts that the blocks compute, or the clusters.
    pub parts: u32,
    /// The first row of the inputs.
    pub first: u32,
    /// The arguments of the product, followed by zeros.
    pub product: [u64; 31],
}

impl Ring {
    /// The arguments of a product with these maps.
    pub fn new<A: Copy>(maps: [TensorMap; 2], [parts, first]: [usize; 2], args: &A) -> Self {
        const { assert!(size_of::<A>() <= size_of::<[u64; 31]>() && align_of::<A>() <= 8) };
        let mut product = [0; 31];
        // SAFETY: the words have room; arguments are plain numbers without padding.
        unsafe { product.as_mut_ptr().cast::<A>().write(*args) };
        Self { maps, parts: parts as u32, first: first as u32, product }
    }
}

arguments! {
    /// `embed_*`.
    Embed {
        table tokens out: u64,
        d pad: u32,
    }

    /// `norm_*`.
    Norm {
        x weight gather out scales: u64,
        d stride: u32,
        eps: f32,
        pad: u32,
    }

    /// `round_*`.
    Round {
        x out scales: u64,
        d x_stride stride pad: u32,
    }

    /// Keys and values of a layer.
    KeysValues {
        keys values: u64,
    }

    /// The heads of a layer, and the slots of a page.
    Heads {
        heads num_kv_heads c page: u32,
    }

    /// The destinations of the heads of rows.
    HeadSplit {
        head_norms angles query_factors positions slots q: u64,
        layer: KeysValues,
        heads: Heads,
        half normed: u32,
        eps: f32,
        in_bytes: u32,
    }

    /// `split_*`.
    Split {
        qkv: u64,
        heads: HeadSplit,
    }

    /// `copy_pages`.
    CopyPages {
        pool copies: u64,
        count pages words pad: u32,
    }

    /// The operands of a matrix product.
    Operands {
        x w scales row_scales squares: u64,
        rows n k segment form parts: u32,
        eps: f32,
        factors early pad: u32,
    }

    /// The division of a product's tiles among blocks.
    Share {
        partials ended: u64,
        tall whole pieces lead: u32,
    }

    /// `gemm_*`.
    Gemm {
        operands: Operands,
        share: Share,
        bias out: u64,
        stride finish: u32,
    }

    /// `qkv_*`.
    Qkv {
        operands: Operands,
        share: Share,
        bias: u64,
        heads: HeadSplit,
    }

    /// `residual_*`.
    Residual {
        operands: Operands,
        share: Share,
        bias sum weight next squares: u64,
    }

    /// Results of the parts of contexts, and the numbers of blocks that have ended.
    Partial {
        results ended: u64,
    }

    /// The tiles of a batch, and what their rows see.
    TileList {
        tiles pages reaches visible: u64,
    }

    /// Parts of a context, and slots of a part.
    Parts {
        count span: u32,
    }

    /// `attend_*`.
    Attend {
        q: u64,
        layer: KeysValues,
        partial: Partial,
        rows: TileList,
        heads: Heads,
        parts: Parts,
        scale: f32,
        stride: u32,
        out: u64,
    }

    /// `head_*`.
    Head {
        operands: Operands,
        bias rows words partials apart logits plain: u64,
        mask count: u32,
        cap: f32,
        pad: u32,
    }

    /// `fold_partials`.
    Fold {
        partials apart rows out: u64,
        count vocab mask pad: u32,
    }

    /// `filter_rows`.
    Filters {
        logits rows out tops words: u64,
        vocab mask digits pad: u32,
    }

    /// `route_*`.
    Route {
        x gate logits: u64,
        rows experts k pad: u32,
    }

    /// `choose_experts`.
    Choose {
        logits slots bias scales experts weights: u64,
        count chosen gating groups best: u32,
        scale: f32,
    }

    /// `count_experts` and `group_rows`.
    Group {
        experts counts pairs_at places tiles: u64,
        pairs count tile tile_count: u32,
    }

    /// `gather_*`.
    Gather {
        x pairs_at out row_scales out_scales: u64,
        chosen k: u32,
    }

    /// `gates_*`, `downs_*` and `experts_f32`.
    Grouped {
        x row_scales matrices scales tiles out: u64,
        step n k stride segment finish form pad: u32,
    }

    /// `mix_experts`.
    Mix {
        results experts places weights sum: u64,
        chosen d: u32,
    }

    /// `norm_add`, `norm_denoised`, `scale_rows` and `clear_rows`.
    Rowwise {
        x weight kinds out: u64,
        d: u32,
        eps encoded denoised: f32,
    }

    /// `read_means` and `keep_means`.
    Means {
        kept slots kinds scored rows x: u64,
        d pad: u32,
    }

    /// `softmax_*`.
    Softmax {
        logits rows words out: u64,
        vocab stride: u32,
    }
}
