//! Random numbers and batches.

use asynclane_kernels::AttentionSegment;
use asynclane_kernels::device::{Array, BatchArrays, BatchLimits, Device, DeviceBatch, Precision};
use candle_core::{Device as Cpu, Tensor};

pub const BOTH: [Precision; 2] = [Precision::F32, Precision::Bf16];

/// Deterministic numbers.
pub struct Random(pub u64);

impl Random {
    /// In -1..1.
    pub fn next(&mut self) -> f32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    pub fn below(&mut self, limit: usize) -> usize {
        ((self.next() + 1.0) / 2.0 * limit as f32) as usize % limit
    }

    pub fn numbers(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.next()).collect()
    }
}

/// Numbers as a precision keeps them.
pub fn kept(numbers: &[f32], precision: Precision) -> Vec<f32> {
    let device = Device::emulated();
    let array = Array::new(&device, precision, 1, numbers.len()).unwrap();
    array.write(0, numbers).unwrap();
    array.read(1).unwrap()
}

/// An array whose every byte is 0xFF: not a number in either precision.
pub fn poisoned(precision: Precision, rows: usize, width: usize, padded: bool) -> Array {
    let device = Device::emulated();
    let array = match padded {
        true => Array::padded(&device, precision, rows, width),
        false => Array::new(&device, precision, rows, width),
    };
    let array = array.unwrap();
    array.buffer().fill(0xFF).unwrap();
    array
}

/// An array with these rows, and a poisoned one behind them.
pub fn array(precision: Precision, numbers: &[f32], width: usize, padded: bool) -> Array {
    let rows = numbers.len() / width;
    let array = poisoned(precision, rows + 1, width, padded);
    array.write(0, numbers).unwrap();
    array
}

pub fn tensor(numbers: &[f32], width: usize) -> Tensor {
    Tensor::from_slice(numbers, (numbers.len() / width, width), &Cpu::Cpu).unwrap()
}

pub fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

/// Asserts that numbers differ by at most `share` of the largest one wanted.
pub fn near(got: &[f32], want: &[f32], share: f32, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let most = want.iter().fold(1e-6f32, |most, x| most.max(x.abs()));
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let error = (got - want).abs();
        assert!(
            error <= share * most,
            "{what}: {got} for {want} at {i}, largest {most}"
        );
    }
}

/// What a precision may lose of the largest number in one rounding.
pub fn rounding(precision: Precision) -> f32 {
    match precision {
        Precision::F32 => 1e-6,
        Precision::Bf16 => 4e-3,
    }
}

/// A batch of rows in segments, each with pages of its own, in no order.
#[derive(Clone, Default)]
pub struct Rows {
    pub positions: Vec<u32>,
    pub slots: Vec<u32>,
    pub visible: Vec<u32>,
    pub segments: Vec<AttentionSegment>,
    pub pages: Vec<u32>,
    pub page: usize,
    pub pool: usize,
}

impl Rows {
    /// One segment for each (rows, slots that exist): rows stand at the end of the slots and see
    /// some of them; `free` more pages are in the pool.
    pub fn new(random: &mut Random, page: usize, segments: &[(usize, usize)]) -> Self {
        let count = |slots: usize| slots.div_ceil(page);
        let pool = segments.iter().map(|s| count(s.1)).sum::<usize>() + 2;
        let mut free: Vec<u32> = (0..pool as u32).collect();
        let mut all = Self {
            page,
            pool,
            ..Self::default()
        };
        for &(rows, slots) in segments {
            let (row, table) = (all.positions.len() as u32, all.pages.len());
            for _ in 0..count(slots) {
                let at = random.below(free.len());
                all.pages.push(free.swap_remove(at));
            }
            for slot in slots - rows..slots {
                let page_of = all.pages[table + slot / page] as usize;
                all.positions.push(random.below(64) as u32);
                all.slots.push((page_of * page + slot % page) as u32);
                let seen = match random.below(4) {
                    0 => slots,
                    1 => slot + 1,
                    _ => random.below(slots + 1),
                };
                all.visible.push(seen as u32);
            }
            all.segments.push(AttentionSegment {
                rows: row..all.positions.len() as u32,
                pages: table as u32..all.pages.len() as u32,
            });
        }
        all
    }

    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// On the device, rows padded to a multiple of `pad`.
    pub fn upload(&self, tile: usize, pad: usize) -> DeviceBatch {
        let arrays = BatchArrays {
            tokens: &vec![0; self.len()],
            positions: &self.positions,
            slots: &self.slots,
            visible: &self.visible,
            segments: &self.segments,
            pages: &self.pages,
            scored: &[],
            scorers: &[],
            biases: &[],
            allowed: &[],
            set_words: 1,
            hosted: &[],
            draws: &[],
            copies: &[],
        };
        let limits = BatchLimits {
            tokens: 1,
            positions: 64,
            vocab: 3,
            pages: self.pool,
            page: self.page,
            tile,
            pad,
        };
        let mut batch = DeviceBatch::default();
        batch.upload(&Device::emulated(), &arrays, &limits).unwrap();
        batch
    }
}
