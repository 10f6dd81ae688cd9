//! Refused batches and ranges.

use super::super::data::{LIMITS, NO_CANVAS, NOTHING, copy, plain};
use crate::Result;
use kernels::Visible;
use kernels::device::{
    Array, BatchArrays, BatchLimits, Buffer, CanvasRows, DeviceBatch, Precision, RowNorm, RowSet,
    norm,
};
use std::ops::Range;
use step::{PageId, Sampling, Segment};

/// Only rows listed in the batch can be gathered.
#[test]
fn a_range_beyond_the_named_rows_is_refused() {
    let device = crate::emulated_small();
    let x = Array::new(&device, Precision::F32, 6, 8).unwrap();
    let out = Array::padded(&device, Precision::F32, 6, 8).unwrap();
    let weight = Buffer::floats(&device, &[1.0; 8]).unwrap();
    let batch = plain(&device, &[0; 6], &[1, 4, 5], &[]).unwrap();
    let row_norm = RowNorm { weight: &weight, eps: 1e-5 };
    let run = |row_set| norm(&x, &row_set, &batch, row_norm, &out);
    assert!(run(RowSet::Scored(1..3)).is_ok());
    assert!(run(RowSet::Scored(1..4)).is_err());
    assert!(run(RowSet::First(7)).is_err());
}

const SAMPLING: Sampling = Sampling::GREEDY;
const LOW_LIMITS: BatchLimits =
    BatchLimits { tokens: 3, positions: 3, pages: 2, page: 4, ..LIMITS };
static SEGMENTS: [Segment; 1] = [segment(0..2, 0..1)];
const GOOD: BatchArrays<'static> = BatchArrays {
    tokens: &[0; 2],
    positions: &[0; 2],
    slots: &[0; 2],
    visible: &[Visible::prefix(0); 2],
    pages: &[PageId(0)],
    ..NOTHING
};

const fn segment(rows: Range<u32>, pages: Range<u32>) -> Segment {
    let sampling = SAMPLING;
    Segment { rows, pages, sampling }
}

/// A batch of two rows within [`LOW_LIMITS`].
fn good() -> BatchArrays<'static> {
    BatchArrays { segments: &SEGMENTS, ..GOOD }
}

fn sent(arrays: &BatchArrays<'_>) -> Result<()> {
    DeviceBatch::default().upload(&crate::emulated_small(), arrays, &LOW_LIMITS)
}

#[test]
fn a_batch_that_indexes_beyond_a_limit_is_refused() {
    let arrays = good();
    assert_eq!(sent(&arrays), Ok(()));
    let bad = [
        BatchArrays { tokens: &[0, 3], ..arrays },
        BatchArrays { positions: &[0, 3], ..arrays },
        BatchArrays { positions: &[0], ..arrays },
        BatchArrays { slots: &[8, 0], ..arrays },
        BatchArrays { visible: &[Visible::prefix(5), Visible::default()], ..arrays },
        BatchArrays { pages: &[PageId(2)], ..arrays },
        BatchArrays { copies: &[copy(0, 2)], ..arrays },
        BatchArrays { scored: &[1], ..arrays },
        BatchArrays { segments: &[segment(0..1, 0..1)], ..arrays },
        BatchArrays { segments: &[segment(0..2, 0..2)], ..arrays },
    ];
    for (i, bad) in bad.iter().enumerate() {
        assert!(sent(bad).is_err(), "{i}");
    }
}

#[test]
fn rows_of_a_canvas_beyond_the_batch_are_refused() {
    let arrays = good();
    let rows = CanvasRows {
        windowed: &[Visible::default(); 2],
        denoised: &[0, 1],
        conditioned: &[1],
        ..NO_CANVAS
    };
    let with = |rows| sent(&BatchArrays { canvas: Some(rows), ..arrays });
    assert_eq!(with(rows), Ok(()));
    let bad = [
        CanvasRows { windowed: &[Visible::default()], ..rows },
        CanvasRows { windowed: &[Visible::prefix(5), Visible::default()], ..rows },
        CanvasRows { denoised: &[2], ..rows },
        CanvasRows { conditioned: &[2], ..rows },
        CanvasRows { scales: &[1.0], ..rows },
    ];
    for (i, bad) in bad.into_iter().enumerate() {
        assert!(with(bad).is_err(), "canvas {i}");
    }
}
