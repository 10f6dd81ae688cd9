//! The KV store as a real model's: what is read must have been written, by the same sequence.

use std::ops::Range;

use crate::common::{Decoder, batch, config, executor, pages, push, row, rows, run};
use asynclane_sim::{Fidelity, SimConfig, SimExecutor};
use step::{Batch, Bias, PageCopy, PageId, Position, Row, Score, Slot};

/// A prompt of four tokens and four masks, under full attention.
fn prefill(prompt: [u32; 4]) -> Vec<Row> {
    let mut tokens = prompt.to_vec();
    tokens.extend([config().mask; 4]);
    rows(&tokens, 0, 8)
}

fn refused(executor: &mut SimExecutor, batch: &Batch) -> String {
    run(executor, batch).expect_err("the batch breaks the contract").to_string()
}

fn lenient() -> SimExecutor {
    SimExecutor::new(SimConfig { fidelity: Fidelity::Lenient, ..config() }).unwrap()
}

#[test]
fn a_slot_never_written_may_not_be_read() {
    let mut rows = prefill([9, 10, 11, 12]);
    rows[5].visible_end = Slot::new(9);
    let what = refused(&mut executor(), &batch(rows, &pages(0..3)));
    assert!(what.contains("slot 8") && what.contains("never written"), "{what}");
}

#[test]
fn a_page_of_another_sequence_may_not_be_read() {
    let mut executor = executor();
    run(&mut executor, &batch(prefill([9, 10, 11, 12]), &pages([0, 1]))).unwrap();
    run(&mut executor, &batch(prefill([20, 21, 22, 23]), &pages([2, 3]))).unwrap();
    let mask = config().mask;
    let own = batch(rows(&[mask; 2], 4, 8), &pages([2, 3]));
    run(&mut executor, &own).unwrap();
    let mut foreign = batch(rows(&[mask; 2], 4, 8), &pages([2, 3]));
    foreign.pages[0] = PageId(0);
    let what = refused(&mut executor, &foreign);
    assert!(what.contains("another sequence's"), "{what}");
}

#[test]
fn a_recycled_page_must_be_written_before_it_is_read() {
    let mut executor = executor();
    run(&mut executor, &batch(prefill([9, 10, 11, 12]), &pages([0, 1]))).unwrap();
    let mut next = prefill([20, 21, 22, 23]);
    next.truncate(4);
    next.iter_mut().for_each(|row| row.visible_end = Slot::new(4));
    run(&mut executor, &batch(next.clone(), &pages([0, 1]))).unwrap();
    let mut last = next.split_off(3);
    last[0].visible_end = Slot::new(8);
    let what = refused(&mut executor, &batch(last, &pages([0, 1])));
    assert!(what.contains("slot 4") && what.contains("another sequence's"), "{what}");
}

#[test]
fn a_refresh_may_extend_over_recycled_pages() {
    let mut executor = executor();
    run(&mut executor, &batch(prefill([9, 10, 11, 12]), &pages([0, 1]))).unwrap();
    run(&mut executor, &batch(prefill([20, 21, 22, 23]), &pages([2, 3]))).unwrap();
    let mut tokens = vec![9, 10, 11, 12, 50];
    tokens.extend([config().mask; 7]);
    run(&mut executor, &batch(rows(&tokens, 0, 12), &pages([0, 1, 3]))).unwrap();
    run(&mut executor, &batch(rows(&tokens[5..8], 5, 12), &pages([0, 1, 3]))).unwrap();
}

#[test]
fn the_same_position_in_two_visible_slots_is_refused() {
    let mut rows = prefill([9, 10, 11, 12]);
    rows[7].position = Position::new(6);
    let what = refused(&mut executor(), &batch(rows, &pages([0, 1])));
    assert!(what.contains("slots 6 and 7 both hold position 6"), "{what}");
}

#[test]
fn two_rows_may_not_write_one_slot() {
    let mut batch = batch(prefill([9, 10, 11, 12]), &pages([0, 1]));
    push(&mut batch, vec![row(30, 0, 1)], &pages([1]));
    let what = refused(&mut executor(), &batch);
    assert!(what.contains("another row"), "{what}");
}

