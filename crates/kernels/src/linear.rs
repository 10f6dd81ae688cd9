//! A linear layer with packed weights.

use crate::gemm::{Finish, Packed, Product};
use crate::simd::unit::{Unit, WeightDtype};
use crate::storage::f32s;
use candle_core::{CpuStorage, CustomOp1, CustomOp2, Layout, Result, Shape, Tensor, bail};

/// The operation on the product before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epilogue {
    /// `y = x W' + b`.
    None,
    /// `y = silu(x gate') * (x up')`, `[r, n]`. The weights `[2 n, k]` are the rows of the gate
    /// matrix followed by those of the up matrix. Biases are added before the activation.
    SiluGate,
}

/// Maximum inner dimension, for which sums of 8-bit products fit in 32 bits.
const LONGEST: usize = 1 << 17;

/// A matrix to be packed.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    /// Row-major, `[rows, k]`.
    pub weight: &'a [f32],
    /// Inner dimension, `1..=2^17`.
    pub k: usize,
    /// `[rows]`; kept in f32.
    pub bias: Option<&'a [f32]>,
}

/// `y = x W' + b` for `x [r, k]`, `W [n, k]`, `b [n]`. Input and output are f32; the product is
/// computed in the weights' dtype.
pub struct Linear {
    weights: Packed,
    /// In the order of the packed columns, with padding.
    bias: Option<Vec<f32>>,
    epilogue: Epilogue,
    /// The width of the result.
    n: usize,
}

impl Linear {
    /// Packs a matrix.
    ///
    /// # Errors
    /// If the lengths do not match, or `k` is out of range.
    pub fn new(matrix: Matrix<'_>, dtype: WeightDtype, epilogue: Epilogue) -> Result<Self> {
        Self::on(Unit::detect(dtype), matrix, epilogue)
    }

    fn on(unit: Unit, matrix: Matrix<'_>, epilogue: Epilogue) -> Result<Self> {
        let Matrix { weight, k, bias } = matrix;
        if k == 0 || !weight.len().is_multiple_of(k) {
            bail!("linear: {} weights are not rows of {k}", weight.len());
        }
        let rows = weight.len() / k;
        Self::check((rows, k), epilogue)?;
        if bias.is_some_and(|bias| bias.len() != rows) {
            bail!("linear: expected a bias for each of {rows} rows");
        }
        let width = unit.panel();
        let n = if epilogue == Epilogue::None {
            rows
        } else {
            rows / 2
        };
        // The weight row of packed column j; a gated panel is half gate, half up.
        let source = |j: usize| match epilogue {
            Epilogue::None => (j < n).then_some(j),
            Epilogue::SiluGate => {
                let (panel, lane) = (j / width, j % width);
                let column = panel * (width / 2) + lane % (width / 2);
                let row = if lane < width / 2 { column } else { n + column };
                (column < n).then_some(row)
            }
        };
        let columns = columns(unit, rows, epilogue);
        let weights = Packed::new(unit, k, columns, |j| {
            source(j).map(|row| &weight[row * k..(row + 1) * k])
        });
        let bias = bias.map(|bias| {
            (0..columns)
                .map(|j| source(j).map_or(0.0, |row| bias[row]))
                .collect()
        });
        Ok(Self {
            weights,
            bias,
            epilogue,
            n,
        })
    }

    /// Checks that a matrix `[rows, k]` can be packed.
    ///
    /// # Errors
    /// If `k` is out of range, or a gated matrix has an odd number of rows.
    pub(crate) fn check((rows, k): (usize, usize), epilogue: Epilogue) -> Result<()> {
        if k == 0 || k > LONGEST {
            bail!("linear: expected rows of 1 to {LONGEST} weights, found {k}");
        }
        if epilogue == Epilogue::SiluGate && !rows.is_multiple_of(2) {
            bail!("linear: expected gate and up with an even number of rows, found {rows}");
        }
        Ok(())
    }

    /// Bytes of the packed weights of a matrix `[rows, k]`, computed from its sizes.
    #[must_use]
    pub fn bytes_of((rows, k): (usize, usize), dtype: WeightDtype, epilogue: Epilogue) -> usize {
        let unit = Unit::detect(dtype);
        Packed::bytes_of(unit, k, columns(unit, rows, epilogue))
    }

    /// Bytes of the packed weights.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.weights.bytes()
    }

    /// Applies the layer to `x [r, k]`. Returns `[r, n]`.
    ///
    /// # Errors
    /// If `x` has another shape, dtype or device.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.apply_op1_no_bwd(&Forward(self))
    }

    /// Applies the layer to `x [r, k]` and adds `residual [r, n]`. Returns `[r, n]`.
    ///
    /// # Errors
    /// If an argument has another shape, dtype or device.
    pub fn forward_add(&self, x: &Tensor, residual: &Tensor) -> Result<Tensor> {
        x.apply_op2_no_bwd(residual, &ForwardAdd(self))
    }

    fn run(&self, x: &[f32], layout: &Layout, residual: Option<&[f32]>) -> Result<CpuOutput> {
        let (m, k) = layout.shape().dims2()?;
        if k != self.weights.k() {
            bail!("linear: expected rows of {}, found {k}", self.weights.k());
        }
        let finish = match (self.epilogue, residual) {
            (Epilogue::None, None) => Finish::Store,
            (Epilogue::None, Some(residual)) if residual.len() == m * self.n => {
                Finish::Add(residual)
            }
            (Epilogue::SiluGate, None) => Finish::Gate,
            _ => bail!("linear: a residual requires a plain product of the same shape"),
        };
        let product = Product {
            x,
            m,
            weights: &self.weights,
            bias: self.bias.as_deref(),
            finish,
            n: self.n,
        };
        Ok((CpuStorage::F32(product.run()), Shape::from((m, self.n))))
    }
}

/// Number of packed columns of a matrix of `rows` rows, including padding.
fn columns(unit: Unit, rows: usize, epilogue: Epilogue) -> usize {
    let width = unit.panel();
    match epilogue {
        Epilogue::None => rows.next_multiple_of(width),
        Epilogue::SiluGate => (rows / 2).next_multiple_of(width / 2) * 2,
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
        self.0.run(f32s(self.name(), x, layout)?, layout, None)
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
        let residual = f32s(self.name(), residual, residual_layout)?;
        self.0
            .run(f32s(self.name(), x, layout)?, layout, Some(residual))
    }
}
