//! The kernels' accesses to memory, as the emulation observes them.

use super::super::attention::{Case, Formats, SHAPE, Shape, WIDE};
use super::super::data::{Ends, Random, Rows, poisoned};
use super::super::products::{Layer, Sizes, inner};
use super::super::score::HEADS;
use super::super::{FORMATS, canvas, experts, rows, score, tiles_of};
use super::{BOTH, assert_all, checks_of};
use crate::Observation;
use kernels::device::Store;
use kernels::device::{
    Buffer, Device, HeadCase, Kernel, MapRows, MatrixFormat, NormCase, Precision, ProductTile,
    TensorMap, host_map, kernels,
};
use kernels::device::{Division, ProductLaunch};
use kernels::{Epilogue, Form, KvDtype};
use std::collections::BTreeSet;

/// The kernel of `faulty.cu`.
pub(super) const FAULTY: Kernel =
    Kernel { name: "faulty", threads: 64, shared: 8 << 10, warpgroups: false, bulk: false };

#[repr(C)]
struct Faulty {
    x: u64,
    fault: u32,
}

/// The arguments of a fault with `x` [128].
pub(super) fn faulty_args(x: &Buffer, fault: u32) -> [u8; size_of::<Faulty>()] {
    let mut args = [0; size_of::<Faulty>()];
    args[..8].copy_from_slice(&x.range(0, 4 * 128).unwrap().to_ne_bytes());
    args[8..12].copy_from_slice(&fault.to_ne_bytes());
    args
}

/// Runs a fault on two blocks.
fn faulty(fault: u32) -> Observation {
    let (device, observations) = crate::observed();
    let x = Buffer::floats(&device, &[1.0; 128]).unwrap();
    let args = faulty_args(&x, fault);
    // SAFETY: the faults stay within memory of the host.
    unsafe { device.driver().launch(FAULTY, [2, 1, 1], &args) }.unwrap();
    observations.take().remove(0)
}

#[test]
fn every_fault_is_found_and_named() {
    assert_eq!(faulty(0).failures(), (0, String::new()));
    // The thread that comes first depends on the order of warps and of asynchronous copies.
    for (fault, parts) in [
        (1, ["reads shared byte ", ", which nothing was written to"]),
        (2, ["reads shared byte ", "wrote, without a barrier"]),
        (3, [" shared byte ", ", without a barrier"]),
        (4, ["reads shared byte ", " before the copy of thread "]),
        (5, ["reads shared byte ", ", which nothing was written to"]),
        (6, ["reads shared byte ", " before the copy of thread "]),
        (7, ["reads shared byte ", ", which nothing was written to"]),
        (8, ["writes byte ", " of an allocation, which another block uses"]),
        (9, ["reads an address ", "outside of every allocation"]),
        (10, ["writes an address ", "outside of every allocation"]),
    ] {
        let (count, text) = faulty(fault).failures();
        assert!(count >= 64, "{fault}: {count}");
        assert!(text.starts_with("faulty, block ("), "{text}");
        assert!(text.contains(": thread "), "{text}");
        for part in parts {
            assert!(text.contains(part), "{fault}: {text}");
        }
    }
}

/// An access that a launch makes too early is found, whichever access comes first.
#[test]
fn every_fault_beside_the_launches_before_is_found_and_named() {
    for (fault, what) in [
        (12, "ends without a wait for the launches before"),
        (13, " of an allocation before its wait, which faulty writes"),
        (14, " of an allocation before its wait for the launches before"),
        (15, " of an allocation, which faulty reads as a constant"),
    ] {
        let (count, text) = faulty(fault).failures();
        assert!(count > 0 && text.starts_with("faulty, block ("), "{fault}: {text}");
        assert!(text.contains(what), "{fault}: {text}");
    }
}

#[repr(C)]
struct FaultyRing {
    x: TensorMap,
    out: u64,
    fault: u32,
    pad: u32,
}

