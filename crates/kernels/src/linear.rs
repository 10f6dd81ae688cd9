//! A linear layer with packed weights.

use crate::blocks::BlockRows;
use crate::gemm::{Activation, Column, Finish, Packed, Packing, Place, Product};
use crate::simd::blocks::GROUP;
use crate::simd::unit::{Unit, WeightDtype};
use crate::storage::numbers;
use candle_core::{CpuStorage, CustomOp1, CustomOp2, Layout, Result, Shape, Tensor, bail};

/// The operation on the product before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epilogue {
    /// `y = x W' + b`.
    None,
    /// `y = silu(x gate') * (x up')`, `[r, n]`. The weights `[2 n, k]` are the rows of the gate
    /// matrix followed by those of the up matrix. Biases are added before the activation.
    SiluGate,
    /// As [`Self::SiluGate`] with GELU in its tanh form in place of SiLU.
    GeluGate,
}

impl Epilogue {
    /// True if the weights are gate and up.
    pub fn is_gated(self) -> bool {
        self != Self::None
    }
}

/// Maximum inner dimension, for which sums of 8-bit products fit in 32 bits.
const LONGEST: usize = 1 << 17;
/// Maximum inner dimension of the other products.
const LONGEST_FLOATS: usize = 1 << 20;

/// A matrix to be packed.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    /// Row-major, `[rows, k]`.
    pub weight: &'a [f32],
    /// Inner dimension, `1..=2^20`, of products of integers `1..=2^17`.
    pub k: usize,
    /// `[rows]`; kept in f32.
    pub bias: Option<&'a [f32]>,
}

/// The largest magnitude of a weight in 4-bit codes: scale and minimum have 16 bits.
const LARGEST: f32 = 65_504.0;

/// `y = x W' + b` for `x [r, k]`, `W [n, k]`, `b [n]`. Input and output are f32; the product is
/// computed in the weights' dtype.
pub struct Linear {
    /// Matrices whose results are beside each other.
    parts: Vec<Part>,
    k: usize,
    epilogue: Epilogue,
    /// The width of the result.
    n: usize,
}

/// A matrix in one format.
struct Part {
    weights: Packed,
    /// In the order of the packed columns, with padding.
    bias: Option<Vec<f32>>,
    /// The width of its result.
    n: usize,
}

/// The sizes of a matrix to be packed, and its packing.
#[derive(Clone, Copy)]
struct Format {
    packing: Packing,
    rows: usize,
    k: usize,
    epilogue: Epilogue,
}

impl Format {
    /// Number of packed columns, including padding.
    fn columns(self) -> usize {
        let width = self.packing.unit.panel();
        match self.epilogue {
            Epilogue::None => self.rows.next_multiple_of(width),
            Epilogue::SiluGate | Epilogue::GeluGate => {
                (self.rows / 2).next_multiple_of(width / 2) * 2
            }
        }
    }

    /// The width of the result.
    fn n(self) -> usize {
        match self.epilogue {
            Epilogue::None => self.rows,
            Epilogue::SiluGate | Epilogue::GeluGate => self.rows / 2,
        }
    }

    /// The weight row of packed column `j`; a gated panel is half gate, half up.
    fn row(self, j: usize) -> Option<usize> {
        let (width, n) = (self.packing.unit.panel(), self.n());
        match self.epilogue {
            Epilogue::None => (j < n).then_some(j),
            Epilogue::SiluGate | Epilogue::GeluGate => {
                let (panel, lane) = (j / width, j % width);
                let column = panel * (width / 2) + lane % (width / 2);
                let row = if lane < width / 2 { column } else { n + column };
                (column < n).then_some(row)
            }
        }
    }

    fn bytes(self) -> usize {
        Packed::bytes_of(self.packing, self.k, self.columns())
    }

    /// Packs the rows that `row` returns.
    fn pack<'a>(self, row: impl Fn(usize) -> Column<'a> + Sync, bias: Option<&[f32]>) -> Part {
        let of_column = |j| self.row(j).map(&row);
        let weights = Packed::new(self.packing, self.k, self.columns(), of_column);
        let bias = bias.map(|bias| {
            let columns = 0..self.columns();
            columns.map(|j| self.row(j).map_or(0.0, |row| bias[row])).collect()
        });
        Part { weights, bias, n: self.n() }
    }
}

