//! Products: batch invariance, refused arrays.

use super::super::data::{Ends, Random, array, poisoned};
use super::super::products::{Layer, Sizes, inner};
use super::super::{FORMATS, tiles_of};
use crate::TensorSums;
use kernels::device::Store;
use kernels::device::{Array, DeviceMatrix, MatrixSizes, Precision};
use kernels::device::{Division, MatrixFormat, ProductLaunch, segment};
use kernels::{Epilogue, row_to_bytes};
use model::Geometry;

unsafe extern "C" {
    fn asynclane_tensor_sum(sums: u32, a: *const u16, b: *const u16, c: f32) -> f32;
}

/// The number of rows determines the launch, but no bit of a result.
#[test]
fn a_row_is_the_same_among_any_others() {
    let (mut random, device) = (Random(3), crate::emulated_small());
    for format in FORMATS {
        let (target, n) = ((&device, format.inputs()), 40);
        let sizes = Sizes { r: 131, k: inner(format, 300), n };
        let layer = Layer::new(&mut random, target, sizes).unwrap();
        let matrix = layer.on((&device, format), Epilogue::None).unwrap();
        let run = |rows: std::ops::Range<usize>| {
            let out = poisoned((&device, Precision::F32), (rows.len(), n), Ends::Plain).unwrap();
            let x = layer.rows(target, rows.clone()).unwrap();
            matrix.product(&x, rows.len(), &out).unwrap();
            out.read(rows.len()).unwrap()
        };
        let all = run(0..131);
        for row in [0, 64, 130] {
            let alone = run(row..row + 1);
            assert_eq!(alone, all[row * n..(row + 1) * n], "{format:?} {row}");
        }
    }
}

/// Every tile, whole or divided among any number of blocks, has the same bits.
#[test]
fn launches_change_no_bit() {
    let (mut random, device) = (Random(5), crate::emulated_small());
    for format in FORMATS {
        let (target, n, most) = ((&device, format.inputs()), 260, 130);
        let size = Sizes { r: most, k: inner(format, 560), n };
        let layer = Layer::new(&mut random, target, size).unwrap();
        let matrix = layer.on((&device, format), Epilogue::None).unwrap();
        let mut want: Vec<f32> = Vec::new();
        let tiles = tiles_of(format).filter(|tile| !tile.single || tile.cluster > 0);
        for (tile, rows) in tiles.zip([most, 3].into_iter().cycle()) {
            let x = layer.rows(target, 0..rows).unwrap();
            let sizes = matrix.launch(rows, Division::Whole).sizes;
            let whole = ProductLaunch::undivided(tile, sizes);
            assert_eq!(whole.segments(), 3);
            let parted = [(0, 1), (1, 2), (whole.tiles() - 1, 1)].map(|(first, lead)| {
                let first = first / tile.cluster.max(1) * tile.cluster.max(1);
                ProductLaunch { whole: first, lead, ..whole }
            });
            let fits = |launch: &ProductLaunch| {
                !tile.single || ProductLaunch::ways(tile, sizes).any(|way| way == *launch)
            };
            for launch in std::iter::once(whole).chain(parted).filter(fits) {
                let before = random.numbers(rows * n);
                let out = array((&device, Precision::F32), &before, n, Ends::Plain).unwrap();
                matrix.run_as(&launch, &x, &out, Store::Overwrite).unwrap();
                let got = out.read(rows).unwrap();
                if want.is_empty() {
                    want.clone_from(&got);
                }
                assert!(got == want[..rows * n], "{launch:?}");
            }
        }
    }
}

