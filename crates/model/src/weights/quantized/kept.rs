//! Quantized matrices whose codes are kept: integers as those of a block type of GGUF files, and floats.

use half::f16;
use kernels::{BlockType, FP8_SCALES};
use safetensors::tensor::Dtype;

use super::matrix::QuantizedMatrix;
use super::scheme::{Codes, Grid, MLX, Scheme};
use super::{Quantization, is_in_layer};
use crate::LoadError;
use crate::weights::rows::each_row;

/// Weights of a block of every type that is used.
pub(super) const BLOCK: usize = 32;
/// Bytes of a scale.
const SCALE: usize = 2;
/// The difference between the exponents of numbers of 32 and of 16 bits.
const EXPONENT_OFFSET: u32 = (127 - 15) << 23;
/// The smallest normal number of 16 bits, in 32.
const SMALLEST_NORMAL: u32 = (127 - 14) << 23;
/// The largest number of 16 bits, in 32.
const LARGEST: u32 = 65_504f32.to_bits();

impl Scheme {
    /// True if matrices may be kept: 4-bit floats, or codes whose scales are those of whole blocks.
    pub(super) fn is_kept(&self) -> bool {
        let is_whole = match self.grid {
            Grid::Matrix | Grid::Rows => true,
            Grid::Groups(size) | Grid::Blocks([_, size]) => size.is_multiple_of(BLOCK),
        };
        is_whole || self.codes == Codes::Nvfp4
    }
}

impl Quantization {
    /// The largest block type that a matrix in a file with these settings may be kept in.
    pub(in crate::weights) fn supposed(
        &self,
        name: &str,
        shape: &[usize],
        is_linear: bool,
    ) -> Option<BlockType> {
        let columns = shape.last()?;
        let module = name.strip_suffix(".weight")?;
        let scheme = self.scheme(module, is_linear).filter(|scheme| scheme.is_kept())?;
        if scheme.method == MLX {
            // MLX leaves matrices plain that groups do not divide.
            let is_divided = match scheme.grid {
                Grid::Groups(size) => columns.is_multiple_of(size),
                _ => true,
            };
            let kind = scheme.block_type().filter(|_| is_divided)?;
            return kind.row_bytes(*columns).map(|_| kind);
        }
        if !is_linear || !is_in_layer(module) {
            return None;
        }
        let kind = match (scheme.bits(), scheme.zeros) {
            _ if scheme.codes == Codes::Nvfp4 => BlockType::NVFP4,
            _ if scheme.codes == Codes::Floats => BlockType::FP8,
            (8, _) => BlockType::Q8_0,
            (_, true) => BlockType::Q5_0,
            (_, false) => BlockType::Q4_0,
        };
        kind.row_bytes(*columns).map(|_| kind)
    }
}

