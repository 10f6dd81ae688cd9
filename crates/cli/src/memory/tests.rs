//! Refusals of a model that does not fit, and what a system says is free.

use std::path::{Path, PathBuf};

use super::linux::available;
use super::*;

const GIB: u64 = 1 << 30;

/// 32, 16, 9 and 5 GiB of weights by dtype, 2 GiB more while they are packed; a model whose rows do
/// not suit int4 without the last.
fn needs(dtype: WeightDtype, kv: u64) -> Needs {
    let need = |gib: u64| {
        let memory = Memory { weights: gib * GIB, loading: (gib + 2) * GIB };
        Need { memory, kv }
    };
    let sizes = WeightDtype::ALL.into_iter().zip([32, 16, 9, 5]);
    let own = sizes.clone().find(|(other, _)| *other == dtype);
    Needs {
        dtype,
        own: need(own.map_or(6, |(_, gib)| gib)),
        others: [32, 16, 9, 5].map(|gib| Some(need(gib))),
    }
}

#[test]
fn what_fits_is_not_refused() {
    assert_eq!(needs(WeightDtype::Bf16, GIB).refusal(18 * GIB), None);
    assert_eq!(needs(WeightDtype::Bf16, 4 * GIB).refusal(20 * GIB), None);
}

#[test]
fn a_refusal_names_the_most_exact_dtype_that_fits() {
    let refusal = |dtype, kv, free| needs(dtype, kv * GIB).refusal(free).unwrap();
    assert_eq!(
        refusal(WeightDtype::Bf16, 4, 14 * GIB + GIB / 5),
        "needs 20.0 GiB (16.0 GiB of weights in bf16, 4.0 GiB of KV pages), 14.2 GiB free: \
         try --dtype int8, which needs 13.0 GiB"
    );
    assert_eq!(
        refusal(WeightDtype::F32, 1, 20 * GIB),
        "needs 34.0 GiB (to load it in f32), 20.0 GiB free: try --dtype bf16, which needs 18.0 GiB"
    );
    let least = refusal(WeightDtype::Int8, 5, 12 * GIB);
    assert!(least.ends_with("try --dtype int4, which needs 10.0 GiB"), "{least}");
    let mut odd = needs(WeightDtype::Int8, 8 * GIB);
    odd.others[3] = None;
    let less = odd.refusal(12 * GIB).unwrap();
    assert!(less.ends_with("12.0 GiB free: try --kv-memory 3072MiB"), "{less}");
    let blocks = refusal(WeightDtype::Blocks, 4, 9 * GIB);
    assert_eq!(
        blocks,
        "needs 10.0 GiB (6.0 GiB of weights in blocks, 4.0 GiB of KV pages), 9.0 GiB free: try \
         --dtype int4, which needs 9.0 GiB"
    );
    let none = refusal(WeightDtype::Int8, 8, GIB / 2);
    assert!(none.ends_with("512 MiB free: no dtype fits"), "{none}");
}

/// A system's files under a folder of this test.
fn system(test: &str, files: &[(&str, &str)]) -> PathBuf {
    let name = format!("asynclane-memory-{test}-{}", std::process::id());
    let root = std::env::temp_dir().join(name);
    let meminfo = ("proc/meminfo", "MemTotal: 8000 kB\nMemAvailable:    4000 kB\n");
    for (path, text) in files.iter().chain([&meminfo]) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    root
}

fn free(test: &str, files: &[(&str, &str)]) -> Option<u64> {
    let root = system(test, files);
    let free = available(&root);
    std::fs::remove_dir_all(root).unwrap();
    free
}

#[test]
fn control_groups_leave_less_than_the_system_has() {
    assert_eq!(free("plain", &[]), Some(4000 << 10));
    let group = ("proc/self/cgroup", "0::/a/b\n");
    let unbound = [group, ("sys/fs/cgroup/a/b/memory.max", "max\n")];
    assert_eq!(free("unbound", &unbound), Some(4000 << 10));
    let around = [
        group,
        ("sys/fs/cgroup/a/memory.max", "100000\n"),
        ("sys/fs/cgroup/a/memory.current", "60000\n"),
        ("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 20000\n"),
    ];
    assert_eq!(free("around", &around), Some(60_000));
    let container = [
        ("proc/self/cgroup", "4:cpu,memory:/docker/x\n0::/\n"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "1000\n"),
        ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1200\n"),
        ("sys/fs/cgroup/memory/memory.stat", "inactive_file 7\ntotal_inactive_file 500\n"),
    ];
    assert_eq!(free("container", &container), Some(300));
    assert_eq!(available(Path::new("/no such folder")), None);
}

#[test]
fn sizes_for_people() {
    assert_eq!(size(12 * GIB + GIB / 10), "12.1 GiB");
    assert_eq!(size(512 << 20), "512 MiB");
    assert_eq!(size(3 << 19), "1.5 MiB");
}
