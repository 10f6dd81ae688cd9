//! Products: batch invariance, refused arrays.

use super::super::data::{Ends, Random, poisoned};
use super::super::products::{Layer, Sizes};
use super::BOTH;
use crate::device::{Device, Precision};
use crate::linear::Epilogue;

/// The number of rows determines the tile size, but no bit of a result.
#[test]
fn a_row_is_the_same_among_any_others() {
    let (mut random, device) = (Random(3), Device::emulated());
    for precision in BOTH {
        let (on, n) = ((&device, precision), 40);
        let layer = Layer::new(&mut random, on, Sizes { r: 131, k: 200, n }).unwrap();
        let matrix = layer.on(on, Epilogue::None).unwrap();
        let run = |rows: std::ops::Range<usize>| {
            let out = poisoned((&device, Precision::F32), (rows.len(), n), Ends::Plain).unwrap();
            let x = layer.rows(on, rows.clone()).unwrap();
            matrix.product(&x, rows.len(), &out).unwrap();
            out.read(rows.len()).unwrap()
        };
        let all = run(0..131);
        for row in [0, 64, 130] {
            let alone = run(row..row + 1);
            assert_eq!(alone, all[row * n..(row + 1) * n], "{precision:?} {row}");
        }
    }
}

#[test]
fn arrays_of_another_shape_are_refused() {
    let (mut random, device) = (Random(4), Device::emulated());
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
