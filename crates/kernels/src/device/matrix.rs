//! Weights on a device and matrix products with them.

use super::array::{Array, Buffer, Precision, padded};
use super::launch::{Division, MatrixFormat, ProductLaunch, ProductSizes, partial_bytes, segment};
use super::packed::{PANEL, write_panel};
use super::scratch::Scratch;
use super::{Device, DeviceError, Result, args, refuse};
use crate::blocks::BlockRows;
use crate::gemm::{Column, row_to_bytes};
use crate::linear::{Epilogue, Linear, Matrix, check_codes};
use crate::parallel::{Shared, for_rows};
use crate::simd::blocks::GROUP;
use std::sync::Arc;

/// Elements of a matrix copied at a time.
const PIECE: usize = 1 << 22;

/// Maximum inner elements: kernels compute offsets within a tile in 32 bits.
const MOST_INNER: usize = 1 << 23;

/// Inner elements of a step of tensor cores.
const STEP: usize = 16;

/// Kernels widen weights in int8 in parts of this (`widen` of `cuda/device.h`), so that widening takes few
/// instructions; the factors of the rows make up for it.
const PARTS: f32 = 64.0;

/// A matrix `[n, k]` and its bias.
pub struct DeviceMatrix {
    /// Rows of `padded(k)` elements, or packed panels of rows; the padding is zero.
    weights: Buffer,
    /// Factors of the rows, in int8.
    scales: Option<Buffer>,
    bias: Option<Buffer>,
    format: MatrixFormat,
    n: usize,
    k: usize,
    epilogue: Epilogue,
    /// `None` if products have one segment, so that no tile is divided.
    scratch: Option<Arc<Scratch>>,
    /// A matrix over the same input, in another format, whose results are beside those of this one.
    beside: Option<Box<Self>>,
}

/// The sizes of a matrix `[rows, k]`.
#[derive(Clone, Copy, Debug)]
pub struct MatrixSizes {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub k: usize,
    /// True if it has a bias.
    pub biased: bool,
    /// The operation on the product.
    pub epilogue: Epilogue,
}

/// The use of a finished sum; `Finish` of the kernels.
#[derive(Clone, Copy, Debug)]
pub enum Store {
    /// Overwrites the result.
    Overwrite = 0,
    /// Adds to the result.
    Add = 1,
    /// Writes `silu(gate) * up` of adjacent columns.
    Gate = 2,
    /// Writes `gelu(gate) * up` of adjacent columns.
    GeluGate = 3,
}

impl DeviceMatrix {
    /// Copies a matrix to the device, piece by piece. The only packed format of numbers is four bits.
    pub fn new(
        device: &Device,
        format: impl Into<MatrixFormat>,
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
        let format = format.into();
        if let MatrixFormat::Packed(_) = format {
            check_codes(weight).map_err(|error| DeviceError(error.to_string()))?;
        }
        let sizes = MatrixSizes { rows: n, k, biased: bias.is_some(), epilogue };
        let row = |row: usize| Column::Floats(&weight[row * k..(row + 1) * k]);
        Self::filled(device, format, sizes, row, bias)
    }

