//! Products with codes in groups.

use super::{naive, noise};
use crate::blocks::BlockType;
use crate::gemm::blocks::tests::{all_types, packed_weights, random_blocks};
use crate::gemm::{Column, Finish, Packed, Place, Product};
use crate::simd::blocks::{ByteSet, Form, GROUP};
use crate::simd::unit::Unit;

/// Weights in a form, packed for an instruction set, and their values.
struct Case {
    name: String,
    weights: Packed,
    values: Vec<f64>,
}

/// Matrices `[n, k]` of all block types and of rounded numbers; `k` is a multiple of 256.
fn cases(set: ByteSet, (n, k): (usize, usize)) -> Vec<Case> {
    let blocks = all_types().into_iter().map(|kind| {
        let row = kind.row_bytes(k).expect("whole blocks");
        let bytes = random_blocks(kind, 9, n * k / kind.weights());
        let column = |j: usize| Column::Blocks(kind, &bytes[j * row..][..row]);
        let column = |j: usize| (j < n).then(|| column(j));
        Case {
            name: format!("{kind:?} on {set:?}"),
            weights: Packed::new(Unit::Blocks(set, kind.form()), k, n, column),
            values: bytes.chunks_exact(row).flat_map(|row| packed_weights(kind, row)).collect(),
        }
    });
    blocks.collect()
}

/// Rows as they are rounded, in groups of 32.
fn rounded(x: &[f32]) -> Vec<f64> {
    let group = |x: &[f32]| -> Vec<f64> {
        let largest = x.iter().fold(0f32, |most, x| most.max(x.abs()));
        let (scale, inverse) = (largest / 127.0, 127.0 / largest);
        let code = |x: f32| match largest == 0.0 {
            true => 0.0,
            false => (x * inverse).round_ties_even(),
        };
        x.iter().map(|x| f64::from(code(*x)) * f64::from(scale)).collect()
    };
    x.chunks_exact(GROUP).flat_map(group).collect()
}

fn product(weights: &Packed, x: &[f32], n: usize) -> Vec<f32> {
    Product {
        x,
        m: x.len() / weights.k(),
        weights,
        bias: None,
        finish: Finish::Store,
        place: Place::all(n),
    }
    .run()
}

#[test]
fn codes_equal_plain_loops_on_every_instruction_set() {
    for (m, n, k) in [(1, 40, 256), (13, 33, 768), (5, 70, 8448)] {
        let mut x = noise(1, m * k);
        x[..GROUP].fill(0.0);
        let kept = rounded(&x);
        for set in ByteSet::available() {
            for case in cases(set, (n, k)) {
                let got = product(&case.weights, &x, n);
                let largest = case.values.iter().fold(0f64, |most, x| most.max(x.abs()));
                let want = naive(&kept, &case.values, (m, n, k));
                for (i, (&got, want)) in got.iter().zip(want).enumerate() {
                    let error = (f64::from(got) - want).abs() / (largest * k as f64);
                    assert!(error < 3e-8, "{} {m}x{n}x{k} at {i}: {error}", case.name);
                }
            }
        }
    }
}

