//! Blocks whose codes stand for the numbers of lists: the IQ types, the ternary types, and MXFP4. Each block becomes
//! one that products multiply ([`BlockType::LISTED`], Q8_0 or NVFP4) with exactly its weights.
//!
//! Eight or four codes of types below four bits are one entry of a grid. The grids are those of ggml
//! (`ggml-common.h`); `tests/model/fixtures/gguf_types.py` packs them.

use half::f16;
use kernels::BlockType;

/// Weights of a block, and of a factor.
const WEIGHTS: usize = 256;
const FACTOR: usize = 16;

/// The grids one after another: of each entry, eight codes of two bits or four codes of three bits.
static GRIDS: &[u8; 9216] = include_bytes!("grids.bin");
/// The first entries of the grids.
const GRID_IQ2_XXS: usize = 0;
const GRID_IQ2_XS: usize = 256;
const GRID_IQ2_S: usize = 768;
const GRID_IQ1: usize = 1792;
const GRID_IQ3_XXS: usize = 3840;
const GRID_IQ3_S: usize = 4096;

/// Code `i` of an entry, of `bits` bits.
fn code(entry: usize, i: usize, bits: usize) -> u8 {
    let entry = u16::from_le_bytes([GRIDS[2 * entry], GRIDS[2 * entry + 1]]);
    (entry >> (bits * i)) as u8 & ((1 << bits) - 1)
}

/// A block with a list of numbers.
struct Listed {
    scale: [u8; 2],
    /// A power of two that multiplies the scale.
    power: f32,
    factors: [i8; WEIGHTS / FACTOR],
    codes: [u8; WEIGHTS],
}

/// Makes blocks with a list of blocks of `bytes` bytes.
fn convert(blocks: &[u8], bytes: usize, read: impl Fn(&[u8]) -> Listed) -> Result<Vec<u8>, usize> {
    let mut out = Vec::with_capacity(blocks.len() / bytes * BlockType::IQ4.bytes());
    for block in blocks.chunks_exact(bytes) {
        let Listed { scale, power, factors, codes } = read(block);
        out.extend_from_slice(&scale);
        out.extend_from_slice(&f16::from_f32(power).to_le_bytes());
        out.extend(factors.map(i8::cast_unsigned));
        out.extend(codes.as_chunks().0.iter().map(|[low, high]| low | high << 4));
    }
    Ok(out)
}

fn scale(block: &[u8], start: usize) -> [u8; 2] {
    [block[start], block[start + 1]]
}

/// The number of 16 bits with index `i`.
fn half(bytes: &[u8], i: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]))
}

/// The four bits with index `i`.
fn nibble(bytes: &[u8], i: usize) -> u8 {
    bytes[i / 2] >> (i % 2 * 4) & 15
}

/// Bit `i`.
fn bit(bytes: &[u8], i: usize) -> u8 {
    bytes[i / 8] >> (i % 8) & 1
}

/// `2 x + 1`: a stored scale `x` stands for `x + 0.5`, of which the power holds a half, or for `2 x + 1`.
fn odd(x: u8) -> i8 {
    (2 * x + 1).cast_signed()
}

/// The sign of number `i` of eight. Seven are stored; the last makes the count of negative numbers even.
fn sign(seven: usize, i: usize) -> u8 {
    match i {
        7 => (seven & 127).count_ones() as u8 & 1,
        _ => (seven >> i) as u8 & 1,
    }
}

pub(super) fn iq4_xs(blocks: &[u8]) -> Result<Vec<u8>, usize> {
    convert(blocks, 136, |block| {
        let (high, low, codes) = (half(block, 1), &block[4..8], &block[8..]);
        let factor = |group: usize| nibble(low, group) | (high >> (2 * group) << 4) as u8 & 0x30;
        Listed {
            scale: scale(block, 0),
            power: 1.0,
            factors: std::array::from_fn(|i| factor(i / 2).cast_signed() - 32),
            codes: std::array::from_fn(|i| codes[i / 32 * 16 + i % 16] >> (i % 32 / 16 * 4) & 15),
        }
    })
}

pub(super) fn iq3_xxs(blocks: &[u8]) -> Result<Vec<u8>, usize> {
    convert(blocks, 98, |block| {
        let (entries, signs) = (&block[2..66], &block[66..]);
        Listed {
            scale: scale(block, 0),
            power: 0.25,
            factors: std::array::from_fn(|i| odd(word(signs, i / 2).1)),
            codes: std::array::from_fn(|i| {
                let size = code(GRID_IQ3_XXS + usize::from(entries[i / 4]), i % 4, 3);
                size | sign(word(signs, i / 32).0 >> (i % 32 / 8 * 7), i % 8) << 3
            }),
        }
    })
}

