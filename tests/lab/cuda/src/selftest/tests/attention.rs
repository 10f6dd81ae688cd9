//! Attention: rows without visible slots, batch invariance, refused head widths.

use super::super::attention::{Case, Formats, SHAPE, Shape, WIDE};
use super::super::data::{Random, Rows};
use super::{BOTH, assert_all};
use kernels::Visible;
use kernels::device::{DeviceError, PoolSizes, Precision};
use kernels::{KvDtype, KvSizes};

fn case(random: &mut Random, formats: Formats, rows: Rows) -> Case {
    case_of(random, formats, SHAPE, rows)
}

fn case_of(random: &mut Random, formats: Formats, shape: Shape, rows: Rows) -> Case {
    Case::new(random, (&crate::emulated_small(), formats), shape, rows).unwrap()
}

#[test]
fn a_row_without_visible_slots_is_zero() {
    let mut random = Random(9);
    for formats in Formats::ALL {
        let mut rows = Rows::new(&mut random, 16, &[(3, 30), (2, 600)]);
        rows.visible = [0, 30, 0, 600, 0].map(Visible::prefix).to_vec();
        // A window that begins after its end is empty.
        rows.visible[4].begin = 1;
        let case = case(&mut random, formats, rows);
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
    for formats in Formats::ALL {
        let narrow = Rows::new(&mut random, 16, &[(40, 600), (30, 90)]);
        let wide = Rows::new(&mut random, 16, &[(21, 600), (3, 90)]);
        for (shape, rows, ranges) in [
            (SHAPE, narrow, [0..1, 5..20, 39..40]),
            // A block has the queries of some rows of a tile.
            (WIDE[0], wide, [0..1, 5..20, 20..21]),
        ] {
            let mut case = case_of(&mut random, formats, shape, rows.clone());
            let width = case.shape.heads * case.shape.c;
            let [_, many] = case.run(1).unwrap();
            for range in ranges {
                case.keep(&rows, range.clone());
                let [_, few] = case.run(1).unwrap();
                let want = &many[range.start * width..range.end * width];
                assert!(few == want, "{formats:?} {shape:?} {range:?}");
            }
        }
    }
}

#[test]
fn heads_without_kernels_are_refused() {
    let mut random = Random(11);
    let rows = Rows::new(&mut random, 16, &[(1, 1)]);
    let case = case(&mut random, Formats::of(Precision::F32), rows);
    let sizes = |head_width, precision, dtype| {
        let kv = KvSizes { head_width, dtype, ..case.pool.sizes().kv };
        PoolSizes { precision, kv }.check()
    };
    let (exact, half) = (Precision::F32, Precision::Bf16);
    assert_eq!(sizes(12, exact, KvDtype::F32), Ok(()));
    assert_eq!(sizes(12, exact, KvDtype::Int8), Ok(()));
    assert!(sizes(12, half, KvDtype::Bf16).is_err());
    assert_eq!(sizes(512, half, KvDtype::Bf16), Ok(()));
    assert!(sizes(520, half, KvDtype::Bf16).is_err());
    assert_eq!(sizes(40, half, KvDtype::Bf16), Ok(()));
    let DeviceError(line) = sizes(40, half, KvDtype::Int8).unwrap_err();
    let want =
        "head width: expected at most 512, with keys and values in int8 a multiple of 16, found 40";
    assert_eq!(line, want);
    let DeviceError(line) = sizes(32, half, KvDtype::F32).unwrap_err();
    assert_eq!(line, "no CUDA kernels for keys and values in f32 beside queries in bf16");
    let kv = KvSizes { dtype: KvDtype::Int8, page: 6, ..case.pool.sizes().kv };
    let DeviceError(line) = PoolSizes { precision: half, kv }.check().unwrap_err();
    assert_eq!(line, "page size: expected a multiple of 4 with keys and values in int8, found 6");
    assert!(case.pool.tile(3).is_err());
    assert!(case.pool.tile(2 * 65).is_err());
}

/// Where neither a norm nor a rotation rounds, keys and values in int8 have the CPU's bytes and scales, also of
/// numbers that count as zero.
#[test]
fn bytes_and_scales_are_those_of_the_cpu() {
    let mut random = Random(12);
    let wide = Shape { norms: false, ..WIDE[1] };
    for precision in BOTH {
        for (shape, page) in [(SHAPE, 4), (Shape { c: 112, rotated: 96, ..SHAPE }, 16), (wide, 8)] {
            let mut rows = Rows::new(&mut random, page, &[(3, 30), (9, 21)]);
            rows.positions.fill(0);
            let mut case = case_of(&mut random, Formats::in_bytes(precision), shape, rows);
            case.shrink();
            let before = case.bytes().unwrap();
            case.run(1).unwrap();
            let after = case.bytes().unwrap();
            assert_ne!(after, before);
            assert_eq!(after, case.on_cpu_in_bytes(before).unwrap(), "{precision:?} {shape:?}");
        }
    }
}

/// The scales of slots after the last visible one change nothing, whatever they are.
#[test]
fn scales_after_the_last_slot_change_nothing() {
    let mut random = Random(13);
    for precision in BOTH {
        for shape in [SHAPE, WIDE[0]] {
            let mut rows = Rows::new(&mut random, 16, &[(3, 29), (2, 531)]);
            // Nobody sees the last slot of a segment.
            for (visible, reach) in rows.visible.iter_mut().zip([28, 28, 27, 530, 529]) {
                *visible = Visible::prefix(reach);
            }
            let case = case_of(&mut random, Formats::in_bytes(precision), shape, rows.clone());
            let [_, want] = case.run(1).unwrap();
            // A segment's rows write no later slot.
            for (segment, slots) in [(0, 29..32), (1, 531..544)] {
                case.poison(segment, slots);
            }
            let [_, got] = case.run(1).unwrap();
            assert!(got.iter().all(|x| x.is_finite()) && got == want, "{precision:?} {shape:?}");
        }
    }
}
