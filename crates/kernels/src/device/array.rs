//! Memory of a device, and arrays of rows in it.

use super::{Device, Result, refuse};

/// Numbers that a row of a padded array is a multiple of: what products read at once.
const PAD: usize = 64;

/// What matrices, keys and values are kept and activations are multiplied as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// f32 throughout, for parity with the CPU; no tensor cores, no TF32.
    F32,
    /// bf16 on the tensor cores with f32 sums.
    Bf16,
}

impl Precision {
    /// Bytes of a number.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }

    /// The numbers as they lie in memory, rounded to nearest even.
    pub(super) fn encode(self, numbers: &[f32], to: &mut Vec<u8>) {
        match self {
            Self::F32 => to.extend(numbers.iter().flat_map(|x| x.to_le_bytes())),
            Self::Bf16 => to.extend(numbers.iter().flat_map(|x| bf16(*x).to_le_bytes())),
        }
    }
}

/// The nearest bf16 of a finite number, to even on ties.
fn bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    (bits.wrapping_add(0x7FFF + (bits >> 16 & 1)) >> 16) as u16
}

/// Bytes on a device.
pub struct Buffer {
    device: Device,
    at: u64,
    bytes: usize,
}

impl Buffer {
    /// Zeros.
    ///
    /// # Errors
    /// If the device has no room.
    pub fn new(device: &Device, bytes: usize) -> Result<Self> {
        // Kernels take addresses of empty arrays too.
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

    /// These numbers in f32.
    ///
    /// # Errors
    /// If the device has no room.
    pub fn floats(device: &Device, numbers: &[f32]) -> Result<Self> {
        let buffer = Self::new(device, size_of_val(numbers))?;
        let mut bytes = Vec::with_capacity(size_of_val(numbers));
        Precision::F32.encode(numbers, &mut bytes);
        buffer.upload(&bytes)?;
        Ok(buffer)
    }

    /// Whose memory it is.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Its length.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Overwrites its beginning.
    ///
    /// # Errors
    /// If it is shorter, or the device fails.
    pub fn upload(&self, from: &[u8]) -> Result<()> {
        self.range(0, from.len())?;
        self.device.driver.upload(self.at, from)
    }

    /// Reads from byte `from` on, once everything before is done.
    ///
    /// # Errors
    /// If it is shorter, or the device fails.
    pub fn download(&self, from: usize, to: &mut [u8]) -> Result<()> {
        let at = self.range(from, to.len())?;
        self.device.driver.download(to, at)
    }

    /// Overwrites all of it with one byte.
    ///
    /// # Errors
    /// If the device fails.
    pub fn fill(&self, byte: u8) -> Result<()> {
        self.device.driver.fill(self.at, byte, self.bytes)
    }

    /// The address of `bytes` bytes from `from` on.
    pub(super) fn range(&self, from: usize, bytes: usize) -> Result<u64> {
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

/// Rows of numbers. Padding behind a row is zero, as nobody writes it.
pub struct Array {
    buffer: Buffer,
    precision: Precision,
    rows: usize,
    width: usize,
    stride: usize,
}

impl Array {
    /// Rows of zeros, one directly behind the other.
    ///
    /// # Errors
    /// If the device has no room.
    pub fn new(device: &Device, precision: Precision, rows: usize, width: usize) -> Result<Self> {
        Self::with_stride(device, precision, (rows, width), width)
    }

    /// Rows of zeros that a product can read.
    ///
    /// # Errors
    /// If the device has no room.
    pub fn padded(
        device: &Device,
        precision: Precision,
        rows: usize,
        width: usize,
    ) -> Result<Self> {
        let stride = width.next_multiple_of(PAD);
        Self::with_stride(device, precision, (rows, width), stride)
    }

    fn with_stride(
        device: &Device,
        precision: Precision,
        (rows, width): (usize, usize),
        stride: usize,
    ) -> Result<Self> {
        let numbers = rows.checked_mul(stride);
        let bytes = numbers.and_then(|numbers| numbers.checked_mul(precision.bytes()));
        let Some(bytes) = bytes.filter(|_| stride <= u32::MAX as usize) else {
            return refuse(format!("an array of {rows} rows of {stride} numbers"));
        };
        Ok(Self {
            buffer: Buffer::new(device, bytes)?,
            precision,
            rows,
            width,
            stride,
        })
    }

    /// Overwrites rows from `first` on.
    ///
    /// # Errors
    /// If they are no whole rows of this array, or the device fails.
    pub fn write(&self, first: usize, numbers: &[f32]) -> Result<()> {
        if self.width == 0 || !numbers.len().is_multiple_of(self.width) {
            return refuse(format!(
                "{} numbers in rows of {}",
                numbers.len(),
                self.width
            ));
        }
        let bytes = self.precision.bytes();
        let mut row = Vec::new();
        let mut all = Vec::with_capacity(numbers.len() / self.width * self.stride * bytes);
        for part in numbers.chunks_exact(self.width) {
            row.clear();
            self.precision.encode(part, &mut row);
            row.resize(self.stride * bytes, 0);
            all.extend_from_slice(&row);
        }
        let at = self.buffer.range(first * self.stride * bytes, all.len())?;
        self.buffer.device.driver.upload(at, &all)
    }

    /// The first `rows` rows, without padding.
    ///
    /// # Errors
    /// If there are fewer, or the device fails.
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

    /// Whose memory it is.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.buffer.device
    }

    /// Its memory.
    #[must_use]
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// What its numbers are.
    #[must_use]
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Rows there is room for.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Numbers of a row, without padding.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// Numbers from one row to the next.
    #[must_use]
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// The address of `rows` rows of `width` numbers of a precision.
    pub(super) fn checked(&self, rows: usize, width: usize, precision: Precision) -> Result<u64> {
        if rows > self.rows || width != self.width || precision != self.precision {
            return refuse(format!(
                "{rows} rows of {width} {precision:?} of an array of {} rows of {} {:?}",
                self.rows, self.width, self.precision
            ));
        }
        Ok(self.buffer.at)
    }
}
