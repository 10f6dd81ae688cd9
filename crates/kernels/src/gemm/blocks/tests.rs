//! Packed codes: their values, and how numbers are rounded.

mod candle;

use super::*;
use crate::gemm::tests::noise;
use crate::simd::blocks::{FACTOR_OFFSET, Form};

/// The types of GGUF files, and those of other formats.
pub(crate) fn all_types() -> Vec<BlockType> {
    let more = [BlockType::NVFP4, BlockType::AFFINE8].into_iter().chain(BlockType::LISTED);
    BlockType::ALL.into_iter().chain(more).collect()
}

/// Blocks of random codes whose scales and minimums are below 1.
pub(crate) fn random_blocks(kind: BlockType, seed: u64, count: usize) -> Vec<u8> {
    let random = noise(seed, count * kind.bytes());
    let mut bytes: Vec<u8> = random.iter().map(|x| (x * 128.0 + 128.0) as u8).collect();
    for block in bytes.chunks_exact_mut(kind.bytes()) {
        let halves: &[usize] = match kind {
            BlockType::Q6_K => &[209],
            BlockType::Q2_K => &[81, 83],
            BlockType::Q4_0 | BlockType::Q5_0 | BlockType::Q8_0 => &[1],
            BlockType::NVFP4 => {
                block[..4].copy_from_slice(&(0.3f32 + seed as f32 / 64.0).to_le_bytes());
                // Positive and below 2.
                block[4..6].iter_mut().for_each(|scale| *scale &= 0x3F);
                &[]
            }
            _ if kind.form().is_listed() => {
                // A power of two, as in files.
                block[2..4].copy_from_slice(&f16::from_f32(0.125).to_le_bytes());
                &[1]
            }
            _ => &[1, 3],
        };
        // The exponent of numbers below 1; fine scales have factors.
        halves.iter().for_each(|&index| block[index] &= 0xB7);
    }
    bytes
}

/// The weights of the blocks of a column, packed and read again.
pub(crate) fn packed_weights(kind: BlockType, bytes: &[u8]) -> Vec<f64> {
    let (form, k) = (kind.form(), bytes.len() / kind.bytes() * kind.weights());
    let mut words = vec![0; k / (GROUP * form.groups()) * form.column()];
    repack(kind, bytes, &mut words);
    let factor = f64::from(kind.factor(bytes));
    widened(form, &words).into_iter().map(|x| x * factor).collect()
}

/// The weights of a column by the description of its words.
fn widened(form: Form, words: &[u32]) -> Vec<f64> {
    let half = |bits: u32| f64::from(f16::from_bits(bits as u16).to_f32());
    let byte = |word: u32, index: usize| word.to_le_bytes()[index % 4];
    let mut all = Vec::new();
    for step in words.chunks_exact(form.column()) {
        let (scale, minimum) = (half(step[0] & 0xFFFF), half(step[0] >> 16));
        let first = form.column() - form.groups() * form.bits();
        let factor = |index: usize| f64::from(byte(step[1 + index / 4], index));
        for (group, words) in step[first..].chunks_exact(form.bits()).enumerate() {
            for i in 0..GROUP {
                let low = byte(words[i / 8], i) >> (i / 4 % 2 * 4) & 0x0F;
                let code = match form.bits() {
                    8 => byte(words[i / 4], i),
                    5 => low | (byte(words[4], i) >> (i / 4) & 1) << 4,
                    6 => low | (byte(words[4 + i / 16], i) >> (i / 4 % 4 * 2) & 3) << 4,
                    _ => low,
                };
                if form == Form::Nvfp4 {
                    let size = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][usize::from(code & 7)];
                    let sign = if code < 8 { 1.0 } else { -1.0 };
                    all.push(sign * size * if i < 16 { scale } else { minimum });
                    continue;
                }
                let fine = || factor(2 * group + i / 16);
                if let Some(list) = form.list() {
                    let number = f64::from(list[usize::from(code)]) - 128.0;
                    all.push(scale * minimum * (fine() - f64::from(FACTOR_OFFSET)) * number);
                    continue;
                }
                let (scale, minimum) = match form {
                    Form::FineSix => {
                        let factor = fine() - f64::from(FACTOR_OFFSET);
                        (scale * factor, -scale * factor * 32.0)
                    }
                    Form::FineTwo => {
                        let (both, sixteen) = (fine(), 16.0);
                        (scale * (both % sixteen), minimum * (both / sixteen).floor())
                    }
                    _ if form.is_fine() => {
                        (scale * factor(2 * group), minimum * factor(2 * group + 1))
                    }
                    _ => (scale, minimum),
                };
                all.push(scale * f64::from(code) + minimum);
            }
        }
    }
    all
}

#[test]
fn blocks_with_scales_that_cannot_be_kept_are_found() {
    for kind in all_types().into_iter().filter(|kind| *kind != BlockType::NVFP4) {
        let mut bytes = random_blocks(kind, 5, 3);
        let within = match kind {
            BlockType::Q6_K => 208,
            BlockType::Q2_K => 80,
            _ => 0,
        };
        let scale = 2 * kind.bytes() + within;
        // The largest finite number of 16 bits fits where no constant multiplies it.
        bytes[scale..scale + 2].copy_from_slice(&0x7BFF_u16.to_le_bytes());
        let multiplied = matches!(kind, BlockType::Q4_0 | BlockType::Q5_0 | BlockType::Q8_0);
        assert_eq!(kind.unfit(&bytes), multiplied.then_some(2), "{kind:?}");
        bytes[scale..scale + 2].copy_from_slice(&0xFC00_u16.to_le_bytes());
        assert_eq!(kind.unfit(&bytes), Some(2), "{kind:?}");
    }
}

fn rounded(x: &[f32]) -> Vec<f64> {
    let mut words = vec![0; x.len() / GROUP * 5];
    round_to_codes(x, &mut words);
    widened(Form::Four, &words)
}

#[test]
fn codes_of_four_bits_are_at_least_as_near_as_those_of_the_whole_range() {
    let x = noise(7, 100 * GROUP);
    // Cubes: most numbers are small, as weights are.
    let x: Vec<f32> = x.iter().map(|x| x * x * x).collect();
    let got = rounded(&x);
    let error = |got: &[f64], x: &[f32]| -> f64 {
        got.iter().zip(x).map(|(got, x)| (got - f64::from(*x)).powi(2)).sum()
    };
    let (mut plain, mut smaller) = (0.0, 0);
    for (group, x) in x.chunks_exact(GROUP).enumerate() {
        let low = x.iter().copied().fold(f32::INFINITY, f32::min);
        let high = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let (low, step) = (f64::from(low), f64::from(high - low) / 15.0);
        let nearest = |x: &f32| low + step * ((f64::from(*x) - low) / step).round();
        let whole: Vec<f64> = x.iter().map(nearest).collect();
        let got = &got[group * GROUP..][..GROUP];
        smaller += usize::from(error(got, x) < error(&whole, x));
        plain += error(&whole, x);
    }
    assert!(smaller > 95, "{smaller} of 100 groups");
    assert!(error(&got, &x) < 0.85 * plain, "{} of {plain}", error(&got, &x));
}

#[test]
fn groups_of_one_number_are_exact_in_16_bits() {
    for number in [0.0, 0.5, -3.0, 65_504.0, -65_504.0] {
        assert_eq!(rounded(&[number; GROUP]), [f64::from(number); GROUP]);
    }
    let mut x = [65_504.0; GROUP];
    x[3] = -65_504.0;
    assert!(rounded(&x).iter().zip(x).all(|(got, x)| (got - f64::from(x)).abs() < 100.0));
}
