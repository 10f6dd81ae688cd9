//! Logits and candidates of tiny random checkpoints, compared with a plain reference forward.

use crate::common::{
    Noise, Store, Tiny, assert_candidate, execute, load, push, refusal, row, single,
};
use crate::official;
use crate::reference::reference;
use asynclane_model::{Model, WeightDtype};
use serde_json::{Value, json};
use step::{PageCopy, PageId, Row, Sampling, Score, Slot};

/// Odd sizes, grouped heads, tied weights, biases, padded vocabularies.
fn variants() -> Vec<Value> {
    vec![
        json!({}),
        json!({"d_model": 72, "n_heads": 6, "n_kv_heads": 2, "mlp_hidden_size": 130}),
        json!({"d_model": 40, "n_heads": 2, "n_kv_heads": 1, "n_layers": 3, "rope_theta": 5e5}),
        json!({"weight_tying": true, "embedding_size": 64, "vocab_size": 57}),
        json!({"include_qkv_bias": true, "embedding_size": null, "rms_norm_eps": 1e-6}),
        json!({"include_bias": true, "bias_for_layer_norm": false, "embedding_size": 96}),
        json!({"mlp_hidden_size": null, "mlp_ratio": 4, "d_model": 36, "n_heads": 6}),
        json!({"d_model": 256, "n_heads": 2, "n_layers": 1, "mlp_hidden_size": 34}),
    ]
}

fn tokens(seed: u64, count: usize) -> Vec<u32> {
    let mut noise = Noise(seed ^ 0xABCD);
    (0..count).map(|_| noise.below(57) as u32).collect()
}

/// Largest error relative to the largest logit of the row.
fn error(model: &Model, tokens: &[u32], want: &[Vec<f64>]) -> f64 {
    let got = model.logits(tokens).unwrap();
    let want: Vec<f32> = want.iter().flatten().map(|x| *x as f32).collect();
    official::error(&got, &want, model.info().vocabulary.size)
}

#[test]
fn logits_agree_over_geometries_and_seeds() {
    for overrides in variants() {
        for seed in 1..=3 {
            let tiny = Tiny::new(seed, &overrides);
            for count in [1, 2, 33, 70] {
                let tokens = tokens(seed, count);
                let want = reference(&tiny, &tokens, &vec![count; count]);
                let error = error(&tiny.model(), &tokens, &want);
                assert!(error < 1e-4, "{overrides} seed {seed}, {count}: {error}");
            }
        }
    }
}

#[test]
fn logits_of_shorter_dtypes_are_near() {
    // The largest error of all logits; layers of random weights amplify every difference.
    for (dtype, most) in [(WeightDtype::Bf16, 0.06), (WeightDtype::Int8, 0.13)] {
        for (seed, overrides) in variants().into_iter().enumerate() {
            let tiny = Tiny::new(seed as u64, &overrides);
            let tokens = tokens(seed as u64, 33);
            let want = reference(&tiny, &tokens, &[33; 33]);
            let model = tiny.model_as(dtype);
            assert_eq!(model.info().formats.matrices, dtype);
            let error = error(&model, &tokens, &want);
            // Rounding is visible, so the model does not compute in f32.
            assert!(1e-4 < error && error < most, "{overrides} {dtype:?}: {error}");
        }
    }
}

#[test]
fn logits_of_four_bits_are_near() {
    let sizes = json!({"d_model": 192, "n_heads": 6, "mlp_hidden_size": 512});
    let tiny = Tiny::new(5, &sizes);
    let tokens = tokens(5, 33);
    let want = reference(&tiny, &tokens, &[33; 33]);
    let model = tiny.model_as(WeightDtype::Int4);
    assert_eq!(model.info().formats.matrices, WeightDtype::Int4);
    let error = error(&model, &tokens, &want);
    // Uniform weights are the worst case of 4 bits, and two layers amplify it.
    assert!((1e-2..0.8).contains(&error), "{error}");
}

#[test]
fn rows_that_are_no_whole_groups_are_refused_for_four_bits() {
    for (overrides, matrix, found) in [
        (json!({"d_model": 72, "n_heads": 6}), "ff_out", 72),
        (json!({"d_model": 64, "mlp_hidden_size": 80}), "blocks.0.ff_out", 80),
    ] {
        let mut checkpoint = Tiny::new(5, &overrides).checkpoint();
        let surveyed = refusal(checkpoint.survey(WeightDtype::Int4));
        let loaded = refusal(Model::load(checkpoint.with_dtype(WeightDtype::Int4)));
        assert_eq!(loaded, surveyed);
        let expected = format!(
            "model.transformer.{matrix}: expected rows of a multiple of 32 weights for int4, \
             found {found}"
        );
        assert_eq!(loaded, expected);
    }
}

