//! Logits to records.

use crate::common::{Random, array, tensor};
use asynclane_kernels::device::{
    BatchArrays, BatchLimits, Device, DeviceBatch, DeviceScores, Precision, score_rows,
};
use asynclane_kernels::{AttentionSegment, Draw, LogitBias, Scored, Scorer, ScorerRow, score};

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

    fn cpu(&self) -> Vec<Scored> {
        let scorer = Scorer {
            rows: &self.rows,
            biases: &self.biases,
            allowed: &self.allowed,
            draws: &self.draws,
            mask: MASK,
        };
        score(&tensor(&self.logits, self.vocab), &scorer)
            .unwrap()
            .records
    }

    /// In two ranges, as a step takes them.
    fn device(&self) -> Vec<Option<Scored>> {
        let (count, device) = (self.rows.len(), Device::emulated());
        let zeros = vec![0; count];
        let scored: Vec<u32> = (0..count as u32).collect();
        let arrays = BatchArrays {
            tokens: &zeros,
            positions: &zeros,
            slots: &zeros,
            visible: &zeros,
            segments: &[AttentionSegment {
                rows: 0..count as u32,
                pages: 0..0,
            }],
            pages: &[],
            scored: &scored,
            scorers: &self.rows,
            biases: &self.biases,
            allowed: &self.allowed,
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
        };
        let mut batch = DeviceBatch::default();
        batch.upload(&device, &arrays, &limits).unwrap();
        let (mut scores, mut records) = (DeviceScores::default(), Vec::new());
        scores.reserve(&device, count).unwrap();
        for range in [0..count / 2, count / 2..count] {
            let part = &self.logits[range.start * self.vocab..range.end * self.vocab];
            let logits = array(Precision::F32, part, self.vocab, false);
            score_rows(&logits, &batch, range, MASK, &scores).unwrap();
        }
        scores.read(count, &mut records).unwrap();
        records
    }
}

fn compare(case: &Case, what: &str) {
    for (row, (got, want)) in case.device().into_iter().zip(case.cpu()).enumerate() {
        let got = got.expect("numbers");
        assert_eq!(
            (got.token, got.runner_up),
            (want.token, want.runner_up),
            "{what} row {row}"
        );
        let pairs = [
            (got.probability, want.probability),
            (got.runner_up_probability, want.runner_up_probability),
            (got.entropy, want.entropy),
            (got.present, want.present),
        ];
        for (got, want) in pairs {
            assert!(
                (got - want).abs() < 1e-6,
                "{what} row {row}: {got} for {want}"
            );
        }
        assert_eq!(got.gap, want.gap, "{what} row {row}");
    }
}

#[test]
fn records_are_those_of_the_cpu() {
    let mut random = Random(12);
    for vocab in [8, 33, 1000, 5001] {
        compare(
            &Case::new(&mut random, vocab, 24),
            &format!("{vocab} tokens"),
        );
    }
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
    case.logits.fill(f32::NEG_INFINITY);
    compare(&case, "no logit");
}

#[test]
fn logits_that_are_no_numbers_have_no_record() {
    let mut case = Case::new(&mut Random(14), 100, 4);
    for row in &mut case.rows {
        row.allowed = None;
    }
    case.logits[150] = f32::NAN;
    case.logits[399] = f32::INFINITY;
    let got: Vec<bool> = case.device().iter().map(Option::is_some).collect();
    assert_eq!(got, [true, false, true, false]);
}