    /// Copies the rows of blocks of a matrix `[n, k]` to the device, one after another. Their codes are
    /// kept.
    ///
    /// # Errors
    /// If the lengths do not match, `k` is no number of blocks, or a gated matrix has several types.
    pub fn of_blocks(
        device: &Device,
        shape: [usize; 2],
        blocks: &[BlockRows<'_>],
        bias: Option<&[f32]>,
        epilogue: Epilogue,
    ) -> Result<Self> {
        let checked = Linear::bytes_of_blocks(shape, blocks, epilogue);
        checked.map_err(|error| DeviceError(error.to_string()))?;
        let [n, k] = shape;
        let (mut first, mut beside) = (n, None);
        for run in blocks.chunk_by(|a, b| a.kind == b.kind).rev() {
            let (kind, count) = (run[0].kind, run.iter().map(|of| of.rows).sum());
            first -= count;
            let format = MatrixFormat::Packed(kind.form());
            let sizes = MatrixSizes { rows: count, k, biased: bias.is_some(), epilogue };
            let mut matrix = if device.is_counting() {
                Self::reserve(device, format, sizes)?
            } else {
                let length = kind.row_bytes(k).unwrap_or(0);
                let rows = run.iter().flat_map(|of| of.bytes.chunks_exact(length.max(1)));
                let rows: Vec<&[u8]> = rows.collect();
                let bias = bias.and_then(|bias| bias.get(first..first + count));
                if rows.len() != count || bias.is_some() != sizes.biased {
                    return refuse(format!("{} rows of {} for {count}", rows.len(), kind.name()));
                }
                Self::filled(device, format, sizes, |row| Column::Blocks(kind, rows[row]), bias)?
            };
            matrix.beside = beside.map(Box::new);
            beside = Some(matrix);
        }
        match beside {
            Some(matrix) => Ok(matrix),
            None => refuse("a matrix without rows"),
        }
    }

    /// Copies rows to the device, piece by piece.
    fn filled<'a>(
        device: &Device,
        format: MatrixFormat,
        sizes: MatrixSizes,
        row: impl Fn(usize) -> Column<'a> + Sync,
        bias: Option<&[f32]>,
    ) -> Result<Self> {
        let MatrixSizes { rows: n, k, epilogue, .. } = sizes;
        let matrix = Self::reserve(device, format, sizes)?;
        // Rows j of the gate and of the up matrix are adjacent, so that one thread computes both.
        let source = |j: usize| match epilogue {
            Epilogue::None => j,
            Epilogue::SiluGate | Epilogue::GeluGate => j / 2 + j % 2 * (n / 2),
        };
        let tall = panel_rows(format);
        let (panels, stride) = (n.div_ceil(tall), format.bytes(tall * padded(k)));
        let step = (PIECE / (tall * k)).clamp(1, panels.max(1));
        // The padding of rows stays zero.
        let (mut bytes, mut scales) = (vec![0; step * stride], vec![0.0; n]);
        for first in (0..panels).step_by(step) {
            let count = step.min(panels - first);
            let (all, factors) = (Shared::new(&mut bytes), Shared::new(&mut scales));
            for_rows(count, count * tall * k, |range| {
                for j in range {
                    let rows = (first + j) * tall..((first + j + 1) * tall).min(n);
                    // SAFETY: each panel is written once, and both vectors outlive the loop.
                    let (to, scales) = unsafe {
                        (all.part(j * stride, stride), factors.part(rows.start, rows.len()))
                    };
                    matrix.encode(rows.map(|j| row(source(j))), to, scales);
                }
            });
            matrix.weights.write_at(first * stride, &bytes[..count * stride])?;
        }
        if let Some(stored) = &matrix.scales {
            stored.write(&scales)?;
        }
        if let (Some(bias), Some(stored)) = (bias, &matrix.bias) {
            let bias: Vec<f32> = (0..n).map(|j| bias[source(j)]).collect();
            stored.write(&bias)?;
        }
        Ok(matrix)
    }

    /// Allocates a zeroed matrix.
    ///
    /// # Errors
    /// If a gated matrix has an odd number of rows, or the device is out of memory.
    pub fn reserve(
        device: &Device,
        format: impl Into<MatrixFormat>,
        sizes: MatrixSizes,
    ) -> Result<Self> {
        let format = format.into();
        let MatrixSizes { rows: n, k, biased, epilogue } = sizes;
        if epilogue.is_gated() && !n.is_multiple_of(2) {
            return refuse(format!("expected gate and up with an even number of rows, found {n}"));
        }
        if matches!(format, MatrixFormat::Packed(_)) && !k.is_multiple_of(GROUP) {
            return refuse(format!("expected rows of a multiple of {GROUP} weights, found {k}"));
        }
        let floats = || Buffer::new(device, n.saturating_mul(size_of::<f32>()));
        let rows = n.next_multiple_of(panel_rows(format));
        let numbers = padded(k).checked_mul(rows).filter(|count| *count <= usize::MAX / 32);
        let fits = n <= i32::MAX as usize && padded(k) <= MOST_INNER;
        let Some(numbers) = numbers.filter(|_| fits) else {
            return refuse(format!("a matrix of {n} rows of {k} numbers is too large"));
        };
        let weights = Buffer::new(device, format.bytes(numbers))?;
        let partials = partial_bytes(n, padded(k));
        let scratch = (partials > 0).then(|| device.scratch());
        if let Some(scratch) = &scratch {
            scratch.reserve(device, partials)?;
        }
        Ok(Self {
            weights,
            scales: (format == MatrixFormat::Int8).then(floats).transpose()?,
            bias: biased.then(floats).transpose()?,
            format,
            n,
            k,
            epilogue,
            scratch,
            beside: None,
        })
    }

