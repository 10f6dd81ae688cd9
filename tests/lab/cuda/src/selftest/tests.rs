//! The self-test on the emulation, and error cases that a correct device does not show.

mod attention;
mod experts;
mod formulas;
mod graphs;
mod heads;
mod norms;
mod observed;
mod overlap;
mod products;
mod rings;
mod rows;
mod score;
mod sums;

use super::{Check, Precision, SelftestSizes, Tell, selftest};

const BOTH: [Precision; 2] = [Precision::F32, Precision::Bf16];

fn assert_all(checks: impl IntoIterator<Item = Check>) {
    for check in checks {
        assert!(check.holds(), "{check:?}");
    }
}

/// The checks that `f` makes.
fn checks_of(f: impl FnOnce(&mut Tell<'_>)) -> Vec<Check> {
    let mut checks = Vec::new();
    f(&mut Tell(&mut |check| checks.push(check)));
    checks
}

#[test]
fn the_emulation_matches_the_cpu() {
    let sizes = SelftestSizes { rows: 75, columns: 128 };
    let mut checks = Vec::new();
    selftest(&crate::emulated_small(), sizes, &mut |check| checks.push(check));
    // Rows, products, attention, LM head, experts; products in int8w and packed, experts of three more
    // kinds; integers with products, head and experts of them; large shapes in four formats.
    let large = 5 * 2 + 2 + 5;
    let int8 = 4 * 3 + 16 + 10 + 4;
    let others = 6 + 117 + 3 * 4 + int8;
    assert_eq!(checks.len(), 2 * (11 + 16 + 2 * 66 + 10 + 4 + 14) + others + 4 * large);
    for what in [
        "embedding",
        "norm",
        "copies",
        "product",
        "GeluGate product",
        "attention",
        "LM head",
        "experts",
        "mean embeddings",
        "of 65x12288x128",
    ] {
        assert!(checks.iter().any(|check| check.name.contains(what)), "{what}");
    }
    assert_all(checks);
}

/// A device without memory fails in every case, and every case is told.
#[test]
fn a_case_that_fails_is_a_check_and_the_next_goes_on() {
    let sizes = SelftestSizes { rows: 3, columns: 64 };
    let mut checks = Vec::new();
    selftest(&crate::emulated_with(64), sizes, &mut |check| checks.push(check));
    assert!(checks.iter().all(|check| !check.holds()));
    for what in ["copies", "product", "attention", "LM head", "experts", "large product"] {
        let named = |check: &&Check| check.name.starts_with(what);
        let check = checks.iter().find(named).unwrap();
        assert!(check.name.contains("bytes of device memory, "), "{}", check.name);
    }
}
