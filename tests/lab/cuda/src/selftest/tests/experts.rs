//! Experts: the tiles of a device change no bit.

use super::super::data::Random;
use super::super::experts;
use kernels::device::Precision;

/// Tiles of warpgroups have the bits of those of warps, for few and for many rows of every expert.
#[test]
fn warpgroups_have_the_bits_of_warps() {
    let (groups, warps) = (crate::emulated_small(), crate::emulated_warps());
    let mut random = Random(41);
    for precision in [Precision::Bf16, Precision::Int8] {
        let all = experts::pairs(&mut random, [&groups, &warps], precision).unwrap();
        for (number, [one, other]) in all.iter().enumerate() {
            assert!(one == other, "{precision:?} {number}");
            assert!(one.iter().any(|x| *x != 0.0));
        }
    }
}