/// Word `i`: 28 bits of signs and four of a scale.
fn word(bytes: &[u8], i: usize) -> (usize, u8) {
    (half(bytes, 2 * i) | half(bytes, 2 * i + 1) << 16, bytes[4 * i + 3] >> 4)
}

pub(super) fn iq3_s(blocks: &[u8]) -> Result<Vec<u8>, usize> {
    convert(blocks, 110, |block| {
        let (low, rest) = block[2..].split_at(64);
        let (high, rest) = rest.split_at(8);
        let (signs, scales) = rest.split_at(32);
        let entry = |i: usize| usize::from(low[i]) | usize::from(bit(high, i)) << 8;
        Listed {
            scale: scale(block, 0),
            power: 1.0,
            factors: std::array::from_fn(|i| odd(nibble(scales, i / 2))),
            codes: std::array::from_fn(|i| {
                code(GRID_IQ3_S + entry(i / 4), i % 4, 3) | bit(signs, i) << 3
            }),
        }
    })
}

pub(super) fn iq2_xxs(blocks: &[u8]) -> Result<Vec<u8>, usize> {
    convert(blocks, 66, |block| {
        let groups = &block[2..];
        let signs = |group: usize| word(groups, 2 * group + 1);
        Listed {
            scale: scale(block, 0),
            power: 0.125,
            factors: std::array::from_fn(|i| odd(signs(i / 2).1)),
            codes: std::array::from_fn(|i| {
                let (group, part) = (i / 32, i % 32 / 8);
                let entry = usize::from(groups[8 * group + part]);
                let size = code(GRID_IQ2_XXS + entry, i % 8, 2);
                size | sign(signs(group).0 >> (7 * part), i % 8) << 3
            }),
        }
    })
}

pub(super) fn iq2_xs(blocks: &[u8]) -> Result<Vec<u8>, usize> {
    convert(blocks, 74, |block| {
        let (entries, scales) = block[2..].split_at(64);
        Listed {
            scale: scale(block, 0),
            power: 0.125,
            factors: std::array::from_fn(|i| odd(nibble(scales, i))),
            codes: std::array::from_fn(|i| {
                let entry = half(entries, i / 8);
                code(GRID_IQ2_XS + (entry & 511), i % 8, 2) | sign(entry >> 9, i % 8) << 3
            }),
        }
    })
}

pub(super) fn iq2_s(blocks: &[u8]) -> Result<Vec<u8>, usize> {
    convert(blocks, 82, |block| {
        let (low, rest) = block[2..].split_at(32);
        let (signs, rest) = rest.split_at(32);
        let (high, scales) = rest.split_at(8);
        let entry =
            |i: usize| usize::from(low[i]) | usize::from(high[i / 4] >> (i % 4 * 2) & 3) << 8;
        Listed {
            scale: scale(block, 0),
            power: 0.125,
            factors: std::array::from_fn(|i| odd(nibble(scales, i))),
            codes: std::array::from_fn(|i| {
                code(GRID_IQ2_S + entry(i / 8), i % 8, 2) | bit(signs, i) << 3
            }),
        }
    })
}

/// The code of -1, 0 or 1 plus an eighth, or minus one, for a code of the grid.
fn shifted(code: u8, is_less: bool) -> u8 {
    match (code, is_less) {
        (0, true) => 12,
        (0, false) => 11,
        (1, true) => 13,
        (1, false) => 5,
        (_, true) => 3,
        (_, false) => 4,
    }
}

pub(super) fn iq1_s(blocks: &[u8]) -> Result<Vec<u8>, usize> {
    convert(blocks, 50, |block| {
        let (low, high) = block[2..].split_at(32);
        Listed {
            scale: scale(block, 0),
            power: 0.125,
            factors: std::array::from_fn(|i| odd((half(high, i / 2) >> 12) as u8 & 7)),
            codes: std::array::from_fn(|i| {
                let (part, high) = (i / 8, half(high, i / 32));
                let entry = usize::from(low[part]) | (high >> (part % 4 * 3) & 7) << 8;
                shifted(code(GRID_IQ1 + entry, i % 8, 2), high >= 1 << 15)
            }),
        }
    })
}

