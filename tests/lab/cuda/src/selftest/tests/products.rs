//! Products: batch invariance, refused arrays.

use super::super::data::{Ends, Random, array, poisoned};
use super::super::products::{Layer, Sizes};
use kernels::Epilogue;
use kernels::device::Store;
use kernels::device::{DeviceMatrix, MatrixSizes, Precision};
use kernels::device::{Division, MatrixFormat, ProductLaunch, ProductTile};

/// The number of rows determines the launch, but no bit of a result.
#[test]
fn a_row_is_the_same_among_any_others() {
    let (mut random, device) = (Random(3), crate::emulated_small());
    for format in [MatrixFormat::F32, MatrixFormat::Bf16, MatrixFormat::Int8] {
        let (on, n) = ((&device, format.inputs()), 40);
        let layer = Layer::new(&mut random, on, Sizes { r: 131, k: 300, n }).unwrap();
        let matrix = layer.on((&device, format), Epilogue::None).unwrap();
        let run = |rows: std::ops::Range<usize>| {
            let out = poisoned((&device, Precision::F32), (rows.len(), n), Ends::Plain).unwrap();
            let x = layer.rows(on, rows.clone()).unwrap();
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
    for format in [MatrixFormat::F32, MatrixFormat::Bf16, MatrixFormat::Int8] {
        let (on, n, most) = ((&device, format.inputs()), 260, 130);
        let size = Sizes { r: most, k: 560, n };
        let layer = Layer::new(&mut random, on, size).unwrap();
        let matrix = layer.on((&device, format), Epilogue::None).unwrap();
        let mut want: Vec<f32> = Vec::new();
        let tiles = ProductTile::all(format).iter().filter(|tile| !tile.single);
        for (tile, rows) in tiles.zip([most, 3].into_iter().cycle()) {
            let x = layer.rows(on, 0..rows).unwrap();
            let sizes = matrix.launch(rows, Division::Whole).sizes;
            let whole = ProductLaunch::undivided(tile, sizes);
            assert_eq!(whole.segments(), 3);
            let parted = [(0, 1), (1, 2), (whole.tiles() - 1, 1)];
            let parted = parted.map(|(first, lead)| ProductLaunch { whole: first, lead, ..whole });
            for launch in std::iter::once(whole).chain(parted) {
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
    for format in [MatrixFormat::Bf16, MatrixFormat::Int8] {
        let (on, n, most) = ((&device, format.inputs()), 200, 130);
        let size = Sizes { r: most, k: 190, n };
        let layer = Layer::new(&mut random, on, size).unwrap();
        let matrix = layer.on((&device, format), Epilogue::None).unwrap();
        let mut want: Vec<f32> = Vec::new();
        for tile in ProductTile::all(format) {
            let x = layer.rows(on, 0..most).unwrap();
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
    let on = (&device, Precision::Bf16);
    let layer = Layer::new(&mut random, on, Sizes { r: 4, k: 16, n: 8 }).unwrap();
    let matrix = layer.on(on, Epilogue::None).unwrap();
    let x = poisoned(on, (4, 16), Ends::Padded).unwrap();
    let f32s = (&device, Precision::F32);
    let out = |rows, width| poisoned(f32s, (rows, width), Ends::Plain).unwrap();
    assert!(matrix.product(&x, 4, &out(4, 8)).is_ok());
    assert!(matrix.product(&x, 5, &out(5, 8)).is_err());
    assert!(matrix.product(&x, 4, &out(3, 8)).is_err());
    assert!(matrix.product(&x, 4, &out(4, 9)).is_err());
    let short = poisoned(on, (4, 8), Ends::Plain).unwrap();
    assert!(matrix.product(&x, 4, &short).is_err());
    let unpadded = poisoned(on, (4, 16), Ends::Plain).unwrap();
    assert!(matrix.product(&unpadded, 4, &out(4, 8)).is_err());
    let wide = poisoned(f32s, (4, 16), Ends::Padded).unwrap();
    assert!(matrix.product(&wide, 4, &out(4, 8)).is_err());
}

#[test]
fn a_matrix_too_wide_for_offsets_within_a_tile_is_refused() {
    let device = crate::emulated_small();
    let sizes = MatrixSizes { rows: 1, k: (1 << 23) + 1, biased: false, epilogue: Epilogue::None };
    let refused = DeviceMatrix::reserve(&device, MatrixFormat::Int8, sizes).err();
    assert!(refused.is_some_and(|error| error.0.contains("too large")));
    let fits = MatrixSizes { k: 1 << 23, ..sizes };
    assert!(DeviceMatrix::reserve(&device, MatrixFormat::Int8, fits).is_ok());
}
