//! Appends numbers that several threads compute.

use crate::parallel::{self, Shared};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Numbers of one task.
const PIECE: usize = 1 << 16;

/// Appends `count` numbers to `out`, the ones of each range of `0..count` in its order. Returns true if all
/// are finite.
///
/// # Panics
/// If a range has another number of numbers.
pub fn append<I: Iterator<Item = f32>>(
    out: &mut Vec<f32>,
    count: usize,
    numbers: impl Fn(Range<usize>) -> I + Sync,
) -> bool {
    out.reserve(count);
    let slots = Shared::new(&mut out.spare_capacity_mut()[..count]);
    let finite = AtomicBool::new(true);
    parallel::for_each(count.div_ceil(PIECE), |piece| {
        let range = piece * PIECE..((piece + 1) * PIECE).min(count);
        // SAFETY: tasks own disjoint ranges.
        let slots = unsafe { slots.slice(range.start, range.len()) };
        let (mut written, mut numbers) = (0, numbers(range));
        for (slot, x) in slots.iter_mut().zip(&mut numbers) {
            slot.write(x);
            written += 1;
        }
        assert!(written == slots.len() && numbers.next().is_none(), "{written} of {}", slots.len());
        // SAFETY: written.
        let all = slots.iter().all(|x| unsafe { x.assume_init() }.is_finite());
        if !all {
            finite.store(false, Ordering::Relaxed);
        }
    });
    // SAFETY: there is room, and every task wrote its range.
    unsafe { out.set_len(out.len() + count) };
    finite.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_appended_in_their_order() {
        for count in [0, 1, PIECE, 3 * PIECE + 5] {
            let mut out = vec![7.0];
            assert!(append(&mut out, count, |range| range.map(|i| i as f32)));
            assert_eq!(out.len(), count + 1);
            assert!(out.iter().skip(1).zip(0..).all(|(x, i)| *x == i as f32) && out[0] == 7.0);
        }
        let odd = |i| if i == 2 * PIECE { f32::NAN } else { 1.0 };
        assert!(!append(&mut Vec::new(), 3 * PIECE, |range| range.map(odd)));
    }
}