/// Runs a fault of a cluster as often as there are orders of bulk copies and of warps, and gives what is found.
fn faulty_ring(fault: u32) -> Vec<(u64, String)> {
    let (device, observations) = crate::observed();
    let numbers = vec![1.0; 192 * 32];
    let [x, out] = [&numbers[..], &[0.0; 128]].map(|some| Buffer::floats(&device, some).unwrap());
    let [address, out] = [&x, &out].map(|buffer| buffer.range(0, 16).unwrap());
    let x = host_map(MapRows { address, rows: 192, inner: 64 });
    let args = FaultyRing { x, out, fault, pad: 0 };
    // SAFETY: plain numbers without padding.
    let bytes: [u8; size_of::<FaultyRing>()] = unsafe { std::mem::transmute(args) };
    let kernel = Kernel { name: "faulty_ring", threads: 96, shared: 9 << 10, ..FAULTY };
    for _ in 0..12 {
        // SAFETY: the faults stay within memory of the host.
        unsafe { device.driver().launch(kernel, [2, 1, 1], &bytes) }.unwrap();
    }
    observations.take().iter().map(Observation::failures).collect()
}

#[test]
fn every_fault_of_a_ring_is_found_whenever_copies_complete() {
    assert!(faulty_ring(0).iter().all(|found| *found == (0, String::new())));
    let waits = "waits forever for the barrier at shared byte ";
    for (fault, parts) in [
        // A stage is overwritten before two warps, or two blocks, have used it up.
        (1, &[" shared byte "][..]),
        (2, &[" shared byte "]),
        (3, &["reads shared byte "]),
        (4, &[" shared byte "]),
        (5, &[waits]),
        (6, &["uses a barrier of block ", "which has ended"]),
    ] {
        for (count, text) in faulty_ring(fault) {
            assert!(count > 0, "{fault}");
            assert!(text.starts_with("faulty_ring, block ("), "{text}");
            assert!(parts.iter().all(|part| text.contains(part)), "{fault}: {text}");
        }
    }
}

#[test]
fn bank_conflicts_and_scattered_reads_are_counted() {
    let slow = faulty(11);
    assert_eq!(slow.failures().0, 0);
    // Four warps write words that are all in one bank.
    assert_eq!((slow.passes().plain, slow.conflicts().plain), (4, 4 * 31));
    // Eight distinct sectors in each of four reads.
    assert_eq!(slow.read().by_warps, 4 * 8);
    assert_eq!((slow.read().by_blocks, slow.read().distinct), (16, 8));
}

/// Observes products of every tile, whole and divided, with every store.
fn products(device: &Device) {
    let mut random = Random(34);
    for format in FORMATS {
        let target = (device, format.inputs());
        for ([r, k, n], whole) in [([7, 72, 34], true), ([65, 600, 20], false)] {
            let k = inner(format, k);
            let layer = Layer::new(&mut random, target, Sizes { r, k, n }).unwrap();
            let x = layer.rows(target, 0..r).unwrap();
            let out = poisoned((device, Precision::F32), (r, n), Ends::Plain).unwrap();
            let matrix = layer.on((device, format), Epilogue::None).unwrap();
            let fits = |tile: &&ProductTile| whole || !tile.single || tile.cluster > 0;
            for tile in tiles_of(format).filter(fits) {
                let all = ProductLaunch::undivided(tile, matrix.launch(r, Division::Whole).sizes);
                let launch = match whole {
                    true => all,
                    false => ProductLaunch { whole: 0, lead: 1, ..all },
                };
                for store in [Store::Overwrite, Store::Add] {
                    matrix.run_as(&launch, &x, &out, store).unwrap();
                }
            }
            for epilogue in [Epilogue::SiluGate, Epilogue::GeluGate] {
                let out = (device, format.gated());
                let out = poisoned(out, (r, n / 2), Ends::Padded).unwrap();
                let matrix = layer.on((device, format), epilogue).unwrap();
                matrix.product(&x, r, &out).unwrap();
            }
        }
    }
}

/// Observes attention with every head width and height of tiles, with windows, holes and partitions.
fn attention(device: &Device) {
    let mut random = Random(36);
    for formats in Formats::ALL {
        let target = (device, formats);
        let mut run = |[heads, num_kv_heads, c]: [usize; 3], segments: &[(usize, usize)]| {
            let shape = Shape { heads, num_kv_heads, c, rotated: c, ..SHAPE };
            let rows = Rows::new(&mut random, 16, segments);
            let case = Case::new(&mut random, target, shape, rows).unwrap();
            case.run(1).unwrap();
        };
        for c in [24, 64, 128] {
            for rows in [9, 30, 60] {
                run([1, 1, c], &[(rows, 70)]);
            }
        }
        run([6, 2, 24], &[(5, 33), (40, 100)]);
        run([7, 1, 64], &[(1, 1), (3, 600)]);
        run([4, 2, 128], &[(30, 700)]);
        for shape in WIDE {
            let rows = Rows::new(&mut random, 8, &[(9, 40), (3, 530)]);
            let case = Case::new(&mut random, target, shape, rows).unwrap();
            case.run(1).unwrap();
        }
    }
}

