//! Device memory and arrays of rows in it.

use super::tensor_map::{MapRows, TensorMap};
use super::{Device, Kernel, Result, args, kernel, refuse};
use crate::cache::KvDtype;
use crate::gemm::row_to_bytes;

const ROUND: [Kernel; 2] = [kernel("round_f32", 1024, 128), kernel("round_bf16", 1024, 128)];
pub(super) const KERNELS: &[Kernel] = &ROUND;
/// Numbers of a row that a thread of these kernels holds; `HELD` of the kernels.
const HELD: usize = 16;

/// The number format of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// f32, with products for parity with the CPU: no tensor cores, no TF32.
    F32,
    /// bf16, with products on tensor cores with f32 sums.
    Bf16,
    /// 8-bit integers with a factor for each row, rounded as on the CPU, with exact products on tensor
    /// cores. For inputs of products only.
    Int8,
}

impl Precision {
    /// Bytes per element.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
            Self::Int8 => 1,
        }
    }

    /// The number format of keys and values beside queries in this one.
    pub fn kv_dtype(self) -> KvDtype {
        match self {
            Self::F32 => KvDtype::F32,
            Self::Bf16 => KvDtype::Bf16,
            Self::Int8 => KvDtype::Int8,
        }
    }

    /// Elements of a padded row of `width` elements: a multiple of those that products read at a time.
    pub(super) fn padded(self, width: usize) -> usize {
        width.next_multiple_of(match self {
            Self::F32 | Self::Bf16 => 64,
            Self::Int8 => 128,
        })
    }

    /// Rows of `stride` numbers for bulk copies; `None` of numbers that none loads.
    pub(super) fn map_rows(self, address: u64, rows: usize, stride: usize) -> Option<MapRows> {
        let copied = matches!(self, Self::Bf16 | Self::Int8);
        copied.then_some(MapRows { address, rows, inner: stride * self.bytes() / 2 })
    }

    /// Writes the numbers in their memory format, rounded to nearest even, and leaves later bytes as
    /// they are. Returns the factor of a row of integers, otherwise 1.
    pub(super) fn encode(self, numbers: &[f32], out: &mut [u8]) -> f32 {
        match self {
            Self::Int8 => {
                let (bytes, scale) = row_to_bytes(numbers);
                out.iter_mut().zip(bytes).for_each(|(out, byte)| *out = byte.cast_unsigned());
                return scale;
            }
            Self::F32 => {
                for (word, x) in out.as_chunks_mut().0.iter_mut().zip(numbers) {
                    *word = x.to_le_bytes();
                }
            }
            Self::Bf16 => {
                for (word, x) in out.as_chunks_mut().0.iter_mut().zip(numbers) {
                    *word = bf16(*x).to_le_bytes();
                }
            }
        }
        1.0
    }
}

/// Rounds a finite number to bf16, to nearest even.
fn bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    (bits.wrapping_add(0x7FFF + (bits >> 16 & 1)) >> 16) as u16
}

/// An allocation on a device.
pub struct Buffer {
    device: Device,
    address: u64,
    bytes: usize,
}

impl Buffer {
    /// Allocates zeroed memory.
    pub fn new(device: &Device, bytes: usize) -> Result<Self> {
        // Kernels also take the addresses of empty arrays.
        let bytes = bytes.max(16);
        Ok(Self {
            address: {
                device.changed();
                device.driver.allocate(bytes)?
            },
            device: device.clone(),
            bytes,
        })
    }

    /// Allocates memory with these numbers in f32.
    pub fn floats(device: &Device, numbers: &[f32]) -> Result<Self> {
        let buffer = Self::new(device, size_of_val(numbers))?;
        buffer.write(numbers)?;
        Ok(buffer)
    }

    /// Overwrites the first bytes by numbers in f32.
    pub(super) fn write(&self, numbers: &[f32]) -> Result<()> {
        self.write_floats(0, numbers)
    }

