//! The settings of rows with results in addition to their candidates.

use crate::score::ScorerRow;
use step::Sampling;

/// Most probable tokens of a row at most; `MOST_TOPS` of the kernels.
pub(in crate::device) const MOST_TOPS: usize = 256;
/// Bits of the additional results of a row; `RowExtras` of the kernels.
const FILTERED: u32 = 1;
const LISTED: u32 = 2;

/// The additional results of a row.
pub(super) fn extras(row: &ScorerRow, draw: &Sampling) -> u32 {
    let filters = draw.top_p < 1.0 || draw.min_p > 0.0 || draw.top_k > 0;
    let filtered = draw.temperature > 0.0 && filters;
    (u32::from(filtered) * FILTERED) | (u32::from(row.tops > 0) * LISTED)
}

/// The last words of a scored row's settings.
pub(super) fn words(row: &ScorerRow, draw: &Sampling, first_top: u32) -> [u32; 7] {
    let least = match draw.min_p > 0.0 {
        true => f64::from(draw.min_p).ln().to_bits(),
        false => f64::NEG_INFINITY.to_bits(),
    };
    [
        extras(row, draw),
        draw.top_k,
        draw.top_p.to_bits(),
        least as u32,
        (least >> 32) as u32,
        row.tops,
        first_top,
    ]
}