impl QuantizedMatrix<'_> {
    /// The block type that has exactly the products of the matrix's scales and integers, which are codes
    /// minus zero points, or its floats. `None` if none has: 8-bit codes with zero points, inputs in another order
    /// than that of their groups, or a scale that 16 bits do not hold.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(in crate::weights) fn kept(&self) -> Result<Option<BlockType>, LoadError> {
        if !self.scheme.is_kept() || !self.columns.is_multiple_of(BLOCK) || !self.is_in_order()? {
            return Ok(None);
        }
        match self.scheme.codes {
            Codes::Nvfp4 => return Ok(Some(BlockType::NVFP4)),
            // A product with a scale in F16 is rounded to it before bf16.
            Codes::Floats if self.scales.stored.dtype == Dtype::F16 => return Ok(None),
            Codes::Floats => {
                let fits = self.read_scales()?.iter().all(|scale| scale.abs() < FP8_SCALES);
                return Ok(fits.then_some(BlockType::FP8));
            }
            _ if self.scheme.method == MLX => return self.mlx_kind(),
            _ => {}
        }
        let zeros = self.read_zeros()?;
        let middle = self.middle();
        let is_even = match zeros.is_empty() {
            true => self.zero() == middle,
            false => zeros.iter().all(|zero| *zero == middle),
        };
        let kind = match (self.scheme.bits(), is_even) {
            (4, true) => BlockType::Q4_0,
            // Differences of two codes of four bits.
            (4, false) => BlockType::Q5_0,
            (8, true) => BlockType::Q8_0,
            _ => return Ok(None),
        };
        let fits = self.read_scales()?.iter().all(|scale| half(kind, *scale).is_some());
        Ok(fits.then_some(kind))
    }

    /// The blocks of a matrix that is kept as `kind`, in row-major order.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(in crate::weights) fn blocks(
        &self,
        name: &str,
        kind: BlockType,
    ) -> Result<Vec<u8>, LoadError> {
        match self.scheme.codes {
            Codes::Nvfp4 => return self.fours(),
            Codes::Floats => return self.eights(name),
            _ if self.scheme.method == MLX => return self.mlx_blocks(kind),
            _ => {}
        }
        let scales = self.read_scales()?;
        let (zeros, codes) = (self.read_zeros()?, self.codes.slice()?);
        let row_bytes = self.columns / BLOCK * kind.bytes();
        let mut out = vec![0; self.rows * row_bytes];
        let (cells, form) = (&self.cells, self.scheme.codes);
        each_row(&mut out, row_bytes, |row, bytes| {
            let mut numbers = vec![0.0; self.columns];
            form.read_row(&codes, self.rows, row, &mut numbers);
            let blocks = bytes.chunks_exact_mut(kind.bytes()).zip(numbers.as_chunks().0);
            for (number, (block, numbers)) in blocks.enumerate() {
                let index = cells.index(row, number * BLOCK);
                let zero = zeros.get(index).copied().unwrap_or(self.zero());
                write_block(kind, scales[index], &numbers.map(|code| code - zero), block);
            }
        });
        Ok(out)
    }

    /// The blocks of 4-bit floats.
    fn fours(&self) -> Result<Vec<u8>, LoadError> {
        // Refuses scales that are not finite.
        self.read_scales()?;
        let factor = self.read_factor()?.to_le_bytes();
        let (codes, scales) = (self.codes.slice()?, self.scales.stored.slice()?);
        let kind = BlockType::NVFP4;
        let row_bytes = self.columns / BLOCK * kind.bytes();
        let mut out = vec![0; self.rows * row_bytes];
        each_row(&mut out, row_bytes, |row, bytes| {
            let first = row * self.columns / BLOCK;
            for (number, block) in (first..).zip(bytes.chunks_exact_mut(kind.bytes())) {
                block[..4].copy_from_slice(&factor);
                block[4..6].copy_from_slice(&scales[2 * number..][..2]);
                block[6..].copy_from_slice(&codes[number * BLOCK / 2..][..BLOCK / 2]);
            }
        });
        Ok(out)
    }

    /// The blocks of 8-bit floats.
    fn eights(&self, name: &str) -> Result<Vec<u8>, LoadError> {
        let (scales, codes) = (self.read_scales()?, self.codes.slice()?);
        if codes.iter().any(|code| code & 0x7F == 0x7F) {
            // The error of reading names the NaN.
            self.read(name, &mut Vec::new())?;
        }
        let (kind, cells) = (BlockType::FP8, &self.cells);
        let row_bytes = self.columns / BLOCK * kind.bytes();
        let mut out = vec![0; self.rows * row_bytes];
        each_row(&mut out, row_bytes, |row, bytes| {
            let codes = codes[row * self.columns..].chunks_exact(BLOCK);
            for (number, (block, codes)) in
                bytes.chunks_exact_mut(kind.bytes()).zip(codes).enumerate()
            {
                let index = cells.index(row, number * BLOCK);
                let (scale, numbers) = block.split_at_mut(size_of::<f32>());
                scale.copy_from_slice(&scales[index].to_le_bytes());
                numbers.copy_from_slice(codes);
            }
        });
        Ok(out)
    }

    /// The zero point of integers from `-2^(bits - 1)` on.
    fn middle(&self) -> f32 {
        match self.scheme.codes {
            Codes::Integers(_) => 0.0,
            _ => (1 << (self.scheme.bits() - 1)) as f32,
        }
    }

    /// True if every input is in the group of its place.
    fn is_in_order(&self) -> Result<bool, LoadError> {
        let order = self.read_order()?;
        let is_own = |(input, group): (usize, &usize)| input / self.cells.size[1] == *group;
        Ok(order.is_none_or(|order| order.iter().enumerate().all(is_own)))
    }
}

/// A scale or minimum in 16 bits, `None` if it is another number there, or one that `kind` does not hold.
#[inline]
pub(super) fn half(kind: BlockType, x: f32) -> Option<f16> {
    let (bits, magnitude) = (x.to_bits(), x.abs().to_bits());
    // Nearly all are normal numbers of 16 bits, for which moving bits is faster than the crate's conversion.
    let is_normal = (SMALLEST_NORMAL..=LARGEST).contains(&magnitude);
    let half = match is_normal && bits & 0x1FFF == 0 {
        true => f16::from_bits((bits >> 16 & 0x8000 | (magnitude - EXPONENT_OFFSET) >> 13) as u16),
        false => Some(f16::from_f32(x)).filter(|half| half.to_f32() == x)?,
    };
    kind.holds(half).then_some(half)
}

/// Writes a block of integers.
fn write_block(kind: BlockType, scale: f32, integers: &[f32; BLOCK], block: &mut [u8]) {
    block[..SCALE].copy_from_slice(&f16::from_f32(scale).to_le_bytes());
    let offset = match kind {
        BlockType::Q4_0 => 8.0,
        BlockType::Q5_0 => 16.0,
        _ => 0.0,
    };
    write_codes(&integers.map(|integer| (integer + offset) as i8 as u8), &mut block[SCALE..]);
}

/// Writes the codes of a block: bytes, or four bits of each behind the fifth bits, if the block has room for them.
pub(super) fn write_codes(codes: &[u8; BLOCK], bytes: &mut [u8]) {
    if bytes.len() == BLOCK {
        bytes.copy_from_slice(codes);
        return;
    }
    let (high, low) = bytes.split_at_mut(bytes.len() - BLOCK / 2);
    let (first, last) = codes.split_at(BLOCK / 2);
    for (byte, (first, last)) in low.iter_mut().zip(first.iter().zip(last)) {
        *byte = first & 0x0F | last << 4;
    }
    // The fifth bits, if the type has them.
    for (byte, codes) in high.iter_mut().zip(codes.as_chunks::<8>().0) {
        *byte = codes.iter().rev().fold(0, |bits, code| bits << 1 | code >> 4 & 1);
    }
}