    /// Overwrites numbers in f32 from number `first` on.
    fn write_floats(&self, first: usize, numbers: &[f32]) -> Result<()> {
        let mut bytes = vec![0; size_of_val(numbers)];
        Precision::F32.encode(numbers, &mut bytes);
        self.write_at(first * size_of::<f32>(), &bytes)
    }

    /// The device of the memory.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Overwrites the first bytes.
    pub fn upload(&self, bytes: &[u8]) -> Result<()> {
        self.write_at(0, bytes)
    }

    /// Overwrites bytes from byte `first` on.
    pub(super) fn write_at(&self, first: usize, bytes: &[u8]) -> Result<()> {
        let address = self.range(first, bytes.len())?;
        self.device.driver.upload(address, bytes)
    }

    /// Waits for all earlier work and reads `bytes.len()` bytes from byte `first` on.
    pub fn download(&self, first: usize, bytes: &mut [u8]) -> Result<()> {
        let address = self.range(first, bytes.len())?;
        self.device.driver.download(bytes, address)
    }

    /// Sets every byte to `byte`.
    pub fn fill(&self, byte: u8) -> Result<()> {
        self.device.driver.fill(self.address, byte, self.bytes)
    }

    /// Overwrites all bytes by those of a buffer, over and over.
    pub(super) fn repeat(&self, part: &Self) -> Result<()> {
        for first in (0..self.bytes).step_by(part.bytes) {
            let bytes = part.bytes.min(self.bytes - first);
            self.device.driver.copy(self.address + first as u64, part.address, bytes)?;
        }
        Ok(())
    }

    /// The address of `bytes` bytes from `first` on.
    pub fn range(&self, first: usize, bytes: usize) -> Result<u64> {
        match first.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(self.address + first as u64),
            _ => refuse(format!("{bytes} bytes from {first} on of {}", self.bytes)),
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.device.changed();
        self.device.driver.free(self.address);
    }
}

/// Rows of numbers. The padding after a row is zero and never written.
pub struct Array {
    buffer: Buffer,
    /// The factors of rows of integers.
    scales: Option<Buffer>,
    /// The same rows as integers, after [`Self::round`].
    rounded: Option<Box<Self>>,
    /// Memory for rows without the factor of their norm.
    squares: Option<Squares>,
    /// For bulk copies of rows in bf16 or int8.
    map: Option<TensorMap>,
    precision: Precision,
    rows: usize,
    width: usize,
    stride: usize,
}

/// Sums of the squares of rows, from which products that read the rows compute the factors of their norm.
struct Squares {
    /// `[rows, parts]`: of [`SQUARED`] numbers each.
    sums: Buffer,
    parts: usize,
    /// Added to the mean of the squares; `None` if the rows have their factors.
    eps: Option<f32>,
}

/// Columns whose squares are summed at once; of the same name in the kernels.
pub(super) const SQUARED: usize = 64;

/// The numbers from which a product computes the factors of rows.
#[derive(Clone, Copy, Default)]
pub(super) struct RowFactors {
    /// The address of the sums, 0 if rows have their factors.
    pub(super) squares: u64,
    /// Sums of a row.
    pub(super) parts: u32,
    /// Added to the mean of the squares.
    pub(super) eps: f32,
}

impl Array {
    /// The same with memory for rows without the factor of their norm, if kernels exist for such rows.
    pub fn with_squares(self) -> Result<Self> {
        if self.precision != Precision::Bf16 || !self.width.is_multiple_of(SQUARED) {
            return Ok(self);
        }
        let parts = self.width / SQUARED;
        let bytes = self.rows.saturating_mul(parts * size_of::<f32>());
        let sums = Buffer::new(self.device(), bytes)?;
        Ok(Self { squares: Some(Squares { sums, parts, eps: None }), ..self })
    }

    /// The address of the sums of squares of rows, if the array has memory for them.
    pub(super) fn squares(&self) -> Result<Option<u64>> {
        let squares = self.squares.as_ref();
        squares.map(|one| one.sums.range(0, self.rows * one.parts * 4)).transpose()
    }

