//! Operations for canvas models: norms of sums and of denoised rows, factors, mean embeddings of capped
//! and divided logits.

use super::data::{
    Ends, LIMITS, NO_CANVAS, NOTHING, PLAIN_ROW, Random, array, copy, kept, poisoned, tensor,
    values,
};
use super::{Check, Tell, cpu, rounding};
use crate::Result;
use kernels::Visible;
use kernels::device::{
    BatchArrays, BatchLimits, Buffer, CanvasRows, Device, DeviceBatch, DeviceMatrix, DeviceScores,
    Means, Precision, RowNorm, ScoredRows, ScoringHead, SoftHead, clear_rows, norm_add,
    norm_denoised, scale_rows,
};
use kernels::rms_norm;
use kernels::{Epilogue, Matrix, ScorerRow};
use step::{Candidate, PageCopy, Sampling, Segment};

const EPS: f32 = 1e-6;
/// Slots per page; the rows of a batch are on one page.
const PAGE: usize = 128;
const CAP: f32 = 2.0;
const FACTORS: [f32; 2] = [0.5, 1.75];

/// The rows of a batch: every third row is encoded, the others are denoised and scored.
struct Rows {
    count: usize,
    denoised: Vec<u32>,
    /// The divisors of the denoised rows' logits.
    scales: Vec<f32>,
    /// Size of the vocabulary.
    vocab: usize,
}

/// The tokens that every fourth scored row may have, of each 32.
const ALLOWED: u32 = 0x5A5A_1235;

/// True if a scored row may have a token.
fn is_allowed(row: usize, token: usize) -> bool {
    row % 4 != 2 || ALLOWED >> (token % 32) & 1 == 1
}

impl Rows {
    fn new(count: usize, vocab: usize) -> Self {
        let denoised: Vec<u32> = (0..count as u32).filter(|row| row % 3 != 1).collect();
        let scale = |row: &u32| [0.5, 1.0, 1.7][*row as usize % 3];
        Self { count, scales: denoised.iter().map(scale).collect(), denoised, vocab }
    }

    /// The batch on a page, with page copies; rows are padded to a multiple of eight.
    fn upload(&self, device: &Device, page: usize, copies: &[PageCopy]) -> Result<DeviceBatch> {
        let (zeros, visible) = (vec![0; self.count], vec![Visible::default(); self.count]);
        // Slots in descending order.
        let slots = (0..self.count).map(|row| (page * PAGE + self.count - 1 - row) as u32);
        let scorer =
            |row: usize| ScorerRow { allowed: (!is_allowed(row, 1)).then_some(0), ..PLAIN_ROW };
        let arrays = BatchArrays {
            tokens: &zeros,
            positions: &zeros,
            slots: &slots.collect::<Vec<_>>(),
            visible: &visible,
            segments: &[Segment {
                rows: 0..self.count as u32,
                pages: 0..0,
                sampling: Sampling::GREEDY,
            }],
            scored: &self.denoised,
            scorers: &(0..self.denoised.len()).map(scorer).collect::<Vec<_>>(),
            allowed: &vec![ALLOWED; self.vocab.div_ceil(32)],
            copies,
            canvas: Some(CanvasRows {
                windowed: &visible,
                denoised: &self.denoised,
                conditioned: &self.denoised,
                scales: &self.scales,
                ..NO_CANVAS
            }),
            ..NOTHING
        };
        let limits = BatchLimits { page: PAGE, pad: 8, vocab: self.vocab, ..LIMITS };
        let mut batch = DeviceBatch::default();
        batch.upload(device, &arrays, &limits)?;
        Ok(batch)
    }
}

