//! What the kernels do with memory, as the emulation observes it.

use super::super::attention::{Case, SHAPE, Shape};
use super::super::data::{Ends, Random, Rows, array, plain, poisoned};
use super::super::products::{Layer, Sizes};
use super::super::{experts, rows, score};
use super::{BOTH, assert_all};
use crate::Visible;
use crate::device::{
    Buffer, Device, Kernel, LaunchCost, MatrixFormat, Moved, Observation, Precision, RowNorm,
    RowSet, SECTOR, embed, norm,
};
use crate::linear::Epilogue;

/// The kernel of `cuda/faulty.cu`.
const FAULTY: Kernel = Kernel {
    name: "faulty",
    threads: 64,
    shared: 8 << 10,
};

#[repr(C)]
struct Faulty {
    x: u64,
    fault: u32,
}

/// Runs a fault on two blocks.
fn faulty(fault: u32) -> Observation {
    let (device, observations) = Device::observed();
    let x = Buffer::floats(&device, &[1.0; 128]).unwrap();
    let x = x.range(0, 4 * 128).unwrap();
    // SAFETY: the faults stay within memory of the host.
    unsafe { device.launch(FAULTY, [2, 1, 1], &Faulty { x, fault }) }.unwrap();
    observations.take().remove(0)
}

