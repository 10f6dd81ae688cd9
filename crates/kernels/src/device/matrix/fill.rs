//! Copies matrices to a device.

use super::super::launch::MatrixFormat;
use super::super::packed::write_panel;
use super::super::{Device, DeviceError, Result, refuse};
use super::{DeviceMatrix, MatrixSizes, panel_rows};
use crate::blocks::{BlockRows, BlockType};
use crate::gemm::{Column, row_to_bytes};
use crate::linear::{Epilogue, Linear, Matrix, check_codes};
use crate::parallel::{Shared, for_rows};
use crate::simd::blocks::Form;

/// Elements of a matrix copied at a time.
const PIECE: usize = 1 << 22;

/// Inner elements of a step of tensor cores.
const STEP: usize = 16;

/// Kernels widen integers in parts of this (`widen` of `cuda/device.h`), so that widening takes few
/// instructions; the factors of the rows make up for it.
const PARTS: f32 = 64.0;

impl DeviceMatrix {
    /// Copies a matrix to the device, piece by piece. The only packed format of numbers is four bits.
    pub fn new(
        device: &Device,
        format: impl Into<MatrixFormat>,
        matrix: Matrix<'_>,
        epilogue: Epilogue,
    ) -> Result<Self> {
        let Matrix { weight, k, bias } = matrix;
        if k == 0 || !weight.len().is_multiple_of(k) {
            return refuse(format!("{} weights are not rows of {k}", weight.len()));
        }
        let n = weight.len() / k;
        if bias.is_some_and(|bias| bias.len() != n) {
            return refuse(format!("expected a bias for each of {n} rows"));
        }
        let format = format.into();
        match format {
            MatrixFormat::Packed(Form::Four) => {
                check_codes(weight).map_err(|error| DeviceError(error.to_string()))?;
            }
            MatrixFormat::Packed(_) => return refuse("expected the blocks of a packed matrix"),
            _ => {}
        }
        let sizes = MatrixSizes { rows: n, k, biased: bias.is_some(), epilogue };
        let row = |row: usize| Column::Floats(&weight[row * k..(row + 1) * k]);
        Self::filled(device, format, sizes, row, bias)
    }

