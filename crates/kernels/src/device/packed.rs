//! Writes the records of packed weights, which `cuda/packed.cuh` describes.

use super::launch::MatrixFormat;
use crate::gemm::{Column, group_codes, repack, round_to_codes};
use crate::simd::blocks::{FINE_HEAD, Form, GROUP};

/// Columns of a panel, and inner elements of a record.
pub(super) const PANEL: usize = 16;
const STEP: usize = 64;
/// Bytes of a column's scales in a record.
const SCALES: usize = 8;
/// Words of sixteen inner elements are those of a lane; four lanes have a column.
const LANES: usize = 4;

/// Bytes of a record.
const fn record(form: Form) -> usize {
    PANEL * STEP / 8 * MatrixFormat::Packed(form).bits()
}

/// Packs columns as `simd::blocks` describes and writes their panel, which is zero before: a record for
/// each 64 inner elements.
pub(super) fn write_panel<'a>(
    form: Form,
    columns: impl Iterator<Item = Column<'a>>,
    panel: &mut [u8],
) {
    let mut words = Vec::new();
    for (column, weights) in columns.enumerate() {
        words.clear();
        match weights {
            Column::Blocks(kind, bytes) => {
                let steps = bytes.len() / kind.bytes();
                words.resize(steps * form.column(), 0);
                repack(kind, bytes, &mut words);
            }
            Column::Floats(weights) => {
                words.resize(weights.len() / GROUP * form.column(), 0);
                round_to_codes(weights, &mut words);
            }
        }
        let mut number = 0;
        let floats = match weights {
            Column::Blocks(kind, bytes) if form == Form::Nvfp4 => Some((kind, bytes)),
            _ => None,
        };
        for step in words.chunks_exact(form.column()) {
            let (head, codes) = step.split_at(if form.is_fine() { FINE_HEAD } else { 1 });
            for group in codes.chunks_exact(form.bits()) {
                let first = number * GROUP;
                let record_bytes = &mut panel[first / STEP * record(form)..][..record(form)];
                write_group(form, (column, first % STEP), &group_codes(group), record_bytes);
                let scales = match form.is_fine() {
                    true => [head[0], head[1 + number % form.groups() / 2]],
                    false => [head[0]; 2],
                };
                match floats {
                    Some((kind, bytes)) => {
                        let block = &bytes[number * kind.bytes()..];
                        write_floats(
                            (column, first % STEP),
                            kind.factor(block),
                            block,
                            record_bytes,
                        );
                    }
                    None => write_scales(form, (column, first % STEP), scales, record_bytes),
                }
                number += 1;
            }
        }
    }
}

/// Writes 32 codes of a column from the inner element `first` of the record on.
fn write_group(
    form: Form,
    (column, first): (usize, usize),
    codes: &[u8; GROUP],
    record: &mut [u8],
) {
    let (half, lane) = (column / 8, column % 8 * LANES);
    let more = PANEL * STEP / 2;
    for (i, code) in (first..).zip(codes) {
        // The number of the word, and the lane and the byte of the code.
        let (k, inner) = (i / 16, i % 16);
        let (lane, byte) = (lane + inner % 8 / 2, inner / 8 * 2 + inner % 2);
        if form.bits() == 8 {
            record[half * more + lane * 16 + k * 4 + byte] = *code;
            continue;
        }
        record[lane * 16 + half * 8 + k / 2 * 4 + byte] |= (code & 0x0F) << (k % 2 * 4);
        let high = code >> 4;
        match form.bits() {
            5 => record[more + lane * 4 + byte] |= high << (half * 4 + k),
            6 => record[more + lane * 8 + half * 4 + byte] |= high << (2 * k),
            _ => {}
        }
    }
}

/// Writes the scales of a column's group of 4-bit floats, two bytes of its block, and the factor behind those of
/// the record.
fn write_floats((column, first): (usize, usize), factor: f32, block: &[u8], record: &mut [u8]) {
    let start = record.len() - PANEL * SCALES + column * SCALES;
    let scales = &mut record[start..start + SCALES];
    let begin = first / GROUP * 2;
    scales[begin..begin + 2].copy_from_slice(&block[4..6]);
    scales[4..].copy_from_slice(&factor.to_le_bytes());
}

/// Writes the scales of a column's group: one word of two, or in fine forms both.
fn write_scales(form: Form, (column, first): (usize, usize), words: [u32; 2], record: &mut [u8]) {
    let start = record.len() - PANEL * SCALES + column * SCALES;
    let words = words.map(u32::to_le_bytes);
    match form.is_fine() {
        true => record[start..start + SCALES].copy_from_slice(words.as_flattened()),
        false => {
            let begin = start + first / GROUP * SCALES / 2;
            record[begin..begin + SCALES / 2].copy_from_slice(&words[0]);
        }
    }
}
