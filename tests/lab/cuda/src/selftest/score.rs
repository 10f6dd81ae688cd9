//! The LM head and its reduction.

use super::data::{Ends, LIMITS, NOTHING, Random, array, kept, tensor, values};
use super::products::inner;
use super::{Check, Tell, cpu};
use crate::Result;
use kernels::Visible;
use kernels::device::ProductTile;
use kernels::device::{
    Array, BatchArrays, BatchLimits, Device, DeviceBatch, DeviceMatrix, DeviceScores, MatrixFormat,
    Precision, ScoredRows, ScoringHead,
};
use kernels::{Epilogue, Linear, Matrix, WeightDtype};
use kernels::{Scorer, ScorerRow, Scores, score};
use std::ops::Range;
use step::{Bias, Candidate, PageId, Sampling, Segment, TopToken};

pub(super) const MASK: u32 = 5;

/// A format of each kind that LM heads have kernels for.
#[cfg(test)]
pub(super) const HEADS: [MatrixFormat; 5] = [
    MatrixFormat::F32,
    MatrixFormat::Bf16,
    MatrixFormat::Int8,
    MatrixFormat::Int8w,
    MatrixFormat::Packed(kernels::Form::Four),
];

/// Rows of logits and their scorers.
#[derive(Clone)]
pub(super) struct Case {
    pub(super) logits: Vec<f32>,
    pub(super) vocab: usize,
    pub(super) rows: Vec<ScorerRow>,
    pub(super) biases: Vec<Bias>,
    pub(super) allowed: Vec<u32>,
    pub(super) draws: Vec<Sampling>,
    /// The tile of the LM head's product; `None`: the fastest.
    pub(super) tile: Option<&'static ProductTile>,
}

/// Records and most probable tokens of rows.
pub(super) type Records = (Vec<Option<Candidate>>, Vec<TopToken>);

pub(super) fn checks(random: &mut Random, target: (&Device, Precision), tell: &mut Tell<'_>) {
    for (rows, vocab) in [(1, 8), (24, 33), (24, 130), (70, 1000), (24, 5001)] {
        tell.case("LM head", Case::new(random, vocab, rows).checks(target));
    }
}

/// Settings without filters, then with them.
fn draws(random: &mut Random) -> Vec<Sampling> {
    let draw = |temperature, seed| Sampling { temperature, seed, clock: 7, ..Sampling::GREEDY };
    let hot = draw(1.3, 9);
    let filtered = [
        Sampling { top_k: 1 + random.below(7) as u32, ..hot },
        Sampling { top_p: 0.9, ..hot },
        Sampling { min_p: 0.02, ..hot },
        Sampling { top_k: 20, top_p: 0.7, min_p: 1e-4, ..draw(2.5, 11) },
        Sampling { top_p: 0.0, ..hot },
        Sampling { top_k: 1000, top_p: 0.999_999, ..draw(0.3, 12) },
    ];
    // Too cold for single precision.
    let cold = draw(1e-40, 13);
    let all = [draw(0.0, 1), draw(0.7, 1 << 40 | 3), draw(1e-30, 2)];
    all.into_iter().chain(filtered).chain([cold]).collect()
}

impl Case {
    pub(super) fn new(random: &mut Random, vocab: usize, rows: usize) -> Self {
        let draws = draws(random);
        let logits: Vec<f32> = (0..rows * vocab).map(|_| 8.0 * random.next()).collect();
        let words = vocab.div_ceil(32);
        let mut biases = Vec::new();
        let mut describe = |row: usize| {
            let first = biases.len() as u32;
            for _ in 0..random.below(4) {
                biases.push(Bias {
                    token: random.below(vocab) as u32,
                    repetition: 1.0 + random.below(3) as f32 / 4.0,
                    amount: match random.below(3) {
                        0 => f32::NEG_INFINITY,
                        _ => 3.0 * random.next(),
                    },
                });
            }
            ScorerRow {
                input: random.below(vocab + 2) as u32,
                position: row as u32,
                biases: first..biases.len() as u32,
                allowed: [None, Some(0), Some(1)][random.below(3)],
                tops: [0, 0, 1, 5, 300][random.below(5)].min(vocab as u32 - 1).min(256),
                among: [None, None, Some(0), Some(1)][random.below(4)],
                segment: random.below(10) as u32,
            }
        };
        let rows: Vec<_> = (0..rows).map(&mut describe).collect();
        // One set with half of the tokens, one set with two tokens.
        let mut allowed: Vec<u32> = (0..words).map(|i| 0x5A5A_1234 ^ i as u32).collect();
        allowed.extend(vec![0; words]);
        allowed[words] = 1 << MASK | 1 << 7;
        Self { logits, vocab, rows, biases, allowed, draws, tile: None }
    }

