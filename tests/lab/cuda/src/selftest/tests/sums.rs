//! The sums of tensor cores.

use super::super::data::Random;
use super::super::products::unpacked;
use super::{Check, assert_all, checks_of};
use crate::TensorSums;
use kernels::device::Precision;

unsafe extern "C" {
    fn asynclane_tensor_sum(sums: u32, a: *const u16, b: *const u16, c: f32) -> f32;
}

/// Bit for bit as mmasim, see `cuda/tensor-sums.py`.
#[test]
fn sums_are_those_of_the_reference_model() {
    let (mut count, mut differ) = (0, 0);
    for line in include_str!("tensor_sums.txt").lines() {
        let words: Vec<u32> =
            line.split(' ').map(|word| u32::from_str_radix(word, 16).unwrap()).collect();
        let [a, b] =
            [0, 16].map(|first| words[first..first + 16].iter().map(|x| *x as u16).collect());
        let (a, b): (Vec<u16>, Vec<u16>) = (a, b);
        let sum = |sums: TensorSums| {
            // SAFETY: sixteen numbers each.
            let sum = unsafe {
                asynclane_tensor_sum(sums as u32, a.as_ptr(), b.as_ptr(), f32::from_bits(words[32]))
            };
            sum.to_bits()
        };
        let got = [TensorSums::Ampere, TensorSums::Hopper].map(sum);
        assert_eq!(got, words[33..35], "{line}");
        differ += usize::from(sum(TensorSums::Exact) != got[1]);
        count += 1;
    }
    assert_eq!(count, 64);
    assert!(differ > 16, "{differ} sums are truncated");
}

/// Products hold their tolerance on every model, and see the difference between them.
#[test]
fn the_tolerance_is_that_of_truncated_sums() {
    let errors = [TensorSums::Ampere, TensorSums::Hopper, TensorSums::Exact].map(|sums| {
        let device = crate::emulated_as(sums);
        let target = (&device, Precision::Bf16);
        let checks = checks_of(|tell| unpacked(&mut Random(1), target, 3, tell));
        assert_all(checks.clone());
        let product = |check: &&Check| check.name.starts_with("Bf16 product of 65x130x70");
        checks.iter().find(product).unwrap().error
    });
    assert!(errors[0] > errors[1] && errors[1] > errors[2], "{errors:?}");
}