pub(super) fn iq1_m(blocks: &[u8]) -> Result<Vec<u8>, usize> {
    convert(blocks, 56, |block| {
        let (low, rest) = block.split_at(32);
        let (high, scales) = rest.split_at(16);
        // Its four bits of each number of 16 bits.
        let scale = [scales[1] >> 4 | scales[3] & 0xF0, scales[5] >> 4 | scales[7] & 0xF0];
        Listed {
            scale,
            power: 0.125,
            factors: std::array::from_fn(|i| odd((half(scales, i / 4) >> (i % 4 * 3)) as u8 & 7)),
            codes: std::array::from_fn(|i| {
                let (part, high) = (i / 8, nibble(high, i / 8));
                let entry = usize::from(low[part]) | usize::from(high & 7) << 8;
                shifted(code(GRID_IQ1 + entry, i % 8, 2), high >= 8)
            }),
        }
    })
}

/// The code of -1, 0, 1 or 2, of which the digit is one more.
fn ternary(digit: u8) -> u8 {
    [13, 6, 5, 7][usize::from(digit)]
}

pub(super) fn tq1_0(blocks: &[u8]) -> Result<Vec<u8>, usize> {
    // A byte is a fraction of 256 in base 3: three times the fraction has the next digit before the point.
    let digit = |byte: u8, place: u32| {
        let byte = byte.wrapping_mul(3_u8.wrapping_pow(place));
        ((u16::from(byte) * 3) >> 8) as u8
    };
    convert(blocks, 54, |block| Listed {
        scale: scale(block, 52),
        power: 1.0,
        factors: [1; WEIGHTS / FACTOR],
        codes: std::array::from_fn(|i| {
            let (byte, place) = match i {
                0..160 => (i % 32, i / 32),
                160..240 => (32 + i % 16, (i - 160) / 16),
                _ => (48 + i % 4, (i - 240) / 4),
            };
            ternary(digit(block[byte], place as u32))
        }),
    })
}

pub(super) fn tq2_0(blocks: &[u8]) -> Result<Vec<u8>, usize> {
    convert(blocks, 66, |block| Listed {
        scale: scale(block, 64),
        power: 1.0,
        factors: [1; WEIGHTS / FACTOR],
        codes: std::array::from_fn(|i| {
            ternary(block[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3)
        }),
    })
}

/// In Q8_0, because blocks of 32 have scales of 16 bits.
pub(super) fn iq4_nl(blocks: &[u8]) -> Result<Vec<u8>, usize> {
    let list = BlockType::IQ4.list().unwrap_or(&[0; 16]);
    let mut out = Vec::with_capacity(blocks.len() / 18 * BlockType::Q8_0.bytes());
    for block in blocks.chunks_exact(18) {
        out.extend_from_slice(&block[..2]);
        let codes = &block[2..];
        let low = codes.iter().map(|code| code & 15);
        let all = low.chain(codes.iter().map(|code| code >> 4));
        out.extend(all.map(|code| list[usize::from(code)] ^ 0x80));
    }
    Ok(out)
}

/// The exponent of the factor of [`mxfp4`]'s blocks in f32, and of the least scale of theirs in 8 bits.
const MX_FACTOR: i32 = -10;
const MX_LEAST: i32 = -9;
const MX_MOST: i32 = 8;

/// In NVFP4, whose scales of 8 bits have the powers of two from 2^-19 to 2^-2.
pub(super) fn mxfp4(blocks: &[u8]) -> Result<Vec<u8>, usize> {
    let mut out = Vec::with_capacity(blocks.len() / 17 * BlockType::NVFP4.bytes());
    for (number, block) in blocks.chunks_exact(17).enumerate() {
        let (exponent, codes) = (i32::from(block[0]) - 127 - MX_FACTOR, &block[1..]);
        let is_zero = codes.iter().all(|code| code & 0x77 == 0);
        let scale = match exponent {
            _ if is_zero => 0,
            MX_LEAST..-6 => 1 << (exponent - MX_LEAST),
            -6..=MX_MOST => (exponent + 7) << 3,
            _ => return Err(number),
        } as u8;
        out.extend_from_slice(&2_f32.powi(MX_FACTOR).to_le_bytes());
        out.extend_from_slice(&[scale; 2]);
        let code = |i: usize| codes[i % 16] >> (i / 16 * 4) & 15;
        out.extend((0..16).map(|i| code(2 * i) | code(2 * i + 1) << 4));
    }
    Ok(out)
}
