//! The memory of mixtures, reused between layers and passes.

use super::super::array::grow;
use super::super::array::{Array, Buffer};
use super::super::{Device, DeviceLimits, Result, refuse};
use super::ExpertSizes;
use crate::device::Precision;

/// Rows grouped at a time are a multiple of this.
const STEP: usize = 64;
/// Words of a tile; `GroupTile` of the kernels.
pub(super) const TILE_WORDS: usize = 3;
/// Rows of the lowest tiles.
pub(super) const LOW: usize = 16;

impl ExpertSizes {
    /// Rows that are grouped at a time.
    pub(super) fn step(&self, limits: DeviceLimits) -> usize {
        let (read, [written, _]) = (self.precision().bytes(), self.gated().map(Precision::bytes));
        let gated = if self.gated()[0] == self.precision() { read } else { written + read };
        let row = self.width * (size_of::<f32>() + read);
        let row = self.chosen * (row + self.inner * gated);
        (limits.expert_bytes / row.max(1) / STEP).max(1) * STEP
    }

    /// Tiles of `tall` rows that any grouping of `pairs` pairs of rows and experts needs.
    pub(super) fn tiles(&self, pairs: usize, tall: usize) -> usize {
        pairs / tall + self.count.min(pairs)
    }
}

/// The arrays of grouped rows.
pub(super) struct Grouped {
    pub(super) x: Array,
    pub(super) gated: Array,
    pub(super) results: Array,
}

/// Memory for choices and grouped rows.
#[derive(Default)]
pub struct ExpertScratch {
    logits: Option<Buffer>,
    chosen: Option<Buffer>,
    weights: Option<Buffer>,
    /// Counts of experts; pairs by place; places by pair; tiles.
    lists: [Option<Buffer>; 4],
    pub(super) grouped: Option<Grouped>,
}

fn words(buffer: &Option<Buffer>, count: usize) -> Result<u64> {
    match buffer {
        Some(buffer) => buffer.range(0, count * size_of::<u32>()),
        None => refuse("no memory was reserved for experts"),
    }
}

impl ExpertScratch {
    /// Allocates memory for batches of up to `rows` rows; they then allocate nothing.
    pub fn reserve(&mut self, device: &Device, sizes: &ExpertSizes, rows: usize) -> Result<()> {
        let ExpertSizes { count, chosen, width, inner, .. } = *sizes;
        let precision = sizes.precision();
        let pairs = sizes.step(device.limits()).min(rows).saturating_mul(chosen);
        let size = size_of::<u32>();
        let room = |buffer: &mut Option<Buffer>, words: usize| {
            grow(buffer, device, words.saturating_mul(size))
        };
        room(&mut self.logits, rows.saturating_mul(count))?;
        room(&mut self.chosen, rows.saturating_mul(chosen))?;
        room(&mut self.weights, rows.saturating_mul(chosen))?;
        let tiles = sizes.tiles(pairs, LOW) * TILE_WORDS;
        for (list, words) in self.lists.iter_mut().zip([count, pairs, pairs, tiles]) {
            room(list, words)?;
        }
        let fits = |grouped: &Grouped| {
            grouped.x.rows() >= pairs
                && (grouped.x.width(), grouped.gated.width(), grouped.x.precision())
                    == (width, inner, precision)
        };
        if !self.grouped.as_ref().is_some_and(fits) {
            self.grouped = None;
            self.grouped = Some(Grouped {
                x: Array::padded(device, precision, pairs, width)?,
                gated: Array::inputs_of(device, sizes.gated(), pairs, inner)?,
                results: Array::new(device, Precision::F32, pairs, width)?,
            });
        }
        Ok(())
    }

    pub(super) fn logits(&self, count: usize) -> Result<u64> {
        words(&self.logits, count)
    }

    pub(super) fn chosen(&self, count: usize) -> Result<u64> {
        words(&self.chosen, count)
    }

    pub(super) fn weights(&self, count: usize) -> Result<u64> {
        words(&self.weights, count)
    }

    /// The addresses of counts, pairs by place, places by pair, and tiles.
    pub(super) fn lists(&self, counts: [usize; 4]) -> Result<[u64; 4]> {
        let mut all = [0; 4];
        for (address, (list, count)) in all.iter_mut().zip(self.lists.iter().zip(counts)) {
            *address = words(list, count)?;
        }
        Ok(all)
    }
}
