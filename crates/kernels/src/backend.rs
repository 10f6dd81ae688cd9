//! The operations of a forward pass, for every backend.
//!
//! A network is written once over [`Backend`] and loaded once over [`Storage`]. An operation
//! overwrites an array that its caller owns: a CUDA device needs memory that is allocated before a
//! pass, and the CPU replaces the array's contents by a new tensor.
//!
//! An operation fails if an array has another shape than documented, an index is out of bounds, the backend
//! lacks what a model needs, or the device fails; storing and allocating also if memory does not suffice.

mod accelerator;
mod candle;
mod canvas;
mod counting;
mod cpu;
mod experts;
mod products;
mod rows;
mod table;

pub use accelerator::{Accelerator, DeviceKv, LayerScratch};
pub use candle::Candle;
pub use counting::Counting;
pub use cpu::Cpu;
pub use experts::Experts;
pub use products::{Projection, Residual};
pub use rows::Rows;
pub use table::{StoredTable, Table, TableNumbers};

use crate::attention::Visible;
use crate::blocks::{BlockRows, BlockType};
use crate::cache::KvSizes;
use crate::device::{BatchArrays, BatchLimits, RowSet};
use crate::linear::Epilogue;
use crate::rope::RopeSpec;
use crate::routing::Routing;
use crate::score::{Scorer, Scores};
use crate::simd::unit::WeightDtype;
use candle_core::{Result, bail};
use std::ops::Range;

/// The numbers of a matrix.
#[derive(Clone, Copy, Debug)]
pub enum Numbers<'a> {
    /// Row-major; empty if weights are only counted.
    Floats(&'a [f32]),
    /// Rows of blocks, one after another; their bytes are empty if weights are only counted.
    Blocks(&'a [BlockRows<'a>]),
}

/// A matrix `[n, k]` to be stored for products.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    /// Rows `n` and columns `k`.
    pub shape: [usize; 2],
    /// The weights.
    pub numbers: Numbers<'a>,
    /// A number per row, if the product has a bias; empty if weights are only counted.
    pub bias: Option<&'a [f32]>,
    /// The number format of the product with numbers in f32. Blocks are kept.
    pub dtype: WeightDtype,
    /// The operation on the product.
    pub epilogue: Epilogue,
}

/// Numbers to be stored, such as the weights of a norm.
#[derive(Clone, Copy, Debug)]
pub struct StoredVector<'a> {
    /// Length of the vector.
    pub count: usize,
    /// The numbers; empty if weights are only counted.
    pub numbers: &'a [f32],
}

/// Where weights are stored. Each method takes one kind of weight, as f32 or blocks, and stores it in
/// the format of its operations.
pub trait Storage: Send + Sync {
    /// An embedding table.
    type Table: Send + Sync;
    /// The weights of a norm.
    type Vector: Send + Sync;
    /// A matrix with its bias.
    type Matrix: Send + Sync;
    /// The rotary angles of all positions.
    type RopeTable: Send + Sync;
    /// The experts of a layer that are run at once; `()` if the backend runs them one by one.
    type Grouped: Send + Sync;

    /// True if matrices are stored in blocks of this type; otherwise they are given in numbers.
    fn keeps(&self, _: BlockType) -> bool {
        true
    }

    /// Stores an embedding table.
    fn table(&self, table: Table) -> Result<Self::Table>;

    /// Stores a vector.
    fn vector(&self, vector: StoredVector<'_>) -> Result<Self::Vector>;

    /// Stores a matrix.
    ///
    /// # Errors
    /// If the sizes do not match, the backend has no products in this dtype, or the matrix does not
    /// fit into memory.
    fn matrix(&self, matrix: Stored<'_>) -> Result<Self::Matrix>;

    /// Computes rotary angles.
    fn rope_table(&self, spec: RopeSpec) -> Result<Self::RopeTable>;

    /// Makes a mixture of stored experts.
    ///
    /// # Errors
    /// If the backend has no operations for such experts, or they do not fit into memory.
    fn experts(
        &self,
        gate: Self::Matrix,
        experts: Vec<[Self::Matrix; 2]>,
        _: Routing<'_>,
    ) -> Result<Experts<Self>> {
        Ok(Experts::Each { gate, experts })
    }

    /// Bytes of this process's memory that the stored weights take.
    fn bytes(&self) -> u64;
}

/// The contents of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayKind {
    /// Sums in f32: the residual stream, results of products.
    Sums,
    /// Results of a norm, inputs of products.
    Inputs,
    /// The same, also inputs of a router.
    Routed,
    /// Results of attention, inputs of a product.
    Attended,
    /// Results of a gated product, inputs of another.
    Gated,
    /// Queries of attention.
    Queries,
}

/// A batch on a backend, with the keys and values of its sequences.
pub struct Pass<'a, B: Backend + ?Sized> {
    /// The batch on the host.
    pub arrays: &'a BatchArrays<'a>,
    /// The same after [`Backend::upload`].
    pub batch: &'a B::Batch,
    /// Keys and values of all layers.
    pub kv: &'a B::Kv,
    /// The mask token, which is never chosen.
    pub mask: u32,
    /// The rows that a gated adapter changes.
    pub adapted: &'a [u32],
}