impl Linear {
    /// Packs a matrix. In [`WeightDtype::Blocks`] it is kept in f32.
    ///
    /// # Errors
    /// If the lengths do not match, `k` is out of range, 4-bit codes cannot hold the weights, or the dtype
    /// is for devices only.
    pub fn new(matrix: Matrix<'_>, dtype: WeightDtype, epilogue: Epilogue) -> Result<Self> {
        let Matrix { weight, k, bias } = matrix;
        if k == 0 || !weight.len().is_multiple_of(k) {
            bail!("linear: {} weights are not rows of {k}", weight.len());
        }
        let rows = weight.len() / k;
        let format = Self::format([rows, k], dtype, epilogue)?;
        if dtype == WeightDtype::Int8w {
            bail!("linear: no products in int8w on the CPU, expected int8 or bf16");
        }
        if bias.is_some_and(|bias| bias.len() != rows) {
            bail!("linear: expected a bias for each of {rows} rows");
        }
        if dtype == WeightDtype::Int4 {
            check_codes(weight)?;
        }
        let row = |row: usize| Column::Floats(&weight[row * k..(row + 1) * k]);
        Ok(Self { parts: vec![format.pack(row, bias)], k, epilogue, n: format.n() })
    }

    /// Packs the rows of blocks of a matrix `[rows, k]`, one after another. Their codes are kept.
    ///
    /// # Errors
    /// If the lengths do not match, `k` is out of range or no number of blocks, or a gated matrix has
    /// several types.
    pub fn of_blocks(
        shape: [usize; 2],
        blocks: &[BlockRows<'_>],
        bias: Option<&[f32]>,
        epilogue: Epilogue,
    ) -> Result<Self> {
        let [rows, k] = shape;
        let runs = Self::runs(shape, blocks, epilogue)?;
        if bias.is_some_and(|bias| bias.len() != rows) {
            bail!("linear: expected a bias for each of {rows} rows");
        }
        let (mut parts, mut first) = (Vec::new(), 0);
        for (blocks, format) in runs {
            let kind = blocks[0].kind;
            let length = kind.row_bytes(k).unwrap_or(0);
            let mut all: Vec<&[u8]> = Vec::with_capacity(format.rows);
            for block in blocks {
                if block.rows.checked_mul(length) != Some(block.bytes.len()) {
                    let (found, rows) = (block.bytes.len(), block.rows);
                    bail!("linear: {found} bytes of {} for {rows} rows of {k}", kind.name());
                }
                all.extend(block.bytes.chunks_exact(length));
            }
            let bias = bias.map(|bias| &bias[first..first + format.rows]);
            parts.push(format.pack(|row| Column::Blocks(kind, all[row]), bias));
            first += format.rows;
        }
        Ok(Self { n: parts.iter().map(|part| part.n).sum(), parts, k, epilogue })
    }

    /// The rows of blocks with the same type, one after another, and their formats.
    fn runs<'a, 'b>(
        [rows, k]: [usize; 2],
        blocks: &'b [BlockRows<'a>],
        epilogue: Epilogue,
    ) -> Result<Vec<(&'b [BlockRows<'a>], Format)>> {
        let found = blocks.iter().fold(0, |sum: usize, block| sum.saturating_add(block.rows));
        if found != rows || rows == 0 {
            bail!("linear: {found} rows of blocks, expected {rows}");
        }
        let runs = blocks.chunk_by(|a, b| a.kind == b.kind);
        let runs = runs.map(|run| {
            let (kind, rows) = (run[0].kind, run.iter().map(|block| block.rows).sum());
            Self::check([rows, k], LONGEST, epilogue)?;
            if kind.row_bytes(k).is_none() {
                let (name, size) = (kind.name(), kind.weights());
                bail!(
                    "linear: expected rows of a multiple of {size} weights for {name}, found {k}"
                );
            }
            let packing = Packing::detect_for(kind.form());
            let format = Format { packing, rows, k, epilogue };
            Ok((run, format))
        });
        let runs: Vec<_> = runs.collect::<Result<_>>()?;
        if epilogue.is_gated() && runs.len() > 1 {
            bail!("linear: expected gate and up in one block type");
        }
        Ok(runs)
    }

    /// The format of a matrix `[rows, k]`.
    fn format([rows, k]: [usize; 2], dtype: WeightDtype, epilogue: Epilogue) -> Result<Format> {
        let longest = match dtype {
            WeightDtype::Int8 | WeightDtype::Int8w | WeightDtype::Int4 => LONGEST,
            WeightDtype::F32 | WeightDtype::Bf16 | WeightDtype::Blocks => LONGEST_FLOATS,
        };
        Self::check([rows, k], longest, epilogue)?;
        let unit = match dtype {
            WeightDtype::Int4 if !k.is_multiple_of(GROUP) => {
                bail!("expected rows of a multiple of {GROUP} weights for int4, found {k}")
            }
            WeightDtype::Blocks => Unit::detect(WeightDtype::F32),
            dtype => Unit::detect(dtype),
        };
        Ok(Format { packing: unit.into(), rows, k, epilogue })
    }

    /// Checks that a matrix `[rows, k]` can be packed.
    fn check([rows, k]: [usize; 2], longest: usize, epilogue: Epilogue) -> Result<()> {
        if k == 0 || k > longest {
            bail!("linear: expected rows of 1 to {longest} weights, found {k}");
        }
        if epilogue.is_gated() && !rows.is_multiple_of(2) {
            bail!("linear: expected gate and up with an even number of rows, found {rows}");
        }
        Ok(())
    }

    /// Bytes of the packed weights of a matrix `[rows, k]`, computed from its sizes.
    pub fn bytes_of(shape: [usize; 2], dtype: WeightDtype, epilogue: Epilogue) -> Result<usize> {
        Ok(Self::format(shape, dtype, epilogue)?.bytes())
    }

    /// Bytes of the packed weights of rows of blocks, computed from their sizes.
    ///
    /// # Errors
    /// As [`Self::of_blocks`] for the sizes.
    pub fn bytes_of_blocks(
        shape: [usize; 2],
        blocks: &[BlockRows<'_>],
        epilogue: Epilogue,
    ) -> Result<usize> {
        let runs = Self::runs(shape, blocks, epilogue)?;
        Ok(runs.into_iter().map(|(_, format)| format.bytes()).sum())
    }

    /// Bytes of the packed weights.
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.weights.bytes()).sum()
    }

    /// Applies the layer to `x [r, k]`. Returns `[r, n]`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.apply_op1_no_bwd(&Forward(self))
    }

    /// Applies the layer to `x [r, k]` and adds `residual [r, n]`. Returns `[r, n]`.
    pub fn forward_add(&self, x: &Tensor, residual: &Tensor) -> Result<Tensor> {
        x.apply_op2_no_bwd(residual, &ForwardAdd(self))
    }

    fn run(&self, x: &[f32], layout: &Layout, residual: Option<&[f32]>) -> Result<CpuOutput> {
        let (m, k) = layout.shape().dims2()?;
        if k != self.k {
            bail!("linear: expected rows of {}, found {k}", self.k);
        }
        let finish = match (self.epilogue, residual) {
            (Epilogue::None, None) => Finish::Store,
            (Epilogue::None, Some(residual)) if residual.len() == m * self.n => {
                Finish::Add(residual)
            }
            (Epilogue::SiluGate, None) => Finish::Gate(Activation::Silu),
            (Epilogue::GeluGate, None) => Finish::Gate(Activation::Gelu),
            _ => bail!("linear: a residual requires a plain product of the same shape"),
        };
        let mut first = 0;
        let products = self.parts.iter().map(|part| {
            let place = Place { first, count: part.n, stride: self.n };
            first += part.n;
            Product { x, m, weights: &part.weights, bias: part.bias.as_deref(), finish, place }
        });
        let products: Vec<_> = products.collect();
        let shape = Shape::from((m, self.n));
        Ok((CpuStorage::F32(Product::run_all(&products)), shape))
    }
}

/// Checks that codes of four bits can hold weights.
pub(crate) fn check_codes(weight: &[f32]) -> Result<()> {
    match weight.iter().find(|weight| weight.abs() > LARGEST) {
        Some(found) => {
            bail!("linear: expected weights of at most {LARGEST} for int4, found {found}")
        }
        None => Ok(()),
    }
}

type CpuOutput = (CpuStorage, Shape);

/// The product.
struct Forward<'a>(&'a Linear);

impl CustomOp1 for Forward<'_> {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<CpuOutput> {
        self.0.run(numbers(self.name(), x, layout)?, layout, None)
    }
}

/// The product plus a residual.
struct ForwardAdd<'a>(&'a Linear);

impl CustomOp2 for ForwardAdd<'_> {
    fn name(&self) -> &'static str {
        "linear-add"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        layout: &Layout,
        residual: &CpuStorage,
        residual_layout: &Layout,
    ) -> Result<CpuOutput> {
        let residual = numbers(self.name(), residual, residual_layout)?;
        self.0.run(numbers(self.name(), x, layout)?, layout, Some(residual))
    }
}