/// A fork: the second table shares the prompt's page and has its own copy of the lane's.
#[test]
fn a_copied_page_is_read_like_its_source() {
    let mask = config().mask;
    let mut executor = executor();
    run(&mut executor, &batch(prefill([9, 10, 11, 12]), &pages([0, 1]))).unwrap();
    let mut fork = batch(vec![row(mask, 6, 8)], &pages([0, 5]));
    let missing = refused(&mut executor, &fork);
    assert!(missing.contains("never written"), "{missing}");
    fork.copies.push(PageCopy { source: PageId(1), destination: PageId(5) });
    let copied = run(&mut executor, &fork).unwrap();
    let original = run(&mut executor, &batch(vec![row(mask, 6, 8)], &pages([0, 1]))).unwrap();
    assert_eq!(copied, original);
    fork.copies[0].destination = PageId(6);
    let unused = refused(&mut executor, &fork);
    assert!(unused.contains("destination"), "{unused}");
}

/// Rows that see what stands left of them, as a causal model's prompt.
fn causal(tokens: &[u32], range: Range<u32>) -> Vec<Row> {
    let tokens = &tokens[range.start as usize..range.end as usize];
    let mut rows = rows(tokens, range.start, 0);
    rows.iter_mut().for_each(|row| row.visible_end = row.slot.next());
    rows
}

#[test]
fn causal_prefixes_may_be_shared_and_give_the_same_candidates() {
    let prompt: Vec<u32> = (20..32).collect();
    let mut executor = executor();
    let whole = run(&mut executor, &batch(causal(&prompt, 0..12), &pages([0, 1, 2]))).unwrap();
    let mut chunked = Vec::new();
    for range in [0..5, 5..9, 9..12] {
        let chunk = batch(causal(&prompt, range), &pages([3, 4, 5]));
        chunked.extend(run(&mut executor, &chunk).unwrap());
    }
    assert_eq!(chunked, whole);
    let mixed = batch(causal(&prompt, 8..12), &pages([0, 4, 7]));
    assert_eq!(run(&mut executor, &mixed).unwrap(), whole[8..]);
    let mut other = prompt.clone();
    other[1] = 40;
    run(&mut executor, &batch(causal(&other, 0..8), &pages([8, 9]))).unwrap();
    let wrong = batch(causal(&prompt, 8..12), &pages([0, 9, 10]));
    let what = refused(&mut executor, &wrong);
    assert!(what.contains("another sequence's"), "{what}");
}

#[test]
fn stale_content_changes_the_output_of_a_lenient_executor() {
    let mask = config().mask;
    let step = batch(vec![row(mask, 6, 8)], &pages([0, 1]));
    let run_after = |before: &[Batch]| {
        let mut executor = lenient();
        before.iter().for_each(|batch| {
            run(&mut executor, batch).unwrap();
        });
        run(&mut executor, &step).unwrap()[0]
    };
    let prompt = batch(prefill([9, 10, 11, 12]), &pages([0, 1]));
    let reference = run_after(std::slice::from_ref(&prompt));
    let other_prompt = batch(prefill([9, 10, 11, 13]), &pages([0, 1]));
    let overwritten = [prompt.clone(), batch(vec![row(44, 3, 4)], &pages([0]))];
    // The token at 5 was written while 4 was a mask, or after: same tokens, other content.
    let five = batch(vec![row(50, 5, 8)], &pages([0, 1]));
    let four = batch(vec![row(51, 4, 8)], &pages([0, 1]));
    let (stale, fresh) =
        ([prompt.clone(), five.clone(), four.clone()], [prompt.clone(), four, five]);
    assert_ne!(run_after(&[]), reference, "nothing was written");
    assert_ne!(run_after(&[other_prompt]), reference, "another prompt");
    assert_ne!(run_after(&overwritten), reference, "one slot overwritten");
    let (stale, fresh) = (run_after(&stale), run_after(&fresh));
    assert_eq!(stale.token, fresh.token);
    assert_ne!(stale.probability, fresh.probability, "older second-layer content");
}

