//! Packs codes in groups, from the blocks of a file or from numbers.
//!
//! `simd::blocks` describes the words of a column. A file's codes, scales and minimums are kept
//! exactly: types without a minimum get one, the product of the scale and a power of two.

mod round;

pub(crate) use round::round_to_codes;
pub use round::row_in_codes;

use crate::blocks::{BlockType, float8};
use crate::simd::blocks::{FINE_HEAD, GROUP};
use half::f16;

/// The low four bits of four codes.
const LOW_BITS: u32 = 0x0F0F_0F0F;

/// The codes of a group.
pub(crate) type Codes = [u8; GROUP];

/// Packs the blocks of one column.
pub(crate) fn repack(kind: BlockType, bytes: &[u8], words: &mut [u32]) {
    let form = kind.form();
    let steps = words.chunks_exact_mut(form.column());
    for (block, step) in bytes.chunks_exact(kind.bytes()).zip(steps) {
        let half = |index: usize| f16::from_le_bytes([block[index], block[index + 1]]);
        let scale = half(0);
        let times = |power: f32| f16::from_f32(scale.to_f32() * power);
        match kind {
            BlockType::Q4_0 => put(&plain(&block[2..], None), [scale, times(-8.0)], step),
            BlockType::Q4_1 => put(&plain(&block[4..], None), [scale, half(2)], step),
            BlockType::Q5_0 => {
                let codes = plain(&block[6..], Some(&block[2..6]));
                put(&codes, [scale, times(-16.0)], step);
            }
            BlockType::Q5_1 => {
                let codes = plain(&block[8..], Some(&block[4..8]));
                put(&codes, [scale, half(2)], step);
            }
            BlockType::Q8_0 => {
                let signed = block[2..].iter();
                let mut codes = [0; GROUP];
                let pairs = codes.iter_mut().zip(signed);
                pairs.for_each(|(code, byte)| *code = byte ^ 0x80);
                put(&codes, [scale, times(-128.0)], step);
            }
            BlockType::AFFINE8 => {
                put(&std::array::from_fn(|i| block[4 + i]), [scale, half(2)], step);
            }
            BlockType::Q4_K | BlockType::Q5_K => repack_fine(kind, block, step),
            BlockType::Q6_K => repack_six(block, step),
            BlockType::Q2_K => repack_two(block, step),
            BlockType::IQ4 | BlockType::IQ3_S | BlockType::IQ3_XXS | BlockType::IQ2 => {
                repack_listed(block, step);
            }
            BlockType::NVFP4 => {
                let scales = [block[4], block[5]].map(|scale| f16::from_f32(float8(scale)));
                put(&std::array::from_fn(|i| block[6 + i / 2] >> (i % 2 * 4) & 0x0F), scales, step);
            }
            BlockType::FP8 | BlockType::F16 => copy(block, step),
        }
    }
}

/// 32 codes of four bits, the first half in the low bits, and a fifth bit of each.
fn plain(low: &[u8], high: Option<&[u8]>) -> Codes {
    let mut codes = [0; GROUP];
    let (first, last) = codes.split_at_mut(GROUP / 2);
    for ((first, last), byte) in first.iter_mut().zip(last).zip(low) {
        (*first, *last) = (byte & 0x0F, byte >> 4);
    }
    for (codes, fifths) in codes.as_chunks_mut::<8>().0.iter_mut().zip(high.into_iter().flatten()) {
        let bits = codes.iter_mut().enumerate();
        bits.for_each(|(place, code)| *code |= (fifths >> place & 1) << 4);
    }
    codes
}

/// Writes a step of one group.
fn put(codes: &Codes, [scale, minimum]: [f16; 2], step: &mut [u32]) {
    step[0] = pair(scale, minimum);
    write_codes(codes, &mut step[1..]);
}

fn pair(scale: f16, minimum: f16) -> u32 {
    u32::from(scale.to_bits()) | u32::from(minimum.to_bits()) << 16
}

/// Writes the codes of a group; the number of words is their number of bits.
fn write_codes(codes: &Codes, words: &mut [u32]) {
    // Four codes each: bits of all four move at once.
    let fours: [u32; GROUP / 4] = std::array::from_fn(|i| {
        u32::from_le_bytes([codes[4 * i], codes[4 * i + 1], codes[4 * i + 2], codes[4 * i + 3]])
    });
    let bits = words.len();
    if bits == 8 {
        words.copy_from_slice(&fours);
        return;
    }
    let (low, high) = words.split_at_mut(4);
    for (word, [first, last]) in low.iter_mut().zip(fours.as_chunks().0) {
        *word = first & LOW_BITS | (last & LOW_BITS) << 4;
    }
    let more = bits - 4;
    let mask = ((1 << more) - 1) * 0x0101_0101;
    for (word, fours) in high.iter_mut().zip(fours.chunks_exact(8 / more.max(1))) {
        let parts = fours.iter().enumerate();
        *word = parts.fold(0, |word, (part, four)| word | (four >> 4 & mask) << (more * part));
    }
}

