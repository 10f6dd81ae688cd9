//! Weights as candle holds them.

use super::{Candle, PlainAngles, PlainMatrix};
use crate::backend::{AngleSpec, Storage, Stored, Table};
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
    type Angles = PlainAngles;

    fn table(&self, table: Table) -> Result<Embedding> {
        self.bytes.add_floats(table.numbers.len());
        let shape = (table.rows, table.width);
        Embedding::from_weights(Tensor::from_vec(table.numbers, shape, &self.device)?)
    }

    fn vector(&self, _: usize, numbers: &[f32]) -> Result<Tensor> {
        self.bytes.add_floats(numbers.len());
        self.list(numbers)
    }

    fn matrix(&self, matrix: Stored<'_>) -> Result<PlainMatrix> {
        let (rows, k) = matrix.shape;
        let blocks = match matrix.dtype {
            WeightDtype::F32 => GgmlDType::F32,
            WeightDtype::Bf16 => GgmlDType::BF16,
            WeightDtype::Int8 => GgmlDType::Q8_0,
        };
        if !k.is_multiple_of(blocks.block_size()) {
            let size = blocks.block_size();
            bail!("candle: expected rows of a multiple of {size} weights for int8, found {k}");
        }
        let weight = Tensor::from_slice(matrix.numbers, (rows, k), &self.device)?;
        let weight = QTensor::quantize(&weight, blocks)?;
        self.bytes.add(match matrix.dtype {
            // Candle widens them again.
            WeightDtype::Bf16 => 2 * weight.storage_size_in_bytes(),
            WeightDtype::F32 | WeightDtype::Int8 => weight.storage_size_in_bytes(),
        });
        let bias = matrix.bias.map(|bias| self.list(bias)).transpose()?;
        Ok(PlainMatrix {
            linear: Linear::from_arc(Arc::new(weight), bias)?,
            gated: matrix.epilogue == crate::Epilogue::SiluGate,
        })
    }

    fn angles(&self, spec: AngleSpec) -> Result<PlainAngles> {
        let frequencies = spec.frequencies();
        let positions = Tensor::arange(0, spec.positions as u32, &self.device)?;
        let positions = positions.to_dtype(DType::F32)?.unsqueeze(1)?;
        let angles = positions.matmul(&self.list(&frequencies)?.unsqueeze(0)?)?;
        self.bytes.add_floats(spec.width * spec.positions);
        Ok(PlainAngles {
            cos: angles.cos()?,
            sin: angles.sin()?,
        })
    }

    fn bytes(&self) -> u64 {
        self.bytes.sum()
    }
}
