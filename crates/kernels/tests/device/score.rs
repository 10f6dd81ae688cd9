//! Hidden states to records.

use crate::common::{BOTH, Random, array, kept, tensor};
use asynclane_kernels::device::{
    BatchArrays, BatchLimits, Device, DeviceBatch, DeviceMatrix, DeviceScores, Precision,
};
use asynclane_kernels::{
    AttentionSegment, Draw, Epilogue, LogitBias, Matrix, Scored, Scorer, ScorerRow, score,
};
use std::ops::Range;

const MASK: u32 = 5;

/// What rows of logits are scored with.
struct Case {
    logits: Vec<f32>,
    vocab: usize,
    rows: Vec<ScorerRow>,
    biases: Vec<LogitBias>,
    allowed: Vec<u32>,
    draws: Vec<Draw>,
}

impl Case {
    fn new(random: &mut Random, vocab: usize, rows: usize) -> Self {
        let draw = |temperature, seed| Draw {
            temperature,
            top_p: 1.0,
            min_p: 0.0,
            top_k: 0,
            seed,
            clock: 7,
        };
        let logits: Vec<f32> = (0..rows * vocab).map(|_| 8.0 * random.next()).collect();
        let words = vocab.div_ceil(32);
        let mut biases = Vec::new();
        let mut describe = |row: usize| {
            let from = biases.len() as u32;
            for _ in 0..random.below(4) {
                biases.push(LogitBias {
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
                biases: from..biases.len() as u32,
                allowed: [None, Some(0), Some(1)][random.below(3)],
                tops: 0,
                draw: random.below(3) as u32,
            }
        };
        let rows: Vec<_> = (0..rows).map(&mut describe).collect();
        // One set with half of the tokens, one with two.
        let mut allowed: Vec<u32> = (0..words).map(|i| 0x5A5A_1234 ^ i as u32).collect();
        allowed.extend(vec![0; words]);
        allowed[words] = 1 << MASK | 1 << 7;
        Self {
            logits,
            vocab,
            rows,
            biases,
            allowed,
            draws: vec![draw(0.0, 1), draw(0.7, 1 << 40 | 3), draw(1e-30, 2)],
        }
    }

    fn count(&self) -> usize {
        self.rows.len()
    }

    fn scores(&self, logits: &[f32]) -> Vec<Scored> {
        let scorer = Scorer {
            rows: &self.rows,
            biases: &self.biases,
            allowed: &self.allowed,
            draws: &self.draws,
            mask: MASK,
        };
        score(&tensor(logits, self.vocab), &scorer).unwrap().records
    }

    /// An LM head that makes these logits of hidden states that name their row.
    fn head(&self, precision: Precision) -> DeviceMatrix {
        let k = self.count();
        let mut weight = vec![0.0; self.vocab * k];
        for (row, logits) in self.logits.chunks(self.vocab).enumerate() {
            for (token, logit) in logits.iter().enumerate() {
                weight[token * k + row] = *logit;
            }
        }
        let matrix = Matrix {
            weight: &weight,
            k,
            bias: None,
        };
        DeviceMatrix::new(&Device::emulated(), precision, matrix, Epilogue::None).unwrap()
    }

    /// Hidden states that name their row.
    fn names(&self, rows: Range<usize>) -> Vec<f32> {
        let k = self.count();
        rows.flat_map(|row| (0..k).map(move |i| f32::from(i == row)))
            .collect()
    }

    fn batch(&self, pad: usize) -> DeviceBatch {
        let (count, device) = (self.count(), Device::emulated());
        let zeros = vec![0; count];
        let scored: Vec<u32> = (0..count as u32).collect();
        let arrays = BatchArrays {
            tokens: &zeros,
            positions: &zeros,
            slots: &zeros,
            visible: &zeros,
            segments: &[AttentionSegment {
                rows: 0..count as u32,
                pages: 0..1,
            }],
            // In front of the biases, which have to be found all the same.
            pages: &[0],
            scored: &scored,
            scorers: &self.rows,
            biases: &self.biases,
            allowed: &self.allowed,
            set_words: self.vocab.div_ceil(32),
            hosted: &[],
            draws: &self.draws,
            copies: &[],
        };
        let limits = BatchLimits {
            tokens: 1,
            positions: 1,
            vocab: self.vocab,
            pages: 1,
            page: 1,
            tile: 1,
            pad,
        };
        let mut batch = DeviceBatch::default();
        batch.upload(&device, &arrays, &limits).unwrap();
        batch
    }

    /// In two ranges, as a step takes them when there are many.
    fn device(&self, precision: Precision) -> Vec<Option<Scored>> {
        let (count, head, batch) = (self.count(), self.head(precision), self.batch(1));
        let (mut scores, mut records) = (DeviceScores::default(), Vec::new());
        scores.reserve(&head, count).unwrap();
        for range in [0..count / 2, count / 2..count] {
            let x = array(precision, &self.names(range.clone()), count, true);
            scores.score(&head, &x, (&batch, range), MASK).unwrap();
        }
        scores.read(count, &mut records).unwrap();
        records
    }
}

fn compare(case: &Case, what: &str) {
    for precision in BOTH {
        let want = case.scores(&kept(&case.logits, precision));
        let got = case.device(precision);
        assert_eq!(got.len(), want.len());
        for (row, (got, want)) in got.into_iter().zip(want).enumerate() {
            let what = format!("{precision:?} {what} row {row}");
            same(&got.expect("numbers"), &want, &what);
        }
    }
}

fn same(got: &Scored, want: &Scored, what: &str) {
    assert_eq!(
        (got.token, got.runner_up),
        (want.token, want.runner_up),
        "{what}"
    );
    let pairs = [
        (got.probability, want.probability),
        (got.runner_up_probability, want.runner_up_probability),
        (got.entropy, want.entropy),
        (got.present, want.present),
    ];
    for (got, want) in pairs {
        assert!((got - want).abs() < 1e-6, "{what}: {got} for {want}");
    }
    assert_eq!(got.gap, want.gap, "{what}");
}

#[test]
fn records_are_those_of_the_cpu() {
    let mut random = Random(12);
    for vocab in [8, 33, 130, 1000, 5001] {
        compare(
            &Case::new(&mut random, vocab, 24),
            &format!("{vocab} tokens"),
        );
    }
}

/// A token may have several biases, and a row more than a warp reads at a time.
#[test]
fn many_biases_are_applied_in_their_order() {
    let mut random = Random(15);
    let mut case = Case::new(&mut random, 300, 6);
    case.biases.clear();
    for row in 0..6 {
        let from = case.biases.len() as u32;
        for i in 0..90 {
            case.biases.push(LogitBias {
                token: random.below(40) as u32 * 7,
                repetition: 1.0 + (i % 3) as f32 / 2.0,
                amount: random.next(),
            });
        }
        case.rows[row].biases = from..case.biases.len() as u32;
    }
    compare(&case, "many biases");
}

#[test]
fn ties_go_to_the_lower_token_and_bans_leave_nothing() {
    let mut random = Random(13);
    let mut case = Case::new(&mut random, 300, 6);
    for (i, logit) in case.logits.iter_mut().enumerate() {
        *logit = if i % 300 % 40 == 6 { 2.0 } else { -1.0 };
    }
    compare(&case, "ties");
    case.allowed.fill(0);
    for row in &mut case.rows {
        row.allowed = Some(0);
    }
    compare(&case, "all banned");
}

/// Hidden states so large that some logits are none: in one row all, in one row one.
#[test]
fn logits_that_are_no_numbers_have_no_record() {
    for precision in BOTH {
        let mut case = Case::new(&mut Random(14), 100, 4);
        for row in &mut case.rows {
            row.allowed = None;
            row.biases = 0..0;
        }
        case.logits.fill(1.0);
        // Too large for an f32 in row 3 alone, which is multiplied by more.
        case.logits[3 * 100 + 99] = 3e38;
        let mut x = case.names(0..4);
        x[4 + 1] = f32::NAN;
        x[3 * 4 + 3] = 4.0;
        let (head, batch) = (case.head(precision), case.batch(1));
        let (mut scores, mut records) = (DeviceScores::default(), Vec::new());
        scores.reserve(&head, 4).unwrap();
        let x = array(precision, &x, 4, true);
        scores.score(&head, &x, (&batch, 0..4), MASK).unwrap();
        scores.read(4, &mut records).unwrap();
        let got: Vec<bool> = records.iter().map(Option::is_some).collect();
        assert_eq!(got, [true, false, true, false], "{precision:?}");
    }
}

/// Rows that pad a batch are scored too, and change nothing.
#[test]
fn padding_changes_no_record() {
    let case = Case::new(&mut Random(16), 700, 9);
    for precision in BOTH {
        let (head, batch) = (case.head(precision), case.batch(64));
        assert_eq!((batch.rows(), batch.scored()), (64, 64));
        let mut x = case.names(0..9);
        x.resize(64 * 9, 0.5);
        let (mut scores, mut records) = (DeviceScores::default(), Vec::new());
        scores.reserve(&head, 64).unwrap();
        let x = array(precision, &x, 9, true);
        scores.score(&head, &x, (&batch, 0..64), MASK).unwrap();
        scores.read(9, &mut records).unwrap();
        assert_eq!(records, case.device(precision), "{precision:?}");
    }
}
