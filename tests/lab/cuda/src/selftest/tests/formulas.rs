//! The formulas of a launch's traffic against what the emulation observes.

use super::super::attention::{Case, Formats, SHAPE, Shape, WIDE};
use super::super::data::{Ends, Random, Rows, array, copy, plain, poisoned};
use super::super::products::{Layer, Sizes, inner};
use super::super::{FORMATS, canvas, experts, score, tiles_of};
use super::{BOTH, assert_all, checks_of};
use crate::{LaunchCost, Moved, Observation, SECTOR};
use kernels::Visible;
use kernels::device::Store;
use kernels::device::{
    Array, Buffer, Device, DevicePool, HeadCase, MatrixFormat, NormCase, PoolSizes, Precision,
    ProductTile, RowNorm, RowSet, copy_pages, embed, kernels, norm,
};
use kernels::device::{Division, ProductLaunch};
use kernels::{Epilogue, Form};
use kernels::{KvDtype, KvSizes};
use std::collections::BTreeSet;

/// The first words of the kernels of a test below. [`CANVAS`] has all that no other test has.
const PRODUCTS: &[&str] = &["gemm"];
const ATTENTION: &[&str] = &["attend", "split"];
const QKV: &[&str] = &["qkv"];
const RESIDUAL: &[&str] = &["residual"];
const ROWS: &[&str] = &["copy_pages", "embed", "norm_bf16", "norm_f32", "norm_int8", "round"];
const HEADS: &[&str] = &["filter_rows", "fold_partials", "head", "list_tops"];
const EXPERTS: &[&str] =
    &["choose", "count", "downs", "experts", "gates", "gather", "group", "mix", "route"];
const CANVAS: &[&str] = &[];

/// The names of a test's kernels, in order.
fn names(words: &[&str]) -> Vec<&'static str> {
    let starts = |name: &str, words: &[&str]| words.iter().any(|word| name.starts_with(word));
    let others = [PRODUCTS, ATTENTION, QKV, RESIDUAL, ROWS, HEADS, EXPERTS].concat();
    let wanted = |name: &&str| match words.is_empty() {
        true => !starts(name, &others),
        false => starts(name, words),
    };
    let mut names: Vec<_> = kernels().map(|kernel| kernel.name).filter(wanted).collect();
    names.sort_unstable();
    names
}

const INT4: MatrixFormat = MatrixFormat::Packed(Form::Four);

/// Attention on tensor cores whose warps share queries.
const WIDE_KERNELS: [&str; 2] = ["attend_bf16_256", "attend_bf16_512"];

