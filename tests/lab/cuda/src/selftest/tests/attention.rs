//! Attention: rows without visible slots, batch invariance, refused head widths.

use super::super::attention::{Case, SHAPE, Shape, WIDE};
use super::super::data::{Random, Rows};
use super::{BOTH, assert_all};
use kernels::Visible;
use kernels::device::{PoolSizes, Precision};

fn case(random: &mut Random, precision: Precision, rows: Rows) -> Case {
    case_of(random, precision, SHAPE, rows)
}

fn case_of(random: &mut Random, precision: Precision, shape: Shape, rows: Rows) -> Case {
    Case::new(random, (&crate::emulated_small(), precision), shape, rows).unwrap()
}

#[test]
fn a_row_without_visible_slots_is_zero() {
    let mut random = Random(9);
    for precision in BOTH {
        let mut rows = Rows::new(&mut random, 16, &[(3, 30), (2, 600)]);
        rows.visible = [0, 30, 0, 600, 0].map(Visible::prefix).to_vec();
        // A window that begins after its end is empty.
        rows.visible[4].begin = 1;
        let case = case(&mut random, precision, rows);
        assert_all(case.checks().unwrap());
        let [_, out] = case.run(1).unwrap();
        let zero = |row: usize| out[row * 128..(row + 1) * 128].iter().all(|x| *x == 0.0);
        assert_eq!([0, 1, 2, 3, 4].map(zero), [true, false, true, false, true]);
    }
}

/// A row has the same bits in a batch of many rows, of few rows, which has smaller tiles and whose
/// blocks have segments, and alone.
#[test]
fn a_row_is_the_same_among_any_others() {
    let mut random = Random(10);
    for precision in BOTH {
        let narrow = Rows::new(&mut random, 16, &[(40, 600), (30, 90)]);
        let wide = Rows::new(&mut random, 16, &[(21, 600), (3, 90)]);
        for (shape, rows, ranges) in [
            (SHAPE, narrow, [0..1, 5..20, 39..40]),
            // A block has the queries of some rows of a tile.
            (WIDE[0], wide, [0..1, 5..20, 20..21]),
        ] {
            let width = shape.heads * shape.c;
            let mut case = case_of(&mut random, precision, shape, rows.clone());
            let [_, many] = case.run(1).unwrap();
            for range in ranges {
                case.keep(&rows, range.clone());
                let [_, few] = case.run(1).unwrap();
                let want = &many[range.start * width..range.end * width];
                assert!(few == want, "{precision:?} {shape:?} {range:?}");
            }
        }
    }
}

#[test]
fn heads_without_kernels_are_refused() {
    let mut random = Random(11);
    let rows = Rows::new(&mut random, 16, &[(1, 1)]);
    let case = case(&mut random, Precision::F32, rows);
    let sizes = |head_width, precision| PoolSizes { head_width, precision, ..case.pool.sizes() };
    assert!(sizes(12, Precision::F32).check().is_ok());
    assert!(sizes(12, Precision::Bf16).check().is_err());
    assert!(sizes(512, Precision::Bf16).check().is_ok());
    assert!(sizes(520, Precision::Bf16).check().is_err());
    assert!(case.pool.tile(3).is_err());
    assert!(case.pool.tile(2 * 65).is_err());
}
