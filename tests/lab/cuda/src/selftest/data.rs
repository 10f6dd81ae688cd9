//! Random numbers and batches.

use super::cpu;
use crate::Result;
use candle_core::{Device as Cpu, Tensor};
use kernels::ScorerRow;
use kernels::Visible;
use kernels::device::{
    Array, BatchArrays, BatchLimits, CanvasRows, Device, DeviceBatch, Precision,
};
use step::{PageCopy, PageId, Sampling, Segment};

/// Positions of the batches' rotary tables.
pub(super) const POSITIONS: usize = 64;
/// Deterministic numbers.
pub(super) struct Random(pub(super) u64);

impl Random {
    /// The next number in -1..1.
    pub(super) fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        ((self.next() + 1.0) / 2.0 * limit as f32) as usize % limit
    }

    /// 64 random bits, the lowest the least random.
    fn bits(&mut self) -> u64 {
        self.next();
        self.0 >> 1
    }

    pub(super) fn numbers(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.next()).collect()
    }
}

/// True if rows are padded for products.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Ends {
    Plain,
    Padded,
}

/// Numbers rounded to a precision. Integers have a factor for each row of an array, so their numbers stay.
pub(super) fn kept(device: &Device, numbers: &[f32], precision: Precision) -> Result<Vec<f32>> {
    if precision == Precision::Int8 {
        return Ok(numbers.to_vec());
    }
    let array = Array::new(device, precision, 1, numbers.len())?;
    array.write(0, numbers)?;
    array.read(1)
}

/// An array with every byte 0xFF, which is NaN in both precisions.
pub(super) fn poisoned(
    (device, precision): (&Device, Precision),
    (rows, width): (usize, usize),
    ends: Ends,
) -> Result<Array> {
    let array = match ends {
        Ends::Padded => Array::padded(device, precision, rows, width),
        Ends::Plain => Array::new(device, precision, rows, width),
    }?;
    array.buffer().fill(0xFF)?;
    Ok(array)
}

/// An array with these rows, followed by a poisoned one.
pub(super) fn array(
    target: (&Device, Precision),
    numbers: &[f32],
    width: usize,
    ends: Ends,
) -> Result<Array> {
    let array = poisoned(target, (numbers.len() / width + 1, width), ends)?;
    array.write(0, numbers)?;
    Ok(array)
}

/// A CPU tensor with these numbers.
pub(super) fn tensor(numbers: &[f32], width: usize) -> Result<Tensor> {
    let shape = (numbers.len() / width, width);
    cpu(Tensor::from_slice(numbers, shape, &Cpu::Cpu))
}

pub(super) fn values(tensor: &Tensor) -> Result<Vec<f32>> {
    cpu(tensor.flatten_all().and_then(|all| all.to_vec1()))
}

/// The slots of `slots` slots that the row of `slot` sees: all, a prefix, a window, or a prefix and its own
/// slot with some between.
fn visible(random: &mut Random, slot: usize, slots: usize) -> Visible {
    let prefix = |end: usize| Visible::prefix(end as u32);
    match random.below(6) {
        0 => prefix(slots),
        1 => prefix(slot + 1),
        2 => Visible { begin: random.below(slot + 1) as u32, ..prefix(slot + 1) },
        3 => {
            let end = slot - random.below(slot.min(63) + 1);
            let others = random.bits() & ((1 << (slot - end)) - 1);
            Visible { beyond: 1 << (slot - end) | others, ..prefix(end) }
        }
        _ => prefix(random.below(slots + 1)),
    }
}

/// A batch of rows in segments, each with its own pages in random order.
#[derive(Clone, Default)]
pub(super) struct Rows {
    pub(super) positions: Vec<u32>,
    pub(super) slots: Vec<u32>,
    pub(super) visible: Vec<Visible>,
    pub(super) segments: Vec<Segment>,
    pub(super) pages: Vec<PageId>,
    pub(super) page: usize,
    pub(super) pool: usize,
    /// True if `visible` is what the rows see in layers with a window; in others they see nothing.
    pub(super) windowed: bool,
}

