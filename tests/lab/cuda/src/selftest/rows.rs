//! Embedding, norms, page copies.

use super::attention::Formats;
use super::data::{Ends, Random, TOKENS, array, copy, kept, plain, poisoned, tensor, values};
use super::{Check, Tell, cpu, rounding};
use crate::Result;
use kernels::device::{
    Array, Buffer, Device, DevicePool, PoolSizes, Precision, RowNorm, RowSet, copy_pages, embed,
    norm,
};
use kernels::{KvDtype, KvSizes, rms_norm, row_to_bytes};

const EPS: f32 = 1e-5;

pub(super) fn checks(
    random: &mut Random,
    target: (&Device, Precision),
    most: usize,
    tell: &mut Tell<'_>,
) {
    for formats in [Formats::of(target.1), Formats::in_bytes(target.1)] {
        tell.case("copies of pages", copies((target.0, formats)).map(Some));
    }
    for (rows, d) in [(1, 1), (6, 37), (most, 300)] {
        tell.case("embedding", embedding(random, target, (rows, d)).map(Some));
        tell.case("norm", norms(random, target, (rows, d)));
    }
}

fn embedding(
    random: &mut Random,
    (device, precision): (&Device, Precision),
    (rows, d): (usize, usize),
) -> Result<Check> {
    let table = kept(device, &random.numbers(TOKENS * d), precision)?;
    let tokens: Vec<u32> = (0..rows).map(|_| random.below(TOKENS) as u32).collect();
    let out = poisoned((device, Precision::F32), (rows, d), Ends::Plain)?;
    let stored = array((device, precision), &table, d, Ends::Plain)?;
    embed(&stored, &plain(device, &tokens, &[], &[])?, &out)?;
    let row = |token: &u32| &table[*token as usize * d..(*token as usize + 1) * d];
    let want: Vec<f32> = tokens.iter().flat_map(row).copied().collect();
    let name = format!("{precision:?} embedding of {rows}x{d}");
    Ok(Check::new(name, &out.read(rows)?, &want, 0.0))
}

/// Checks the norm of all rows, and of the last scored row.
fn norms(
    random: &mut Random,
    (device, precision): (&Device, Precision),
    (rows, d): (usize, usize),
) -> Result<[Check; 2]> {
    let (x, weight) = (random.numbers(rows * d), random.numbers(d));
    let weights = Buffer::floats(device, &weight)?;
    let last = rows as u32 - 1;
    let batch = plain(device, &vec![0; rows], &[0, last], &[])?;
    let x_rows = array((device, Precision::F32), &x, d, Ends::Plain)?;
    let check = |what: &str, row_set: RowSet, x: &[f32]| {
        let count = x.len() / d;
        let out = poisoned((device, precision), (count, d), Ends::Padded)?;
        let scale = RowNorm { weight: &weights, eps: EPS };
        norm(&x_rows, &row_set, &batch, scale, &out)?;
        let want = values(&cpu(rms_norm(&tensor(x, d)?, &weight, EPS))?)?;
        let name = format!("{precision:?} norm of {what} of {rows}x{d}");
        Ok(Check::new(name, &out.read(count)?, &want, rounding(precision)))
    };
    Ok([
        check("all rows", RowSet::First(rows), &x)?,
        check("a scored row", RowSet::Scored(1..2), &x[x.len() - d..])?,
    ])
}

/// Checks that rows are rounded to the integers and factors of the CPU, after a norm and on their own. One
/// row is zero and one is so small that it counts as zero.
pub(super) fn integers(random: &mut Random, device: &Device, most: usize, tell: &mut Tell<'_>) {
    for (rows, d) in [(1, 1), (6, 37), (most, 300), (2, 5000)] {
        let mut x = random.numbers(rows * d);
        if rows > 4 {
            x[d..2 * d].fill(0.0);
            x[2 * d..3 * d].iter_mut().for_each(|x| *x *= 1e-31);
        }
        for written in [Precision::F32, Precision::Bf16] {
            tell.case("integers", rounded((device, written), &x, d).map(Some));
        }
        tell.case("integers of a norm", normed(device, &x, d).map(Some));
    }
}

fn rounded((device, written): (&Device, Precision), x: &[f32], d: usize) -> Result<Check> {
    let rows = x.len() / d;
    let array = Array::inputs_of(device, [written, Precision::Int8], rows, d)?;
    array.write(0, x)?;
    array.round(rows)?;
    integers_of(&format!("{written:?} rows"), &array, &array.read(rows)?)
}

fn normed(device: &Device, x: &[f32], d: usize) -> Result<Check> {
    let (rows, weights) = (x.len() / d, Buffer::floats(device, &vec![1.5; d])?);
    let stored = array((device, Precision::F32), x, d, Ends::Plain)?;
    let batch = plain(device, &vec![0; rows], &[], &[])?;
    let scale = RowNorm { weight: &weights, eps: EPS };
    let run = |precision| {
        let out = poisoned((device, precision), (rows, d), Ends::Padded)?;
        norm(&stored, &RowSet::First(rows), &batch, scale, &out)?;
        Ok(out)
    };
    integers_of("a norm", &run(Precision::Int8)?, &run(Precision::F32)?.read(rows)?)
}

/// Compares the integers of an array with those that the CPU makes of its numbers.
fn integers_of(what: &str, array: &Array, numbers: &[f32]) -> Result<Check> {
    let d = array.width();
    let want = numbers.chunks_exact(d).flat_map(|row| {
        let (bytes, scale) = row_to_bytes(row);
        bytes.into_iter().map(move |byte| scale * f32::from(byte))
    });
    let got = array.inputs(Precision::Int8).read(numbers.len() / d)?;
    let differ = got.iter().zip(want).filter(|(got, want)| got.to_bits() != want.to_bits());
    Ok(Check {
        name: format!("integers of {what} of {d} that differ"),
        error: differ.count() as f64,
        tolerance: 0.0,
    })
}

/// Checks that page copies are made in order in every layer.
fn copies((device, formats): (&Device, Formats)) -> Result<Check> {
    let Formats { precision, kv: dtype } = formats;
    let (c, slots) = if dtype == KvDtype::Int8 { (48, 12) } else { (24, 7) };
    let kv = KvSizes { dtype, layers: 3, num_kv_heads: 2, head_width: c, page: slots, pages: 5 };
    let pool = DevicePool::new(device, PoolSizes { precision, kv })?;
    let page = 2 * slots * dtype.head_bytes(c);
    let mut bytes: Vec<u8> = (0..6 * 5 * page).map(|i| (i * 31 + i / page) as u8).collect();
    pool.buffer().upload(&bytes)?;
    let copies = [copy(0, 1), copy(1, 3), copy(4, 0)];
    copy_pages(&pool, &plain(device, &[0], &[], &copies)?)?;
    for part in bytes.chunks_exact_mut(5 * page) {
        for copy in copies {
            let source = copy.source.index() * page;
            part.copy_within(source..source + page, copy.destination.index() * page);
        }
    }
    let mut got = vec![0; bytes.len()];
    pool.buffer().download(0, &mut got)?;
    let wrong = got.iter().zip(&bytes).filter(|(got, want)| got != want);
    Ok(Check {
        name: format!("{formats:?} copies of pages: bytes"),
        error: wrong.count() as f64,
        tolerance: 0.0,
    })
}