#[test]
fn logits_agree_over_file_formats() {
    for (seed, store) in [(4, Store::F32), (5, Store::Bf16), (6, Store::F16)] {
        let overrides = json!({"d_model": 72, "n_heads": 6, "n_kv_heads": 3});
        let tiny = Tiny::new(seed, &overrides).rounded(store);
        let tokens = tokens(seed, 19);
        let want = reference(&tiny, &tokens, &[19; 19]);
        let single = load(tiny.files(store)).unwrap();
        let sharded = load(tiny.sharded(store)).unwrap();
        assert!(error(&single, &tokens, &want) < 1e-4);
        let logits = |model: Model| model.logits(&tokens).unwrap();
        assert_eq!(logits(single), logits(sharded));
    }
}

#[test]
fn a_sequence_in_pieces_equals_the_whole_under_causal_and_block_causal_rows() {
    for (seed, overrides) in variants().into_iter().enumerate() {
        let tiny = Tiny::new(seed as u64, &overrides);
        for block in [1, 4, 7] {
            let tokens = tokens(seed as u64, 29);
            let end = |row: usize| ((row / block + 1) * block).min(tokens.len());
            let visible_ends: Vec<usize> = (0..tokens.len()).map(end).collect();
            let want = reference(&tiny, &tokens, &visible_ends);
            let mut executor = tiny.executor(12, 2);
            // Pages are out of order, and every batch contains a second sequence.
            let (table, other) = ([7, 2, 9, 0], [1, 3]);
            let mut start = 0;
            for blocks in [2, 1, 5, 40] {
                let stop = end((start + (blocks - 1) * block).min(tokens.len() - 1));
                let rows = (start..stop).map(|i| row(tokens[i], i as u32, visible_ends[i] as u32));
                let mut batch = single(rows.collect(), &table);
                let second = vec![row(tokens[start], 0, 1)];
                push(&mut batch, second, &other, Sampling::GREEDY);
                let output = execute(&mut executor, &batch);
                assert_eq!(output.candidates.len(), stop - start + 1);
                for i in start..stop {
                    assert_candidate(&output.candidates[i - start], &want[i], tokens[i]);
                }
                start = stop;
                if start == tokens.len() {
                    break;
                }
            }
            assert_eq!(start, tokens.len());
        }
    }
}

#[test]
fn rows_without_a_score_only_write_and_copies_come_first() {
    let tiny = Tiny::new(3, &json!({"n_kv_heads": 2}));
    let tokens = tokens(3, 12);
    let visible_ends: Vec<usize> = (1..=12).collect();
    let want = reference(&tiny, &tokens, &visible_ends);
    let mut executor = tiny.executor(6, 1);
    let rows = |range: std::ops::Range<usize>, score| {
        let rows = range.map(|i| row(tokens[i], i as u32, i as u32 + 1));
        rows.map(|r| Row { score, ..r }).collect::<Vec<_>>()
    };
    let batch = single(rows(0..10, Score::None), &[4, 5]);
    assert_eq!(execute(&mut executor, &batch).candidates, []);
    // The sequence continues on a copy of the second page; the same batch overwrites the original.
    let mut batch = single(vec![row(9, 8, 9)], &[4, 5]);
    batch.copies.push(PageCopy { source: PageId(5), destination: PageId(1) });
    let continued = rows(10..12, Score::Candidate);
    push(&mut batch, continued, &[4, 1], Sampling::GREEDY);
    let output = execute(&mut executor, &batch);
    assert_eq!(output.candidates.len(), 3);
    for i in 10..12 {
        assert_candidate(&output.candidates[i - 9], &want[i], tokens[i]);
    }
}

#[test]
fn slots_and_positions_are_independent() {
    // Rows at permuted slots with unchanged positions: full attention does not depend on the order.
    let tiny = Tiny::new(8, &json!({}));
    let tokens = tokens(8, 20);
    let want = reference(&tiny, &tokens, &[20; 20]);
    let mut executor = tiny.executor(4, 2);
    let rows = (0..20u32)
        .map(|i| Row { slot: Slot::new((i * 7 + 3) % 20), ..row(tokens[i as usize], i, 20) });
    let batch = single(rows.collect(), &[3, 0, 2]);
    let output = execute(&mut executor, &batch);
    for (i, candidate) in output.candidates.iter().enumerate() {
        assert_candidate(candidate, &want[i], tokens[i]);
    }
}