impl Rows {
    /// One segment for each pair (rows, slots). The rows are at the end of the slots and see some of
    /// them. The pool has two extra pages.
    pub(super) fn new(random: &mut Random, page: usize, segments: &[(usize, usize)]) -> Self {
        let count = |slots: usize| slots.div_ceil(page);
        let pool = segments.iter().map(|s| count(s.1)).sum::<usize>() + 2;
        let mut free: Vec<u32> = (0..pool as u32).collect();
        let mut all = Self { page, pool, ..Self::default() };
        for &(rows, slots) in segments {
            let (row, table) = (all.positions.len() as u32, all.pages.len());
            for _ in 0..count(slots) {
                let index = random.below(free.len());
                all.pages.push(PageId(free.swap_remove(index)));
            }
            for slot in slots - rows..slots {
                let page_of = all.pages[table + slot / page].index();
                all.positions.push(random.below(POSITIONS) as u32);
                all.slots.push((page_of * page + slot % page) as u32);
                all.visible.push(visible(random, slot, slots));
            }
            all.segments.push(Segment {
                rows: row..all.positions.len() as u32,
                pages: table as u32..all.pages.len() as u32,
                sampling: Sampling::GREEDY,
            });
        }
        all
    }

    pub(super) fn len(&self) -> usize {
        self.positions.len()
    }

    /// Uploads the batch with rows padded to a multiple of `pad`.
    pub(super) fn upload(&self, device: &Device, tile: usize, pad: usize) -> Result<DeviceBatch> {
        let (zeros, nothing) = (vec![0; self.len()], vec![Visible::default(); self.len()]);
        let arrays = BatchArrays {
            tokens: &zeros,
            positions: &self.positions,
            slots: &self.slots,
            visible: match self.windowed {
                true => &nothing,
                false => &self.visible,
            },
            canvas: self.windowed.then_some(CanvasRows { windowed: &self.visible, ..NO_CANVAS }),
            segments: &self.segments,
            pages: &self.pages,
            ..NOTHING
        };
        let limits = BatchLimits {
            positions: POSITIONS,
            pages: self.pool,
            page: self.page,
            tile,
            pad,
            ..LIMITS
        };
        let mut batch = DeviceBatch::default();
        batch.upload(device, &arrays, &limits)?;
        Ok(batch)
    }
}

/// No rows of a canvas model.
pub(super) const NO_CANVAS: CanvasRows<'_> =
    CanvasRows { windowed: &[], denoised: &[], conditioned: &[], scales: &[], soft: &[] };

/// An empty batch.
pub(super) const NOTHING: BatchArrays<'_> = BatchArrays {
    tokens: &[],
    positions: &[],
    slots: &[],
    visible: &[],
    segments: &[],
    pages: &[],
    scored: &[],
    scorers: &[],
    biases: &[],
    allowed: &[],
    copies: &[],
    canvas: None,
};

/// Limits for a few tokens on one page.
pub(super) const LIMITS: BatchLimits = BatchLimits {
    tokens: TOKENS,
    positions: 1,
    vocab: TOKENS,
    pages: 5,
    page: 1,
    tile: 64,
    pad: 1,
};

pub(super) fn copy(source: u32, destination: u32) -> PageCopy {
    PageCopy { source: PageId(source), destination: PageId(destination) }
}

/// Size of small vocabularies.
pub(super) const TOKENS: usize = 9;

/// A scored row without limits and further results.
pub(super) const PLAIN_ROW: ScorerRow = ScorerRow {
    input: 0,
    position: 0,
    biases: 0..0,
    allowed: None,
    tops: 0,
    among: None,
    segment: 0,
};

/// A batch of these tokens with these scored rows and page copies.
pub(super) fn plain(
    device: &Device,
    tokens: &[u32],
    scored: &[u32],
    copies: &[PageCopy],
) -> Result<DeviceBatch> {
    let zeros = vec![0; tokens.len()];
    let arrays = BatchArrays {
        tokens,
        positions: &zeros,
        slots: &zeros,
        visible: &vec![Visible::default(); tokens.len()],
        segments: &[Segment {
            rows: 0..tokens.len() as u32,
            pages: 0..0,
            sampling: Sampling::GREEDY,
        }],
        scored,
        scorers: &vec![PLAIN_ROW; scored.len()],
        copies,
        ..NOTHING
    };
    let mut batch = DeviceBatch::default();
    batch.upload(device, &arrays, &LIMITS)?;
    Ok(batch)
}
