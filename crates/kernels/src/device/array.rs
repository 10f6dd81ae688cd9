//! Device memory and arrays of rows in it.

use super::{Device, Kernel, Result, refuse};
use crate::cache::KvDtype;

/// Rows of a padded array are a multiple of this many elements, which products read at a time.
const PAD: usize = 64;

/// Elements of a padded row of `width` elements.
pub(super) fn padded(width: usize) -> usize {
    width.next_multiple_of(PAD)
}

/// The number format of matrices, keys, values and the inputs of products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// f32 everywhere, for parity with the CPU; no tensor cores, no TF32.
    F32,
    /// bf16 on tensor cores with f32 sums.
    Bf16,
}

impl Precision {
    /// Bytes per element.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }

    /// The number format of keys and values.
    pub fn kv_dtype(self) -> KvDtype {
        match self {
            Self::F32 => KvDtype::F32,
            Self::Bf16 => KvDtype::Bf16,
        }
    }

    /// Writes the numbers in their memory format, rounded to nearest even, and leaves later bytes as
    /// they are.
    pub(super) fn encode(self, numbers: &[f32], to: &mut [u8]) {
        match self {
            Self::F32 => {
                for (to, x) in to.as_chunks_mut().0.iter_mut().zip(numbers) {
                    *to = x.to_le_bytes();
                }
            }
            Self::Bf16 => {
                for (to, x) in to.as_chunks_mut().0.iter_mut().zip(numbers) {
                    *to = bf16(*x).to_le_bytes();
                }
            }
        }
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
    at: u64,
    bytes: usize,
}

impl Buffer {
    /// Allocates zeroed memory.
    pub fn new(device: &Device, bytes: usize) -> Result<Self> {
        // Kernels also take the addresses of empty arrays.
        let bytes = bytes.max(16);
        Ok(Self {
            at: {
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
        let mut bytes = vec![0; size_of_val(numbers)];
        Precision::F32.encode(numbers, &mut bytes);
        self.upload(&bytes)
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
    pub fn upload(&self, from: &[u8]) -> Result<()> {
        self.write_at(0, from)
    }

    /// Overwrites bytes from byte `first` on.
    pub(super) fn write_at(&self, first: usize, from: &[u8]) -> Result<()> {
        let at = self.range(first, from.len())?;
        self.device.driver.upload(at, from)
    }

    /// Waits for all earlier work and reads `to.len()` bytes from byte `from` on.
    pub fn download(&self, from: usize, to: &mut [u8]) -> Result<()> {
        let at = self.range(from, to.len())?;
        self.device.driver.download(to, at)
    }

    /// Sets every byte to `byte`.
    pub fn fill(&self, byte: u8) -> Result<()> {
        self.device.driver.fill(self.at, byte, self.bytes)
    }

    /// The address of `bytes` bytes from `from` on.
    pub fn range(&self, from: usize, bytes: usize) -> Result<u64> {
        match from.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(self.at + from as u64),
            _ => refuse(format!("{bytes} bytes from {from} on of {}", self.bytes)),
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.device.changed();
        self.device.driver.free(self.at);
    }
}

/// Rows of numbers. The padding after a row is zero and never written.
pub struct Array {
    buffer: Buffer,
    precision: Precision,
    rows: usize,
    width: usize,
    stride: usize,
}

impl Array {
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
        let stride = padded(width);
        Self::with_stride(device, precision, [rows, width], stride)
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
        Ok(Self { buffer: Buffer::new(device, bytes)?, precision, rows, width, stride })
    }

    /// Overwrites rows from `first` on.
    pub fn write(&self, first: usize, numbers: &[f32]) -> Result<()> {
        if self.width == 0 || !numbers.len().is_multiple_of(self.width) {
            return refuse(format!("{} numbers in rows of {}", numbers.len(), self.width));
        }
        let stride = self.stride * self.precision.bytes();
        let mut all = vec![0; numbers.len() / self.width * stride];
        let rows = numbers.chunks_exact(self.width);
        for (row, to) in rows.zip(all.chunks_exact_mut(stride)) {
            self.precision.encode(row, to);
        }
        self.buffer.write_at(first * stride, &all)
    }

    /// Reads the first `rows` rows, without padding.
    pub fn read(&self, rows: usize) -> Result<Vec<f32>> {
        let size = self.precision.bytes();
        let mut bytes = vec![0; rows * self.stride * size];
        self.buffer.download(0, &mut bytes)?;
        let number = |bytes: &[u8]| match self.precision {
            Precision::F32 => f32::from_le_bytes(bytes.try_into().expect("four bytes")),
            Precision::Bf16 => f32::from_bits(
                u32::from(u16::from_le_bytes(bytes.try_into().expect("two bytes"))) << 16,
            ),
        };
        let rows = bytes.chunks_exact(self.stride * size);
        let numbers = rows.flat_map(|row| row[..self.width * size].chunks_exact(size).map(number));
        Ok(numbers.collect())
    }

    /// The device of the memory.
    pub fn device(&self) -> &Device {
        &self.buffer.device
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
        Ok(self.buffer.at)
    }
}

/// Selects the kernel for a precision.
pub(super) fn select(kernels: [Kernel; 2], precision: Precision) -> Kernel {
    match precision {
        Precision::F32 => kernels[0],
        Precision::Bf16 => kernels[1],
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