/// Products of some rows have the bits that those rows have in the product of all `count` rows.
fn assert_same_bits(
    set: ByteSet,
    (n, k): (usize, usize),
    count: usize,
    some: impl Iterator<Item = usize> + Clone,
) {
    let x = noise(5, count * k);
    for case in cases(set, (n, k)) {
        let rows = |first: usize, m: usize| {
            let got = product(&case.weights, &x[first * k..][..m * k], n);
            got.into_iter().map(f32::to_bits).collect::<Vec<_>>()
        };
        let all = rows(0, count);
        for m in some.clone().filter(|&m| m <= count) {
            for first in [0, 7, count - m] {
                let first = first.min(count - m);
                let same = rows(first, m) == all[first * n..][..m * n];
                assert!(same, "{} n {n} k {k}: {m} rows from {first}", case.name);
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_in_every_product_with_codes() {
    for set in ByteSet::available() {
        assert_same_bits(set, (40, 256), 400, (1..=26).chain([191, 193]));
        // A tile has at most 8 rows: a pair of them and one row more.
        assert_same_bits(set, (20, 5888), 30, (1..=17).chain([26]));
    }
}

// Few enough for an emulated processor and for a sanitizer.
#[test]
fn a_row_has_the_same_bits_at_the_edges_of_tiles_and_passes_with_codes() {
    for set in ByteSet::available() {
        for (n, k) in [(40, 256), (20, 5888)] {
            assert_same_bits(set, (n, k), 14, [1, 2, 4, 5, 13].into_iter());
        }
    }
}

#[test]
fn codes_have_the_same_products_on_every_instruction_set() {
    let (m, n, k) = (17, 70, 1024);
    let x = noise(7, m * k);
    let bits = |set| {
        let products = cases(set, (n, k)).into_iter().map(|case| {
            let got = product(&case.weights, &x, n);
            got.into_iter().map(f32::to_bits).collect::<Vec<_>>()
        });
        products.collect::<Vec<_>>()
    };
    let all: Vec<_> = ByteSet::available().map(bits).collect();
    assert!(all.iter().all(|other| *other == all[0]));
}

#[test]
fn products_of_several_forms_are_those_of_each() {
    let (m, n, k) = (5, 24, 512);
    let x = noise(11, m * k);
    for set in ByteSet::available() {
        let cases = cases(set, (n, k));
        let products = cases.iter().enumerate().map(|(i, case)| Product {
            x: &x,
            m,
            weights: &case.weights,
            bias: None,
            finish: Finish::Store,
            place: Place { first: i * n, count: n, stride: cases.len() * n },
        });
        let got = Product::run_all(&products.collect::<Vec<_>>());
        for (i, case) in cases.iter().enumerate() {
            let want = product(&case.weights, &x, n);
            for (got, want) in got.chunks_exact(cases.len() * n).zip(want.chunks_exact(n)) {
                assert_eq!(got[i * n..][..n], *want, "{}", case.name);
            }
        }
    }
}

#[test]
fn largest_codes_and_rows_do_not_overflow() {
    let k = 256;
    for set in ByteSet::available() {
        for (sign, byte) in [(1.0, 0xFF), (1.0, 0x00), (-1.0, 0xFF), (-1.0, 0x00)] {
            for kind in all_types() {
                let mut bytes = vec![byte; kind.bytes() * k / kind.weights()];
                for block in bytes.chunks_exact_mut(kind.bytes()) {
                    if kind == BlockType::NVFP4 {
                        block[..6].copy_from_slice(&[0, 0, 0x80, 0x3F, 0x38, 0x38]);
                        continue;
                    }
                    let ones: &[usize] = match kind {
                        BlockType::Q6_K => &[208],
                        BlockType::Q2_K => &[80, 82],
                        _ => &[0, 2],
                    };
                    for &index in ones {
                        block[index..index + 2].copy_from_slice(&0x3C00_u16.to_le_bytes());
                    }
                }
                let column = |j: usize| (j == 0).then_some(Column::Blocks(kind, &bytes));
                let weights = Packed::new(Unit::Blocks(set, kind.form()), k, 1, column);
                let got = product(&weights, &vec![sign; k], 1)[0];
                let values = packed_weights(kind, &bytes);
                let want: f64 = values.iter().map(|x| x * f64::from(sign)).sum();
                let largest = values.iter().fold(0f64, |most, x| most.max(x.abs()));
                let error = (f64::from(got) - want).abs();
                let most = 1e-5 * largest * 256.0;
                assert!(error <= most, "{kind:?} on {set:?}: {got}, expected {want}");
            }
        }
    }
}

#[test]
fn non_finite_rows_stay_non_finite_in_products_with_codes() {
    for set in ByteSet::available() {
        for case in cases(set, (3, 256)) {
            for bad in [f32::NAN, f32::INFINITY, -f32::NAN] {
                let mut x = noise(10, 256);
                x[5] = bad;
                let got = product(&case.weights, &x, 3);
                assert!(got.iter().all(|x| !x.is_finite()), "{} {bad}: {got:?}", case.name);
            }
        }
    }
}

#[test]
fn codes_take_the_bytes_that_the_documents_state() {
    let (n, k) = (64, 1024);
    let bits = |form: Form| {
        let bytes = Packed::bytes_of(Unit::detect_for(form), k, n);
        8.0 * bytes as f64 / (n * k) as f64
    };
    let kinds = BlockType::ALL.into_iter().chain([BlockType::IQ4]);
    let all: Vec<_> = kinds.map(|kind| (kind.name(), bits(kind.form()))).collect();
    let want = [
        ("Q4_0", 5.0),
        ("Q4_1", 5.0),
        ("Q5_0", 6.0),
        ("Q5_1", 6.0),
        ("Q8_0", 9.0),
        ("Q2_K", 4.625),
        ("Q4_K", 4.625),
        ("Q5_K", 5.625),
        ("Q6_K", 6.625),
        ("IQ4", 4.625),
    ];
    assert_eq!(all, want);
}
