//! The attention of a layer, and its arrays.

use super::arrays::HeadArrays;
use super::block::{Block, Mlp};
use super::network::Decoder;
use super::work::{Work, append};
use candle_core::Result;
use kernels::{Attention, Backend, Norm, Pass, Projection};

impl<B: Backend> Work<B> {
    /// The arrays of a layer's attention.
    pub(super) fn heads_of(&self, block: &Block<B>) -> &HeadArrays<B> {
        match &self.full {
            Some(full) if block.full => full,
            _ => &self.heads,
        }
    }
}

impl<B: Backend> Decoder<B> {
    /// Overwrites the result of a layer's attention to the normalised rows.
    pub(super) fn attend(
        &self,
        backend: &B,
        pass: &Pass<'_, B>,
        block: &Block<B>,
        work: &mut Work<B>,
    ) -> Result<()> {
        let adapter = block.adapter.as_deref();
        append(backend, pass, adapter.and_then(|adapter| adapter.qkv.as_ref()), &mut work.normed)?;
        let HeadArrays { qkv, q, attended } = match &mut work.full {
            Some(full) if block.full => full,
            _ => &mut work.heads,
        };
        let attention = self.attention(block);
        let projection = Projection { matrix: &block.qkv, x: &work.normed, attention: &attention };
        backend.project(pass, projection, qkv, q)?;
        backend.attend(&attention, pass, q, attended)?;
        append(backend, pass, adapter.and_then(|adapter| adapter.out.as_ref()), attended)
    }

    pub(super) fn attention<'a>(&'a self, block: &'a Block<B>) -> Attention<'a, B> {
        let full = self.canvas.as_ref().filter(|_| block.full);
        Attention {
            layer: block.kv,
            heads: block.heads.num_heads,
            num_kv_heads: block.heads.num_kv_heads,
            head_width: block.heads.head_width,
            rope_table: full.map_or(&self.rope_table, |parts| &parts.rope_table),
            norm: block.head_norms.as_ref().map(|weight| self.norm(weight)),
            windowed: !block.full,
        }
    }

    /// The norm of the next layer, if the product that ends a layer leaves it: nothing between reads or
    /// overwrites the normalised rows.
    pub(super) fn next_norm(&self, number: usize) -> Option<Norm<'_, B>> {
        let block = &self.blocks[number];
        let ends = matches!(block.mlp, Mlp::Dense(_)) && block.sandwich.is_none();
        let next = self.blocks.get(number + 1).filter(|_| ends && self.drafter.is_none());
        next.map(|block| self.norm(&block.attention_norm))
    }
}
