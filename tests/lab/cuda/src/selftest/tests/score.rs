//! The LM head: biases, ties, bans, padding, NaN logits.

use super::super::data::{Ends, Random, array};
use super::super::products::inner;
use super::super::score::{Case, HEADS, MASK};
use super::{BOTH, assert_all};
use kernels::device::{DeviceMatrix, MatrixFormat, ProductTile};
use kernels::{Epilogue, Form, Matrix, row_in_codes};
use step::Bias;

fn compare(case: &Case) {
    for precision in BOTH {
        assert_all(case.checks((&crate::emulated_small(), precision)).unwrap());
    }
}

/// A token may have several biases, and a row may have more biases than a warp reads at a time.
#[test]
fn many_biases_are_applied_in_their_order() {
    let mut random = Random(15);
    let mut case = Case::new(&mut random, 300, 6);
    case.biases.clear();
    for row in 0..6 {
        let first = case.biases.len() as u32;
        for i in 0..90 {
            case.biases.push(Bias {
                token: random.below(40) as u32 * 7,
                repetition: 1.0 + (i % 3) as f32 / 2.0,
                amount: random.next(),
            });
        }
        case.rows[row].biases = first..case.biases.len() as u32;
    }
    compare(&case);
}

#[test]
fn ties_go_to_the_lower_token_and_bans_leave_nothing() {
    let mut random = Random(13);
    let mut case = Case::new(&mut random, 300, 40);
    for (i, logit) in case.logits.iter_mut().enumerate() {
        *logit = if i % 300 % 40 == 6 { 2.0 } else { -1.0 };
    }
    compare(&case);
    case.allowed.fill(0);
    for row in &mut case.rows {
        row.allowed = Some(0);
    }
    compare(&case);
}

/// In one row all logits are NaN, in another row one logit is infinite.
#[test]
fn a_row_with_non_finite_logits_has_no_record() {
    let device = crate::emulated_small();
    for precision in BOTH {
        let target = (&device, precision);
        let mut case = Case::new(&mut Random(14), 100, 4);
        for row in &mut case.rows {
            row.allowed = None;
            row.biases = 0..0;
            row.tops = 3;
        }
        case.logits.fill(1.0);
        // Overflows f32 only in row 3, which is multiplied by a larger number.
        case.logits[3 * 100 + 99] = 3e38;
        let mut x = case.names(0..4, case.count());
        x[4 + 1] = f32::NAN;
        x[3 * 4 + 3] = 4.0;
        let x = array(target, &x, 4, Ends::Padded).unwrap();
        let (head, batch) = (case.head(target).unwrap(), case.batch(&device, 1).unwrap());
        let (records, _) = case.records(&head, &batch, &[(0..4, x)]).unwrap();
        let got: Vec<bool> = records.iter().map(Option::is_some).collect();
        assert_eq!(got, [true, false, true, false], "{precision:?}");
    }
}

/// Padding rows are scored too, and change no record.
#[test]
fn padding_changes_no_record() {
    let device = crate::emulated_small();
    let case = Case::new(&mut Random(16), 700, 9);
    for precision in BOTH {
        let target = (&device, precision);
        let (head, batch) = (case.head(target).unwrap(), case.batch(&device, 64).unwrap());
        assert_eq!((batch.rows(), batch.scored()), (64, 64));
        let mut x = case.names(0..9, case.count());
        x.resize(64 * 9, 0.5);
        let x = array(target, &x, 9, Ends::Padded).unwrap();
        let records = case.records(&head, &batch, &[(0..64, x)]).unwrap();
        assert_eq!(records, case.run(target).unwrap(), "{precision:?}");
    }
}

/// Every kind of filter in one batch, logits with ties, zeros of both signs, and more rows than are
/// filtered at a time.
#[test]
fn filters_choose_the_tokens_of_the_cpu() {
    let mut random = Random(18);
    for (vocab, step) in [(3, 1.0), (257, 0.5), (1000, 0.0)] {
        let mut case = Case::new(&mut random, vocab, 66);
        for logit in &mut case.logits {
            if step > 0.0 {
                *logit = (*logit / step).round() * step;
            }
        }
        for (number, row) in case.rows.iter_mut().enumerate() {
            row.segment = 3 + number as u32 % 6;
            row.allowed = row.allowed.filter(|_| number % 3 == 0);
        }
        for draw in &mut case.draws {
            draw.seed = u64::from(random.below(1 << 20) as u32);
        }
        compare(&case);
    }
}

/// A row has the same record and the same most probable tokens alone and beside others.
#[test]
fn filtered_rows_do_not_change_each_other() {
    let device = crate::emulated_small();
    let case = Case::new(&mut Random(19), 600, 30);
    for precision in BOTH {
        let target = (&device, precision);
        let (records, tops) = case.run(target).unwrap();
        let mut first = 0;
        for (number, row) in case.rows.iter().enumerate() {
            let own = first..first + row.tops as usize;
            first = own.end;
            if number % 7 != 0 {
                continue;
            }
            let mut alone = Case::new(&mut Random(19), 600, 30);
            alone.rows = vec![row.clone()];
            let (head, batch) = (case.head(target).unwrap(), alone.batch(&device, 1).unwrap());
            let x = array(target, &case.names(number..number + 1, case.count()), 30, Ends::Padded)
                .unwrap();
            let got = alone.records(&head, &batch, &[(0..1, x)]).unwrap();
            assert_eq!(got, (vec![records[number]], tops[own].to_vec()), "{precision:?}");
        }
    }
}

