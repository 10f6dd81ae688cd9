//! Ragged batches compared with plain loops, and bitwise batch invariance.

mod case;

use super::{PagedAttention, Visible};
use crate::cache::{KvDtype, Pool};
use crate::simd::InstructionSet;
use crate::simd::unit::has_bf16;
use candle_core::{Device, Tensor};
use case::{See, Shape, case};
use std::ops::Range;
use step::{PageId, Sampling, Segment};

/// Slots of a page: small, so that tables are long and rows end at page boundaries; some are a
/// multiple of a vector, some are not.
const PAGES: [usize; 3] = [16, 8, 6];

/// Query heads, key heads, head width.
const HEADS: [(usize, usize, usize); 5] =
    [(6, 6, 32), (6, 2, 12), (4, 1, 72), (2, 2, 128), (2, 1, 64)];

/// Every geometry with every page.
fn shapes() -> impl Iterator<Item = Shape> {
    let with = |page| HEADS.map(|(heads, num_kv_heads, c)| (page, heads, num_kv_heads, c));
    PAGES.into_iter().flat_map(with)
}

/// The implementation that computes.
#[derive(Clone, Copy, Debug)]
struct Way {
    set: InstructionSet,
    /// True if narrow numbers are multiplied in pairs.
    pairs: bool,
    dtype: KvDtype,
}

impl Way {
    /// Every instruction set with every format of keys and values.
    fn all() -> impl Iterator<Item = Self> {
        let sets = InstructionSet::available().into_iter();
        let ways = sets.map(|set| (set, false));
        let paired = has_bf16().then(|| (InstructionSet::detect(), true));
        let all = ways.chain(paired).flat_map(|(set, pairs)| {
            let way = move |dtype| Self { set, pairs, dtype };
            KvDtype::ALL.map(way)
        });
        all.filter(|way| !way.pairs || way.dtype != KvDtype::F32)
    }

    /// Largest error of a result: in pairs, queries and weights are rounded to bf16.
    fn error(self) -> f64 {
        if self.pairs { 1e-2 } else { 3e-6 }
    }
}

const SEE: [See; 3] = [See::All, See::Prefix, See::Holes];

const SIZES: [&[(usize, usize)]; 4] = [
    &[(1, 1)],
    &[(1, 16), (3, 17), (16, 15), (2, 64), (5, 65), (1, 63)],
    &[(113, 113), (1, 200), (33, 48)],
    &[(200, 131)],
];

/// Compares a batch of segments with plain loops.
fn assert_equals_loops(seed: u64, shape: Shape, sizes: &[(usize, usize)]) {
    for (see, dtype) in SEE.into_iter().flat_map(|see| KvDtype::ALL.map(|dtype| (see, dtype))) {
        let case = case((seed, dtype), shape, sizes, see);
        let want = case.naive();
        for way in Way::all().filter(|way| way.dtype == dtype) {
            for (i, (got, want)) in case.run(way).iter().zip(&want).enumerate() {
                let error = (f64::from(*got) - want).abs();
                assert!(
                    error < way.error(),
                    "{way:?} {shape:?} {sizes:?} {see:?} at {i}: {got} for {want}"
                );
            }
        }
    }
}

#[test]
fn ragged_batches_equal_plain_loops() {
    for (seed, shape) in shapes().enumerate() {
        // The two large batches take turns: the plain loops are slow.
        let [one, short, long, longest] = SIZES;
        let large = if seed % 2 == 0 { long } else { longest };
        for sizes in [one, short, large] {
            assert_equals_loops(seed as u64, shape, sizes);
        }
    }
}

// Few enough for an emulated processor.
#[test]
fn a_few_batches_equal_plain_loops() {
    for (heads, num_kv_heads, c) in HEADS {
        assert_equals_loops(1, (6, heads, num_kv_heads, c), &[(3, 17), (9, 140), (1, 15)]);
    }
}