    /// Declares that rows lack the factor of a norm with this `eps`, or that they have it.
    pub(crate) fn set_lacking(&mut self, eps: Option<f32>) {
        if let Some(squares) = &mut self.squares {
            squares.eps = eps;
        }
    }

    /// The numbers from which products compute the factors that rows lack.
    pub(super) fn row_factors(&self) -> Result<RowFactors> {
        match &self.squares {
            Some(Squares { sums, parts, eps: Some(eps) }) => Ok(RowFactors {
                squares: sums.range(0, self.rows * parts * 4)?,
                parts: *parts as u32,
                eps: *eps,
            }),
            _ => Ok(RowFactors::default()),
        }
    }

    /// Allocates zeroed rows without padding.
    pub fn new(device: &Device, precision: Precision, rows: usize, width: usize) -> Result<Self> {
        Self::with_stride(device, precision, [rows, width], width)
    }

    /// Allocates zeroed rows with the padding that products require.
    pub fn padded(
        device: &Device,
        precision: Precision,
        rows: usize,
        width: usize,
    ) -> Result<Self> {
        Self::with_stride(device, precision, [rows, width], precision.padded(width))
    }

    /// Allocates zeroed rows, with the padding that products require, that an operation writes in one
    /// precision and products read in another: in the same one, or as integers ([`Self::round`]).
    pub fn inputs_of(
        device: &Device,
        [written, read]: [Precision; 2],
        rows: usize,
        width: usize,
    ) -> Result<Self> {
        let array = Self::padded(device, written, rows, width)?;
        let rounded = (read == Precision::Int8 && written != read)
            .then(|| Self::padded(device, read, rows, width).map(Box::new));
        Ok(Self { rounded: rounded.transpose()?, ..array })
    }

    fn with_stride(
        device: &Device,
        precision: Precision,
        [rows, width]: [usize; 2],
        stride: usize,
    ) -> Result<Self> {
        let numbers = rows.checked_mul(stride);
        let bytes = numbers.and_then(|numbers| numbers.checked_mul(precision.bytes()));
        let Some(bytes) = bytes.filter(|_| stride <= u32::MAX as usize) else {
            return refuse(format!("an array of {rows} rows of {stride} numbers is too large"));
        };
        let scales = match precision {
            Precision::Int8 => Some(Buffer::new(device, rows.saturating_mul(size_of::<f32>()))?),
            Precision::F32 | Precision::Bf16 => None,
        };
        let buffer = Buffer::new(device, bytes)?;
        let described = precision.map_rows(buffer.address, rows, stride);
        let map = described.and_then(|rows| device.tensor_map(rows));
        let (rounded, squares) = (None, None);
        Ok(Self { buffer, scales, rounded, squares, map, precision, rows, width, stride })
    }

    /// Overwrites rows from `first` on.
    pub fn write(&self, first: usize, numbers: &[f32]) -> Result<()> {
        if self.width == 0 || !numbers.len().is_multiple_of(self.width) {
            return refuse(format!("{} numbers in rows of {}", numbers.len(), self.width));
        }
        let stride = self.stride * self.precision.bytes();
        let mut all = vec![0; numbers.len() / self.width * stride];
        let rows = numbers.chunks_exact(self.width);
        let encoded = rows.zip(all.chunks_exact_mut(stride));
        let scales: Vec<f32> =
            encoded.map(|(row, line)| self.precision.encode(row, line)).collect();
        if let Some(stored) = &self.scales {
            stored.write_floats(first, &scales)?;
        }
        self.buffer.write_at(first * stride, &all)
    }

    /// Reads the first `rows` rows, without padding.
    pub fn read(&self, rows: usize) -> Result<Vec<f32>> {
        let size = self.precision.bytes();
        let mut bytes = vec![0; rows * self.stride * size];
        self.buffer.download(0, &mut bytes)?;
        let scales = self.read_scales(rows)?;
        let number = |bytes: &[u8]| match self.precision {
            Precision::F32 => f32::from_le_bytes(bytes.try_into().expect("four bytes")),
            Precision::Bf16 => f32::from_bits(
                u32::from(u16::from_le_bytes(bytes.try_into().expect("two bytes"))) << 16,
            ),
            Precision::Int8 => f32::from(bytes[0].cast_signed()),
        };
        let rows = bytes.chunks_exact(self.stride * size).enumerate();
        let numbers = rows.flat_map(|(i, row)| {
            let scale = scales.get(i).copied().unwrap_or(1.0);
            let numbers = row[..self.width * size].chunks_exact(size);
            numbers.map(move |bytes| scale * number(bytes))
        });
        Ok(numbers.collect())
    }

