//! The self-test on the emulation, and error cases that a correct device does not show.

mod attention;
mod graphs;
mod observed;
mod products;
mod rows;
mod score;
mod sums;

use super::{Check, Precision, selftest};
use crate::device::Device;

const BOTH: [Precision; 2] = [Precision::F32, Precision::Bf16];

fn assert_all(checks: impl IntoIterator<Item = Check>) {
    for check in checks {
        assert!(check.holds(), "{check:?}");
    }
}

#[test]
fn the_emulation_matches_the_cpu() {
    let checks = selftest(&Device::emulated(), 75).unwrap();
    assert_eq!(checks.len(), 2 * (1 + 9 + 13 + 40 + 10 + 4) + 6);
    for what in [
        "embedding",
        "norm",
        "copies",
        "product",
        "attention",
        "LM head",
        "experts",
    ] {
        assert!(
            checks.iter().any(|check| check.name.contains(what)),
            "{what}"
        );
    }
    assert_all(checks);
}

#[test]
fn the_largest_error_counts_and_nan_fails() {
    let check = |got: &[f32]| Check::new(String::new(), got, &[1.0, -4.0], 0.1);
    assert!(check(&[1.2, -4.0]).holds());
    assert!((check(&[1.2, -5.0]).error - 0.25).abs() < 1e-6);
    for wrong in [
        &[1.0, -5.0][..],
        &[f32::NAN, -4.0],
        &[1.0],
        &[1.0, f32::INFINITY],
    ] {
        assert!(!check(wrong).holds(), "{wrong:?}");
    }
}
