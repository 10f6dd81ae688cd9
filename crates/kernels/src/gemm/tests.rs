//! The packed product compared with plain loops, and bitwise batch invariance.

mod blocks;
mod widen;

use super::{Column, Finish, K_BLOCK, Packed, Place, Product};
use crate::simd::unit::{Unit, WeightDtype};

/// Deterministic values in -1..1.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

/// All multipliers of words of this processor.
fn units() -> Vec<Unit> {
    let plain = [WeightDtype::F32, WeightDtype::Bf16, WeightDtype::Int8];
    plain.into_iter().flat_map(Unit::available).collect()
}

fn pack(unit: Unit, w: &[f32], n: usize, k: usize) -> Packed {
    let column = |j: usize| Column::Floats(&w[j * k..(j + 1) * k]);
    Packed::new(unit, k, n, |j| (j < n).then(|| column(j)))
}

/// Rows of `k` elements, rounded to the dtype.
fn rounded(dtype: WeightDtype, x: &[f32], k: usize) -> Vec<f64> {
    let row = |x: &[f32]| -> Vec<f64> {
        let largest = x.iter().fold(0f32, |most, x| most.max(x.abs()));
        let step = f64::from(largest) / 127.0;
        let round = |&x: &f32| match dtype {
            WeightDtype::F32 => f64::from(x),
            WeightDtype::Bf16 => {
                // Eight mantissa bits, rounded to nearest even.
                let (bits, half) = (x.to_bits(), 1u32 << 15);
                let even = (bits & !0xFFFF).wrapping_add(match bits & 0xFFFF {
                    rest if rest > half || (rest == half && bits & 0x1_0000 != 0) => 0x1_0000,
                    _ => 0,
                });
                f64::from(f32::from_bits(even))
            }
            WeightDtype::Int8 if step == 0.0 => 0.0,
            _ => (f64::from(x) / step).round() * step,
        };
        x.iter().map(round).collect()
    };
    x.chunks_exact(k).flat_map(row).collect()
}

fn naive(x: &[f64], w: &[f64], (m, n, k): (usize, usize, usize)) -> Vec<f64> {
    let mut out = Vec::new();
    for i in 0..m {
        for j in 0..n {
            let pairs = x[i * k..][..k].iter().zip(&w[j * k..][..k]);
            out.push(pairs.map(|(&a, &b)| a * b).sum());
        }
    }
    out
}

#[test]
fn equals_plain_loops_on_every_instruction_set() {
    for unit in units() {
        for (m, n, k) in
            [(1, 1, 1), (5, 40, 72), (13, 33, 19), (64, 96, 192), (35, 70, 130), (3, 20, 17_001)]
        {
            let (mut x, w) = (noise(1, m * k), noise(2, n * k));
            x[..k].fill(0.0);
            let (bias, residual) = (noise(3, n.next_multiple_of(32)), noise(4, m * n));
            let weights = pack(unit, &w, n, k);
            let finish = Finish::Add(&residual);
            let got = Product {
                x: &x,
                m,
                weights: &weights,
                bias: Some(&bias),
                finish,
                place: Place::all(n),
            }
            .run();
            let dtype = unit.dtype();
            let (kept_x, kept_w) = (rounded(dtype, &x, k), rounded(dtype, &w, k));
            let want = naive(&kept_x, &kept_w, (m, n, k));
            // A value halfway between two 8-bit integers may be rounded differently in this check.
            let slack = if dtype == WeightDtype::Int8 { 2.0 / 127.0 } else { 0.0 };
            for (i, (&got, want)) in got.iter().zip(want).enumerate() {
                let want = want + f64::from(bias[i % n]) + f64::from(residual[i]);
                let error = (f64::from(got) - want).abs();
                assert!(
                    error < 1e-6 * k as f64 + 1e-6 + slack,
                    "{unit:?} {m}x{n}x{k} at {i}: {error}"
                );
            }
        }
    }
}

/// A column's bits do not depend on the matrix that it is a column of.
#[test]
fn columns_have_the_same_bits_in_a_narrower_matrix() {
    let (m, n, k) = (5, 96, 130);
    let (x, w) = (noise(11, m * k), noise(12, n * k));
    for unit in units() {
        let product = |w: &[f32]| {
            let n = w.len() / k;
            let product = Product {
                x: &x,
                m,
                weights: &pack(unit, w, n, k),
                bias: None,
                finish: Finish::Store,
                place: Place::all(n),
            };
            product.run()
        };
        let whole = product(&w);
        for columns in [0..48, 48..96, 24..48, 7..20] {
            let narrow = product(&w[columns.start * k..columns.end * k]);
            for (narrow, whole) in narrow.chunks(columns.len()).zip(whole.chunks(n)) {
                assert_eq!(narrow, &whole[columns.clone()], "{unit:?} {columns:?}");
            }
        }
    }
}

/// Products of some rows have the bits that those rows have in the product of all `count` rows.
fn assert_same_bits(
    unit: Unit,
    (n, k): (usize, usize),
    count: usize,
    some: impl Iterator<Item = usize>,
) {
    let (x, w) = (noise(5, count * k), noise(6, n * k));
    let weights = pack(unit, &w, n, k);
    let rows = |first: usize, m: usize| {
        let x = &x[first * k..(first + m) * k];
        Product { x, m, weights: &weights, bias: None, finish: Finish::Store, place: Place::all(n) }
            .run()
    };
    let all = rows(0, count);
    for m in some.filter(|&m| m <= count) {
        for first in [0, 7, count - m] {
            let first = first.min(count - m);
            let some = rows(first, m);
            let same = some.iter().zip(&all[first * n..]).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{unit:?} n {n} k {k}: {m} rows from {first}");
        }
    }
}

