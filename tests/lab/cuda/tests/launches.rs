//! The choice of launches, compared with times measured on a card.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use asynclane_kernels::device::{
    AttentionWork, DeviceLimits, Division, MatrixFormat, ProductLaunch, ProductSizes, Roofline,
};
use serde_json::Value;
use std::collections::BTreeMap;

/// The times measured on an H200.
fn found() -> Value {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../records/h200/launches.json");
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

/// The times measured on an H200 by kernel, division and sizes: of all launches, the chosen ones
/// are nearly the fastest.
#[test]
fn the_chosen_launches_are_nearly_the_fastest_measured() {
    let found = found();
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
        let (kernel, whole) = (launch.tile.names.gemm, launch.whole.min(launch.tiles()));
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

/// Attention, without the combination of its parts, takes the measured times within a fifth. Sequences of 32
/// rows see 1,024 slots; contexts of the least step were divided into segments, the others into partitions.
#[test]
fn attention_takes_the_measured_times() {
    let roofline = Roofline::of(DeviceLimits::H200);
    let found = found();
    let steps = found["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 12);
    for step in steps {
        let rows = step["rows"].as_u64().unwrap() as usize;
        let (heads, width, layers) = (32, 128, 32);
        let (parts, chunks) = if rows == 32 { (8, 2) } else { (2, 8) };
        let work = AttentionWork {
            blocks: rows / 32 * heads * parts,
            chunks,
            chunk_bytes: 2 * 64 * width * 2,
            parts: 1,
            partial_bytes: 0,
        };
        let kernels = step["kernels"].as_array().unwrap().iter();
        let ours = kernels.filter(|one| one["kernel"].as_str().unwrap().starts_with("attend"));
        let measured: f64 = ours.map(|one| one["measured_ms"].as_f64().unwrap()).sum();
        let estimate = layers as f64 * roofline.attention_seconds(&work) * 1e3;
        let ratio = estimate / measured;
        assert!((0.8..1.2).contains(&ratio), "{rows} rows: {estimate} of {measured} ms");
    }
}