    /// Writes the rows of a panel in their memory format, and their scales.
    fn encode<'a>(
        &self,
        rows: impl Iterator<Item = Column<'a>>,
        to: &mut [u8],
        scales: &mut [f32],
    ) {
        if let MatrixFormat::Packed(form) = self.format {
            to.fill(0);
            return write_panel(form, rows, to);
        }
        for (row, scale) in rows.zip(scales) {
            match (row, self.format) {
                (Column::Floats(row), MatrixFormat::Int8) => *scale = encode_bytes(row, to),
                (Column::Floats(row), format) => format.inputs().encode(row, to),
                // Blocks are packed.
                (Column::Blocks(..), _) => {}
            }
        }
    }

    /// Sets every byte of the weights.
    pub(super) fn fill(&self, byte: u8) -> Result<()> {
        self.weights.fill(byte)
    }

    /// The width of the result.
    pub fn width(&self) -> usize {
        self.own_width() + self.beside.as_ref().map_or(0, |matrix| matrix.width())
    }

    /// The width of the result without those beside it.
    fn own_width(&self) -> usize {
        match self.epilogue {
            Epilogue::None => self.n,
            Epilogue::SiluGate | Epilogue::GeluGate => self.n / 2,
        }
    }

    /// Overwrites `out` with the product of the first `rows` rows of `x`, padded. `out` is f32, or for
    /// a gated product in the precision of the weights.
    pub fn product(&self, x: &Array, rows: usize, out: &Array) -> Result<()> {
        match self.epilogue {
            Epilogue::None => self.run(x, rows, out, Store::Overwrite),
            Epilogue::SiluGate => self.run(x, rows, out, Store::Gate),
            Epilogue::GeluGate => self.run(x, rows, out, Store::GeluGate),
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
        let (mut first, mut next) = (0, Some(self));
        while let Some(matrix) = next {
            let launch = matrix.launch(rows, Division::Divided);
            matrix.run_at(&launch, x, (out, first), store)?;
            (first, next) = (first + matrix.own_width(), matrix.beside.as_deref());
        }
        Ok(())
    }

    /// The launch of a product with `rows` rows.
    pub fn launch(&self, rows: usize, division: Division) -> ProductLaunch {
        ProductLaunch::choose(self.sizes(rows), self.device().limits(), division)
    }

    /// The sizes of a product with `rows` rows.
    pub(super) fn sizes(&self, rows: usize) -> ProductSizes {
        ProductSizes { rows, n: self.n, k: padded(self.k), format: self.format }
    }

    /// Runs a launch of this matrix, without those beside it.
    pub fn run_as(
        &self,
        launch: &ProductLaunch,
        x: &Array,
        out: &Array,
        store: Store,
    ) -> Result<()> {
        self.run_at(launch, x, (out, 0), store)
    }

    /// Runs a launch of this matrix. Its results and those of the matrices beside it are the columns of
    /// `out` from `first` on.
    fn run_at(
        &self,
        launch: &ProductLaunch,
        x: &Array,
        (out, first): (&Array, usize),
        store: Store,
    ) -> Result<()> {
        let rows = launch.sizes.rows;
        let written = match store {
            Store::Overwrite | Store::Add => Precision::F32,
            Store::Gate | Store::GeluGate => self.precision(),
        };
        let args = args::Gemm {
            of: self.operands(x, rows)?,
            share: self.share(launch)?,
            bias: self.bias()?,
            out: out.checked(rows, first + self.width(), written)?
                + (first * written.bytes()) as u64,
            stride: out.stride() as u32,
            finish: store as u32,
        };
        let Ok(blocks) = i32::try_from(launch.blocks()) else {
            return refuse(format!("a product of {} blocks is too large", launch.blocks()));
        };
        let grid = [blocks.cast_unsigned(), 1, 1];
        // SAFETY: the arrays have these sizes, which were checked, and of the partial sums.
        unsafe { x.device().launch(launch.tile.gemm_kernel(), grid, &args) }
    }

    /// The division of a launch's tiles, with room for the partial sums.
    fn share(&self, launch: &ProductLaunch) -> Result<args::Share> {
        let [partials, ended] = match (&self.scratch, launch.divided()) {
            (_, 0) => [0; 2],
            (Some(scratch), _) => scratch.at(launch.partial_bytes())?,
            (None, _) => return refuse("a product of one segment has no divided tiles"),
        };
        Ok(args::Share {
            partials,
            ended,
            tall: launch.tall() as u32,
            whole: launch.whole.min(launch.tiles()) as u32,
            pieces: launch.pieces() as u32,
            lead: launch.lead as u32,
        })
    }

    /// The operands: the first `rows` rows of `x`, padded, and this matrix.
    pub(super) fn operands(&self, x: &Array, rows: usize) -> Result<args::Operands> {
        let stride = padded(self.k);
        if x.stride() != stride {
            return refuse(format!("expected rows of {stride}, found {}", x.stride()));
        }
        Ok(args::Operands {
            x: x.checked(rows, self.k, self.precision())?,
            w: self.address()?,
            scales: self.factors()?,
            rows: rows as u32,
            n: self.n as u32,
            k: stride as u32,
            segment: segment(self.n, stride) as u32,
            form: form_number(self.format),
            pad: 0,
        })
    }

    /// The address of the rows' factors, 0 without them.
    pub(super) fn factors(&self) -> Result<u64> {
        let scales = self.scales.as_ref();
        let scales = scales.map(|scales| scales.range(0, self.n * 4));
        Ok(scales.transpose()?.unwrap_or(0))
    }

    /// The address of the bias, 0 without one.
    pub(super) fn bias(&self) -> Result<u64> {
        let bias = self.bias.as_ref().map(|bias| bias.range(0, self.n * 4));
        Ok(bias.transpose()?.unwrap_or(0))
    }

    /// The device of the memory.
    pub fn device(&self) -> &Device {
        self.weights.device()
    }

    /// The address of the weights.
    pub(super) fn address(&self) -> Result<u64> {
        let rows = self.n.next_multiple_of(panel_rows(self.format));
        self.weights.range(0, self.format.bytes(rows * self.stride()))
    }

    /// True if all results are of this matrix alone.
    pub(super) fn is_alone(&self) -> bool {
        self.beside.is_none()
    }

    /// Columns, without padding.
    pub(super) fn k(&self) -> usize {
        self.k
    }

    /// Columns with padding.
    pub(super) fn stride(&self) -> usize {
        padded(self.k)
    }

    /// The operation after the product.
    pub(super) fn epilogue(&self) -> Epilogue {
        self.epilogue
    }

    /// The number format of a product's inputs.
    pub fn precision(&self) -> Precision {
        self.format.inputs()
    }

    /// The number format of the weights.
    pub fn format(&self) -> MatrixFormat {
        self.format
    }
}