    /// A segment for every setting; the first has all rows.
    fn segments(&self) -> Vec<Segment> {
        let count = self.count() as u32;
        let settings = self.draws.iter().enumerate();
        let segments = settings.map(|(number, sampling)| Segment {
            rows: if number == 0 { 0..count } else { count..count },
            pages: 0..1,
            sampling: *sampling,
        });
        segments.collect()
    }

    pub(super) fn count(&self) -> usize {
        self.rows.len()
    }

    fn on_cpu(&self, (device, precision): (&Device, Precision)) -> Result<Scores> {
        let scorer = Scorer {
            rows: &self.rows,
            biases: &self.biases,
            allowed: &self.allowed,
            segments: &self.segments(),
            mask: MASK,
        };
        let logits = self.rounded((device, precision))?;
        cpu(score(&tensor(&logits, self.vocab)?, &scorer))
    }

    /// The logits that a head in this precision has.
    pub(super) fn rounded(&self, (device, precision): (&Device, Precision)) -> Result<Vec<f32>> {
        match precision {
            Precision::Int8 => self.in_integers(),
            Precision::F32 | Precision::Bf16 => kept(device, &self.logits, precision),
        }
    }

    /// The logits of a head in int8 on the CPU.
    fn in_integers(&self) -> Result<Vec<f32>> {
        let k = self.count();
        let matrix = Matrix { weight: &self.weight(k), k, bias: None };
        let head = cpu(Linear::new(matrix, WeightDtype::Int8, Epilogue::None))?;
        values(&cpu(head.forward(&tensor(&self.names(0..k, k), k)?))?)
    }

    /// An LM head that produces these logits from one-hot hidden states.
    pub(super) fn head(
        &self,
        (device, format): (&Device, impl Into<MatrixFormat>),
    ) -> Result<DeviceMatrix> {
        let format = format.into();
        let k = inner(format, self.count());
        let matrix = Matrix { weight: &self.weight(k), k, bias: None };
        DeviceMatrix::new(device, format, matrix, Epilogue::None)
    }

    /// The weights of that head, for hidden states of `k` numbers.
    pub(super) fn weight(&self, k: usize) -> Vec<f32> {
        let mut weight = vec![0.0; self.vocab * k];
        for (row, logits) in self.logits.chunks(self.vocab).enumerate() {
            for (token, logit) in logits.iter().enumerate() {
                weight[token * k + row] = *logit;
            }
        }
        weight
    }

    /// Hidden states of `k` numbers that are one-hot vectors of the row's index.
    pub(super) fn names(&self, rows: Range<usize>, k: usize) -> Vec<f32> {
        let number = |i, row| if i == row { 1.0 } else { 0.0 };
        rows.flat_map(|row| (0..k).map(move |i| number(i, row))).collect()
    }