    /// Reads the factors of the first `rows` rows; none of rows that have no factors.
    fn read_scales(&self, rows: usize) -> Result<Vec<f32>> {
        let Some(scales) = &self.scales else {
            return Ok(Vec::new());
        };
        let mut bytes = vec![0; rows * size_of::<f32>()];
        scales.download(0, &mut bytes)?;
        let numbers = bytes.as_chunks().0.iter();
        Ok(numbers.map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    /// Rounds the first rows to integers for products in int8, if the array has them.
    pub fn round(&self, rows: usize) -> Result<()> {
        let Some(integers) = &self.rounded else {
            return Ok(());
        };
        let args = args::Round {
            x: self.checked(rows, self.width, self.precision)?,
            out: integers.checked(rows, self.width, Precision::Int8)?,
            scales: integers.row_scales(0)?,
            d: self.width as u32,
            x_stride: self.stride as u32,
            stride: integers.stride as u32,
            pad: 0,
        };
        let kernel = select(ROUND, self.precision)?;
        let threads = self.width.div_ceil(HELD).next_multiple_of(32).clamp(128, 1024);
        let kernel = Kernel { threads: threads as u32, ..kernel };
        // SAFETY: the arrays have these sizes.
        unsafe { self.device().launch(kernel, [rows as u32, 1, 1], &args) }
    }

    /// The array that has the rows as inputs of products in a precision.
    pub fn inputs(&self, precision: Precision) -> &Self {
        match &self.rounded {
            Some(integers) if precision == Precision::Int8 => integers,
            _ => self,
        }
    }

    /// The address of the factors of rows of integers from a row on, 0 without them.
    pub(super) fn row_scales(&self, first: usize) -> Result<u64> {
        let scales = self.scales.as_ref();
        let scales = scales.map(|scales| scales.range(first * 4, (self.rows - first) * 4));
        Ok(scales.transpose()?.unwrap_or(0))
    }

    /// The device of the memory.
    pub fn device(&self) -> &Device {
        &self.buffer.device
    }

    /// The description of the rows for bulk copies.
    pub(super) fn map(&self) -> Option<TensorMap> {
        self.map
    }

    /// The memory.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// The number format.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Elements of a row, without padding.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Elements from one row to the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// The address, after checking that the array has `rows` rows of `width` elements in
    /// `precision`.
    pub(super) fn checked(&self, rows: usize, width: usize, precision: Precision) -> Result<u64> {
        if rows > self.rows || width != self.width || precision != self.precision {
            return refuse(format!(
                "expected an array of {rows} rows of {width} {precision:?}, found {} rows of {} {:?}",
                self.rows, self.width, self.precision
            ));
        }
        Ok(self.buffer.address)
    }
}

/// Selects the kernel for a precision.
///
/// # Errors
/// For integers.
pub(super) fn select(kernels: [Kernel; 2], precision: Precision) -> Result<Kernel> {
    match precision {
        Precision::F32 => Ok(kernels[0]),
        Precision::Bf16 => Ok(kernels[1]),
        Precision::Int8 => refuse(format!("{} has no integers", kernels[0].name)),
    }
}

/// Makes room for `bytes` bytes.
pub(super) fn grow(buffer: &mut Option<Buffer>, device: &Device, bytes: usize) -> Result<()> {
    if buffer.as_ref().is_none_or(|buffer| buffer.bytes() < bytes) {
        *buffer = None;
        *buffer = Some(Buffer::new(device, bytes)?);
    }
    Ok(())
}
