//! Where the keys and values of a chunk of slots are.
//!
//! They are read in place. A chunk is copied into an order for vector loads only if the slots of a page
//! are not a multiple of a vector, or a head is not a multiple of a panel.

use super::product::Vectors;
use super::task::Task;
use super::{CHUNK, as_usize};
use crate::cache::{KvNumber, PoolShape};
use crate::simd::Simd;
use std::ops::Range;

/// Bytes of a cache line.
const LINE: usize = 64;

impl<N: KvNumber> Task<'_, N> {
    /// Offset of this key head in the page of a logical slot, in either pool.
    fn page_of(&self, slot: usize) -> usize {
        let table = &self.view.op.pages[as_usize(&self.view.op.segments[self.segment].pages)];
        let page = table[slot / self.view.shape.page].index();
        (page * self.view.shape.num_kv_heads + self.group) * self.view.shape.block
    }

    /// True if vectors of slots can be read from the key pool in place.
    fn keys_in_place(&self, lanes: usize) -> bool {
        self.view.shape.page.is_multiple_of(lanes)
    }

    /// True if panels of a head can be read from the value pool in place.
    pub(super) fn values_in_place(&self, panel: usize) -> bool {
        self.view.shape.c.is_multiple_of(panel)
    }

    /// Locates the keys of the logical slots `slots`, or copies them.
    pub(super) fn find_keys(&mut self, lanes: usize, slots: Range<usize>) {
        let (c, page) = (self.view.shape.c, self.view.shape.page);
        if self.keys_in_place(lanes) {
            for (vector, slot) in slots.step_by(lanes).enumerate() {
                self.scratch.keys[vector] = self.page_of(slot) + slot % page;
            }
            return;
        }
        for vector in 0..slots.len().div_ceil(lanes) {
            self.scratch.keys[vector] = vector * lanes * c;
        }
        for (j, slot) in slots.enumerate() {
            let keys = self.view.k[self.page_of(slot) + slot % page..].iter();
            let copies = &mut self.scratch.k[j / lanes * lanes * c + j % lanes..];
            let numbers = copies.iter_mut().step_by(lanes).zip(keys.step_by(page));
            numbers.take(c).for_each(|(copy, &x)| *copy = x);
        }
    }

    /// Locates the values of the logical slots `slots`, or copies them.
    pub(super) fn find_values(&mut self, panel: usize, slots: Range<usize>) {
        let (c, page) = (self.view.shape.c, self.view.shape.page);
        self.scratch.runs.clear();
        if !self.values_in_place(panel) {
            self.scratch.runs.push((slots.len(), 0));
        }
        let mut slot = slots.start;
        while slot < slots.end {
            let len = (page - slot % page).min(slots.end - slot);
            let start = self.page_of(slot) + slot % page * c;
            if self.values_in_place(panel) {
                self.scratch.runs.push((len, start));
            } else {
                for (j, value) in self.view.v[start..start + len * c].chunks_exact(c).enumerate() {
                    for (i, x) in value.chunks(panel).enumerate() {
                        let first = (i * CHUNK + slot - slots.start + j) * panel;
                        self.scratch.v[first..first + x.len()].copy_from_slice(x);
                    }
                }
            }
            slot += len;
        }
    }

    /// Prefetches the pages of the logical slots `slots`, first the keys, then the values, which are
    /// needed after the products. The pages of a sequence lie apart.
    #[inline(always)]
    pub(super) fn prefetch<S: Simd>(&self, s: S, slots: Range<usize>) {
        let PoolShape { page, block, .. } = self.view.shape;
        for pool in [self.view.k, self.view.v] {
            for slot in (slots.start / page * page..slots.end).step_by(page) {
                let first = self.page_of(slot);
                for offset in (0..block).step_by(LINE / size_of::<N>()) {
                    s.prefetch(pool.as_ptr().wrapping_add(first + offset).cast());
                }
            }
        }
    }

    /// Reads the scales of the logical slots `slots`, if the format has scales.
    pub(super) fn read_scales(&mut self, slots: Range<usize>) {
        if N::SCALE == 0 {
            return;
        }
        let (page, numbers) = (self.view.shape.page, self.view.shape.c * self.view.shape.page);
        for (i, slot) in slots.enumerate() {
            let index = self.page_of(slot) + numbers + slot % page * N::SCALE;
            let scale = |numbers: &[N]| N::scale(&numbers[index..index + N::SCALE]);
            self.scratch.scales[0][i] = scale(self.view.k);
            self.scratch.scales[1][i] = scale(self.view.v);
        }
    }

    /// Keys of the `i`-th pair of vectors of slots in a chunk of `vectors` vectors.
    #[inline(always)]
    pub(super) fn keys(&self, lanes: usize, i: usize, vectors: usize) -> Vectors<N> {
        let (keys, stride) = if self.keys_in_place(lanes) {
            (self.view.k, self.view.shape.page)
        } else {
            (self.scratch.k.as_slice(), lanes)
        };
        let reach = (self.view.shape.c - 1) * stride + lanes;
        let vector = |vector: usize| {
            let index = self.scratch.keys[vector];
            keys[index..index + reach].as_ptr()
        };
        Vectors {
            low: vector(2 * i),
            // No slot of the second vector is visible if the last vector is single: the keys do not
            // matter.
            high: vector((2 * i + 1).min(vectors - 1)),
            stride,
        }
    }
}
