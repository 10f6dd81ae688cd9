//! Products that leave a norm to the next product.

use super::assert_all;
use kernels::Form;
use kernels::device::{
    Array, Buffer, DeviceMatrix, MatrixFormat, NormCase, NormedSum, Precision, RowNorm, add_normed,
};
use kernels::{Epilogue, Matrix};
use model::Geometry;
use std::collections::BTreeSet;

/// The widths of every geometry, from one row to 1,024; of many rows with narrow ones.
#[test]
fn a_norm_in_products_has_the_same_bits_in_every_tile_and_the_error_of_one_rounding() {
    let device = crate::emulated_small();
    let formats = [MatrixFormat::Bf16, MatrixFormat::Int8w, MatrixFormat::Packed(Form::Four)];
    let mut formats = formats.into_iter().cycle();
    let widths: BTreeSet<usize> =
        Geometry::ALL.iter().map(|geometry| geometry.info().unwrap().width).collect();
    let mut names = BTreeSet::new();
    for d in widths {
        let mut rows = if d < 1000 { vec![1, 65, 127, 130] } else { vec![1, 70] };
        // The most rows of a step, of the first narrow one.
        rows.extend(names.is_empty().then_some([514, 1024]).into_iter().flatten());
        for rows in &rows {
            let k = if d < 1000 { 576 } else { 64 };
            let case = NormCase { format: formats.next().unwrap(), rows: *rows, d, k, n: 24 };
            let checks = case.checks(&device).unwrap();
            names.extend(
                checks.iter().filter_map(|check| check.name.split(' ').next().map(str::to_owned)),
            );
            assert_all(checks);
        }
    }
    let all = kernels::device::kernels().filter(|kernel| kernel.name.starts_with("residual"));
    for kernel in all {
        assert!(names.contains(kernel.name), "{}", kernel.name);
    }
}

/// A width of odd sums and a device without fused kernels have separate ones.
#[test]
fn the_width_and_the_device_decide_and_not_the_rows() {
    for (d, fused, want) in [(128, true, true), (96, true, false), (128, false, false)] {
        let device = crate::emulated_small().with_fused(fused);
        let weight = vec![0.5; d * 64];
        let matrix = Matrix { weight: &weight, k: 64, bias: None };
        let matrix =
            DeviceMatrix::new(&device, MatrixFormat::Bf16, matrix, Epilogue::None).unwrap();
        let weight = Buffer::floats(&device, &vec![1.0; d]).unwrap();
        for rows in [1, 70] {
            let x = Array::padded(&device, Precision::Bf16, rows, 64).unwrap();
            let sum = Array::new(&device, Precision::F32, rows, d).unwrap();
            let out = Array::padded(&device, Precision::Bf16, rows, d).unwrap();
            let mut out = out.with_squares().unwrap();
            let norm = RowNorm { weight: &weight, eps: 1e-5 };
            let stream = NormedSum { sum: &sum, norm };
            let done = add_normed(&matrix, &x, rows, stream, &mut out).unwrap();
            assert_eq!(done, want, "{d}, {fused}");
        }
    }
}