/// So has every tile of a product of one segment, with an odd number of inner steps.
#[test]
fn tiles_of_one_segment_change_no_bit() {
    let (mut random, device) = (Random(6), crate::emulated_small());
    for format in FORMATS.into_iter().filter(|format| *format != MatrixFormat::F32) {
        let (target, n, most) = ((&device, format.inputs()), 200, 130);
        let size = Sizes { r: most, k: inner(format, 190), n };
        let layer = Layer::new(&mut random, target, size).unwrap();
        let matrix = layer.on((&device, format), Epilogue::None).unwrap();
        let mut want: Vec<f32> = Vec::new();
        for tile in tiles_of(format) {
            let x = layer.rows(target, 0..most).unwrap();
            let sizes = matrix.launch(most, Division::Whole).sizes;
            let launch = ProductLaunch::undivided(tile, sizes);
            assert_eq!(launch.segments(), 1);
            let out = poisoned((&device, Precision::F32), (most, n), Ends::Plain).unwrap();
            matrix.run_as(&launch, &x, &out, Store::Overwrite).unwrap();
            let got = out.read(most).unwrap();
            if want.is_empty() {
                want.clone_from(&got);
            }
            assert!(got == want, "{launch:?}");
        }
    }
}

#[test]
fn arrays_of_another_shape_are_refused() {
    let (mut random, device) = (Random(4), crate::emulated_small());
    let target = (&device, Precision::Bf16);
    let layer = Layer::new(&mut random, target, Sizes { r: 4, k: 16, n: 8 }).unwrap();
    let matrix = layer.on(target, Epilogue::None).unwrap();
    let x = poisoned(target, (4, 16), Ends::Padded).unwrap();
    let f32s = (&device, Precision::F32);
    let out = |rows, width| poisoned(f32s, (rows, width), Ends::Plain).unwrap();
    assert!(matrix.product(&x, 4, &out(4, 8)).is_ok());
    assert!(matrix.product(&x, 5, &out(5, 8)).is_err());
    assert!(matrix.product(&x, 4, &out(3, 8)).is_err());
    assert!(matrix.product(&x, 4, &out(4, 9)).is_err());
    let short = poisoned(target, (4, 8), Ends::Plain).unwrap();
    assert!(matrix.product(&x, 4, &short).is_err());
    let unpadded = poisoned(target, (4, 16), Ends::Plain).unwrap();
    assert!(matrix.product(&unpadded, 4, &out(4, 8)).is_err());
    let wide = poisoned(f32s, (4, 16), Ends::Padded).unwrap();
    assert!(matrix.product(&wide, 4, &out(4, 8)).is_err());
}

#[test]
fn a_matrix_too_wide_for_offsets_within_a_tile_is_refused() {
    let device = crate::emulated_small();
    // Sums of integers fit in 32 bits.
    for (format, most) in [(MatrixFormat::Int8w, 1 << 23), (MatrixFormat::Int8, 1 << 17)] {
        let sizes = MatrixSizes { rows: 1, k: most + 1, biased: false, epilogue: Epilogue::None };
        let refused = DeviceMatrix::reserve(&device, format, sizes).err();
        assert!(refused.is_some_and(|error| error.0.contains("too large")));
        let fits = MatrixSizes { k: most, ..sizes };
        assert!(DeviceMatrix::reserve(&device, format, fits).is_ok());
    }
}

/// The bits of bf16 numbers.
pub(super) fn bits(numbers: &[f32]) -> Vec<u16> {
    numbers.iter().map(|x| (x.to_bits() >> 16) as u16).collect()
}

/// The sums of a row and a column in one loop over each segment, as tensor cores sum.
pub(super) fn plain_loop(x: &[u16], weights: &[u16], segment: usize) -> f32 {
    let sum = |sum: f32, start: usize| {
        let [x, weights] = [x, weights].map(|all| {
            let mut step = [0; 16];
            let end = all.len().min(start + 16);
            step[..end - start].copy_from_slice(&all[start..end]);
            step
        });
        // SAFETY: sixteen numbers each.
        unsafe {
            asynclane_tensor_sum(TensorSums::Hopper as u32, x.as_ptr(), weights.as_ptr(), sum)
        }
    };
    let segments = (0..x.len()).step_by(segment).map(|first| {
        let end = x.len().min(first + segment);
        (first..end).step_by(16).fold(0.0, sum)
    });
    segments.fold(0.0, |total, sum| total + sum)
}