/// The codes of a group, of the words that [`write_codes`] wrote.
pub(crate) fn group_codes(words: &[u32]) -> Codes {
    let byte = |word: usize, index: usize| words[word].to_le_bytes()[index];
    let bits = words.len();
    if bits == 8 {
        return std::array::from_fn(|i| byte(i / 4, i % 4));
    }
    std::array::from_fn(|i| {
        let low = byte(i / 8, i % 4) >> (4 * (i / 4 % 2)) & 0x0F;
        let more = bits - 4;
        if more == 0 {
            return low;
        }
        let (part, parts) = (i / 4, 8 / more);
        let high = byte(4 + part / parts, i % 4) >> (more * (part % parts));
        low | (high & ((1 << more) - 1)) << 4
    })
}

/// Packs a block of 256 codes of two bits.
fn repack_two(block: &[u8], step: &mut [u32]) {
    let half = |index: usize| f16::from_le_bytes([block[index], block[index + 1]]);
    let (factors, codes) = block[..80].split_at(16);
    // The file's minimums are subtracted.
    step[0] = pair(half(80), -half(82));
    copy(factors, &mut step[1..FINE_HEAD]);
    for (group, words) in step[FINE_HEAD..].chunks_exact_mut(4).enumerate() {
        let bytes = &codes[group / 4 * GROUP..][..GROUP];
        write_codes(&std::array::from_fn(|i| bytes[i] >> (group % 4 * 2) & 3), words);
    }
}

/// Packs a block of 256 codes with a list.
fn repack_listed(block: &[u8], step: &mut [u32]) {
    copy(&block[..20], &mut step[..FINE_HEAD]);
    // Signed, plus 128.
    step[1..FINE_HEAD].iter_mut().for_each(|factors| *factors ^= 0x8080_8080);
    let groups = block[20..].chunks_exact(GROUP / 2);
    for (bytes, words) in groups.zip(step[FINE_HEAD..].chunks_exact_mut(4)) {
        write_codes(&std::array::from_fn(|i| bytes[i / 2] >> (i % 2 * 4) & 0x0F), words);
    }
}

fn copy(bytes: &[u8], words: &mut [u32]) {
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
}

/// Packs a block of 256 codes of four or five bits.
fn repack_fine(kind: BlockType, block: &[u8], step: &mut [u32]) {
    let half = |index: usize| f16::from_le_bytes([block[index], block[index + 1]]);
    // The file's minimums are subtracted.
    step[0] = pair(half(0), -half(2));
    let packed = &block[4..16];
    let factors: [[u8; 2]; 8] = std::array::from_fn(|group| match group {
        0..4 => [packed[group] & 63, packed[group + 4] & 63],
        _ => {
            let (both, high) = (packed[group + 4], [packed[group - 4], packed[group]]);
            [both & 0x0F | high[0] >> 6 << 4, both >> 4 | high[1] >> 6 << 4]
        }
    });
    for (word, factors) in step[1..FINE_HEAD].iter_mut().zip(factors.as_chunks::<2>().0) {
        let [[a, b], [c, d]] = *factors;
        *word = u32::from_le_bytes([a, b, c, d]);
    }
    let (fifth, low) = match kind {
        BlockType::Q5_K => (Some(&block[16..48]), &block[48..]),
        _ => (None, &block[16..]),
    };
    let bits = kind.form().bits();
    let groups = step[FINE_HEAD..].chunks_exact_mut(bits);
    for (group, words) in groups.enumerate() {
        let low = &low[group / 2 * GROUP..][..GROUP];
        let codes = std::array::from_fn(|i| {
            let fifth = fifth.map_or(0, |fifth| fifth[i] >> group & 1);
            low[i] >> (4 * (group % 2)) & 0x0F | fifth << 4
        });
        write_codes(&codes, words);
    }
}

/// Packs a block of 256 codes of six bits.
fn repack_six(block: &[u8], step: &mut [u32]) {
    let (low, high, factors) = (&block[..128], &block[128..192], &block[192..208]);
    step[0] = pair(f16::from_le_bytes([block[208], block[209]]), f16::ZERO);
    for (word, factors) in step[1..FINE_HEAD].iter_mut().zip(factors.as_chunks().0) {
        // Signed, plus 128.
        *word = u32::from_le_bytes(*factors) ^ 0x8080_8080;
    }
    for (group, words) in step[FINE_HEAD..].chunks_exact_mut(6).enumerate() {
        let (part, quarter) = (group / 4, group % 4);
        let codes = std::array::from_fn(|i| {
            let low = low[64 * part + 32 * (quarter % 2) + i] >> (4 * (quarter / 2)) & 0x0F;
            low | (high[32 * part + i] >> (2 * quarter) & 3) << 4
        });
        write_codes(&codes, words);
    }
}

#[cfg(test)]
pub(crate) mod tests;