pub(super) fn checks(
    random: &mut Random,
    target: (&Device, Precision),
    most: usize,
    tell: &mut Tell<'_>,
) {
    for (rows, d) in [(1, 8), (most.min(PAGE), 300)] {
        tell.case("rows of a canvas", rowwise(random, target.0, (Rows::new(rows, 9), d)));
    }
    // The logits of 74 scored rows take several runs in tests.
    for (rows, vocab) in [(2, 9), (110, 300)] {
        let sizes = Sizes { k: 24, d: 40, vocab };
        let case = (Rows::new(rows, vocab), sizes);
        tell.case("mean embeddings", soft(random, target, case));
    }
}

/// The same with rows of whole sectors.
#[cfg(test)]
pub(super) fn aligned(random: &mut Random, target: (&Device, Precision), tell: &mut Tell<'_>) {
    let rows = || Rows::new(40, 256);
    let sizes = Sizes { k: 64, d: 128, vocab: 256 };
    tell.case("rows of a canvas", rowwise(random, target.0, (rows(), 256)));
    tell.case("mean embeddings", soft(random, target, (rows(), sizes)));
}

/// Sums with norms, norms of denoised rows, factors, zeros. They are f32 in both precisions.
fn rowwise(random: &mut Random, device: &Device, (rows, d): (Rows, usize)) -> Result<[Check; 4]> {
    let batch = rows.upload(device, 0, &[])?;
    let all = batch.rows();
    let (x, sum, weight) = (random.numbers(all * d), random.numbers(all * d), random.numbers(d));
    let weights = Buffer::floats(device, &weight)?;
    let norm = RowNorm { weight: &weights, eps: EPS };
    let normed = values(&cpu(rms_norm(&tensor(&x, d)?, &weight, EPS))?)?;
    let target = (device, Precision::F32);
    let (count, denoised) = (rows.count * d, |i: usize| (i / d) % 3 != 1);
    let check = |what: &str, got: Vec<f32>, want: &dyn Fn(usize) -> f32, tolerance: f64| {
        let want: Vec<f32> = (0..count).map(want).collect();
        Check::new(format!("{what} of {}x{d}", rows.count), &got[..count], &want, tolerance)
    };
    let given = |numbers: &[f32]| array(target, numbers, d, Ends::Plain);
    let added = given(&sum)?;
    norm_add(&given(&x)?, all, norm, &added)?;
    let replaced = given(&x)?;
    norm_denoised(&batch, norm, &replaced)?;
    let scaled = given(&x)?;
    scale_rows(&batch, FACTORS, &scaled)?;
    let cleared = given(&x)?;
    clear_rows(&cleared, all)?;
    let exact = rounding(Precision::F32);
    Ok([
        check("sum with the norm", added.read(all)?, &|i| sum[i] + normed[i], exact),
        check(
            "norm of denoised rows",
            replaced.read(all)?,
            &|i| if denoised(i) { normed[i] } else { x[i] },
            exact,
        ),
        check("factors", scaled.read(all)?, &|i| x[i] * FACTORS[usize::from(denoised(i))], 0.0),
        check("zeros", cleared.read(all)?, &|_| 0.0, 0.0),
    ])
}

/// The numbers of a head, of a table of embeddings, and of hidden states.
struct Numbers {
    k: usize,
    head: Vec<f32>,
    /// Transposed.
    table: Vec<f32>,
    x: Vec<f32>,
}

impl Numbers {
    /// The probabilities of a row among its allowed tokens, whose logits are divided by `scale`.
    fn probabilities(&self, row: usize, scale: f32) -> Vec<f64> {
        let x = &self.x[row * self.k..][..self.k];
        let logit = |head: &[f32]| {
            let pairs = x.iter().zip(head);
            let product: f64 = pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            let cap = f64::from(CAP);
            cap * (product / cap).tanh() / f64::from(scale)
        };
        let tokens = self.head.chunks(self.k).enumerate();
        let powers = tokens.map(|(token, x)| match is_allowed(row, token) {
            true => logit(x).exp(),
            false => 0.0,
        });
        let powers: Vec<f64> = powers.collect();
        let sum: f64 = powers.iter().sum();
        powers.iter().map(|power| power / sum).collect()
    }