#[test]
fn every_fault_is_found_and_named() {
    assert_eq!(faulty(0).failures(), (0, String::new()));
    // Which thread comes first depends on the order of warps and of asynchronous copies.
    for (fault, parts) in [
        (1, ["reads shared byte ", ", which nothing was written to"]),
        (2, ["reads shared byte ", "wrote, without a barrier"]),
        (3, [" shared byte ", ", without a barrier"]),
        (4, ["reads shared byte ", " before the copy of thread "]),
        (5, ["reads shared byte ", ", which nothing was written to"]),
        (6, ["reads shared byte ", " before the copy of thread "]),
        (7, ["reads shared byte ", ", which nothing was written to"]),
        (
            8,
            [
                "writes byte ",
                " of an allocation, which another block uses",
            ],
        ),
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

/// Odd sizes: no race, no access out of bounds, no bank conflict of a copy or of a matrix load.
#[test]
fn kernels_have_no_races_and_no_bank_conflicts() {
    let (mut random, (device, observations)) = (Random(34), Device::observed());
    for precision in BOTH {
        let on = (&device, precision);
        for [r, k, n] in [[7, 72, 33], [65, 70, 70], [130, 64, 129], [9, 600, 20]] {
            let layer = Layer::new(&mut random, on, Sizes { r, k, n }).unwrap();
            let out = poisoned((&device, Precision::F32), (r, n), Ends::Plain).unwrap();
            let matrix = layer.on(on, Epilogue::None).unwrap();
            matrix
                .product(&layer.rows(on, 0..r).unwrap(), r, &out)
                .unwrap();
            if precision == Precision::Bf16 {
                let matrix = layer.on((&device, MatrixFormat::Int8), Epilogue::None);
                let x = layer.rows(on, 0..r).unwrap();
                matrix.unwrap().product(&x, r, &out).unwrap();
            }
        }
        for (heads, groups, c, segments) in [
            (6, 2, 24, [(5, 33), (40, 100)]),
            (7, 1, 64, [(1, 1), (3, 600)]),
            (3, 3, 128, [(1, 64), (12, 70)]),
        ] {
            let shape = Shape {
                heads,
                groups,
                c,
                rotated: c,
                ..SHAPE
            };
            let rows = Rows::new(&mut random, 16, &segments);
            let case = Case::new(&mut random, on, shape, rows).unwrap();
            case.run(1).unwrap();
        }
        score::Case::new(&mut random, 300, 6).run(on).unwrap();
        assert_all(rows::checks(&mut random, on, 3).unwrap());
        assert_all(experts::checks(&mut random, on, 20).unwrap());
    }
    let all = observations.take();
    for what in [
        "gemm_bf16_",
        "gemm_int8_",
        "attend_bf16_128x",
        "head_bf16_",
        "fold_partials",
        "filter_rows",
        "mix_experts",
    ] {
        assert!(
            all.iter().any(|one| one.kernel().starts_with(what)),
            "{what}"
        );
    }
    for one in all {
        let (count, text) = one.failures();
        assert_eq!(count, 0, "{text}");
        let (name, conflicts) = (one.kernel(), one.conflicts());
        assert_eq!((conflicts.copies, conflicts.matrices), (0, 0), "{name}");
        let uses = (one.passes().copies > 0, one.passes().matrices > 0);
        let starts = ["gemm", "attend", "head", "gates", "downs"];
        let tensor = !name.contains("f32") && starts.iter().any(|start| name.starts_with(start));
        assert_eq!(uses, (tensor, tensor), "{name}");
    }
}

/// Whether a formula holds within two percent.
fn agree(formula: u64, observed: u64) -> bool {
    formula.abs_diff(observed) as f64 <= 0.02 * formula.max(observed) as f64
}

/// Asserts that the observed traffic of every launch is that of its formula.
fn assert_formulas(all: &[Observation], kernels: &[&str]) {
    let mut seen: Vec<&str> = all.iter().map(Observation::kernel).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, kernels);
    let mut wrong = Vec::new();
    for one in all {
        assert_eq!(one.failures().0, 0);
        let LaunchCost { read, written, .. } = *one.cost().unwrap();
        for (what, formula, observed) in [
            ("reads", read, one.read()),
            ("writes", written, one.written()),
        ] {
            let of = Moved {
                by_blocks: observed.by_blocks,
                distinct: observed.distinct,
            };
            if !agree(formula.by_blocks, of.by_blocks) || !agree(formula.distinct, of.distinct) {
                wrong.push(format!(
                    "{} {what}: formula {formula:?}, observed {of:?}",
                    one.kernel()
                ));
            }
        }
    }
    wrong.sort_unstable();
    wrong.dedup();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn products_move_what_their_formulas_say() {
    let (mut random, (device, observations)) = (Random(31), Device::observed());
    for precision in BOTH {
        let on = (&device, precision);
        for r in [24, 130] {
            let sizes = Sizes { r, k: 128, n: 264 };
            let layer = Layer::new(&mut random, on, sizes).unwrap();
            let x = layer.rows(on, 0..r).unwrap();
            let matrix = layer.on(on, Epilogue::None).unwrap();
            let out = poisoned((&device, Precision::F32), (r, 264), Ends::Plain).unwrap();
            matrix.product(&x, r, &out).unwrap();
            matrix.add_product(&x, r, &out).unwrap();
            let gated = layer.on(on, Epilogue::SiluGate).unwrap();
            let out = poisoned(on, (r, 132), Ends::Padded).unwrap();
            gated.product(&x, r, &out).unwrap();
        }
    }
    // Two segments: divided tiles.
    for (precision, format) in [
        (Precision::F32, MatrixFormat::F32),
        (Precision::Bf16, MatrixFormat::Bf16),
        (Precision::Bf16, MatrixFormat::Int8),
        (Precision::Bf16, MatrixFormat::Int8),
    ] {
        let (on, sizes) = (
            (&device, precision),
            Sizes {
                r: 24,
                k: 512,
                n: 136,
            },
        );
        let layer = Layer::new(&mut random, on, sizes).unwrap();
        let matrix = layer.on((&device, format), Epilogue::None).unwrap();
        let out = poisoned((&device, Precision::F32), (24, 136), Ends::Plain).unwrap();
        matrix
            .product(&layer.rows(on, 0..24).unwrap(), 24, &out)
            .unwrap();
    }
    let kernels = ["gemm_bf16_64x128", "gemm_f32", "gemm_int8_64x128"];
    let all = observations.take();
    assert_eq!(all.len(), 16);
    assert_formulas(&all, &kernels);
    // Several tiles of columns read x again: the formula is not the size of the operands.
    let again = |one: &Observation| one.read().by_blocks > one.read().distinct * 3 / 2;
    assert!(all.iter().any(again));
    // Divided tiles read the sums that they wrote.
    let sums = |one: &Observation| one.written().distinct > 136 * 24 * 4 / SECTOR * 2;
    assert!(all[12..].iter().all(sums));
}

#[test]
fn attention_moves_what_its_formulas_say() {
    let (mut random, (device, observations)) = (Random(32), Device::observed());
    for precision in BOTH {
        let grouped = Shape {
            heads: 8,
            groups: 2,
            c: 64,
            rotated: 64,
            norms: true,
        };
        for (shape, segments) in [
            (SHAPE, [(16, 64), (48, 600)]),
            (grouped, [(32, 96), (8, 1100)]),
        ] {
            let mut rows = Rows::new(&mut random, 16, &segments);
            let slots = segments
                .iter()
                .flat_map(|(rows, slots)| vec![*slots as u32; *rows]);
            rows.visible = slots.map(Visible::prefix).collect();
            Case::new(&mut random, (&device, precision), shape, rows)
                .unwrap()
                .run(1)
                .unwrap();
        }
    }
    let kernels = [
        "attend_bf16_32x64",
        "attend_bf16_64x64",
        "attend_f32",
        "combine_bf16",
        "combine_f32",
        "split_bf16",
        "split_f32",
    ];
    assert_formulas(&observations.take(), &kernels);
}

#[test]
fn the_head_and_rows_move_what_their_formulas_say() {
    let (mut random, (device, observations)) = (Random(33), Device::observed());
    let mut case = score::Case::new(&mut random, 1304, 40);
    for row in &mut case.rows {
        (row.biases, row.allowed, row.input) = (0..0, None, 1);
        (row.tops, row.draw) = (0, 0);
    }
    let weight = Buffer::floats(&device, &random.numbers(512)).unwrap();
    for precision in BOTH {
        let on = (&device, precision);
        case.run(on).unwrap();
        let from = array(on, &random.numbers(9 * 512), 512, Ends::Plain).unwrap();
        let tokens: Vec<u32> = (0..9).collect();
        let batch = plain(&device, &tokens, &[3, 8], &[(0, 1)]).unwrap();
        let out = poisoned((&device, Precision::F32), (9, 512), Ends::Plain).unwrap();
        embed(&from, &batch, &out).unwrap();
        let of = RowNorm {
            weight: &weight,
            eps: 1e-5,
        };
        let normed = poisoned(on, (9, 512), Ends::Padded).unwrap();
        norm((&out, &RowSet::First(9)), &batch, of, &normed).unwrap();
        norm((&out, &RowSet::Scored(0..2)), &batch, of, &normed).unwrap();
    }
    let kernels = [
        "embed_bf16",
        "embed_f32",
        "fold_partials",
        "head_bf16_64x128",
        "head_f32",
        "norm_bf16",
        "norm_f32",
    ];
    assert_formulas(&observations.take(), &kernels);
}