#[test]
fn a_failed_pass_loses_its_rows_and_nothing_else() {
    let mut executor = executor().fail_on([1]);
    let counters = executor.counters();
    let (mine, yours) =
        (batch(prefill([9, 10, 11, 12]), &pages([0, 1])), batch(prefill([20; 4]), &pages([2, 3])));
    let before = run(&mut executor, &mine).unwrap();
    assert!(refused(&mut executor, &yours).contains("pass 1"));
    let step = |table: Vec<PageId>| batch(vec![row(config().mask, 4, 8)], &table);
    let next = run(&mut executor, &step(pages([0, 1]))).unwrap();
    assert_eq!(next[0], before[4]);
    assert!(refused(&mut executor, &step(pages([2, 3]))).contains("never written"));
    assert_eq!((counters.steps(), counters.failed()), (4, 2));
    assert_eq!((counters.rows(), counters.scored(), counters.copies()), (18, 18, 0));
}

#[test]
fn a_hook_sees_every_batch_first() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let mut executor = executor().with_hook(move |step, batch| {
        sender.send((step, batch.rows.len())).map_err(|_| step::ExecuteError("gone".into()))
    });
    run(&mut executor, &batch(prefill([9; 4]), &pages([0, 1]))).unwrap();
    run(&mut executor, &batch(vec![row(7, 4, 8)], &pages([0, 1]))).unwrap();
    assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [(0, 8), (1, 1)]);
}

#[test]
fn only_scored_rows_have_candidates_in_row_order() {
    let decoder = Decoder::new(&[9, 10], 6, 4, pages([0, 1]));
    let mut batch = batch(decoder.rows(), &pages([0, 1]));
    let candidates = run(&mut executor(), &batch).unwrap();
    assert_eq!(candidates.len(), 4);
    batch.rows.iter_mut().for_each(|row| row.score = Score::None);
    assert!(run(&mut executor(), &batch).unwrap().is_empty());
    assert!(run(&mut executor(), &Batch::default()).unwrap().is_empty());
}

/// Breaks a sound batch.
type Break = fn(&mut Batch);

#[test]
fn shapes_out_of_range_are_errors_and_not_panics() {
    let good = batch(prefill([9, 10, 11, 12]), &pages([0, 1]));
    let broken: [(&str, Break); 15] = [
        ("page 256", |batch| batch.pages[1] = PageId(256)),
        ("slots", |batch| batch.rows[0].slot = Slot::new(8)),
        ("slots", |batch| batch.rows[0].visible_end = Slot::new(9)),
        ("positions", |batch| batch.rows[0].position = Position::new(4096)),
        ("tokens", |batch| batch.rows[0].token = 512),
        ("biases", |batch| batch.rows[0].biases = 0..1),
        ("repetition: 0.0", |batch| {
            batch.biases.push(Bias { repetition: 0.0, ..Bias::add(9, 1.0) });
        }),
        ("1 allowed sets", |batch| {
            batch.allowed = vec![u32::MAX; 16];
            batch.rows[0].allowed = Some(1);
        }),
        ("17 words, expected a multiple of 16", |batch| {
            batch.allowed = vec![u32::MAX; 17];
        }),
        ("ban every token", |batch| {
            batch.allowed = vec![0; 16];
            batch.rows[4].allowed = Some(0);
        }),
        ("page range", |batch| batch.segments[0].pages = 0..3),
        ("rows 1..8", |batch| batch.segments[0].rows = 1..8),
        ("rows 0..9", |batch| batch.segments[0].rows = 0..9),
        ("rows from 7", |batch| batch.segments[0].rows = 0..7),
        ("page 300", |batch| {
            batch.copies.push(PageCopy { source: PageId(0), destination: PageId(300) });
        }),
    ];
    for (expected, breaks) in broken {
        let mut batch = good.clone();
        breaks(&mut batch);
        let what = refused(&mut executor(), &batch);
        assert!(what.contains(expected), "{expected}: {what}");
    }
}
