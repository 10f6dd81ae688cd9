//! Rows that see more or less than a prefix of their slots.

use asynclane_sim::{SimConfig, SimExecutor};
use step::{Attention, Row, Slot};

use crate::common::{batch, config, executor, pages, row, rows, run};

const PROMPT: [u32; 6] = [9, 10, 11, 12, 13, 14];

fn causal() -> SimExecutor {
    SimExecutor::new(SimConfig { attention: Attention::Causal, ..config() }).unwrap()
}

/// The prompt under causal attention.
fn committed(prompt: [u32; 6]) -> Vec<Row> {
    let rows = (0..).zip(prompt);
    rows.map(|(slot, token)| row(token, slot, slot + 1)).collect()
}

/// The candidates of the prompt's rows and of `last`.
fn with(prompt: [u32; 6], last: Row) -> Vec<step::Candidate> {
    let mut all = committed(prompt);
    all.push(last);
    run(&mut executor(), &batch(all, &pages(0..2))).unwrap()
}

#[test]
fn slots_beyond_the_range_that_follow_it_make_a_prefix() {
    let mask = config().mask;
    let prefix = with(PROMPT, row(mask, 6, 7));
    for tail in 1..=6 {
        let parted = Row { beyond: (1 << tail) - 1, ..row(mask, 6, 7 - tail) };
        assert_eq!(with(PROMPT, parted), prefix, "{tail}");
    }
}

#[test]
fn a_slot_that_a_row_does_not_see_changes_nothing() {
    let mask = config().mask;
    let mut other = PROMPT;
    other[2] = 40;
    let beside = |hole: u64| Row { beyond: 0b11_1111 & !hole, ..row(mask, 6, 0) };
    // Rows that see nothing but their own slot: no other content depends on slot 2.
    let alone = |last, prompt: [u32; 6]| {
        let rows =
            (0..).zip(prompt).map(|(slot, token)| Row { beyond: 1 << slot, ..row(token, slot, 0) });
        let mut rows: Vec<Row> = rows.collect();
        rows.push(last);
        run(&mut executor(), &batch(rows, &pages(0..2))).unwrap()[6]
    };
    let last = |row, prompt| with(prompt, row)[6];
    assert_eq!(alone(beside(1 << 2), PROMPT), alone(beside(1 << 2), other));
    assert_ne!(alone(beside(1 << 3), PROMPT), alone(beside(1 << 3), other));
    // Under causal attention the slots from 3 on saw slot 2.
    assert_ne!(last(beside(1 << 2), PROMPT), last(beside(1 << 2), other));
}

/// Verifier rows stand at the positions of drafts: no row sees both.
#[test]
fn a_position_may_be_held_twice_but_not_seen_twice() {
    let mask = config().mask;
    let verifier = |visible_end: u32, bit: u32| Row {
        slot: Slot::new(6),
        visible_end: Slot::new(visible_end),
        beyond: 1 << bit,
        ..row(mask, 5, 0)
    };
    let mut rows = committed(PROMPT);
    rows.push(verifier(5, 1));
    run(&mut causal(), &batch(rows.clone(), &pages(0..2))).unwrap();
    rows[6] = verifier(6, 0);
    let error = run(&mut causal(), &batch(rows.clone(), &pages(0..2)));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("both hold position 5"), "{error}");
    // Causal weights see their own slot.
    rows[6] = Row { beyond: 1 << 2, ..verifier(5, 1) };
    rows.push(row(mask, 7, 8));
    let error = run(&mut causal(), &batch(rows, &pages(0..2)));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("its own slot"), "{error}");
}

#[test]
fn the_reach_lies_within_the_page_table() {
    let mut all = rows(&PROMPT, 0, 6);
    all[0].beyond = 1 << 63;
    assert!(run(&mut executor(), &batch(all, &pages(0..2))).is_err());
}
