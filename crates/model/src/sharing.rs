//! Dynamic expert sharing (arXiv 2602.00879): the rows of a block choose from a common pool of
//! experts.

use std::ops::Range;

/// The choice of a block's pool of experts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ExpertSharing {
    /// DES-Vote: the share β, in `0.0..=1.0`, of all experts with the largest sums of the rows'
    /// weights; at least as many experts as a row chooses.
    Vote(f32),
    /// DES-Seq: the union of the first k experts, `>= 1`, of every row.
    Sequence(usize),
}

/// The experts of one row and their weights, best first.
pub(crate) type Chosen = Vec<(usize, f32)>;

impl ExpertSharing {
    /// True if each of `count` experts is in the pool; `rows` holds the choice of each row.
    pub(crate) fn pool(self, rows: &[Chosen], count: usize) -> Vec<bool> {
        let mut pool = vec![false; count];
        match self {
            Self::Vote(share) => {
                let mut votes = vec![0.0f32; count];
                for &(expert, weight) in rows.iter().flatten() {
                    votes[expert] += weight;
                }
                let own = rows.iter().map(Vec::len).max().unwrap_or(0);
                let size = ((share * count as f32) as usize).max(own);
                let mut order: Vec<usize> = (0..count).collect();
                order.sort_by(|&a, &b| votes[b].total_cmp(&votes[a]).then(a.cmp(&b)));
                for expert in order.into_iter().take(size) {
                    pool[expert] = true;
                }
            }
            Self::Sequence(first) => {
                for &(expert, _) in rows.iter().flat_map(|row| row.iter().take(first)) {
                    pool[expert] = true;
                }
            }
        }
        pool
    }
}

/// The runs of adjacent rows that share a pool: rows of one segment and of one block of `length`
/// positions.
pub(crate) fn runs(
    segments: impl Iterator<Item = Range<usize>>,
    positions: &[u32],
    length: u32,
) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for segment in segments {
        let mut begin = segment.start;
        for row in segment.clone().skip(1) {
            if positions[row] / length != positions[row - 1] / length {
                runs.push(begin..row);
                begin = row;
            }
        }
        if begin < segment.end {
            runs.push(begin..segment.end);
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_contains_the_experts_with_the_most_votes() {
        let rows =
            [vec![(3, 0.5), (0, 0.25)], vec![(3, 0.5), (1, 0.375)], vec![(2, 0.5), (1, 0.25)]];
        let held = |sharing: ExpertSharing| -> Vec<usize> {
            let pool = sharing.pool(&rows, 6);
            (0..6).filter(|expert| pool[*expert]).collect()
        };
        assert_eq!(held(ExpertSharing::Sequence(1)), [2, 3]);
        assert_eq!(held(ExpertSharing::Sequence(2)), [0, 1, 2, 3]);
        assert_eq!(held(ExpertSharing::Vote(0.5)), [1, 2, 3]);
        assert_eq!(held(ExpertSharing::Vote(0.0)), [1, 3], "as many as a row chooses");
        assert_eq!(held(ExpertSharing::Vote(1.0)).len(), 6);
    }

    #[test]
    fn rows_share_inside_a_segment_and_a_block() {
        let positions = [6, 7, 8, 9, 8, 9, 15, 16];
        let found = runs([0..4, 4..8].into_iter(), &positions, 8);
        assert_eq!(found, [0..2, 2..4, 4..7, 7..8]);
        let rest = runs([0..0, 3..4, 6..7].into_iter(), &positions, 8);
        assert_eq!(rest, [3..4, 6..7]);
    }
}