/// Observes the LM head with every tile, biases, sets, filters and most probable tokens.
fn heads(device: &Device) {
    let mut random = Random(37);
    for format in HEADS {
        let mut case = score::Case::new(&mut random, 300, 10);
        let tiles = ProductTile::all(format).iter();
        for tile in tiles.filter(|tile| tile.names.head.is_some()) {
            case.tile = Some(tile);
            case.run_in((device, format)).unwrap();
        }
    }
}

/// Observes products that split their results into heads, in every tile, whole and divided.
fn splits(device: &Device) {
    for format in FORMATS.into_iter().filter(|format| *format != MatrixFormat::F32) {
        if matches!(format, MatrixFormat::Packed(form) if form != Form::Four) {
            continue;
        }
        for (heads, widths, normed, kv) in [
            ([3, 1], [64, 24], [true, false], KvDtype::Int8),
            ([2, 1], [128, 128], [false, false], KvDtype::Bf16),
        ] {
            for k in [128, 576] {
                let case = HeadCase { format, kv, heads, widths, normed, rows: 37, k };
                assert_all(case.checks(device).unwrap());
            }
        }
    }
}

/// Observes products that leave a norm to the next product, in every tile, whole and divided.
fn norms(device: &Device) {
    for format in [MatrixFormat::Bf16, MatrixFormat::Int8w, MatrixFormat::Packed(Form::Four)] {
        for k in [96, 576] {
            let case = NormCase { format, rows: 37, d: 192, k, n: 38 };
            assert_all(case.checks(device).unwrap());
        }
    }
}

/// Every kernel with odd sizes: no race, no access out of bounds, no bank conflict of a copy or of a
/// matrix load.
#[test]
fn kernels_have_no_races_and_no_bank_conflicts() {
    let (device, observations) = crate::observed();
    let mut random = Random(35);
    products(&device);
    attention(&device);
    heads(&device);
    splits(&device);
    norms(&device);
    for precision in BOTH {
        let target = (&device, precision);
        assert_all(checks_of(|tell| rows::checks(&mut random, target, 3, tell)));
        assert_all(checks_of(|tell| experts::checks(&mut random, target, 40, tell)));
        assert_all(checks_of(|tell| canvas::checks(&mut random, target, 40, tell)));
    }
    assert_all(checks_of(|tell| rows::integers(&mut random, &device, 3, tell)));
    let target = (&device, Precision::Int8);
    assert_all(checks_of(|tell| experts::checks(&mut random, target, 40, tell)));
    let (warps, of_warps) = crate::observed_warps();
    for precision in [Precision::Bf16, Precision::Int8] {
        let target = (&warps, precision);
        assert_all(checks_of(|tell| experts::checks(&mut random, target, 40, tell)));
    }
    let mut all = observations.take();
    all.extend(of_warps.take());
    let seen: BTreeSet<&str> = all.iter().map(Observation::kernel).collect();
    let kernels: BTreeSet<&str> = kernels().map(|kernel| kernel.name).collect();
    assert_eq!(seen, kernels);
    let starts = ["gemm", "attend", "head", "gates", "downs", "qkv", "residual"];
    let tensor =
        |name: &str| !name.contains("f32") && starts.iter().any(|start| name.starts_with(start));
    let mut loads = BTreeSet::new();
    for one in all {
        let (count, text) = one.failures();
        assert_eq!(count, 0, "{text}");
        let (name, conflicts) = (one.kernel(), one.conflicts());
        assert_eq!((conflicts.copies, conflicts.matrices), (0, 0), "{name}");
        assert_eq!(one.passes().copies > 0, tensor(name), "{name}");
        // Rows that see nothing load no keys.
        if one.passes().matrices > 0 {
            loads.insert(name);
        }
    }
    let want = kernels.into_iter().filter(|name| tensor(name));
    assert_eq!(loads, want.collect());
}