    /// Copies the rows of blocks of a matrix `[n, k]` to the device, one after another. Their codes are
    /// kept.
    ///
    /// # Errors
    /// If the lengths do not match, `k` is no number of blocks, or a gated matrix has several types.
    pub fn of_blocks(
        device: &Device,
        shape: [usize; 2],
        blocks: &[BlockRows<'_>],
        bias: Option<&[f32]>,
        epilogue: Epilogue,
    ) -> Result<Self> {
        let checked = Linear::bytes_of_blocks(shape, blocks, epilogue);
        checked.map_err(|error| DeviceError(error.to_string()))?;
        let [n, k] = shape;
        let (mut first, mut beside) = (n, None);
        for run in blocks.chunk_by(|a, b| a.kind == b.kind).rev() {
            let (kind, count) = (run[0].kind, run.iter().map(|block| block.rows).sum());
            if kind == BlockType::F16 {
                return refuse("expected codes or numbers, found blocks of F16");
            }
            first -= count;
            let format = MatrixFormat::Packed(kind.form());
            let sizes = MatrixSizes { rows: count, k, biased: bias.is_some(), epilogue };
            let mut matrix = if device.is_counting() {
                Self::reserve(device, format, sizes)?
            } else {
                let length = kind.row_bytes(k).unwrap_or(0);
                let rows = run.iter().flat_map(|block| block.bytes.chunks_exact(length.max(1)));
                let rows: Vec<&[u8]> = rows.collect();
                let bias = bias.and_then(|bias| bias.get(first..first + count));
                if rows.len() != count || bias.is_some() != sizes.biased {
                    return refuse(format!("{} rows of {} for {count}", rows.len(), kind.name()));
                }
                Self::filled(device, format, sizes, |row| Column::Blocks(kind, rows[row]), bias)?
            };
            matrix.beside = beside.map(Box::new);
            beside = Some(matrix);
        }
        match beside {
            Some(matrix) => Ok(matrix),
            None => refuse("a matrix without rows"),
        }
    }

    /// Copies rows to the device, piece by piece.
    fn filled<'a>(
        device: &Device,
        format: MatrixFormat,
        sizes: MatrixSizes,
        row: impl Fn(usize) -> Column<'a> + Sync,
        bias: Option<&[f32]>,
    ) -> Result<Self> {
        let MatrixSizes { rows: n, k, epilogue, .. } = sizes;
        let matrix = Self::reserve(device, format, sizes)?;
        // Rows j of the gate and of the up matrix are adjacent, so that one thread computes both.
        let source = |j: usize| match epilogue {
            Epilogue::None => j,
            Epilogue::SiluGate | Epilogue::GeluGate => j / 2 + j % 2 * (n / 2),
        };
        let tall = panel_rows(format);
        let (panels, stride) = (n.div_ceil(tall), format.bytes(tall * format.inputs().padded(k)));
        let step = (PIECE / (tall * k)).clamp(1, panels.max(1));
        // The padding of rows stays zero.
        let (mut bytes, mut scales) = (vec![0; step * stride], vec![0.0; n]);
        for first in (0..panels).step_by(step) {
            let count = step.min(panels - first);
            let (all, factors) = (Shared::new(&mut bytes), Shared::new(&mut scales));
            for_rows(count, count * tall * k, |range| {
                for j in range {
                    let rows = (first + j) * tall..((first + j + 1) * tall).min(n);
                    // SAFETY: each panel is written once, and both vectors outlive the loop.
                    let (out, scales) = unsafe {
                        (all.slice(j * stride, stride), factors.slice(rows.start, rows.len()))
                    };
                    matrix.encode(rows.map(|j| row(source(j))), out, scales);
                }
            });
            matrix.weights.write_at(first * stride, &bytes[..count * stride])?;
        }
        if let Some(stored) = &matrix.scales {
            stored.write(&scales)?;
        }
        if let (Some(bias), Some(stored)) = (bias, &matrix.bias) {
            let bias: Vec<f32> = (0..n).map(|j| bias[source(j)]).collect();
            stored.write(&bias)?;
        }
        Ok(matrix)
    }

    /// Writes the rows of a panel in their memory format, and their scales.
    fn encode<'a>(
        &self,
        rows: impl Iterator<Item = Column<'a>>,
        out: &mut [u8],
        scales: &mut [f32],
    ) {
        if let MatrixFormat::Packed(form) = self.format {
            out.fill(0);
            return write_panel(form, rows, out);
        }
        for (row, scale) in rows.zip(scales) {
            match (row, self.format) {
                (Column::Floats(row), MatrixFormat::Int8w) => *scale = encode_bytes(row, out),
                (Column::Floats(row), format) => *scale = format.inputs().encode(row, out),
                // Blocks are packed.
                (Column::Blocks(..), _) => {}
            }
        }
    }
}

/// Writes a row in int8 in the order of `WidenedWeights` in `cuda/gemm.cuh`; returns its scale.
fn encode_bytes(row: &[f32], out: &mut [u8]) -> f32 {
    let (mut numbers, scale) = row_to_bytes(row);
    numbers.resize(row.len().next_multiple_of(STEP), 0);
    let steps = numbers.as_chunks::<STEP>().0.iter();
    for (step, step_bytes) in steps.zip(out.as_chunks_mut::<STEP>().0) {
        for (lane, word) in step_bytes.as_chunks_mut().0.iter_mut().enumerate() {
            *word = word_of([0, 1, 8, 9].map(|i| step[2 * lane + i]));
        }
    }
    scale * PARTS
}

/// The word of four weights in int8, from -127 to 127: their sizes and, in the highest bits of the bytes,
/// their signs, where `widen` of `cuda/device.h` expects them.
fn word_of([a, b, c, d]: [i8; 4]) -> [u8; 4] {
    let byte = |size: i8, sign: i8| size.unsigned_abs() | u8::from(sign < 0) << 7;
    [byte(a, d), byte(c, a), byte(b, c), byte(d, b)]
}
