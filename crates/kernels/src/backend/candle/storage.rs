//! Weights as candle holds them.

use super::{Candle, PlainMatrix, PlainRope};
use crate::backend::{Numbers, RopeSpec, Storage, Stored, StoredVector, Table};
use crate::blocks::BlockRows;
use crate::ggml::widened;
use crate::simd::unit::WeightDtype;
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Result, Tensor, bail};
use candle_transformers::models::with_tracing::Embedding;
use candle_transformers::quantized_nn::Linear;
use std::sync::Arc;

impl Storage for Candle {
    type Table = Embedding;
    type Vector = Tensor;
    type Matrix = PlainMatrix;
    type RopeTable = PlainRope;
    type Grouped = ();

    fn table(&self, table: Table) -> Result<Embedding> {
        let shape = (table.rows, table.width);
        let numbers = table.floats()?;
        self.bytes.add_floats(numbers.len());
        Embedding::from_weights(Tensor::from_vec(numbers, shape, &self.device)?)
    }

    fn vector(&self, vector: StoredVector<'_>) -> Result<Tensor> {
        self.bytes.add_floats(vector.numbers.len());
        self.list(vector.numbers)
    }

    fn matrix(&self, matrix: Stored<'_>) -> Result<PlainMatrix> {
        let weight = match matrix.numbers {
            Numbers::Floats(numbers) => self.quantized(numbers, matrix.shape, matrix.dtype)?,
            Numbers::Blocks(blocks) => self.widened(blocks, matrix.shape)?,
        };
        self.bytes.add(match weight.dtype() {
            // Candle widens them again.
            GgmlDType::BF16 => 2 * weight.storage_size_in_bytes(),
            _ => weight.storage_size_in_bytes(),
        });
        let bias = matrix.bias.map(|bias| self.list(bias)).transpose()?;
        Ok(PlainMatrix {
            linear: Linear::from_arc(Arc::new(weight), bias)?,
            epilogue: matrix.epilogue,
        })
    }

    fn rope_table(&self, spec: RopeSpec) -> Result<PlainRope> {
        let frequencies = spec.frequencies();
        let positions = Tensor::arange(0, spec.positions as u32, &self.device)?;
        let positions = positions.to_dtype(DType::F32)?.unsqueeze(1)?;
        let angles = positions.matmul(&self.list(&frequencies)?.unsqueeze(0)?)?;
        self.bytes.add_floats(spec.width * spec.positions);
        let factor = f64::from(spec.magnitude);
        let (cos, sin) = ((angles.cos()? * factor)?, (angles.sin()? * factor)?);
        let query_factors = match spec.query_factors() {
            factors if factors.is_empty() => None,
            factors => {
                self.bytes.add_floats(factors.len());
                Some(self.list(&factors)?)
            }
        };
        Ok(PlainRope { cos, sin, query_factors })
    }

    fn bytes(&self) -> u64 {
        self.bytes.sum()
    }
}

impl Candle {
    /// A matrix in the blocks of candle for a dtype.
    fn quantized(
        &self,
        numbers: &[f32],
        [n, k]: [usize; 2],
        dtype: WeightDtype,
    ) -> Result<QTensor> {
        let blocks = match dtype {
            WeightDtype::F32 | WeightDtype::Blocks => GgmlDType::F32,
            WeightDtype::Bf16 => GgmlDType::BF16,
            WeightDtype::Int8 => GgmlDType::Q8_0,
            WeightDtype::Int4 => GgmlDType::Q4_1,
            WeightDtype::Int8w => bail!("candle: no products in int8w, expected int8 or bf16"),
        };
        let size = blocks.block_size();
        if !k.is_multiple_of(size) {
            let name = dtype.name();
            bail!("candle: expected rows of a multiple of {size} weights for {name}, found {k}");
        }
        let weight = Tensor::from_slice(numbers, (n, k), &self.device)?;
        match dtype {
            // Its products of these blocks need an even number of them.
            WeightDtype::Int4 => {
                let rounded = QTensor::quantize(&weight, blocks)?.dequantize(&self.device)?;
                QTensor::quantize(&rounded, GgmlDType::F32)
            }
            _ => QTensor::quantize(&weight, blocks),
        }
    }

    /// Rows of blocks as candle reads them, in f32.
    fn widened(&self, blocks: &[BlockRows<'_>], [rows, k]: [usize; 2]) -> Result<QTensor> {
        let mut all = Vec::with_capacity(blocks.len());
        for BlockRows { kind, rows, bytes } in blocks {
            let shape = vec![*rows, k];
            if kind.row_bytes(k).and_then(|row| row.checked_mul(*rows)) != Some(bytes.len()) {
                bail!("candle: {} bytes of {} for {shape:?}", bytes.len(), kind.name());
            }
            // Candle casts the bytes to blocks, which need an even address.
            let copy = bytes.to_vec();
            all.push(widened(*kind, &copy, [*rows, k], &self.device)?);
        }
        let whole = Tensor::cat(&all, 0)?;
        if whole.dims() != [rows, k] {
            bail!("candle: {:?} of blocks, expected {rows} rows of {k}", whole.dims());
        }
        QTensor::quantize(&whole, GgmlDType::F32)
    }
}