/// Rows of an array.
pub struct Selection<'a, B: Backend + ?Sized> {
    /// The array.
    pub array: &'a B::Array,
    /// Its rows that are meant.
    pub rows: &'a RowSet,
}

/// A range of a batch's scored rows.
pub struct ScoredRange<'a, B: Backend + ?Sized> {
    /// The batch.
    pub pass: &'a Pass<'a, B>,
    /// Numbers of the rows among the scored ones.
    pub range: Range<usize>,
}

/// The experts of a layer, and the pass whose rows chose some of them.
pub struct Mixture<'a, 'p, B: Backend + ?Sized> {
    /// The experts.
    pub experts: &'a B::Grouped,
    /// The pass.
    pub pass: &'a Pass<'p, B>,
}

/// An RMS norm `x / sqrt(mean(x^2) + eps) * weight`.
pub struct Norm<'a, B: Backend + ?Sized> {
    /// Weights.
    pub weight: &'a B::Vector,
    /// Added to the mean of the squares.
    pub eps: f32,
}

/// The LM head.
pub struct Head<'a, B: Backend + ?Sized> {
    /// The matrix `[v, d]`.
    pub matrix: &'a B::Matrix,
    /// Logits are `cap * tanh(x / cap)` of the product.
    pub cap: Option<f32>,
    /// The embedding table transposed, `[d, v]`, if the mean embeddings of the scored rows are wanted:
    /// each token's times its probability.
    pub soft: Option<&'a B::Matrix>,
}

/// The attention of a layer.
pub struct Attention<'a, B: Backend + ?Sized> {
    /// The layer's number among the keys and values, from 0.
    pub layer: usize,
    /// Query heads `h`.
    pub heads: usize,
    /// Key/value heads `g`.
    pub num_kv_heads: usize,
    /// Head width `c`.
    pub head_width: usize,
    /// Rotary angles.
    pub rope_table: &'a B::RopeTable,
    /// The norm of each query and key head before the rotation, with weights `[h + g, c]`, or of the
    /// value heads too, with weights `[h + 2 g, c]`.
    pub norm: Option<Norm<'a, B>>,
    /// True if rows see the window that a canvas model's batch has for some layers.
    pub windowed: bool,
}

/// The rows that chose an expert, in ascending order, and its weight in each row.
#[derive(Clone, Copy, Debug)]
pub struct ExpertRows<'a> {
    /// The rows.
    pub rows: &'a [u32],
    /// One weight per row.
    pub weights: &'a [f32],
}

/// The operations of a forward pass on arrays of rows. `rows` is the number of rows to process, from
/// the first on.
pub trait Backend: Storage {
    /// Rows of numbers.
    type Array: Send;
    /// An uploaded batch.
    type Batch: Default + Send;
    /// Keys and values of all layers in pages.
    type Kv: Send + Sync;
    /// The results of scoring.
    type Scores: Default + Send;

    /// Rows that are scored at a time.
    const CHUNK: usize;

    /// Allocates an array.
    fn array(&self, kind: ArrayKind, rows: usize, width: usize) -> Result<Self::Array>;

    /// Allocates keys and values, zeroed, of the layers of one size after another, with the same
    /// pages.
    ///
    /// # Errors
    /// If they do not fit into memory, or the backend has no attention for the head width or the
    /// number format.
    fn kv(&self, sizes: &[KvSizes]) -> Result<Self::Kv>;

