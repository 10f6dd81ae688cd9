//! The shapes of LLaDA-8B: width 4,096, MLP 12,288, 32 heads of 128, 126,464 tokens.

use super::attention::{self, Formats};
use super::data::{Ends, Random, Rows, poisoned};
use super::products::{Layer, Sizes, sums};
use super::{Check, Tell, rounding, score};
use crate::Result;
use kernels::Epilogue;
use kernels::device::{Array, Device, MatrixFormat, Precision};

/// Inner elements and rows of matrices: q/k/v, o, gate and up, down, LM head.
const MATRICES: [(usize, usize); 5] =
    [(4096, 12_288), (4096, 4096), (4096, 24_576), (12_288, 4096), (4096, 126_464)];
/// Gate and up.
const GATED: usize = 24_576;
const VOCAB: usize = 126_464;
/// Rows of a step of two sequences, and of several.
const FEW: usize = 64;
const MANY: usize = 200;

/// Compares products, the LM head and attention of these shapes, cut to `most` columns and slots.
pub(super) fn checks(
    random: &mut Random,
    target: (&Device, MatrixFormat),
    most: usize,
    tell: &mut Tell<'_>,
) {
    for (k, whole) in MATRICES {
        let n = whole.min(most / 2 * 2);
        let epilogue = match whole {
            GATED => Epilogue::SiluGate,
            _ => Epilogue::None,
        };
        let rows = match n == whole {
            true => MANY,
            false => FEW + 1,
        };
        let sizes = Sizes { r: rows, k, n };
        tell.case("large product", product(random, target, sizes, epilogue));
    }
    let head = score::Case::new(random, VOCAB.min(most.saturating_mul(8)), 4);
    tell.case("large LM head", head.checks((target.0, target.1.inputs())));
    let formats = match target.1 {
        MatrixFormat::Int8 => Formats::in_bytes(Precision::Bf16),
        _ => Formats::of(Precision::Bf16),
    };
    let heads = if most < VOCAB { 2 } else { 32 };
    let slots = |many: usize| many.min(most);
    let segments = [(32.min(slots(1024)), slots(1024)), (40.min(slots(2048)), slots(2048))];
    let shape = attention::Shape {
        heads,
        num_kv_heads: heads,
        c: 128,
        rotated: 128,
        norms: false,
        values: false,
    };
    let rows = Rows::new(random, 16, &segments);
    let case = attention::Case::new(random, (target.0, formats), shape, rows);
    tell.case("large attention", case.and_then(|case| case.checks()));
}

/// The product of few rows, and of all: other tiles, and another division among blocks. The first rows
/// have the same bits in both.
fn product(
    random: &mut Random,
    (device, format): (&Device, MatrixFormat),
    Sizes { r, k, n }: Sizes,
    epilogue: Epilogue,
) -> Result<[Check; 2]> {
    let precision = format.inputs();
    let target = (device, precision);
    let layer = Layer::new(random, target, Sizes { r, k, n })?;
    let matrix = layer.on((device, format), epilogue)?;
    let x = layer.rows(target, 0..r)?;
    let run = |rows: usize| {
        let out: Array = match epilogue.is_gated() {
            true => poisoned((device, format.gated()), (rows, n / 2), Ends::Padded)?,
            false => poisoned((device, Precision::F32), (rows, n), Ends::Plain)?,
        };
        matrix.product(&x, rows, &out)?;
        out.read(rows)
    };
    let (few, all) = (run(FEW)?, run(r)?);
    drop((matrix, x));
    let layer = match format {
        MatrixFormat::Int8w => layer.in_bytes(),
        MatrixFormat::Packed(form) => layer.unpacked(device, form)?,
        MatrixFormat::F32 | MatrixFormat::Bf16 | MatrixFormat::Int8 => layer,
    };
    let name = |what: &str| format!("{format:?} {what} of {r}x{k}x{n}");
    let (mut tolerance, mut kind) = (sums(k, precision), "product");
    if epilogue.is_gated() {
        (tolerance, kind) = (tolerance.max(rounding(format.gated())), "gated product");
    }
    let differ = few.iter().zip(&all).filter(|(few, all)| few != all).count();
    Ok([
        Check::new(name(kind), &all, &layer.on_cpu(precision, epilogue)?, tolerance),
        Check {
            name: name("numbers that differ among fewer rows"),
            error: differ as f64,
            tolerance: 0.0,
        },
    ])
}
