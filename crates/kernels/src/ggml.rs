//! Blocks of GGUF files, as candle reads them.

use crate::blocks::BlockType;
use candle_core::quantized::GgmlDType;
use candle_core::quantized::ggml_file::qtensor_from_ggml;
use candle_core::{Device, Result, Tensor};

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
        BlockType::Q4_K => GgmlDType::Q4K,
        BlockType::Q5_K => GgmlDType::Q5K,
        BlockType::Q6_K => GgmlDType::Q6K,
    };
    qtensor_from_ggml(dtype, bytes, shape.to_vec(), device)?.dequantize(device)
}
