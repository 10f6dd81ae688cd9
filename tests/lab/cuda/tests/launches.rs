//! The choice of launches, compared with times measured on a card.

use asynclane_kernels::device::{
    DeviceLimits, Division, MatrixFormat, ProductLaunch, ProductSizes,
};
use serde_json::Value;
use std::collections::BTreeMap;

/// The times measured on an H200 by kernel, division and sizes: of all launches, the chosen ones
/// are nearly the fastest.
#[test]
fn the_chosen_launches_are_nearly_the_fastest_measured() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../records/h200/launches.json");
    let found: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let number = |value: &Value, key: &str| value[key].as_u64().unwrap() as usize;
    let mut products: BTreeMap<_, Vec<&Value>> = BTreeMap::new();
    for one in found["launches"].as_array().unwrap() {
        let is_int8w = one["kernel"].as_str().unwrap().contains("int8w");
        let [rows, n, k] = ["rows", "n", "k"].map(|key| number(one, key));
        products.entry((is_int8w, rows, n, k)).or_default().push(one);
    }
    assert_eq!(products.len(), 48);
    let (mut chosen, mut least, mut unmeasured) = (0.0, 0.0, 0);
    for ((is_int8w, rows, n, k), all) in products {
        let format = if is_int8w { MatrixFormat::Int8w } else { MatrixFormat::Bf16 };
        let sizes = ProductSizes { rows, n, k, format };
        let launch = ProductLaunch::choose(sizes, DeviceLimits::default(), Division::Divided);
        let (kernel, whole) = (launch.tile.gemm, launch.whole.min(launch.tiles()));
        let same = |one: &&&Value| {
            one["kernel"] == kernel
                && number(one, "whole") == whole
                && number(one, "lead") == launch.lead
        };
        let us = |one: &Value| one["us"].as_f64().unwrap();
        let Some(found) = all.iter().find(same) else {
            unmeasured += 1;
            continue;
        };
        chosen += us(found);
        least += all.iter().map(|one| us(one)).fold(f64::INFINITY, f64::min);
    }
    assert_eq!(unmeasured, 0);
    assert!(chosen < 1.03 * least, "{chosen} of {least} us");
}
