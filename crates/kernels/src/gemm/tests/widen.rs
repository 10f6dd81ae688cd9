//! Products with floats that are widened.

use super::noise;
use crate::blocks::{BlockType, float8};
use crate::gemm::{Activation, Column, Finish, Packed, Packing, Place, Product};
use crate::simd::InstructionSet;
use crate::simd::blocks::Form;
use crate::simd::unit::{Unit, WeightDtype};
use half::{bf16, f16};

const KIND: BlockType = BlockType::FP8;

/// Rows of random finite numbers of 16 bits of every size, and the same in f32.
fn halves(n: usize, k: usize) -> (Vec<u8>, Vec<f32>) {
    let finite = noise(21, n * k).into_iter().map(|x| f16::from_bits(x.to_bits() as u16));
    let finite = finite.map(|x| if x.is_finite() { x } else { f16::MAX });
    let all: Vec<f16> = finite.collect();
    (all.iter().flat_map(|x| x.to_le_bytes()).collect(), all.iter().map(|x| x.to_f32()).collect())
}

/// Rows of blocks with random codes and scales, and their weights in f32.
fn random(n: usize, k: usize) -> (Vec<u8>, Vec<f32>) {
    let (codes, scales) = (noise(21, n * k), noise(22, n * k / 32));
    let (mut bytes, mut weights) = (Vec::new(), Vec::new());
    for (i, (codes, scale)) in codes.chunks_exact(32).zip(scales).enumerate() {
        // Up to the largest ones.
        let scale = scale * 2f32.powi(i as i32 % 41 - 33) * 0.999;
        bytes.extend(scale.to_le_bytes());
        for code in codes {
            // Neither of the two codes that are no numbers.
            let code = (code.to_bits() >> 3) as u8;
            let code = if code & 0x7F == 0x7F { 1 } else { code };
            bytes.push(code);
            weights.push(bf16::from_f32(float8(code) * scale).to_f32());
        }
    }
    (bytes, weights)
}

#[test]
fn products_have_the_bits_of_wide_weights() {
    let eights = Unit::available(WeightDtype::Bf16).into_iter().map(|unit| (KIND, unit, unit));
    let halves_on = |set| (BlockType::F16, Unit::WidenedF16(set), Unit::F32(set));
    let sets = InstructionSet::available().into_iter().map(halves_on);
    for (kind, unit, wide_unit) in eights.chain(sets) {
        for (m, n, k) in [(1, 40, 256), (13, 33, 96), (5, 70, 8448), (250, 17, 64)] {
            let (bytes, weights) = if kind == KIND { random(n, k) } else { halves(n, k) };
            let (row, width) = (kind.row_bytes(k).expect("whole blocks"), unit.panel());
            // In both packings the last panel is filled up.
            let narrow = |j: usize| Column::Blocks(kind, &bytes[j * row..][..row]);
            let wide = |j: usize| Column::Floats(&weights[j * k..][..k]);
            let packing = Packing { unit, is_fp8: kind == KIND };
            let narrow = Packed::new(packing, k, n, |j| (j < n).then(|| narrow(j)));
            let wide = Packed::new(wide_unit, k, n, |j| (j < n).then(|| wide(j)));
            assert_eq!(narrow.bytes(), Packed::bytes_of(packing, k, n));
            let (x, bias) = (noise(1, m * k), noise(3, n.next_multiple_of(width)));
            for gated in [false, true] {
                // A panel of a gate has as many columns of either matrix.
                let columns = if gated { n.div_ceil(width) * width / 2 } else { n };
                let product = |weights| {
                    let finish = match gated {
                        true => Finish::Gate(Activation::Silu),
                        false => Finish::Store,
                    };
                    let (bias, place) = (Some(&bias[..]), Place::all(columns));
                    let all = Product { x: &x, m, weights, bias, finish, place }.run();
                    all.into_iter().map(f32::to_bits).collect::<Vec<_>>()
                };
                assert!(product(&narrow) == product(&wide), "{unit:?} {m}x{n}x{k}, {gated}");
            }
        }
    }
}

#[test]
fn rows_are_encoded_for_the_weights_of_each_product() {
    let (m, n, k) = (5, 24, 512);
    let (x, (bytes, _)) = (noise(1, m * k), random(n, k));
    let block = |i: usize| {
        let codes = (0..32).map(move |j| (37 * i + 11 * j) as u8);
        // The scale is 1/16.
        [0, 0x2C].into_iter().chain(codes)
    };
    let codes: Vec<u8> = (0..n * k / 32).flat_map(block).collect();
    let packed = |kind: BlockType, bytes: &[u8]| {
        let row = kind.row_bytes(k).expect("whole blocks");
        let column = |j: usize| Column::Blocks(kind, &bytes[j * row..][..row]);
        Packed::new(Packing::detect_for(kind.form()), k, n, |j| (j < n).then(|| column(j)))
    };
    let parts = [packed(KIND, &bytes), packed(BlockType::Q8_0, &codes), packed(KIND, &bytes)];
    let product = |weights, first, stride| {
        let place = Place { first, count: n, stride };
        Product { x: &x, m, weights, bias: None, finish: Finish::Store, place }
    };
    let products: Vec<_> =
        parts.iter().enumerate().map(|(i, part)| product(part, i * n, 3 * n)).collect();
    let got = Product::run_all(&products);
    for (i, part) in parts.iter().enumerate() {
        let want = product(part, 0, n).run();
        for (got, want) in got.chunks_exact(3 * n).zip(want.chunks_exact(n)) {
            assert_eq!(got[i * n..][..n], *want, "product {i}");
        }
    }
}

#[test]
fn weights_take_nine_and_sixteen_bits() {
    for (form, bits) in [(Form::Fp8, 9), (Form::F16, 16)] {
        let bytes = Packed::bytes_of(Packing::detect_for(form), 1024, 64);
        assert_eq!(bytes * 8, bits * 1024 * 64);
    }
}
