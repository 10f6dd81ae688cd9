//! Weights on a device and matrix products with them.

use super::array::{Array, Buffer, Precision};
use super::{Device, Kernel, Result, args, refuse};
use crate::linear::{Epilogue, Matrix};

/// Inner elements of a stage of tensor cores; `BK` of the kernels.
pub(super) const STAGE: usize = 64;

/// The tile of a product's kernel.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    pub(super) kernel: Kernel,
    /// Rows and columns.
    pub(super) sizes: [usize; 2],
    /// Warps across the rows and across the columns.
    pub(super) warps: [usize; 2],
}

/// A tile on tensor cores with `stages` buffers of its operands.
pub(super) const fn tile(
    name: &'static str,
    sizes: [usize; 2],
    warps: [usize; 2],
    stages: usize,
) -> Tile {
    let kernel = Kernel {
        name,
        threads: (warps[0] * warps[1] * 32) as u32,
        shared: (stages * (sizes[0] + sizes[1]) * STAGE * 2) as u32,
    };
    Tile {
        kernel,
        sizes,
        warps,
    }
}

const NARROW: Tile = tile("gemm_bf16_narrow", [64, 32], [2, 2], 5);
const WIDE: Tile = tile("gemm_bf16_wide", [128, 128], [2, 4], 3);
const EXACT: Tile = Tile {
    kernel: Kernel {
        name: "gemm_f32",
        threads: 256,
        shared: 2 * 16 * 68 * 4,
    },
    sizes: [64, 64],
    warps: [2, 4],
};
pub(super) const KERNELS: &[Kernel] = &[NARROW.kernel, WIDE.kernel, EXACT.kernel];
/// The tiles of all kernels of products.
pub(super) const TILES: &[Tile] = &[NARROW, WIDE, EXACT];

/// Maximum rows for narrow tiles, which read weights faster and multiply slower.
const NARROW_ROWS: usize = 128;
/// Elements of a matrix copied at a time.
const PIECE: usize = 1 << 22;

/// A matrix `[n, k]` and its bias.
pub struct DeviceMatrix {
    weights: Array,
    bias: Option<Buffer>,
    epilogue: Epilogue,
}

/// The sizes of a matrix `[rows, k]`.
#[derive(Clone, Copy, Debug)]
pub struct MatrixSizes {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub k: usize,
    /// Whether it has a bias.
    pub biased: bool,
    /// The operation on the product.
    pub epilogue: Epilogue,
}

/// What a kernel does with a finished sum; `Finish` of the kernels.
#[derive(Clone, Copy)]
enum Store {
    Overwrite = 0,
    Add = 1,
    Gate = 2,
}

impl DeviceMatrix {
    /// Copies a matrix to the device, piece by piece.
    ///
    /// # Errors
    /// If the lengths do not match, or the device is out of memory.
    pub fn new(
        device: &Device,
        precision: Precision,
        matrix: Matrix<'_>,
        epilogue: Epilogue,
    ) -> Result<Self> {
        let Matrix { weight, k, bias } = matrix;
        if k == 0 || !weight.len().is_multiple_of(k) {
            return refuse(format!("{} weights are not rows of {k}", weight.len()));
        }
        let n = weight.len() / k;
        if bias.is_some_and(|bias| bias.len() != n) {
            return refuse(format!("expected a bias for each of {n} rows"));
        }
        let sizes = MatrixSizes {
            rows: n,
            k,
            biased: bias.is_some(),
            epilogue,
        };
        let matrix = Self::reserve(device, precision, sizes)?;
        // Rows j of the gate and of the up matrix are adjacent, so that one thread computes both.
        let source = |j: usize| match epilogue {
            Epilogue::None => j,
            Epilogue::SiluGate | Epilogue::GeluGate => j / 2 + j % 2 * (n / 2),
        };
        let step = (PIECE / k).max(1);
        let mut piece = Vec::new();
        for first in (0..n).step_by(step) {
            piece.clear();
            for j in first..(first + step).min(n) {
                let row = source(j);
                piece.extend_from_slice(&weight[row * k..(row + 1) * k]);
            }
            matrix.weights.write(first, &piece)?;
        }
        if let (Some(bias), Some(stored)) = (bias, &matrix.bias) {
            piece.clear();
            piece.extend((0..n).map(|j| bias[source(j)]));
            stored.write(&piece)?;
        }
        Ok(matrix)
    }

