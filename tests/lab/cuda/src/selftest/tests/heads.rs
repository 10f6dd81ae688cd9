//! The product of queries, keys and values that also splits them.

use super::super::FORMATS;
use super::assert_all;
use kernels::KvDtype;
use kernels::device::{
    Device, DeviceLimits, HeadCase, HeadColumns, MatrixFormat, ProductLaunch, ProductSizes,
};
use model::{Geometry, HeadSizes};
use std::collections::BTreeSet;

/// Cases with heads of every geometry, from one row to 1,024; of many rows with few heads.
fn cases() -> Vec<HeadCase> {
    let formats = FORMATS.into_iter().filter(|format| *format != MatrixFormat::F32);
    let mut formats = formats.filter(|format| !is_fine(*format)).cycle();
    let mut cases = Vec::new();
    for geometry in Geometry::ALL {
        let info = geometry.info().unwrap();
        let full = info.canvas.map(|canvas| canvas.full_heads);
        for HeadSizes { num_heads, num_kv_heads, head_width, .. } in
            [info.heads].into_iter().chain(full)
        {
            let width = (num_heads + 2 * num_kv_heads) * head_width;
            // Many heads are cut to as many as some tiles have.
            let most = if width < 1000 { num_heads } else { 6 };
            let heads = [num_heads, num_kv_heads].map(|heads| heads.min(most));
            let mut rows = if width < 1000 { vec![1, 65, 127, 130] } else { vec![1, 33, 70] };
            // The most rows of a step, of the first narrow heads.
            let first = cases.iter().all(|case: &HeadCase| case.rows < 1024);
            rows.extend((width < 1000 && first).then_some(1024));
            for (number, rows) in rows.iter().enumerate() {
                let all = [KvDtype::Bf16, KvDtype::Int8];
                let both = width < 1000 && *rows < 1024;
                let some = if both { &all[..] } else { &all[number % 2..][..1] };
                for kv in some {
                    cases.push(HeadCase {
                        format: formats.next().unwrap(),
                        kv: *kv,
                        heads,
                        widths: [head_width, head_width / [1, 2][number % 2]],
                        normed: [number % 3 > 0, number % 3 > 1],
                        rows: *rows,
                        k: if width < 1000 { 576 } else { 64 },
                    });
                }
            }
        }
    }
    cases
}

/// True for forms without blocks of their own here.
fn is_fine(format: MatrixFormat) -> bool {
    let other = [kernels::Form::Four, kernels::Form::Eight];
    matches!(format, MatrixFormat::Packed(form) if !other.contains(&form))
}

#[test]
fn heads_of_a_product_have_the_bits_of_those_split_alone() {
    let device = crate::emulated_small();
    let mut names = BTreeSet::new();
    for case in cases() {
        let checks = case.checks(&device).unwrap();
        // No tile holds a wider head in every format.
        assert!(!checks.is_empty() || case.widths[0] > 128, "{case:?}");
        names.extend(
            checks.iter().filter_map(|check| check.name.split(',').next().map(str::to_owned)),
        );
        assert_all(checks);
    }
    let all = kernels::device::kernels().filter(|kernel| kernel.name.starts_with("qkv"));
    assert_eq!(names, all.map(|kernel| kernel.name.to_owned()).collect());
}

/// Heads that no tile can hold have no launch; a device whose kernels are not fused has none either.
#[test]
fn heads_that_do_not_fit_a_tile_are_split_alone() {
    let sizes = |format| ProductSizes { rows: 64, n: 12_288, k: 4096, format };
    let limits = DeviceLimits::H200;
    let heads = |width| HeadColumns { width, cut: false };
    let launch = |format, width| ProductLaunch::fused(sizes(format), limits, heads(width));
    assert!(launch(MatrixFormat::Bf16, 128).is_some());
    assert!(launch(MatrixFormat::Bf16, 96).is_none());
    assert!(launch(MatrixFormat::Bf16, 512).is_none());
    assert!(launch(MatrixFormat::F32, 128).is_none());
    let separate = DeviceLimits { fused: false, ..limits };
    assert!(ProductLaunch::fused(sizes(MatrixFormat::Bf16), separate, heads(128)).is_none());
    assert!(!Device::counting().with_fused(false).limits().fused);
}
