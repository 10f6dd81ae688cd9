//! The LM head: biases, ties, bans, padding, NaN logits.

use super::super::data::{Ends, Random, array};
use super::super::score::Case;
use super::{BOTH, assert_all};
use crate::device::Device;
use crate::score::LogitBias;

fn compare(case: &Case) {
    for precision in BOTH {
        assert_all(case.checks((&Device::emulated(), precision)).unwrap());
    }
}

/// A token may have several biases, and a row may have more biases than a warp reads at a time.
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
    compare(&case);
}

#[test]
fn ties_go_to_the_lower_token_and_bans_leave_nothing() {
    let mut random = Random(13);
    let mut case = Case::new(&mut random, 300, 6);
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
    let device = Device::emulated();
    for precision in BOTH {
        let on = (&device, precision);
        let mut case = Case::new(&mut Random(14), 100, 4);
        for row in &mut case.rows {
            row.allowed = None;
            row.biases = 0..0;
        }
        case.logits.fill(1.0);
        // Overflows f32 only in row 3, which is multiplied by a larger number.
        case.logits[3 * 100 + 99] = 3e38;
        let mut x = case.names(0..4);
        x[4 + 1] = f32::NAN;
        x[3 * 4 + 3] = 4.0;
        let x = array(on, &x, 4, Ends::Padded).unwrap();
        let (head, batch) = (case.head(on).unwrap(), case.batch(&device, 1).unwrap());
        let records = case.records(&head, &batch, &[(0..4, x)]).unwrap();
        let got: Vec<bool> = records.iter().map(Option::is_some).collect();
        assert_eq!(got, [true, false, true, false], "{precision:?}");
    }
}

/// Padding rows are scored too, and change no record.
#[test]
fn padding_changes_no_record() {
    let device = Device::emulated();
    let case = Case::new(&mut Random(16), 700, 9);
    for precision in BOTH {
        let on = (&device, precision);
        let (head, batch) = (case.head(on).unwrap(), case.batch(&device, 64).unwrap());
        assert_eq!((batch.rows(), batch.scored()), (64, 64));
        let mut x = case.names(0..9);
        x.resize(64 * 9, 0.5);
        let x = array(on, &x, 9, Ends::Padded).unwrap();
        let records = case.records(&head, &batch, &[(0..64, x)]).unwrap();
        assert_eq!(records, case.run(on).unwrap(), "{precision:?}");
    }
}
