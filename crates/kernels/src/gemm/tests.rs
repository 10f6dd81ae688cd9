//! The packed product against plain loops, and its bits against themselves.

use super::{Finish, Packed, Product};
use crate::simd::InstructionSet;

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

fn pack(set: InstructionSet, w: &[f32], n: usize, k: usize) -> Packed {
    Packed::new(set, k, n, |j| (j < n).then(|| &w[j * k..(j + 1) * k]))
}

fn run(product: &Product<'_>) -> Vec<f32> {
    let mut out = vec![f32::NAN; product.m * product.n];
    product.run(&mut out);
    out
}

fn naive(x: &[f32], w: &[f32], (m, n, k): (usize, usize, usize)) -> Vec<f64> {
    let mut out = Vec::new();
    for i in 0..m {
        for j in 0..n {
            let pairs = x[i * k..][..k].iter().zip(&w[j * k..][..k]);
            out.push(pairs.map(|(&a, &b)| f64::from(a) * f64::from(b)).sum());
        }
    }
    out
}

#[test]
fn equals_plain_loops_on_every_instruction_set() {
    for set in InstructionSet::available() {
        for (m, n, k) in [
            (1, 1, 1),
            (5, 40, 72),
            (13, 33, 19),
            (64, 96, 192),
            (3, 20, 9000),
        ] {
            let (x, w) = (noise(1, m * k), noise(2, n * k));
            let (bias, residual) = (noise(3, n.next_multiple_of(32)), noise(4, m * n));
            let weights = pack(set, &w, n, k);
            let finish = Finish::Add(&residual);
            let got = run(&Product {
                x: &x,
                m,
                weights: &weights,
                bias: Some(&bias),
                finish,
                n,
            });
            let want = naive(&x, &w, (m, n, k));
            for (i, (&got, want)) in got.iter().zip(want).enumerate() {
                let want = want + f64::from(bias[i % n]) + f64::from(residual[i]);
                let error = (f64::from(got) - want).abs();
                assert!(
                    error < 1e-6 * k as f64 + 1e-6,
                    "{set:?} {m}x{n}x{k} at {i}: {error}"
                );
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_in_every_product() {
    for set in InstructionSet::available() {
        for (n, k) in [(96, 192), (72, 72), (40, 1024), (24, 5000)] {
            let (x, w) = (noise(5, 400 * k), noise(6, n * k));
            let weights = pack(set, &w, n, k);
            let rows = |from: usize, m: usize| {
                let x = &x[from * k..(from + m) * k];
                run(&Product {
                    x,
                    m,
                    weights: &weights,
                    bias: None,
                    finish: Finish::Store,
                    n,
                })
            };
            let all = rows(0, 400);
            for m in (1..=70).chain([191, 192, 193, 385]) {
                for from in [0, 7, 400 - m] {
                    let some = rows(from, m);
                    let same = some
                        .iter()
                        .zip(&all[from * n..])
                        .all(|(a, b)| a.to_bits() == b.to_bits());
                    assert!(same, "{set:?} n {n} k {k}: {m} rows from {from}");
                }
            }
        }
    }
}
