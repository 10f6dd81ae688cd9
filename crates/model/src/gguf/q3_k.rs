//! Matrices in Q3_K, whose blocks have exactly the weights of blocks in Q6_K: codes of three bits are codes
//! of six, and both types have a scale for each 16 weights.

use kernels::BlockType;

/// Weights of a block of both types, and of a scale.
const WEIGHTS: usize = 256;
const GROUP: usize = 16;
/// Bytes of a block in Q3_K: high bits of the codes, low bits, scales, a factor.
const BYTES: usize = 110;
const LOW: usize = 32;
const SCALES: usize = 96;
const FACTOR: usize = 108;

/// The blocks in Q6_K of whole blocks in Q3_K.
pub(super) fn as_q6_k(blocks: &[u8]) -> Result<Vec<u8>, usize> {
    let mut out = vec![0; blocks.len() / BYTES * BlockType::Q6_K.bytes()];
    let written = out.chunks_exact_mut(BlockType::Q6_K.bytes());
    for (block, written) in blocks.as_chunks::<BYTES>().0.iter().zip(written) {
        let (low, rest) = written.split_at_mut(WEIGHTS / 2);
        let (high, rest) = rest.split_at_mut(WEIGHTS / 4);
        let (scales, factor) = rest.split_at_mut(WEIGHTS / GROUP);
        for half in 0..2 {
            let codes = codes(block, half);
            for (i, byte) in low[64 * half..][..64].iter_mut().enumerate() {
                *byte = codes[i] & 15 | (codes[64 + i] & 15) << 4;
            }
            for (i, byte) in high[32 * half..][..32].iter_mut().enumerate() {
                let part = |part: usize| codes[32 * part + i] >> 4 << (2 * part);
                *byte = part(0) | part(1) | part(2) | part(3);
            }
        }
        let stored = &block[SCALES..FACTOR];
        for (group, scale) in scales.iter_mut().enumerate() {
            let low = stored[group % 8] >> (group / 8 * 4) & 15;
            let high = stored[8 + group % 4] >> (group / 4 * 2) & 3;
            *scale = (low | high << 4).wrapping_sub(32);
        }
        factor.copy_from_slice(&block[FACTOR..]);
    }
    Ok(out)
}

/// The codes of half a block, from 0 to 63 for -32 to 31; in the file they are from -4 to 3.
fn codes(block: &[u8; BYTES], half: usize) -> [u8; WEIGHTS / 2] {
    let (high, low) = (&block[..LOW], &block[LOW + 32 * half..][..32]);
    let mut codes = [0; WEIGHTS / 2];
    for (part, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        for ((code, low), high) in codes.iter_mut().zip(low).zip(high) {
            *code = 28 + (low >> (2 * part) & 3) + (high >> (4 * half + part) & 1) * 4;
        }
    }
    codes
}