/// Rows of parts of a batch have the bits that they have in the whole batch.
fn assert_same_bits(way: Way, shape: Shape, sizes: &[(usize, usize)], batches: &[Vec<Range<u32>>]) {
    for see in [See::Prefix, See::Holes] {
        let case = case((9, way.dtype), shape, sizes, see);
        let width = shape.1 * shape.3;
        let all = case.run(way);
        for parts in batches {
            let some = case.only(parts).run(way);
            for (i, row) in parts.iter().cloned().flatten().enumerate() {
                let (a, b) = (&some[i * width..(i + 1) * width], &all[row as usize * width..]);
                let same = a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(same, "{way:?} {shape:?} {see:?} row {row} of {parts:?}");
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_in_every_batch() {
    let batches = [
        vec![0..1, 1..2],
        vec![69..70, 3..4],
        vec![3..4, 5..6],
        vec![110..300, 0..1],
        vec![200..217, 70..110, 1..7, 7..70],
    ];
    for way in Way::all() {
        // Every geometry and every page, but not all pairs of them.
        for shape in shapes().step_by(2) {
            assert_same_bits(way, shape, &[(70, 131), (40, 64), (190, 190)], &batches);
        }
    }
}

// Few enough for an emulated processor.
#[test]
fn a_row_has_the_same_bits_in_a_few_batches() {
    let batches = [vec![0..1, 8..9], vec![2..3, 5..6], vec![9..14, 1..7]];
    for way in Way::all() {
        for (heads, num_kv_heads, c) in HEADS {
            let shape = (6, heads, num_kv_heads, c);
            assert_same_bits(way, shape, &[(9, 140), (5, 64)], &batches);
        }
    }
}

#[test]
fn the_op_checks_its_indices() {
    let case = case((1, KvDtype::F32), (16, 2, 1, 8), &[(2, 20)], See::All);
    let device = Device::Cpu;
    let q = Tensor::from_slice(&case.q, (2, 16), &device).unwrap();
    let (k, v) = (case.pool(Pool::Keys), case.pool(Pool::Values));
    let apply = |op: &PagedAttention<'_>| q.apply_op3_no_bwd(&k, &v, op).map_err(|e| e.to_string());
    assert_eq!(apply(&case.op()).unwrap().dims(), [2, 16]);
    let far = [Visible::prefix(33); 2];
    let error = apply(&PagedAttention { visible: &far, ..case.op() }).unwrap_err();
    assert!(error.contains("more slots than its page table"), "{error}");
    let beyond = [Visible::prefix(20); 2].map(|row| Visible { beyond: 1 << 12, ..row });
    let error = apply(&PagedAttention { visible: &beyond, ..case.op() }).unwrap_err();
    assert!(error.contains("more slots than its page table"), "{error}");
    let outside = [0, 3].map(PageId);
    let error = apply(&PagedAttention { pages: &outside, ..case.op() }).unwrap_err();
    assert!(error.contains("page 3 is outside"), "{error}");
    let short = [Segment { rows: 0..1, pages: 0..2, sampling: Sampling::GREEDY }];
    let error = apply(&PagedAttention { segments: &short, ..case.op() }).unwrap_err();
    assert!(error.contains("end at row 1 of 2"), "{error}");
    let blind = [0, 20].map(Visible::prefix);
    let out = apply(&PagedAttention { visible: &blind, ..case.op() }).unwrap();
    let out = out.to_vec2::<f32>().unwrap();
    assert_eq!(out[0], [0.0; 16]);
    assert!(out[1].iter().all(|x| x.is_finite()));
}

/// A slot after the range is seen as if the range contained it, whatever the instructions.
#[test]
fn slots_beyond_the_range_that_follow_it_make_a_prefix() {
    for way in Way::all() {
        let whole = case((3, way.dtype), (8, 2, 1, 64), &[(6, 300)], See::All);
        let mut parts = whole.only(&[0..3, 3..6]);
        for (i, row) in parts.visible.iter_mut().enumerate() {
            let tail = [1, 13, 40, 63, 64, 0][i];
            row.end -= tail;
            row.beyond = u64::MAX.checked_shr(u64::BITS - tail).unwrap_or(0);
        }
        let same = whole
            .run(way)
            .iter()
            .map(|x| x.to_bits())
            .eq(parts.run(way).iter().map(|x| x.to_bits()));
        assert!(same, "{way:?}");
    }
}