/// The sizes of the matrices of every geometry, of large ones the first columns, and of a matrix whose sums
/// have one segment.
pub(super) fn shapes() -> impl Iterator<Item = (usize, usize)> {
    let geometries = Geometry::ALL.into_iter().flat_map(|geometry| {
        let matrices = geometry.info().unwrap().matrices().into_iter();
        matrices.map(|(n, k)| (if k < 512 { n } else { n.min(24) }, k))
    });
    geometries.chain([(8200, 256)])
}

/// Products of integers, from rows that the device rounds, have the bits of a plain loop over integers and
/// those of the CPU.
#[test]
fn products_of_integers_have_the_bits_of_a_plain_loop_and_of_the_cpu() {
    let (mut random, device) = (Random(9), crate::emulated_small());
    for (n, k) in shapes() {
        let most = if n > 8000 { 3 } else { 67 };
        let target = (&device, Precision::Int8);
        let layer = Layer::new(&mut random, target, Sizes { r: most, k, n }).unwrap();
        let matrix = layer.on(target, Epilogue::None).unwrap();
        let on_cpu = layer.on_cpu(Precision::Int8, Epilogue::None).unwrap();
        let columns: Vec<_> = layer.weights().chunks(k).map(row_to_bytes).collect();
        for rows in [1, 7, most].into_iter().filter(|rows| *rows <= most) {
            let given = [Precision::F32, Precision::Int8];
            let given = Array::inputs_of(&device, given, rows, k).unwrap();
            given.write(0, &layer.inputs()[..rows * k]).unwrap();
            given.round(rows).unwrap();
            let out = poisoned((&device, Precision::F32), (rows, n), Ends::Plain).unwrap();
            matrix.product(&given, rows, &out).unwrap();
            let got = out.read(rows).unwrap();
            for (row, x) in layer.inputs().chunks(k).take(rows).enumerate() {
                let (x, factor) = row_to_bytes(x);
                for (column, (weights, scale)) in columns.iter().enumerate() {
                    let products =
                        x.iter().zip(weights).map(|(x, w)| i32::from(*x) * i32::from(*w));
                    let sum: i32 = products.sum();
                    let want = sum as f32 * (factor * scale) + layer.bias()[column];
                    let start = row * n + column;
                    assert_eq!(got[start].to_bits(), want.to_bits(), "{n}x{k}");
                    assert_eq!(got[start].to_bits(), on_cpu[start].to_bits(), "{n}x{k} on the CPU");
                }
            }
        }
    }
}

/// Products with packed weights.
#[test]
fn packed_products_have_the_bits_of_a_plain_loop() {
    let (mut random, device) = (Random(8), crate::emulated_small());
    let target = (&device, Precision::Bf16);
    let packed = FORMATS.into_iter().filter(|format| matches!(format, MatrixFormat::Packed(_)));
    let mut packed = packed.cycle();
    for (n, k) in shapes() {
        // Formats of fewer weights a block where a row is no number of large ones.
        let format = packed.find(|format| inner(*format, k) == k).unwrap();
        let MatrixFormat::Packed(form) = format else { continue };
        let most = if n > 8000 { 3 } else { 67 };
        let layer = Layer::new(&mut random, target, Sizes { r: most, k, n }).unwrap();
        let matrix = layer.on((&device, format), Epilogue::None).unwrap();
        let plain = layer.unpacked(&device, form).unwrap();
        let [weights, x] = [bits(plain.weights()), bits(plain.inputs())];
        for rows in [1, 7, most].into_iter().filter(|rows| *rows <= most) {
            let out = poisoned((&device, Precision::F32), (rows, n), Ends::Plain).unwrap();
            let given = plain.rows(target, 0..rows).unwrap();
            matrix.product(&given, rows, &out).unwrap();
            let got = out.read(rows).unwrap();
            for (row, x) in x.chunks(k).take(rows).enumerate() {
                for (column, weights) in weights.chunks(k).enumerate() {
                    let sum = plain_loop(x, weights, segment(format, n, k.next_multiple_of(64)));
                    let want = sum + plain.bias()[column];
                    assert_eq!(got[row * n + column].to_bits(), want.to_bits(), "{form:?} {n}x{k}");
                }
            }
        }
    }
}
