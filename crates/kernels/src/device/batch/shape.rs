//! The shape of a batch: the numbers that determine its launches, rounded up so that few shapes cover all
//! batches.

/// Minimum slots of the rounded-up context of a padded batch.
const FEWEST_SLOTS: usize = 512;
/// Paddings up to which the number of scored rows doubles.
const MOST_DOUBLED: usize = 8;

/// The sizes that determine the kernels, grids and addresses of a batch's launches. Batches of the
/// same shape have the same launches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BatchShape {
    /// Number of rows with padding.
    pub rows: usize,
    /// Number of scored rows with padding.
    pub scored: usize,
    /// Number of attention tiles with padding.
    pub tiles: usize,
    /// The first slot after all that any row sees.
    pub reach: usize,
    /// Maximum rows of a tile, rounded up in a padded batch.
    pub tallest: usize,
    /// Rows are padded to a multiple of this.
    pub pad: usize,
    /// True if a scored row has a filter or wants its most probable tokens.
    pub filtered: bool,
    /// True if a row is denoised.
    pub denoised: bool,
    /// True if a row has a mean embedding.
    pub conditioned: bool,
}

impl BatchShape {
    /// Rows with padding: the heights of a product's tiles, which are computed anyway. They are
    /// multiples of `pad`, above two of them multiples of two, so that few shapes cover all batches.
    pub fn rows(rows: usize, pad: usize) -> usize {
        let pad = pad.max(1);
        match rows > 2 * pad && pad > 1 {
            true => rows.next_multiple_of(2 * pad),
            false => rows.next_multiple_of(pad),
        }
    }

    /// Scored rows with padding, of a batch with this padded number of rows: doubling steps, then
    /// steps as of rows.
    pub(super) fn scored(scored: usize, rows: usize, pad: usize) -> usize {
        if pad <= 1 || scored == 0 {
            return scored;
        }
        let steps = scored.div_ceil(pad);
        let padded = match steps <= MOST_DOUBLED {
            true => pad * steps.next_power_of_two(),
            false => Self::rows(scored, pad),
        };
        padded.min(rows)
    }

    /// Tiles with idle ones: a power of four.
    pub(super) fn tiles(tiles: usize) -> usize {
        let power = tiles.max(1).next_power_of_two();
        match power.trailing_zeros() % 2 {
            0 => power,
            _ => power.saturating_mul(2),
        }
    }

    /// The longest context of a padded batch, rounded up.
    pub fn context(reach: usize) -> usize {
        reach.max(FEWEST_SLOTS).next_power_of_two()
    }
}

#[cfg(test)]
mod tests {
    use super::BatchShape;
    use std::collections::BTreeSet;

    const PAD: usize = 64;

    /// Padding never shrinks a number, keeps their order, and changes no padded number.
    #[test]
    fn padding_rounds_up() {
        let (mut rows_before, mut tiles_before) = (0, 0);
        for count in 0..3000 {
            let (rows, tiles) = (BatchShape::rows(count, PAD), BatchShape::tiles(count));
            assert!(rows >= count && rows >= rows_before && rows.is_multiple_of(PAD));
            assert!(rows < count + 2 * PAD);
            assert_eq!(BatchShape::rows(rows, PAD), rows);
            assert!(tiles >= count && tiles >= tiles_before && tiles < 4 * count.max(1));
            assert_eq!(BatchShape::tiles(tiles), tiles);
            (rows_before, tiles_before) = (rows, tiles);
            let mut scored_before = 0;
            for scored in (0..=count).step_by(7) {
                let padded = BatchShape::scored(scored, rows, PAD);
                assert!((scored..=rows).contains(&padded) && padded >= scored_before);
                assert_eq!(BatchShape::scored(padded, rows, PAD), padded);
                scored_before = padded;
            }
            assert_eq!(
                (BatchShape::rows(count, 1), BatchShape::scored(count, count, 1)),
                (count, count)
            );
        }
    }

    /// All batches of up to 512 rows and 4,096 slots, in tiles of 16 rows at most.
    #[test]
    fn few_shapes_cover_all_batches() {
        let mut shapes = BTreeSet::new();
        for count in 1..=512_usize {
            let rows = BatchShape::rows(count, PAD);
            for scored in 0..=count {
                let scored = BatchShape::scored(scored, rows, PAD);
                for tiles in [count.div_ceil(16), count.div_ceil(4), count] {
                    for reach in [1, 512, 513, 1024, 2048, 4096] {
                        let reach = BatchShape::context(reach);
                        shapes.insert((rows, scored, BatchShape::tiles(tiles), reach));
                    }
                }
            }
        }
        let products: BTreeSet<_> = shapes.iter().map(|shape| (shape.0, shape.1)).collect();
        assert_eq!(products.len(), 19);
        assert!(shapes.len() < 260, "{}", shapes.len());
    }
}