    /// Allocates a zeroed matrix.
    ///
    /// # Errors
    /// If a gated matrix has an odd number of rows or another activation than SiLU, or the device is out of memory.
    pub fn reserve(device: &Device, precision: Precision, sizes: MatrixSizes) -> Result<Self> {
        let MatrixSizes {
            rows: n,
            k,
            biased,
            epilogue,
        } = sizes;
        if epilogue == Epilogue::GeluGate {
            return refuse("no CUDA kernels for GELU");
        }
        if epilogue.is_gated() && !n.is_multiple_of(2) {
            return refuse(format!(
                "expected gate and up with an even number of rows, found {n}"
            ));
        }
        let bias = biased.then(|| Buffer::new(device, n.saturating_mul(size_of::<f32>())));
        Ok(Self {
            weights: Array::padded(device, precision, n, k)?,
            bias: bias.transpose()?,
            epilogue,
        })
    }

    /// The width of the result.
    #[must_use]
    pub fn width(&self) -> usize {
        match self.epilogue {
            Epilogue::None => self.weights.rows(),
            Epilogue::SiluGate | Epilogue::GeluGate => self.weights.rows() / 2,
        }
    }

    /// Overwrites `out` with the product of the first `rows` rows of `x`, padded. `out` is f32, or for
    /// a gated product in the precision of the weights.
    ///
    /// # Errors
    /// If an array has another shape, or the device fails.
    pub fn product(&self, x: &Array, rows: usize, out: &Array) -> Result<()> {
        match self.epilogue {
            Epilogue::None => self.run(x, rows, out, Store::Overwrite),
            Epilogue::SiluGate => self.run(x, rows, out, Store::Gate),
            Epilogue::GeluGate => refuse("no CUDA kernels for GELU"),
        }
    }

    /// Adds the product to `out`, which is f32.
    ///
    /// # Errors
    /// As [`Self::product`], and for a gated matrix.
    pub fn add_product(&self, x: &Array, rows: usize, out: &Array) -> Result<()> {
        match self.epilogue {
            Epilogue::None => self.run(x, rows, out, Store::Add),
            Epilogue::SiluGate | Epilogue::GeluGate => refuse("a gated product cannot be added"),
        }
    }

    fn run(&self, x: &Array, rows: usize, out: &Array, store: Store) -> Result<()> {
        let tile = match self.weights.precision() {
            Precision::F32 => EXACT,
            Precision::Bf16 if rows <= NARROW_ROWS => NARROW,
            Precision::Bf16 => WIDE,
        };
        let written = match store {
            Store::Overwrite | Store::Add => Precision::F32,
            Store::Gate => self.weights.precision(),
        };
        let args = args::Gemm {
            of: self.operands(x, rows)?,
            bias: self.bias()?,
            out: out.checked(rows, self.width(), written)?,
            stride: out.stride() as u32,
            finish: store as u32,
        };
        let grid = self.grid(rows, tile.sizes)?;
        // SAFETY: sizes are those of the arrays, which were checked.
        unsafe { x.device().launch(tile.kernel, grid, &args) }
    }

    /// The grid of tiles of `tall` rows and `broad` columns.
    pub(super) fn grid(&self, rows: usize, [tall, broad]: [usize; 2]) -> Result<[u32; 3]> {
        let n = self.weights.rows();
        match n.div_ceil(broad) as u32 {
            across @ ..=65_535 => Ok([rows.div_ceil(tall) as u32, across, 1]),
            _ => refuse(format!("a matrix of {n} rows is too large")),
        }
    }

    /// The operands: the first `rows` rows of `x`, padded, and this matrix.
    pub(super) fn operands(&self, x: &Array, rows: usize) -> Result<args::Operands> {
        let (n, k) = (self.weights.rows(), self.weights.stride());
        let (width, precision) = (self.weights.width(), self.weights.precision());
        if x.stride() != k {
            return refuse(format!("expected rows of {k}, found {}", x.stride()));
        }
        Ok(args::Operands {
            x: x.checked(rows, width, precision)?,
            w: self.weights.checked(n, width, precision)?,
            rows: rows as u32,
            n: n as u32,
            k: k as u32,
        })
    }

    /// The address of the bias, 0 without one.
    pub(super) fn bias(&self) -> Result<u64> {
        let bytes = self.weights.rows() * 4;
        let bias = self.bias.as_ref().map(|bias| bias.range(0, bytes));
        Ok(bias.transpose()?.unwrap_or(0))
    }

    /// The device of the memory.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.weights.device()
    }

    /// The operation after the product.
    pub(super) fn epilogue(&self) -> Epilogue {
        self.epilogue
    }

    /// The number format of the weights.
    #[must_use]
    pub fn precision(&self) -> Precision {
        self.weights.precision()
    }
}
