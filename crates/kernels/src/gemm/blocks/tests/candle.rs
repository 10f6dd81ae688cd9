//! Packed codes compared with candle's reading of the same blocks.

use super::{all_types, packed_weights, random_blocks};
use crate::blocks::BlockType;
use crate::ggml::widened;
use candle_core::{Device, Result};

/// The weights of blocks, as candle reads them.
fn by_candle(kind: BlockType, bytes: &[u8]) -> Result<Vec<f32>> {
    let shape = [1, bytes.len() / kind.bytes() * kind.weights()];
    widened(kind, bytes, shape, &Device::Cpu)?.flatten_all()?.to_vec1()
}

#[test]
fn every_weight_of_a_block_keeps_its_value() -> Result<()> {
    for kind in all_types().into_iter().filter(|kind| *kind != BlockType::NVFP4) {
        let k = 4 * 256;
        let count = k / kind.weights();
        let bytes = random_blocks(kind, 3, count);
        assert_eq!(kind.unfit(&bytes), None, "{kind:?}");
        let got = packed_weights(kind, &bytes).into_iter().map(|x| x as f32);
        let want = by_candle(kind, &bytes)?;
        assert_eq!(want.len(), k);
        for (i, (got, want)) in got.zip(want).enumerate() {
            assert_eq!(got, want, "{kind:?} at {i}");
        }
    }
    Ok(())
}