#[test]
fn a_row_has_the_same_bits_in_every_product_of_words() {
    for unit in units() {
        for (n, k) in [(96, 192), (72, 72), (40, 1024), (24, 5000), (20, 16_500)] {
            let count = if k > 10_000 { 70 } else { 400 };
            // Deep products take most of the time. Vector tiles have at most 12 rows, those of the tile
            // unit 16: a pair of them, one row fewer and one more are compared.
            let (heights, more): (usize, &[usize]) = if k > 1024 {
                (26, &[31, 32, 33, 70, 193])
            } else {
                (70, &[191, 192, 193, 256, 385])
            };
            // The software model is slow; its edges are those of tiles.
            let is_edge = |m: &usize| unit.tiles().is_none() || [15, 0, 1].contains(&(m % 16));
            let some = (1..=heights).filter(is_edge).chain(more.iter().copied());
            assert_same_bits(unit, (n, k), count, some);
        }
    }
}

// Few enough for an emulated processor and for a sanitizer. The model of the tile unit is too slow.
#[test]
fn a_row_has_the_same_bits_at_the_edges_of_tiles_and_passes() {
    for unit in units().into_iter().filter(|unit| unit.tiles().is_none()) {
        let two_passes = match unit.dtype() {
            WeightDtype::F32 => K_BLOCK + 3,
            WeightDtype::Bf16 => 2 * K_BLOCK + 3,
            _ => 4 * K_BLOCK + 3,
        };
        for (n, k) in [(40, 67), (20, two_passes)] {
            let edges = [1, 2, 3, 6, 7, 13].into_iter();
            assert_same_bits(unit, (n, k), 14, edges);
        }
    }
}

#[test]
fn eight_bit_products_have_the_same_bits_on_every_instruction_set() {
    let (m, n, k) = (37, 70, 203);
    let (x, w) = (noise(7, m * k), noise(8, n * k));
    let products = Unit::available(WeightDtype::Int8).into_iter().map(|unit| {
        let weights = pack(unit, &w, n, k);
        let bits = Product {
            x: &x,
            m,
            weights: &weights,
            bias: None,
            finish: Finish::Store,
            place: Place::all(n),
        }
        .run();
        bits.into_iter().map(f32::to_bits).collect::<Vec<_>>()
    });
    let products: Vec<_> = products.collect();
    assert!(products.iter().all(|other| *other == products[0]));
}

#[test]
fn largest_magnitudes_fill_the_range_and_do_not_overflow() {
    let k = 1 << 17;
    for unit in Unit::available(WeightDtype::Int8) {
        for (x, w) in [(1.0, 1.0), (1.0, -1.0), (-1.0, -1.0), (-1.0, 1.0)] {
            let weights = pack(unit, &vec![w; k], 1, k);
            let got = Product {
                x: &vec![x; k],
                m: 1,
                weights: &weights,
                bias: None,
                finish: Finish::Store,
                place: Place::all(1),
            }
            .run();
            let error = (got[0] / (x * w * k as f32) - 1.0).abs();
            assert!(error < 1e-6, "{unit:?} {x} * {w}: {}", got[0]);
        }
    }
}

#[test]
fn non_finite_values_stay_non_finite() {
    let k = 24;
    let w = noise(9, 3 * k);
    for unit in units() {
        for bad in [f32::NAN, f32::INFINITY, -f32::NAN] {
            let mut x = noise(10, k);
            x[5] = bad;
            let weights = pack(unit, &w, 3, k);
            let got = Product {
                x: &x,
                m: 1,
                weights: &weights,
                bias: None,
                finish: Finish::Store,
                place: Place::all(3),
            }
            .run();
            assert!(got.iter().all(|x| !x.is_finite()), "{unit:?} {bad}: {got:?}");
        }
    }
}

#[test]
fn weights_take_the_bytes_of_their_dtype() {
    let (n, k) = (64, 256);
    let w = noise(11, n * k);
    for unit in units() {
        let bytes = pack(unit, &w, n, k).bytes();
        let want = match unit.dtype() {
            WeightDtype::F32 => 4 * n * k,
            WeightDtype::Bf16 => 2 * n * k,
            // A scale and a start value per column.
            _ => n * k + 8 * n,
        };
        assert_eq!(bytes, want, "{unit:?}");
    }
}

/// Encoded rows are stored where those of the product before were.
#[test]
fn an_earlier_product_leaves_no_trace() {
    for unit in units() {
        let product_of = |x: &[f32], k: usize| {
            let (n, w) = (33, noise(12, 33 * k));
            let weights = pack(unit, &w, n, k);
            let product = Product {
                x,
                m: x.len() / k,
                weights: &weights,
                bias: None,
                finish: Finish::Store,
                place: Place::all(n),
            };
            product.run().into_iter().map(f32::to_bits).collect::<Vec<_>>()
        };
        for (m, k) in [(1, 1), (2, 19), (18, 67), (33, 130)] {
            let x = noise(13, m * k);
            let before = product_of(&x, k);
            product_of(&vec![f32::NAN; 40 * 512], 512);
            assert_eq!(product_of(&x, k), before, "{unit:?} {m} rows of {k}");
        }
    }
}
