//! The compiled kernels: no register spills on any device, and the use of tensor cores.

use std::collections::{BTreeMap, BTreeSet};

/// The messages of ptxas by device and kernel.
fn resources() -> BTreeMap<(String, String), String> {
    let report = std::fs::read_to_string(env!("ASYNCLANE_CUDA_RESOURCES")).unwrap();
    let (mut at, mut all) = (None, BTreeMap::<_, String>::new());
    for line in report.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let (kernel, device) = rest.split_once("' for '").unwrap();
            at = Some((device.trim_end_matches('\'').to_owned(), kernel.to_owned()));
        }
        if let Some(at) = &at {
            all.entry(at.clone()).or_default().push_str(line);
        }
    }
    all
}

/// The PTX of every kernel by name.
fn ptx() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(env!("ASYNCLANE_CUDA_PTX")).unwrap();
    let kernels = text.split(".visible .entry ").skip(1);
    kernels
        .map(|kernel| {
            let name = kernel.split('(').next().unwrap();
            (name.to_owned(), kernel.to_owned())
        })
        .collect()
}

#[test]
fn no_kernel_spills_on_any_device() {
    let resources = resources();
    let devices: BTreeSet<&str> = resources
        .keys()
        .map(|(device, _)| device.as_str())
        .collect();
    assert_eq!(devices, BTreeSet::from(["sm_80", "sm_89", "sm_90"]));
    assert_eq!(resources.len(), 3 * ptx().len());
    for ((device, kernel), said) in &resources {
        let spills = "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads";
        assert!(said.contains(spills), "{kernel} on {device}: {said}");
    }
}

#[test]
fn attention_and_products_use_tensor_cores() {
    let with = |what: &str| -> BTreeSet<String> {
        let kernels = ptx().into_iter().filter(|(_, text)| text.contains(what));
        kernels.map(|(name, _)| name).collect()
    };
    let mut want = BTreeSet::new();
    for width in [32, 64, 128] {
        want.extend([16, 32, 64].map(|queries| format!("attend_bf16_{width}x{queries}")));
    }
    for tile in ["64x128", "128x128", "128x256"] {
        for dtype in ["bf16", "int8"] {
            want.extend(["gemm", "head"].map(|kernel| format!("{kernel}_{dtype}_{tile}")));
        }
    }
    want.extend([256, 512].map(|width| format!("attend_bf16_{width}")));
    for rows in ["few", "many"] {
        for dtype in ["bf16", "int8"] {
            want.extend(["gates", "downs"].map(|kernel| format!("{kernel}_{dtype}_{rows}")));
        }
    }
    let sums = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32";
    assert_eq!(with(sums), want);
    assert_eq!(with("cp.async.cg.shared.global"), want);
    assert_eq!(with("tf32"), BTreeSet::new());
}
