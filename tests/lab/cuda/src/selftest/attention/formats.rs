//! The number formats of attention, and the bytes of a pool.

use super::super::data::{Ends, Random, array};
use super::super::rounding;
use super::Shape;
use crate::Result;
use kernels::device::{Device, PoolSizes, Precision};
use kernels::{KvDtype, row_to_bytes};

/// The number formats of queries and results, and of keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Formats {
    pub(in super::super) precision: Precision,
    pub(in super::super) kv: KvDtype,
}

impl Formats {
    /// Every combination with kernels.
    pub(in super::super) const ALL: [Self; 4] = [
        Self::of(Precision::F32),
        Self::of(Precision::Bf16),
        Self::in_bytes(Precision::F32),
        Self::in_bytes(Precision::Bf16),
    ];

    /// Keys and values as queries.
    pub(in super::super) const fn of(precision: Precision) -> Self {
        let kv = match precision {
            Precision::F32 => KvDtype::F32,
            Precision::Bf16 | Precision::Int8 => KvDtype::Bf16,
        };
        Self { precision, kv }
    }

    /// Keys and values in int8.
    pub(in super::super) const fn in_bytes(precision: Precision) -> Self {
        Self { precision, kv: KvDtype::Int8 }
    }

    pub(super) fn are_bytes(self) -> bool {
        self.kv == KvDtype::Int8
    }

    /// A shape whose heads have kernels.
    pub(super) fn fitting(self, shape: Shape) -> Shape {
        let c = shape.c.next_multiple_of(if self.are_bytes() { 16 } else { 1 });
        Shape { c, ..shape }
    }

    /// A page with kernels.
    pub(super) fn page(self, page: usize) -> usize {
        page.next_multiple_of(if self.are_bytes() { 4 } else { 1 })
    }

    /// The relative error of keys and values: of integers, one.
    pub(super) fn rounding(self) -> f64 {
        match self.are_bytes() {
            true => 1.01 / 127.0,
            false => rounding(self.precision),
        }
    }

    /// The bytes of a pool with contents from earlier batches.
    pub(super) fn contents(
        self,
        random: &mut Random,
        device: &Device,
        PoolSizes { kv, .. }: PoolSizes,
    ) -> Result<Vec<u8>> {
        let heads = 2 * kv.layers * kv.pages * kv.num_kv_heads;
        let numbers = random.numbers(heads * kv.page * kv.head_width);
        if !self.are_bytes() {
            let old = array((device, self.precision), &numbers, numbers.len(), Ends::Plain)?;
            let mut bytes = vec![0; numbers.len() * self.precision.bytes()];
            old.buffer().download(0, &mut bytes)?;
            return Ok(bytes);
        }
        let head = |numbers: &[f32]| {
            let rows = numbers.chunks_exact(kv.head_width).map(row_to_bytes);
            let (bytes, scales): (Vec<_>, Vec<f32>) = rows.unzip();
            let bytes = bytes.concat().into_iter().map(i8::cast_unsigned);
            bytes.chain(scales.into_iter().flat_map(f32::to_le_bytes)).collect::<Vec<u8>>()
        };
        Ok(numbers.chunks_exact(kv.page * kv.head_width).flat_map(head).collect())
    }

    /// The numbers of bytes of a pool.
    pub(super) fn numbers(self, bytes: &[u8], PoolSizes { kv, .. }: PoolSizes) -> Vec<f32> {
        let (words, count) = (bytes.as_chunks().0.iter(), kv.page * kv.head_width);
        let halves = bytes.as_chunks().0.iter();
        match self.kv {
            KvDtype::F32 => words.map(|word| f32::from_le_bytes(*word)).collect(),
            KvDtype::Bf16 => {
                let number = |half: &[u8; 2]| u32::from(u16::from_le_bytes(*half)) << 16;
                halves.map(|half| f32::from_bits(number(half))).collect()
            }
            KvDtype::Int8 => {
                let heads = bytes.chunks_exact(count + 4 * kv.page);
                heads.flat_map(|head| widened(head, count, kv.head_width)).collect()
            }
        }
    }

    /// The numbers of heads as they are kept.
    pub(super) fn kept(self, heads: &mut [f32], c: usize) {
        if self.are_bytes() {
            for head in heads.chunks_exact_mut(c) {
                let (bytes, scale) = row_to_bytes(head);
                head.iter_mut().zip(bytes).for_each(|(x, byte)| *x = scale * f32::from(byte));
            }
        }
    }
}

/// The `count` numbers of a page of a head of width `c` in int8.
fn widened(head: &[u8], count: usize, c: usize) -> Vec<f32> {
    let (bytes, scales) = head.split_at(count);
    let slots = bytes.chunks_exact(c).zip(scales.as_chunks().0);
    let numbers = slots.flat_map(|(slot, scale)| {
        let scale = f32::from_le_bytes(*scale);
        slot.iter().map(move |byte| scale * f32::from(byte.cast_signed()))
    });
    numbers.collect()
}
