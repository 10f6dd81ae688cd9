//! The formulas of a launch's traffic against what the emulation observes.

use super::super::attention::{Case, SHAPE, Shape};
use super::super::data::{Ends, Random, Rows, array, plain, poisoned};
use super::super::products::{Layer, Sizes};
use super::super::{experts, score};
use super::{BOTH, assert_all, checks_of};
use crate::Visible;
use crate::device::launch::{Division, ProductLaunch};
use crate::device::matrix::Store;
use crate::device::{
    Buffer, Device, DevicePool, LaunchCost, MatrixFormat, Moved, Observation, PoolSizes, Precision,
    ProductTile, RowNorm, RowSet, SECTOR, copy_pages, embed, norm,
};
use crate::linear::Epilogue;

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
            // A filter that chooses the best token writes nothing.
            if (one.kernel(), what) == ("filter_rows", "writes") {
                assert!(of.by_blocks <= formula.by_blocks);
                continue;
            }
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
    for format in [MatrixFormat::F32, MatrixFormat::Bf16, MatrixFormat::Int8] {
        let on = (&device, format.inputs());
        for r in [24, 130] {
            let sizes = Sizes { r, k: 128, n: 264 };
            let layer = Layer::new(&mut random, on, sizes).unwrap();
            let x = layer.rows(on, 0..r).unwrap();
            let matrix = layer.on((&device, format), Epilogue::None).unwrap();
            let out = poisoned((&device, Precision::F32), (r, 264), Ends::Plain).unwrap();
            for tile in ProductTile::all(format) {
                let sizes = matrix.launch(r, Division::Whole).sizes;
                let launch = ProductLaunch::undivided(tile, sizes);
                matrix
                    .run_as(&launch, &x, (&out, Store::Overwrite))
                    .unwrap();
            }
            matrix.add_product(&x, r, &out).unwrap();
            for epilogue in [Epilogue::SiluGate, Epilogue::GeluGate] {
                let gated = layer.on((&device, format), epilogue).unwrap();
                let out = poisoned(on, (r, 132), Ends::Padded).unwrap();
                gated.product(&x, r, &out).unwrap();
            }
        }
    }
    let whole = observations.take();
    let kernels = [
        "gemm_bf16_128x128",
        "gemm_bf16_128x256",
        "gemm_bf16_64x128",
        "gemm_f32",
        "gemm_int8_128x128",
        "gemm_int8_128x256",
        "gemm_int8_64x128",
    ];
    assert_formulas(&whole, &kernels);
    // Several tiles of columns read x again: the formula is not the size of the operands.
    let again = |one: &Observation| one.read().by_blocks > one.read().distinct * 3 / 2;
    assert!(whole.iter().any(again));
    // Two segments: divided tiles.
    for format in [MatrixFormat::F32, MatrixFormat::Bf16, MatrixFormat::Int8] {
        let on = (&device, format.inputs());
        let [r, k, n] = [24, 512, 136];
        let layer = Layer::new(&mut random, on, Sizes { r, k, n }).unwrap();
        let matrix = layer.on((&device, format), Epilogue::None).unwrap();
        let out = poisoned((&device, Precision::F32), (r, n), Ends::Plain).unwrap();
        matrix
            .product(&layer.rows(on, 0..r).unwrap(), r, &out)
            .unwrap();
    }
    let divided = observations.take();
    assert_formulas(
        &divided,
        &["gemm_bf16_64x128", "gemm_f32", "gemm_int8_64x128"],
    );
    // Divided tiles read the sums that they wrote.
    let sums = |one: &Observation| one.written().distinct > 136 * 24 * 4 / SECTOR * 2;
    assert!(divided.iter().all(sums));
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
            values: false,
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
fn rows_move_what_their_formulas_say() {
    let (mut random, (device, observations)) = (Random(33), Device::observed());
    let weight = Buffer::floats(&device, &random.numbers(512)).unwrap();
    for precision in BOTH {
        let on = (&device, precision);
        let from = array(on, &random.numbers(9 * 512), 512, Ends::Plain).unwrap();
        let tokens: Vec<u32> = (0..9).collect();
        let batch = plain(&device, &tokens, &[3, 8], &[(0, 1), (1, 2)]).unwrap();
        let out = poisoned((&device, Precision::F32), (9, 512), Ends::Plain).unwrap();
        embed(&from, &batch, &out).unwrap();
        let of = RowNorm {
            weight: &weight,
            eps: 1e-5,
        };
        let normed = poisoned(on, (9, 512), Ends::Padded).unwrap();
        norm((&out, &RowSet::First(9)), &batch, of, &normed).unwrap();
        norm((&out, &RowSet::Scored(0..2)), &batch, of, &normed).unwrap();
        // Pools of two sizes.
        for (layers, groups, head_width) in [(3, 2, 64), (1, 4, 128)] {
            let sizes = PoolSizes {
                precision,
                layers,
                groups,
                head_width,
                page: 16,
                pages: 5,
            };
            copy_pages(&DevicePool::new(&device, sizes).unwrap(), &batch).unwrap();
        }
    }
    let kernels = [
        "copy_pages",
        "embed_bf16",
        "embed_f32",
        "norm_bf16",
        "norm_f32",
    ];
    assert_formulas(&observations.take(), &kernels);
}

#[test]
fn heads_move_what_their_formulas_say() {
    let (mut random, (device, observations)) = (Random(38), Device::observed());
    let mut case = score::Case::new(&mut random, 520, 66);
    let mut plain = case.clone();
    for row in &mut plain.rows {
        (row.biases, row.allowed, row.input) = (0..0, None, 1);
        (row.tops, row.draw) = (0, 0);
    }
    // Filtered rows are so hot that they draw another token than the best.
    for draw in case.draws.iter_mut().filter(|draw| draw.temperature > 1.0) {
        (draw.temperature, draw.top_p, draw.top_k, draw.min_p) = (1e6, 0.99, 400, 0.0);
    }
    for (number, row) in case.rows.iter_mut().enumerate() {
        (row.allowed, row.input) = (None, 1);
        row.draw = [0, 1, 3][number % 3];
        row.tops = [0, 40][number % 2];
    }
    for format in [MatrixFormat::F32, MatrixFormat::Bf16, MatrixFormat::Int8] {
        case.run_in((&device, format)).unwrap();
        for tile in ProductTile::all(format) {
            plain.tile = Some(tile);
            plain.run_in((&device, format)).unwrap();
        }
    }
    let kernels = [
        "filter_rows",
        "fold_partials",
        "head_bf16_128x128",
        "head_bf16_128x256",
        "head_bf16_64x128",
        "head_f32",
        "head_int8_128x128",
        "head_int8_128x256",
        "head_int8_64x128",
        "list_tops",
    ];
    assert_formulas(&observations.take(), &kernels);
}

#[test]
fn experts_move_what_their_formulas_say() {
    let (mut random, (device, observations)) = (Random(39), Device::observed());
    for precision in BOTH {
        let on = (&device, precision);
        assert_all(checks_of(|tell| experts::aligned(&mut random, on, tell)));
    }
    let kernels = [
        "choose_experts",
        "count_experts",
        "downs_bf16_few",
        "downs_bf16_many",
        "downs_int8_few",
        "downs_int8_many",
        "experts_f32",
        "gates_bf16_few",
        "gates_bf16_many",
        "gates_int8_few",
        "gates_int8_many",
        "gather_bf16",
        "gather_f32",
        "group_rows",
        "mix_experts",
        "route_bf16",
        "route_f32",
    ];
    assert_formulas(&observations.take(), &kernels);
}