    pub(super) fn batch(&self, device: &Device, pad: usize) -> Result<DeviceBatch> {
        let count = self.count();
        let zeros = vec![0; count];
        let scored: Vec<u32> = (0..count as u32).collect();
        let arrays = BatchArrays {
            tokens: &zeros,
            positions: &zeros,
            slots: &zeros,
            visible: &vec![Visible::default(); count],
            segments: &self.segments(),
            // Pages come before the biases and shift their offsets.
            pages: &[PageId(0)],
            scored: &scored,
            scorers: &self.rows,
            biases: &self.biases,
            allowed: &self.allowed,
            ..NOTHING
        };
        let limits = BatchLimits { vocab: self.vocab, pad, ..LIMITS };
        let mut batch = DeviceBatch::default();
        batch.upload(device, &arrays, &limits)?;
        Ok(batch)
    }

    /// The scores of these rows of hidden states, at most as many as the batch scores.
    pub(super) fn records(
        &self,
        head: &DeviceMatrix,
        batch: &DeviceBatch,
        ranges: &[(Range<usize>, Array)],
    ) -> Result<Records> {
        let (mut scores, mut records, mut tops) = (DeviceScores::default(), vec![], vec![]);
        scores.reserve(head, batch.scored())?;
        scores.use_tile(self.tile);
        for (range, x) in ranges {
            let range = range.clone();
            scores.score(&ScoringHead::plain(head), x, ScoredRows { batch, range }, MASK)?;
        }
        scores.read(self.count(), &mut records)?;
        let listed = self.rows.iter().map(|row| row.tops as usize);
        scores.read_tops(listed.sum(), &mut tops)?;
        Ok((records, tops))
    }

    /// The scores, computed in two ranges, like a step with many rows.
    pub(super) fn run(&self, (device, precision): (&Device, Precision)) -> Result<Records> {
        self.run_in((device, precision.into()))
    }

    /// The same with weights of a number format.
    pub(super) fn run_in(&self, (device, format): (&Device, MatrixFormat)) -> Result<Records> {
        self.run_with((device, format), &self.head((device, format))?)
    }

    /// The same with this head, as wide as one of the format.
    pub(super) fn run_with(
        &self,
        (device, format): (&Device, MatrixFormat),
        head: &DeviceMatrix,
    ) -> Result<Records> {
        let target = (device, format.inputs());
        let (count, k) = (self.count(), inner(format, self.count()));
        let ranges = [0..count / 2, count / 2..count].map(|range| {
            let names = self.names(range.clone(), k);
            array(target, &names, k, Ends::Padded).map(|x| (range, x))
        });
        let ranges = ranges.into_iter().collect::<Result<Vec<_>>>()?;
        self.records(head, &self.batch(device, 1)?, &ranges)
    }

    pub(super) fn checks(&self, target: (&Device, Precision)) -> Result<[Check; 2]> {
        let (want, (got, tops)) = (self.on_cpu(target)?, self.run(target)?);
        let name = |what: &str| {
            let (rows, vocab) = (self.count(), self.vocab);
            format!("{:?} LM head, {rows} rows of {vocab} tokens: {what}", target.1)
        };
        let (mut wrong, mut error) = (want.tops.len().abs_diff(tops.len()), 0.0_f64);
        for (got, want) in tops.iter().zip(&want.tops) {
            wrong += usize::from(got.token != want.token);
            if got.logprob != want.logprob {
                let difference = (got.logprob - want.logprob).abs();
                // Both are rounded to f32.
                error = error.max(f64::from(difference / want.logprob.abs().max(1.0)));
            }
        }
        wrong += want.candidates.len().abs_diff(got.len());
        for (got, want) in got.iter().zip(&want.candidates) {
            let Some(got) = got else {
                wrong += 1;
                continue;
            };
            let same = (got.token, got.runner_up) == (want.token, want.runner_up);
            wrong += usize::from(!same || got.gap != want.gap);
            for (got, want) in [
                (got.probability, want.probability),
                (got.runner_up_probability, want.runner_up_probability),
                (got.entropy.into(), want.entropy.into()),
                (got.present, want.present),
            ] {
                error = error.max((got - want).abs());
            }
        }
        Ok([
            Check { name: name("wrong tokens"), error: wrong as f64, tolerance: 0.0 },
            Check { name: name("probabilities"), error, tolerance: 1e-6 },
        ])
    }
}