/// The form of packed weights as kernels take it.
pub(super) fn form_number(format: MatrixFormat) -> u32 {
    match format {
        MatrixFormat::Packed(form) => form as u32,
        _ => 0,
    }
}

/// The rows of a matrix that are stored together.
fn panel_rows(format: MatrixFormat) -> usize {
    match format {
        MatrixFormat::Packed(_) => PANEL,
        _ => 1,
    }
}

/// Writes a row in int8 in the order of `Int8Weights` in `cuda/gemm.cuh`; returns its scale.
fn encode_bytes(row: &[f32], to: &mut [u8]) -> f32 {
    let (mut numbers, scale) = row_to_bytes(row);
    numbers.resize(row.len().next_multiple_of(STEP), 0);
    let steps = numbers.as_chunks::<STEP>().0.iter();
    for (step, to) in steps.zip(to.as_chunks_mut::<STEP>().0) {
        for (lane, word) in to.as_chunks_mut().0.iter_mut().enumerate() {
            *word = word_of([0, 1, 8, 9].map(|i| step[2 * lane + i]));
        }
    }
    scale * PARTS
}

/// The word of four weights in int8, from -127 to 127: their sizes and, in the highest bits of the bytes,
/// their signs, where `widen` of `cuda/device.h` expects them.
fn word_of([a, b, c, d]: [i8; 4]) -> [u8; 4] {
    let byte = |size: i8, sign: i8| size.unsigned_abs() | u8::from(sign < 0) << 7;
    [byte(a, d), byte(c, a), byte(b, c), byte(d, b)]
}
