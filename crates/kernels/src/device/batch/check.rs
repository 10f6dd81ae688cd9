//! The checks of a batch before its upload: a kernel reads only what exists.

use super::{BatchArrays, BatchLimits, MOST_TOPS};
use crate::attention::Visible;
use crate::device::{Result, refuse};

/// Checks that all indices are in bounds.
pub(super) fn check(arrays: &BatchArrays<'_>, limits: &BatchLimits) -> Result<()> {
    let rows = arrays.tokens.len();
    let lengths = [arrays.positions, arrays.slots].map(<[u32]>::len);
    let lengths = (lengths, arrays.visible.len());
    if lengths != ([rows; 2], rows) || arrays.scored.len() != arrays.scorers.len() {
        return refuse(format!("arrays of {lengths:?} entries for {rows} rows"));
    }
    let pages = arrays.copies.iter().flat_map(|copy| [copy.source, copy.destination]);
    let pages = pages.chain(arrays.pages.iter().copied());
    below("page", pages.map(|page| page.0), limits.pages)?;
    below("token", arrays.tokens.iter().copied(), limits.tokens)?;
    below("position", arrays.positions.iter().copied(), limits.positions)?;
    below("slot", arrays.slots.iter().copied(), limits.pages * limits.page)?;
    below("scored row", arrays.scored.iter().copied(), rows)?;
    if let Some(canvas) = &arrays.canvas {
        if (canvas.windowed.len(), canvas.scales.len()) != (rows, arrays.scored.len()) {
            return refuse(format!("{} windows for {rows} rows", canvas.windowed.len()));
        }
        let listed = canvas.denoised.iter().chain(canvas.conditioned);
        below("denoised row", listed.copied(), rows)?;
    }
    below("token", arrays.biases.iter().map(|bias| bias.token), limits.vocab)?;
    let words = limits.vocab.div_ceil(32).max(1);
    if !arrays.allowed.len().is_multiple_of(words) {
        return refuse(format!(
            "{} words of allowed sets, expected a multiple of {words}",
            arrays.allowed.len()
        ));
    }
    let sets = arrays.allowed.len() / words;
    for row in arrays.scorers {
        let biases = row.biases.start as usize..row.biases.end as usize;
        let known = arrays.biases.get(biases).is_some()
            && row.allowed.into_iter().chain(row.among).all(|set| (set as usize) < sets)
            && (row.segment as usize) < arrays.segments.len();
        if !known {
            return refuse("a scored row's biases, segment or allowed set are out of range");
        }
        let most = MOST_TOPS.min(limits.vocab.saturating_sub(1));
        if row.tops as usize > most {
            return refuse(format!("{} most probable tokens of {most}", row.tops));
        }
    }
    check_segments(arrays, arrays.visible, limits)?;
    match &arrays.canvas {
        Some(canvas) => check_segments(arrays, canvas.windowed, limits),
        None => Ok(()),
    }
}

/// Checks that the segments cover the rows, and that their pages hold what a row sees.
fn check_segments(
    arrays: &BatchArrays<'_>,
    visible: &[Visible],
    limits: &BatchLimits,
) -> Result<()> {
    let rows = arrays.tokens.len();
    let mut next = 0;
    for segment in arrays.segments {
        let (start, end) = (segment.rows.start as usize, segment.rows.end as usize);
        let table = segment.pages.start as usize..segment.pages.end as usize;
        let (Some(visible), Some(table)) = (visible.get(start..end), arrays.pages.get(table))
        else {
            return refuse("a segment's rows or pages are out of range");
        };
        if start != next || visible.iter().any(|row| row.reach() > table.len() * limits.page) {
            return refuse(
                "segments are not contiguous, or a row sees more slots than its pages have",
            );
        }
        next = end;
    }
    match next == rows {
        true => Ok(()),
        false => refuse(format!("segments end at row {next} of {rows}")),
    }
}

fn below(what: &str, mut numbers: impl Iterator<Item = u32>, limit: usize) -> Result<()> {
    match numbers.find(|&number| number as usize >= limit) {
        Some(number) => refuse(format!("{what} {number} of {limit}")),
        None => Ok(()),
    }
}