/// True if a formula holds within two percent.
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
        for (what, formula, observed) in
            [("reads", read, one.read()), ("writes", written, one.written())]
        {
            let moved = Moved { by_blocks: observed.by_blocks, distinct: observed.distinct };
            // A filter that chooses the best token writes nothing.
            if (one.kernel(), what) == ("filter_rows", "writes") {
                assert!(moved.by_blocks <= formula.by_blocks);
                continue;
            }
            if !agree(formula.by_blocks, moved.by_blocks)
                || !agree(formula.distinct, moved.distinct)
            {
                wrong.push(format!(
                    "{} {what}: formula {formula:?}, observed {moved:?}",
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
    let (mut random, (device, observations)) = (Random(31), crate::observed());
    for format in FORMATS {
        let target = (&device, format.inputs());
        for r in [24, 130] {
            let sizes = Sizes { r, k: inner(format, 128), n: 264 };
            let layer = Layer::new(&mut random, target, sizes).unwrap();
            let x = layer.rows(target, 0..r).unwrap();
            let matrix = layer.on((&device, format), Epilogue::None).unwrap();
            let out = poisoned((&device, Precision::F32), (r, 264), Ends::Plain).unwrap();
            for tile in tiles_of(format) {
                let sizes = matrix.launch(r, Division::Whole).sizes;
                let launch = ProductLaunch::undivided(tile, sizes);
                matrix.run_as(&launch, &x, &out, Store::Overwrite).unwrap();
            }
            matrix.add_product(&x, r, &out).unwrap();
            for epilogue in [Epilogue::SiluGate, Epilogue::GeluGate] {
                let gated = layer.on((&device, format), epilogue).unwrap();
                let out = (&device, format.gated());
                let out = poisoned(out, (r, 132), Ends::Padded).unwrap();
                gated.product(&x, r, &out).unwrap();
            }
        }
    }
    let whole = observations.take();
    assert_formulas(&whole, &names(PRODUCTS));
    // Several tiles of columns read x again: the formula is not the size of the operands.
    let again = |one: &Observation| one.read().by_blocks > one.read().distinct * 3 / 2;
    assert!(whole.iter().any(again));
    // Two segments: divided tiles.
    for format in FORMATS {
        let target = (&device, format.inputs());
        let [r, k, n] = [24, 512, 136];
        let layer = Layer::new(&mut random, target, Sizes { r, k, n }).unwrap();
        let matrix = layer.on((&device, format), Epilogue::None).unwrap();
        let out = poisoned((&device, Precision::F32), (r, n), Ends::Plain).unwrap();
        let sizes = matrix.launch(r, Division::Whole).sizes;
        let launch = ProductLaunch {
            whole: 0,
            lead: 1,
            ..ProductLaunch::undivided(&ProductTile::all(format)[0], sizes)
        };
        let x = layer.rows(target, 0..r).unwrap();
        matrix.run_as(&launch, &x, &out, Store::Overwrite).unwrap();
    }
    let divided = observations.take();
    assert_formulas(
        &divided,
        &[
            "gemm_bf16_64x128",
            "gemm_f32",
            "gemm_int8_64x128",
            "gemm_int8w_64x128",
            "gemm_packed_64x128",
        ],
    );
    // Divided tiles read the sums that they wrote.
    let sums = |one: &Observation| one.written().distinct > 136 * 24 * 4 / SECTOR * 2;
    assert!(divided.iter().all(sums));
}

/// Attention with this shape, over rows at the end of their slots.
fn attend(random: &mut Random, target: (&Device, Formats), shape: Shape, rows: Rows) {
    Case::new(random, target, shape, rows).unwrap().run(1).unwrap();
}

/// Attention with every size of a tile of narrow heads.
fn narrow_tiles(random: &mut Random, device: &Device) {
    for c in [32, 64, 128] {
        for rows in [9, 30, 60] {
            let shape = Shape { heads: 1, num_kv_heads: 1, c, rotated: c, ..SHAPE };
            let rows = Rows::new(random, 16, &[(rows, 70)]);
            for formats in [Formats::of(Precision::Bf16), Formats::in_bytes(Precision::Bf16)] {
                attend(random, (device, formats), shape, rows.clone());
            }
        }
    }
}

#[test]
fn attention_moves_what_its_formulas_say() {
    let (mut random, (device, observations)) = (Random(32), crate::observed());
    for formats in Formats::ALL {
        let target = (&device, formats);
        let grouped =
            Shape { heads: 8, num_kv_heads: 2, c: 64, rotated: 64, norms: true, values: false };
        for (shape, segments) in [
            (SHAPE, [(16, 64), (48, 600)]),
            (grouped, [(32, 96), (8, 1100)]),
            (WIDE[1], [(20, 40), (3, 530)]),
            (WIDE[2], [(9, 40), (2, 530)]),
        ] {
            let mut rows = Rows::new(&mut random, 16, &segments);
            // Windows, rows that see nothing, and slots between.
            rows.windowed = true;
            attend(&mut random, target, shape, rows.clone());
            rows.windowed = false;
            let slots = segments.iter().flat_map(|(rows, slots)| vec![*slots as u32; *rows]);
            rows.visible = slots.map(Visible::prefix).collect();
            let case = Case::new(&mut random, target, shape, rows).unwrap();
            case.run(1).unwrap();
            // With padding rows and idle tiles.
            case.run(32).unwrap();
        }
    }
    narrow_tiles(&mut random, &device);
    // Blocks with a segment each.
    let rows = Rows::new(&mut random, 16, &[(9, 640)]);
    for formats in Formats::ALL {
        attend(&mut random, (&device, formats), SHAPE, rows.clone());
    }
    let all = observations.take();
    assert_formulas(&all, &names(ATTENTION));
    // Wide heads have no idle warps, so that their passes of shared memory are known too.
    for one in all.iter().filter(|one| WIDE_KERNELS.contains(&one.kernel())) {
        let (passes, conflicts) = (one.passes(), one.conflicts());
        let observed = passes.copies + passes.matrices + passes.plain + conflicts.plain;
        let formula = one.cost().unwrap().passes as u64;
        assert!(agree(formula, observed), "{formula}, {passes:?}, {conflicts:?}");
    }
}

#[test]
fn splits_of_products_move_what_their_formulas_say() {
    let (device, observations) = crate::observed();
    let formats = [MatrixFormat::Bf16, MatrixFormat::Int8, MatrixFormat::Int8w, INT4];
    // Sums of one segment and of two, in turn.
    let mut sizes = [(KvDtype::Bf16, 20, 256), (KvDtype::Int8, 128, 384)].into_iter().cycle();
    for (heads, widths, normed) in [
        ([4, 2], [64, 64], [true, false]),
        ([2, 1], [256, 64], [true, true]),
        ([3, 3], [128, 128], [false, false]),
    ] {
        for format in formats {
            let (kv, rows, k) = sizes.next().unwrap();
            let case = HeadCase { format, kv, heads, widths, normed, rows, k };
            assert_all(case.checks(&device).unwrap());
        }
        // The next heads have the others.
        sizes.next();
    }
    let mut all = observations.take();
    all.retain(|one| one.kernel().starts_with("qkv"));
    assert_formulas(&all, &names(QKV));
}

#[test]
fn products_around_norms_move_what_their_formulas_say() {
    let (device, observations) = crate::observed();
    for format in [MatrixFormat::Bf16, MatrixFormat::Int8w, INT4] {
        for (rows, k) in [(20, 128), (130, 320)] {
            let case = NormCase { format, rows, d: 384, k, n: 264 };
            assert_all(case.checks(&device).unwrap());
        }
    }
    let all = observations.take();
    let (residual, others): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|one| one.kernel().starts_with("residual"));
    assert_formulas(&residual, &names(RESIDUAL));
    let products: Vec<_> =
        others.into_iter().filter(|one| one.kernel().starts_with("gemm")).collect();
    let kernels: BTreeSet<&str> = products.iter().map(Observation::kernel).collect();
    assert_formulas(&products, &kernels.into_iter().collect::<Vec<_>>());
}

#[test]
fn rows_move_what_their_formulas_say() {
    let (mut random, (device, observations)) = (Random(33), crate::observed());
    let weight = Buffer::floats(&device, &random.numbers(512)).unwrap();
    for precision in BOTH {
        let target = (&device, precision);
        let input = array(target, &random.numbers(9 * 512), 512, Ends::Plain).unwrap();
        let tokens: Vec<u32> = (0..9).collect();
        let batch = plain(&device, &tokens, &[3, 8], &[copy(0, 1), copy(1, 2)]).unwrap();
        let out = poisoned((&device, Precision::F32), (9, 512), Ends::Plain).unwrap();
        embed(&input, &batch, &out).unwrap();
        let scale = RowNorm { weight: &weight, eps: 1e-5 };
        for written in [precision, Precision::Int8] {
            let normed = poisoned((&device, written), (9, 512), Ends::Padded).unwrap();
            norm(&out, &RowSet::First(9), &batch, scale, &normed).unwrap();
            norm(&out, &RowSet::Scored(0..2), &batch, scale, &normed).unwrap();
        }
        let rounded = Array::inputs_of(&device, [precision, Precision::Int8], 9, 512).unwrap();
        rounded.write(0, &random.numbers(9 * 512)).unwrap();
        rounded.round(9).unwrap();
        // Pools of two sizes.
        for (layers, num_kv_heads, head_width) in [(3, 2, 64), (1, 4, 128)] {
            for dtype in [precision.kv_dtype(), KvDtype::Int8] {
                let kv = KvSizes { dtype, layers, num_kv_heads, head_width, page: 16, pages: 5 };
                let pool = DevicePool::new(&device, PoolSizes { precision, kv }).unwrap();
                copy_pages(&pool, &batch).unwrap();
            }
        }
    }
    assert_formulas(&observations.take(), &names(ROWS));
}

#[test]
fn heads_move_what_their_formulas_say() {
    let (mut random, (device, observations)) = (Random(38), crate::observed());
    let mut case = score::Case::new(&mut random, 520, 66);
    let mut plain = case.clone();
    for row in &mut plain.rows {
        (row.biases, row.allowed, row.input) = (0..0, None, 1);
        (row.tops, row.segment) = (0, 0);
    }
    // Filtered rows are so hot that they draw another token than the best.
    for draw in case.draws.iter_mut().filter(|draw| draw.temperature > 1.0) {
        (draw.temperature, draw.top_p, draw.top_k, draw.min_p) = (1e6, 0.99, 400, 0.0);
    }
    for (number, row) in case.rows.iter_mut().enumerate() {
        (row.allowed, row.input) = (None, 1);
        row.segment = [0, 1, 3][number % 3];
        row.tops = [0, 40][number % 2];
    }
    for format in score::HEADS {
        case.run_in((&device, format)).unwrap();
        let tiles = ProductTile::all(format).iter();
        for tile in tiles.filter(|tile| tile.names.head.is_some()) {
            plain.tile = Some(tile);
            plain.run_in((&device, format)).unwrap();
        }
    }
    assert_formulas(&observations.take(), &names(HEADS));
}

#[test]
fn experts_move_what_their_formulas_say() {
    let (mut random, (device, observations)) = (Random(39), crate::observed());
    let (warps, of_warps) = crate::observed_warps();
    for precision in [Precision::F32, Precision::Bf16, Precision::Int8] {
        for device in [&device, &warps] {
            let target = (device, precision);
            assert_all(checks_of(|tell| experts::aligned(&mut random, target, tell)));
        }
    }
    let mut all = observations.take();
    all.extend(of_warps.take());
    // The integers of gated rows have a test of their own.
    all.retain(|one| !one.kernel().starts_with("round"));
    assert_formulas(&all, &names(EXPERTS));
}

#[test]
fn canvases_move_what_their_formulas_say() {
    let (mut random, (device, observations)) = (Random(40), crate::observed());
    for precision in BOTH {
        let target = (&device, precision);
        assert_all(checks_of(|tell| canvas::aligned(&mut random, target, tell)));
    }
    let mut all = observations.take();
    // The products and records of mean embeddings have tests of their own.
    let names = names(CANVAS);
    all.retain(|one| names.contains(&one.kernel()));
    assert_formulas(&all, &names);
}
