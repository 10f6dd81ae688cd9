//! Rows that see more or less than a prefix of their slots, and rows that list the tokens of a set.

use crate::common::{Tiny, assert_candidate, execute, push, row, single};
use crate::reference::reference_over;
use serde_json::json;
use step::{Batch, Row, Sampling, Score, Slot};

/// Committed tokens and drafts of the cases.
const COMMITTED: u32 = 13;
const DRAFTS: u32 = 7;

/// A row at a slot other than its position, which sees `visible_end` slots and those `beyond`.
fn at(slot: u32, row: Row, beyond: u64) -> Row {
    Row { slot: Slot::new(slot), beyond, ..row }
}

fn token(slot: u32) -> u32 {
    6 + slot * 11 % 40
}

/// The committed tokens under causal attention.
fn committed() -> Vec<Row> {
    (0..COMMITTED).map(|slot| row(token(slot), slot, slot + 1)).collect()
}

/// S2D2's verifier: draft row i at slot n + i sees all before it; verifier row i at slot n + L + i
/// sees the committed tokens, the drafts before it, and itself.
fn verified() -> Vec<Row> {
    let mut rows = committed();
    for i in 0..DRAFTS {
        let slot = COMMITTED + i;
        rows.push(row(token(slot), slot, slot + 1));
    }
    for i in 0..DRAFTS {
        let position = COMMITTED + i;
        let mask = row(5, position, position);
        rows.push(at(position + DRAFTS, mask, 1 << DRAFTS));
    }
    rows
}

/// A tree of drafts: each node sees the committed tokens, its ancestors and itself.
fn tree() -> Vec<Row> {
    const PARENTS: [Option<usize>; 7] = [None, None, Some(0), Some(0), Some(2), Some(1), Some(4)];
    let mut rows = committed();
    let mut seen: Vec<(u64, u32)> = Vec::new();
    for (node, parent) in PARENTS.into_iter().enumerate() {
        let (ancestors, depth) = parent.map_or((0, 0), |parent| seen[parent]);
        let slot = COMMITTED + node as u32;
        seen.push((ancestors | 1 << node, depth + 1));
        let position = row(token(slot), COMMITTED + depth, COMMITTED);
        rows.push(at(slot, position, ancestors | 1 << node));
    }
    rows
}

#[test]
fn verifiers_and_trees_equal_the_reference() {
    for (seed, groups) in [(1, 4), (2, 2)] {
        let tiny = Tiny::new(seed, &json!({"n_kv_heads": groups}));
        for rows in [verified(), tree()] {
            let inputs = rows.iter().map(|row| (row.token, row.position.index()));
            let inputs: Vec<_> = inputs.collect();
            let sees = |row: &Row| {
                let sees = |&slot: &usize| row.sees(Slot::new(slot as u32));
                (0..rows.len()).filter(sees).collect()
            };
            let seen: Vec<Vec<usize>> = rows.iter().map(sees).collect();
            let want = reference_over(&tiny, &inputs, &seen);
            let batch = single(rows.clone(), &[3, 0, 2, 4]);
            let output = execute(&mut tiny.executor(6, 2), &batch);
            for ((got, want), row) in output.candidates.iter().zip(&want).zip(&rows) {
                assert_candidate(got, want, row.token);
            }
        }
    }
}

#[test]
fn a_row_lists_the_tokens_of_a_set_with_their_probabilities_among_all() {
    let tiny = Tiny::new(4, &json!({}));
    let labels = [9, 30, 60];
    let mut batch = Batch { allowed: vec![0; 2], ..Batch::default() };
    for label in labels {
        batch.allowed[label / 32] |= 1 << (label % 32);
    }
    push(&mut batch, vec![row(7, 0, 1)], &[0], Sampling::GREEDY);
    // The mask is in the set, and never listed.
    batch.allowed[0] |= 1 << 5;
    batch.rows[0].score = Score::Among { set: 0, count: 4 };
    let output = execute(&mut tiny.executor(3, 1), &batch);
    let want = reference_over(&tiny, &[(7, 0)], &[vec![0]]);
    assert_candidate(&output.candidates[0], &want[0], 7);
    let mut plain = batch.clone();
    plain.rows[0].score = Score::Top(60);
    let all = execute(&mut tiny.executor(3, 1), &plain).tops;
    let in_set = all.into_iter().filter(|top| labels.contains(&(top.token as usize)));
    let in_set: Vec<_> = in_set.collect();
    assert_eq!((output.tops.len(), &output.tops[..3]), (4, &in_set[..]));
    assert_eq!(output.tops[3].logprob, f32::NEG_INFINITY);
}
