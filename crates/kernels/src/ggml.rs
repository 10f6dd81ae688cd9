//! Blocks as plain numbers; those of GGUF files as candle reads them.

use crate::blocks::{BlockRows, BlockType, float4, float8};
use candle_core::quantized::GgmlDType;
use candle_core::quantized::ggml_file::qtensor_from_ggml;
use candle_core::{Device, Result, Tensor};
use half::{bf16, f16};

/// Rows of blocks in f32. The bytes need an even address, because candle casts them to blocks.
pub(crate) fn widened(
    kind: BlockType,
    bytes: &[u8],
    shape: [usize; 2],
    device: &Device,
) -> Result<Tensor> {
    let dtype = match kind {
        BlockType::Q4_0 => GgmlDType::Q4_0,
        BlockType::Q4_1 => GgmlDType::Q4_1,
        BlockType::Q5_0 => GgmlDType::Q5_0,
        BlockType::Q5_1 => GgmlDType::Q5_1,
        BlockType::Q8_0 => GgmlDType::Q8_0,
        BlockType::Q2_K => GgmlDType::Q2K,
        BlockType::Q4_K => GgmlDType::Q4K,
        BlockType::Q5_K => GgmlDType::Q5K,
        BlockType::Q6_K => GgmlDType::Q6K,
        BlockType::NVFP4 => {
            let numbers: Vec<f32> = bytes.chunks_exact(kind.bytes()).flat_map(fours).collect();
            return Tensor::from_vec(numbers, &shape, device);
        }
        BlockType::FP8 => {
            let numbers: Vec<f32> = bytes.chunks_exact(kind.bytes()).flat_map(eights).collect();
            return Tensor::from_vec(numbers, &shape, device);
        }
        BlockType::AFFINE8 => {
            let numbers: Vec<f32> = bytes.chunks_exact(kind.bytes()).flat_map(affine).collect();
            return Tensor::from_vec(numbers, &shape, device);
        }
        BlockType::IQ4 | BlockType::IQ3_S | BlockType::IQ3_XXS | BlockType::IQ2 => {
            let blocks = bytes.chunks_exact(kind.bytes());
            let numbers: Vec<f32> = blocks.flat_map(|block| listed(kind, block)).collect();
            return Tensor::from_vec(numbers, &shape, device);
        }
        BlockType::F16 => {
            let halves = bytes.as_chunks().0.iter().map(|half| f16::from_le_bytes(*half).to_f32());
            return Tensor::from_vec(halves.collect(), &shape, device);
        }
    };
    qtensor_from_ggml(dtype, bytes, shape.to_vec(), device)?.dequantize(device)
}

impl BlockRows<'_> {
    /// The weights in f32, row-major.
    ///
    /// # Errors
    /// If the bytes are not those of rows of whole blocks.
    pub fn numbers(&self) -> Result<Vec<f32>> {
        let BlockRows { kind, rows, bytes } = *self;
        let count = bytes.len() / kind.bytes() * kind.weights();
        let shape = [rows, count / rows.max(1)];
        widened(kind, bytes, shape, &Device::Cpu)?.flatten_all()?.to_vec1()
    }
}

/// The weights of a block of 4-bit floats.
fn fours(block: &[u8]) -> impl Iterator<Item = f32> {
    let factor = BlockType::NVFP4.factor(block);
    (0..BlockType::NVFP4.weights()).map(move |i| {
        let code = block[6 + i / 2] >> (i % 2 * 4) & 0x0F;
        float4(code) * (float8(block[4 + i / 16]) * factor)
    })
}

/// The weights of a block of 8-bit floats.
fn eights(block: &[u8]) -> impl Iterator<Item = f32> {
    let (scale, codes) = block.split_first_chunk().unwrap_or((&[0; 4], &[]));
    let scale = f32::from_le_bytes(*scale);
    codes.iter().map(move |code| bf16::from_f32(float8(*code) * scale).to_f32())
}

/// The weights of a block of 8-bit codes with a scale and a minimum.
fn affine(block: &[u8]) -> impl Iterator<Item = f32> {
    let half = |index: usize| f16::from_le_bytes([block[index], block[index + 1]]).to_f32();
    let (scale, minimum) = (half(0), half(2));
    block[4..].iter().map(move |code| scale * f32::from(*code) + minimum)
}

/// The weights of a block with a list.
fn listed(kind: BlockType, block: &[u8]) -> impl Iterator<Item = f32> {
    let half = |index: usize| f16::from_le_bytes([block[index], block[index + 1]]).to_f32();
    let (scale, form) = (half(0) * half(2), kind.form());
    (0..kind.weights()).map(move |i| {
        let code = block[20 + i / 2] >> (i % 2 * 4) & 0x0F;
        let byte = form.list().map_or(0, |list| list[usize::from(code)]);
        let factor = f32::from(block[4 + i / 16].cast_signed());
        (f32::from(byte) - form.offset()) * (scale * factor)
    })
}