    /// Replaces `batch` by the batch in `arrays`.
    fn upload(
        &self,
        arrays: &BatchArrays<'_>,
        limits: &BatchLimits,
        batch: &mut Self::Batch,
    ) -> Result<()>;

    /// Number of rows that a pass processes, with padding.
    fn rows(&self, pass: &Pass<'_, Self>) -> usize;

    /// Number of rows that a pass scores, with padding.
    fn scored(&self, pass: &Pass<'_, Self>) -> usize;

    /// Makes the batch's page copies in every layer, in order.
    fn copy_pages(&self, pass: &Pass<'_, Self>) -> Result<()>;

    /// Overwrites `out [r, d]` with the embeddings of the batch's tokens.
    fn embed(
        &self,
        table: &Self::Table,
        pass: &Pass<'_, Self>,
        out: &mut Self::Array,
    ) -> Result<()>;

    /// Overwrites the first rows of `out` with the norms of rows of `x [r, d]`.
    fn norm(
        &self,
        input: Selection<'_, Self>,
        pass: &Pass<'_, Self>,
        norm: Norm<'_, Self>,
        out: &mut Self::Array,
    ) -> Result<()>;

    /// Overwrites `out` with the product of `x` and a matrix, then applies the matrix's epilogue.
    fn linear(
        &self,
        matrix: &Self::Matrix,
        x: &Self::Array,
        rows: usize,
        out: &mut Self::Array,
    ) -> Result<()>;

    /// Adds the product of `x` and a matrix to `sum`.
    fn linear_add(
        &self,
        matrix: &Self::Matrix,
        x: &Self::Array,
        rows: usize,
        sum: &mut Self::Array,
    ) -> Result<()>;

    /// Adds a product to `sum`, then overwrites `out` with the norms of all its rows, which products alone may
    /// read.
    fn add_norm(
        &self,
        pass: &Pass<'_, Self>,
        Residual { matrix, x, norm }: Residual<'_, Self>,
        sum: &mut Self::Array,
        out: &mut Self::Array,
    ) -> Result<()> {
        let rows = self.rows(pass);
        self.linear_add(matrix, x, rows, sum)?;
        let input = Selection { array: &*sum, rows: &RowSet::First(rows) };
        self.norm(input, pass, norm, out)
    }

    /// Appends `rank` columns to `x [r, k]`: the product with `inner [rank, k]` in the rows that an adapter
    /// changes, zeros in others.
    fn append_adapted(
        &self,
        _: &Self::Matrix,
        _: usize,
        _: &Pass<'_, Self>,
        _: &mut Self::Array,
    ) -> Result<()> {
        bail!("this backend has no gated adapters")
    }

    /// Splits `qkv [r, (h + 2 g) c]`: normalises and rotates the query and key heads, writes keys and
    /// values to the slots of their rows, and overwrites the queries `q`. The contents of `qkv` are
    /// undefined afterwards.
    fn split(
        &self,
        attention: &Attention<'_, Self>,
        pass: &Pass<'_, Self>,
        qkv: &mut Self::Array,
        q: &mut Self::Array,
    ) -> Result<()>;

    /// Splits a product as [`Self::split`]. The contents of `qkv` are undefined afterwards.
    fn project(
        &self,
        pass: &Pass<'_, Self>,
        Projection { matrix, x, attention }: Projection<'_, Self>,
        qkv: &mut Self::Array,
        q: &mut Self::Array,
    ) -> Result<()> {
        self.linear(matrix, x, self.rows(pass), qkv)?;
        self.split(attention, pass, qkv, q)
    }

    /// Overwrites `out [r, h c]` with the attention of every query to the slots that its row sees.
    /// The contents of `q` are undefined afterwards.
    fn attend(
        &self,
        attention: &Attention<'_, Self>,
        pass: &Pass<'_, Self>,
        q: &mut Self::Array,
        out: &mut Self::Array,
    ) -> Result<()>;

    /// The product of `x` and a router's matrix, row-major on the host.
    fn route(&self, _: &Self::Matrix, _: &Self::Array) -> Result<Vec<f32>> {
        bail!("this backend runs all experts of a layer at once")
    }

    /// Applies the gated MLP of an expert, `[gate and up, down]`, to some rows of `x` and adds the
    /// weighted results to the same rows of `sum`.
    fn expert(
        &self,
        _: &[Self::Matrix; 2],
        _: &Self::Array,
        _: ExpertRows<'_>,
        _: &mut Self::Array,
    ) -> Result<()> {
        bail!("this backend runs all experts of a layer at once")
    }

    /// Chooses the experts of the rows of `x`.
    fn choose(
        &self,
        _: &Self::Grouped,
        _: &Pass<'_, Self>,
        _: &Self::Array,
        _: usize,
    ) -> Result<()> {
        bail!("this backend runs experts one by one")
    }

    /// Adds the experts that rows chose last, applied to the same rows of `x`, to `sum`. A row's terms
    /// are added in the order of the experts' numbers.
    fn add_chosen(
        &self,
        _: Mixture<'_, '_, Self>,
        _: &Self::Array,
        _: usize,
        _: &mut Self::Array,
    ) -> Result<()> {
        bail!("this backend runs experts one by one")
    }

    /// Makes the first rows of `x [r, d]` zero.
    fn clear(&self, x: &mut Self::Array, rows: usize, width: usize) -> Result<()>;

    /// Overwrites `out [r, d]` with the mean embeddings of the batch's rows, with zeros for rows without
    /// one.
    fn soft(&self, pass: &Pass<'_, Self>, out: &mut Self::Array, width: usize) -> Result<()>;

    /// Adds the norms of the first rows of `x [r, d]` to `sum`.
    fn norm_add(
        &self,
        x: &Self::Array,
        rows: usize,
        norm: Norm<'_, Self>,
        sum: &mut Self::Array,
    ) -> Result<()>;

    /// Replaces the batch's denoised rows of `x [r, d]` by their norms.
    fn norm_denoised(
        &self,
        pass: &Pass<'_, Self>,
        norm: Norm<'_, Self>,
        x: &mut Self::Array,
    ) -> Result<()>;

    /// Multiplies the batch's rows of `x [r, d]`: encoded rows by the first factor, denoised rows by the
    /// second.
    fn scale(&self, pass: &Pass<'_, Self>, factors: [f32; 2], x: &mut Self::Array) -> Result<()>;

    /// Scores a range of the batch's scored rows, whose normalised hidden states are the first rows
    /// of `x`, with the LM head.
    ///
    /// # Errors
    /// If an array has another shape, a logit is not finite, or the device fails.
    fn score(
        &self,
        head: &Head<'_, Self>,
        x: &Self::Array,
        rows: ScoredRange<'_, Self>,
        scores: &mut Self::Scores,
    ) -> Result<()>;

    /// Waits for the device and copies the first rows of an array to the host, row-major.
    fn download(&self, x: &Self::Array, rows: usize) -> Result<Vec<f32>>;
}

/// A backend in this process's memory, whose operations are complete when they return.
pub trait Host: Backend<Scores = Scores> {
    /// True if its operations run on the threads of a [`crate::Team`].
    const TEAM: bool;

    /// The name of the instructions that multiply matrices of a dtype, for logs and labels.
    fn instructions(dtype: WeightDtype) -> &'static str;
}

impl<B: Backend + ?Sized> Attention<'_, B> {
    /// The slots that each row sees.
    pub(crate) fn visible<'p>(&self, pass: &Pass<'p, B>) -> &'p [Visible] {
        match pass.arrays.canvas {
            Some(canvas) if self.windowed => canvas.windowed,
            _ => pass.arrays.visible,
        }
    }
}

impl<'a, B: Backend + ?Sized> ScoredRange<'a, B> {
    /// The divisors of the rows' logits; `None` if all are 1.
    pub fn scales(&self) -> Option<&'a [f32]> {
        let canvas = self.pass.arrays.canvas?;
        canvas.scales.get(self.range.clone())
    }

    /// The scorer of the rows.
    pub fn scorer(&self) -> Scorer<'a> {
        let arrays = self.pass.arrays;
        Scorer {
            rows: &arrays.scorers[self.range.clone()],
            biases: arrays.biases,
            allowed: arrays.allowed,
            segments: arrays.segments,
            mask: self.pass.mask,
        }
    }
}

impl<B: Backend + ?Sized> Clone for Norm<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend + ?Sized> Copy for Norm<'_, B> {}
