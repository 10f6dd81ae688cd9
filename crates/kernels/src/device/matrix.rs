//! Weights on a device and matrix products with them.

mod fill;

use super::array::{Array, Buffer, Precision, RowFactors};
use super::launch::{
    DeviceLimits, Division, HeadColumns, MatrixFormat, ProductLaunch, ProductSizes, partial_bytes,
    segment,
};
use super::packed::PANEL;
use super::scratch::Scratch;
use super::tensor_map::TensorMap;
use super::{Device, Kernel, Result, args, refuse};
use crate::linear::Epilogue;
use crate::simd::blocks::GROUP;
use std::ops::Range;
use std::sync::Arc;

/// Maximum inner elements: kernels compute offsets within a tile in 32 bits.
const MOST_INNER: usize = 1 << 23;
/// Maximum inner elements of products of 8-bit integers, whose sums fit in 32 bits.
const MOST_INTEGERS: usize = 1 << 17;

/// A matrix `[n, k]` and its bias.
pub struct DeviceMatrix {
    /// Rows of `format.padded(k)` elements, or packed panels of rows; the padding is zero.
    weights: Buffer,
    /// Factors of the rows of integers.
    scales: Option<Buffer>,
    bias: Option<Buffer>,
    /// For bulk copies of rows in bf16 or int8.
    map: Option<TensorMap>,
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
        let padded = format.inputs().padded(k);
        let numbers = padded.checked_mul(rows).filter(|count| *count <= usize::MAX / 32);
        let most = if format == MatrixFormat::Int8 { MOST_INTEGERS } else { MOST_INNER };
        let fits = n <= i32::MAX as usize && padded <= most;
        let Some(numbers) = numbers.filter(|_| fits) else {
            return refuse(format!("a matrix of {n} rows of {k} numbers is too large"));
        };
        let weights = Buffer::new(device, format.bytes(numbers))?;
        let partials = partial_bytes(format, n, padded);
        let scratch = (partials > 0).then(|| device.scratch());
        if let Some(scratch) = &scratch {
            scratch.reserve(device, partials)?;
        }
        // Bulk copies load weights that have the format of their inputs.
        let plain = matches!(format, MatrixFormat::Bf16 | MatrixFormat::Int8);
        let described = format.inputs().map_rows(weights.range(0, 0)?, n, padded);
        let map = described.filter(|_| plain).and_then(|rows| device.tensor_map(rows));
        Ok(Self {
            weights,
            map,
            scales: format.is_scaled().then(floats).transpose()?,
            bias: biased.then(floats).transpose()?,
            format,
            n,
            k,
            epilogue,
            scratch,
            beside: None,
        })
    }

    /// Overwrites all rows by those of a matrix with as many columns, over and over.
    pub(super) fn repeat(&self, part: &Self) -> Result<()> {
        self.weights.repeat(&part.weights)?;
        match (&self.scales, &part.scales) {
            (Some(scales), Some(part)) => scales.repeat(part),
            _ => Ok(()),
        }
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
    /// a gated product as [`MatrixFormat::gated`]; it is rounded to integers too, if it has them.
    pub fn product(&self, x: &Array, rows: usize, out: &Array) -> Result<()> {
        match self.epilogue {
            Epilogue::None => self.run(x, rows, out, Store::Overwrite),
            Epilogue::SiluGate => self.run(x, rows, out, Store::Gate),
            Epilogue::GeluGate => self.run(x, rows, out, Store::GeluGate),
        }?;
        out.round(rows)
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
        ProductLaunch::choose(self.sizes(rows), self.limits(), division)
    }

    /// The resources of the device for launches of this matrix.
    fn limits(&self) -> DeviceLimits {
        let limits = self.device().limits();
        // One refusal is enough: inputs need maps too.
        let ring = limits.ring && self.map.is_some() && self.device().bulk_refusal().is_none();
        DeviceLimits { ring, ..limits }
    }

    /// The launch that also splits a product with `rows` rows into heads, if there is one and it is not the
    /// slower way.
    pub fn fused(&self, rows: usize, heads: HeadColumns) -> Option<ProductLaunch> {
        let plain = self.is_alone() && matches!(self.epilogue, Epilogue::None);
        let launch = || ProductLaunch::fused(self.sizes(rows), self.limits(), heads);
        plain.then(launch).flatten()
    }

    /// The sizes of a product with `rows` rows.
    pub(super) fn sizes(&self, rows: usize) -> ProductSizes {
        ProductSizes { rows, n: self.n, k: self.stride(), format: self.format }
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
            Store::Gate | Store::GeluGate => self.format.gated(),
        };
        let kernel = launch.tile.gemm_kernel();
        let args = args::Gemm {
            operands: self.operands(x, 0..rows, kernel.factors())?,
            share: self.share(launch)?,
            bias: self.bias()?,
            out: out.checked(rows, first + self.width(), written)?
                + (first * written.bytes()) as u64,
            stride: out.stride() as u32,
            finish: store as u32,
        };
        let grid = [launch.grid(x.device().limits())?, 1, 1];
        // SAFETY: the arrays have these sizes, which were checked, and of the partial sums.
        unsafe { self.launch_product(launch, (kernel, grid), (x, 0), &args) }
    }

    /// Launches a kernel of a product of the rows of `x` from a row on.
    ///
    /// # Safety
    /// As [`Driver::launch`](super::Driver::launch).
    ///
    /// # Errors
    /// If bulk copies load the operands and one has no map.
    pub(super) unsafe fn launch_product<A: Copy>(
        &self,
        launch: &ProductLaunch,
        (kernel, grid): (Kernel, [u32; 3]),
        (x, first): (&Array, usize),
        args: &A,
    ) -> Result<()> {
        let device = x.device();
        if !kernel.bulk {
            // SAFETY: by the caller's promise.
            return unsafe { device.launch(kernel, grid, args) };
        }
        let (Some(inputs), Some(weights)) = (x.inputs(self.precision()).map(), self.map) else {
            return refuse(format!("{}: an operand without a tensor map", kernel.name));
        };
        let parts = launch.blocks() / launch.tile.blocks();
        let args = args::Ring::new([inputs, weights], [parts, first], args);
        // SAFETY: by the caller's promise; the maps are of the operands.
        unsafe { device.launch(kernel, grid, &args) }
    }

    /// The division of a launch's tiles, with room for the partial sums.
    pub(super) fn share(&self, launch: &ProductLaunch) -> Result<args::Share> {
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

    /// The operands: rows of `x`, padded, and this matrix.
    ///
    /// # Errors
    /// If sizes differ, or rows lack the factor of their norm and there is no room for factors from byte
    /// `factors` of shared memory on.
    pub(super) fn operands(
        &self,
        x: &Array,
        rows: Range<usize>,
        factors: Option<usize>,
    ) -> Result<args::Operands> {
        let (x, stride) = (x.inputs(self.precision()), self.stride());
        let RowFactors { squares, parts, eps } = x.row_factors()?;
        if squares != 0 && (factors.is_none() || rows.start > 0) {
            return refuse("rows without the factor of their norm");
        }
        if x.stride() != stride {
            return refuse(format!("expected rows of {stride}, found {}", x.stride()));
        }
        Ok(args::Operands {
            x: x.checked(rows.end, self.k, self.precision())?
                + (rows.start * stride * x.precision().bytes()) as u64,
            w: self.address()?,
            scales: self.factors()?,
            row_scales: x.row_scales(rows.start)?,
            rows: rows.len() as u32,
            n: self.n as u32,
            k: stride as u32,
            segment: segment(self.format, self.n, stride) as u32,
            form: form_number(self.format),
            squares,
            parts,
            eps,
            factors: factors.unwrap_or(0) as u32,
            early: self.device().limits().overlap.into(),
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
        self.precision().padded(self.k)
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
