//! Finds the largest logits of a row with the maxima of its blocks.

use crate::simd::{Kernel, Simd, dispatch};

/// Number of logits per stored maximum, so that repeated searches read few logits.
const BLOCK: usize = 256;

/// The largest logit of each block of a row.
#[derive(Default)]
pub(super) struct Maxima(Vec<f32>);

impl Maxima {
    /// Computes the maxima of the row `x`.
    pub(super) fn fill(&mut self, x: &[f32]) {
        self.0.clear();
        self.0.extend(x.chunks(BLOCK).map(|block| dispatch(Largest(block))));
    }

    /// Recomputes the maximum of the block of `index`, whose logit has changed.
    pub(super) fn update(&mut self, x: &[f32], index: usize) {
        let block = index / BLOCK;
        self.0[block] = dispatch(Largest(&x[range(block, x)]));
    }

    /// The first index of the largest logit of `x`, except the indices in `avoid`.
    pub(super) fn first_largest(&self, x: &[f32], avoid: [usize; 2]) -> usize {
        let largest = self.0.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let blocks = self.0.iter().enumerate();
        blocks
            .filter(|&(_, &max)| max == largest)
            .flat_map(|(block, _)| range(block, x))
            .find(|&i| x[i] == largest && !avoid.contains(&i))
            .unwrap_or(0)
    }

    /// Appends the indices and values of the `count` largest finite logits of `x` in descending
    /// order; ties by ascending index.
    pub(super) fn largest(&self, x: &[f32], count: usize, found: &mut Vec<(u32, f32)>) {
        let start = found.len();
        // A logit must exceed this to be among the largest; later indices lose ties.
        let mut least = f32::NEG_INFINITY;
        if count == 0 {
            return;
        }
        for (block, &max) in self.0.iter().enumerate() {
            if max <= least {
                continue;
            }
            for i in range(block, x) {
                if x[i] <= least {
                    continue;
                }
                if found.len() - start == count {
                    found.pop();
                }
                let index = start + found[start..].partition_point(|&(_, other)| other >= x[i]);
                found.insert(index, (i as u32, x[i]));
                if found.len() - start == count {
                    least = found[found.len() - 1].1;
                }
            }
        }
    }
}

/// Indices of a block of the row `x`.
fn range(block: usize, x: &[f32]) -> std::ops::Range<usize> {
    block * BLOCK..((block + 1) * BLOCK).min(x.len())
}

/// The largest of some logits; minus infinity if there are none.
struct Largest<'a>(&'a [f32]);

impl Kernel for Largest<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let mut largest = s.splat(f32::NEG_INFINITY);
        let (vectors, tail) = self.0.split_at(self.0.len() / S::LANES * S::LANES);
        for i in (0..vectors.len()).step_by(S::LANES) {
            // SAFETY: i + LANES <= vectors.len().
            largest = s.max(largest, unsafe { s.load(vectors.as_ptr().add(i)) });
        }
        tail.iter().copied().fold(s.largest(largest), f32::max)
    }
}