    /// The probabilities of the first token in the denoised rows, and the mean embeddings of all rows.
    fn expected(&self, rows: &Rows, vocab: usize) -> (Vec<f32>, Vec<f32>) {
        let d = self.table.len() / vocab;
        let mut means = vec![0.0; rows.count * d];
        let mut first = Vec::with_capacity(rows.denoised.len());
        for (number, (row, scale)) in rows.denoised.iter().zip(&rows.scales).enumerate() {
            let probabilities = self.probabilities(number, *scale);
            first.push(probabilities[0] as f32);
            for (column, table) in self.table.chunks(vocab).enumerate() {
                let pairs = probabilities.iter().zip(table);
                let sum: f64 = pairs.map(|(p, x)| p * f64::from(*x)).sum();
                means[*row as usize * d + column] = sum as f32;
            }
        }
        (first, means)
    }
}

fn matrix(target: (&Device, Precision), weight: &[f32], k: usize) -> Result<DeviceMatrix> {
    let bias = None;
    DeviceMatrix::new(target.0, target.1, Matrix { weight, k, bias }, Epilogue::None)
}

/// The sizes of a head and its table.
struct Sizes {
    /// Numbers of a hidden state.
    k: usize,
    /// Numbers of an embedding.
    d: usize,
    vocab: usize,
}

/// Checks the records of capped and divided logits, the mean embeddings that are kept for their rows,
/// and that page copies take them along.
fn soft(
    random: &mut Random,
    (device, precision): (&Device, Precision),
    (rows, Sizes { k, d, vocab }): (Rows, Sizes),
) -> Result<[Check; 3]> {
    let count = rows.denoised.len();
    let mut numbers = |count: usize| kept(device, &random.numbers(count), precision);
    let numbers = Numbers {
        k,
        head: numbers(vocab * k)?,
        table: numbers(d * vocab)?,
        x: numbers(count.next_multiple_of(8) * k)?,
    };
    let target = (device, precision);
    let (head, table) = (matrix(target, &numbers.head, k)?, matrix(target, &numbers.table, vocab)?);
    let means = Means::new(device, [LIMITS.pages, PAGE], d)?;
    let batch = rows.upload(device, 1, &[])?;
    let (mut scores, mut records) = (DeviceScores::default(), Vec::new());
    scores.reserve(&head, batch.scored())?;
    scores.reserve_soft(&table, batch.scored())?;
    let x = array((device, precision), &numbers.x, k, Ends::Padded)?;
    let head = ScoringHead {
        matrix: &head,
        cap: Some(CAP),
        soft: Some(SoftHead { table: &table, means: &means }),
    };
    let range = 0..batch.scored();
    let scored = ScoredRows { batch: &batch, range };
    scores.score(&head, &x, scored, u32::MAX)?;
    scores.read(count, &mut records)?;
    let copied = rows.upload(device, 4, &[copy(1, 4)])?;
    means.copy_pages(&copied)?;
    let read = |batch: &DeviceBatch| {
        let out = poisoned((device, Precision::F32), (batch.rows(), d), Ends::Plain)?;
        means.read(batch, &out)?;
        out.read(rows.count)
    };
    let (first, want) = numbers.expected(&rows, vocab);
    let present =
        |record: &Option<Candidate>| record.map_or(f32::NAN, |candidate| candidate.present as f32);
    let got: Vec<f32> = records.iter().map(present).collect();
    let name = |what: &str| format!("{precision:?} {what} of {count} rows of {vocab} tokens");
    // Probabilities are rounded, and exponentials of sums in another order.
    let tolerance = 4.0 * rounding(precision);
    Ok([
        Check::new(name("capped logits"), &got, &first, 4.0 * rounding(Precision::F32)),
        Check::new(name("mean embeddings"), &read(&batch)?, &want, tolerance),
        Check::new(name("copied mean embeddings"), &read(&copied)?, &want, tolerance),
    ])
}
