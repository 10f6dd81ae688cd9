//! The codes of a quantized matrix, read row by row.

use kernels::{float4, float8};

use super::scheme::{Codes, Gptq};

/// The place in a word of AWQ of each of eight outputs.
const AWQ_ORDER: [usize; 8] = [0, 4, 1, 5, 2, 6, 3, 7];
/// Bits of a word.
pub(super) const WORD: u32 = 32;

/// The 8-bit floats of bytes.
pub(super) static E4M3: [f32; 256] = {
    let mut numbers = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        numbers[code] = float8(code as u8);
        code += 1;
    }
    numbers
};

/// The powers of two of bytes with a bias of 127 (OCP MX, E8M0). The last is no number.
pub(super) static E8M0: [f32; 256] = {
    let mut numbers = [f32::NAN; 256];
    numbers[0] = f32::from_bits(1 << 22);
    let mut code = 1;
    while code < 255 {
        numbers[code] = f32::from_bits((code as u32) << 23);
        code += 1;
    }
    numbers
};

pub(super) fn word(bytes: &[u8], number: usize) -> u32 {
    let bytes = bytes.as_chunks().0.get(number);
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// The code at a place in a word.
pub(super) fn code(word: u32, bits: u32, place: usize) -> f32 {
    (word >> (bits * place as u32) & ((1 << bits) - 1)) as f32
}

/// The place of the code of an output in its word.
pub(super) fn place(codes: Codes, bits: u32, output: usize) -> usize {
    let place = output % (WORD / bits) as usize;
    match codes {
        Codes::Awq => AWQ_ORDER[place],
        _ => place,
    }
}

impl Codes {
    /// Writes the codes of row `row` of a matrix of `rows` rows.
    pub(super) fn read_row(self, bytes: &[u8], rows: usize, row: usize, out: &mut [f32]) {
        let columns = out.len();
        match self {
            Self::Integers(_) | Self::Floats => {
                let codes = bytes[row * columns..].iter().zip(out);
                match self {
                    Self::Floats => codes.for_each(|(code, x)| *x = E4M3[usize::from(*code)]),
                    _ => codes.for_each(|(code, x)| *x = f32::from(code.cast_signed())),
                }
            }
            Self::Stream(bits) => {
                let first = row * columns * bits as usize / 8;
                read_stream(bits, &bytes[first..], out);
            }
            Self::Nvfp4 | Self::Mxfp4 => {
                let row = &bytes[row * columns / 2..];
                for (pair, byte) in out.chunks_mut(2).zip(row) {
                    for (x, code) in pair.iter_mut().zip([byte & 0x0F, byte >> 4]) {
                        *x = float4(code);
                    }
                }
            }
            Self::Packed(bits) => {
                let in_word = (WORD / bits) as usize;
                let first = row * columns.div_ceil(in_word);
                read_words(bits, out, |number| word(bytes, first + number));
            }
            Self::Gptq(Gptq { bits, .. }) => {
                read_words(bits, out, |number| word(bytes, number * rows + row));
            }
            Self::Awq => {
                let place = place(self, 4, row);
                for (column, x) in out.iter_mut().enumerate() {
                    *x = code(word(bytes, column * (rows / 8) + row / 8), 4, place);
                }
            }
        }
    }
}

/// Writes the codes of a row of words.
fn read_words(bits: u32, out: &mut [f32], word: impl Fn(usize) -> u32) {
    for (number, codes) in out.chunks_mut((WORD / bits) as usize).enumerate() {
        let word = word(number);
        for (place, x) in codes.iter_mut().enumerate() {
            *x = code(word, bits, place);
        }
    }
}

/// Writes codes of at most eight bits that follow each other in the bytes.
pub(super) fn read_stream<T: From<u8>>(bits: u32, bytes: &[u8], out: &mut [T]) {
    match bits {
        4 => {
            // Groups have an even number of codes.
            for (pair, byte) in out.as_chunks_mut().0.iter_mut().zip(bytes) {
                *pair = [(byte & 0x0F).into(), (byte >> 4).into()];
            }
        }
        8 => out.iter_mut().zip(bytes).for_each(|(x, code)| *x = (*code).into()),
        _ => {
            let bits = bits as usize;
            for (place, x) in out.iter_mut().enumerate() {
                let (byte, shift) = (place * bits / 8, place * bits % 8);
                let next = bytes.get(byte + 1).copied().unwrap_or(0);
                let both = u16::from_le_bytes([bytes[byte], next]);
                *x = ((both >> shift) as u8 & ((1 << bits) - 1)).into();
            }
        }
    }
}