/// A packed head has the bits of one with the same weights in bf16, in every tile.
#[test]
fn packed_heads_have_the_bits_of_their_weights_in_bf16() {
    let (device, format) = (crate::emulated_small(), MatrixFormat::Packed(Form::Four));
    let mut case = Case::new(&mut Random(43), 300, 40);
    let k = inner(format, case.count());
    let weight: Vec<f32> = case.weight(k).chunks(k).flat_map(row_in_codes).collect();
    let matrix = Matrix { weight: &weight, k, bias: None };
    let plain = DeviceMatrix::new(&device, MatrixFormat::Bf16, matrix, Epilogue::None).unwrap();
    let want = case.run_with((&device, format), &plain).unwrap();
    let tiles = ProductTile::all(format).iter().filter(|tile| tile.names.head.is_some());
    for tile in tiles {
        case.tile = Some(tile);
        assert_eq!(case.run_in((&device, format)).unwrap(), want, "{}", tile.names.gemm);
    }
}

/// Sums of a record, of w = exp(x - base) and of (x - base) w, or of a strip with its largest logit as base.
#[derive(Clone, Copy, Default)]
struct Sums<T> {
    plain: T,
    weighted: T,
}

/// The largest logit of a strip and its sums, in the order of `cuda/strips.cuh`: each lane of a quad adds its
/// columns, then the lanes are added in pairs.
fn strip(logits: &[f32]) -> (f32, Sums<f32>) {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let lane = |lane: usize| {
        let mut sums = Sums::default();
        for (_, x) in logits.iter().enumerate().filter(|(column, _)| column % 8 / 2 == lane) {
            let below = x - most;
            let power = below.exp();
            sums.plain += power;
            let finite = if below > f32::NEG_INFINITY { below } else { 0.0 };
            sums.weighted = finite.mul_add(power, sums.weighted);
        }
        sums
    };
    let add = |a: Sums<f32>, b: Sums<f32>| Sums {
        plain: a.plain + b.plain,
        weighted: a.weighted + b.weighted,
    };
    (most, add(add(lane(0), lane(1)), add(lane(2), lane(3))))
}

/// The sum over 128 threads: over the lanes of each of four warps in pairs, then over the warps.
fn block_sum(numbers: &[f64; 128]) -> f64 {
    let warps = numbers.chunks(32).map(|warp| {
        let mut lanes = warp.to_vec();
        while lanes.len() > 1 {
            let (low, high) = lanes.split_at(lanes.len() / 2);
            lanes = low.iter().zip(high).map(|(a, b)| a + b).collect();
        }
        lanes[0]
    });
    warps.fold(0.0, |sum, warp| sum + warp)
}

/// The probability of the largest logit without the mask token's, and the entropy.
fn plain_record(logits: &[f32]) -> (f64, f32) {
    let mut others = logits.to_vec();
    others[MASK as usize] = f32::NEG_INFINITY;
    let masked = (logits[MASK as usize], Sums { plain: 1.0, weighted: 0.0 });
    let strips: Vec<(f32, Sums<f32>)> = others.chunks(64).map(strip).collect();
    let top = others.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let base = f64::from(top.max(masked.0));
    let mut threads = [Sums { plain: 0.0, weighted: 0.0 }; 128];
    let all = std::iter::once((0, masked)).chain(strips.into_iter().enumerate());
    for (number, (most, sums)) in all {
        let below = f64::from(most) - base;
        let power = below.exp();
        let thread = &mut threads[number % 128];
        thread.plain += power * f64::from(sums.plain);
        thread.weighted += power * (f64::from(sums.weighted) + below * f64::from(sums.plain));
    }
    let total = block_sum(&threads.map(|thread| thread.plain));
    let weighted = block_sum(&threads.map(|thread| thread.weighted));
    let entropy = total.ln() - weighted / total;
    ((f64::from(top) - base).exp() / total, entropy.max(0.0) as f32)
}

/// Every tile gives the records of a plain loop over strips.
#[test]
fn records_have_the_bits_of_a_plain_loop_in_every_tile() {
    let device = crate::emulated_small();
    for (vocab, rows) in [(8300, 3), (300, 70), (130, 260)] {
        let mut case = Case::new(&mut Random(47), vocab, rows);
        case.biases.clear();
        for (number, row) in case.rows.iter_mut().enumerate() {
            (row.biases, row.allowed, row.tops) = (0..0, None, 0);
            row.segment = number as u32 % 2;
        }
        for format in HEADS {
            let mut want = None;
            let tiles = ProductTile::all(format).iter().filter(|tile| tile.names.head.is_some());
            for tile in tiles {
                case.tile = Some(tile);
                let got = case.run_in((&device, format)).unwrap();
                assert_eq!(got, *want.get_or_insert_with(|| got.clone()), "{}", tile.names.gemm);
            }
            let (records, _) = want.unwrap();
            // The tests of products cover formats of which weights alone have fewer bits.
            if matches!(format, MatrixFormat::Int8w | MatrixFormat::Packed(_)) {
                continue;
            }
            let logits = case.rounded((&device, format.inputs())).unwrap();
            for (number, logits) in logits.chunks(vocab).enumerate().step_by(2) {
                let record = records[number].unwrap();
                let (probability, entropy) = plain_record(logits);
                assert_eq!(
                    (record.probability, record.entropy),
                    (probability, entropy),
                    "{number}"
                );
            }
        }
    }
}
