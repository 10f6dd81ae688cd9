//! Logits and candidates of tiny random checkpoints, compared with a plain reference forward.

use crate::common::{Noise, Store, Tiny, assert_candidate, execute, load, push, reference, row};
use asynclane_model::{Checkpoint, Files, Model, WeightDtype};
use serde_json::{Value, json};
use step::{Batch, PageCopy, PageId, Sampling, Score, Slot};

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
fn error(got: &[f32], want: &[Vec<f64>]) -> f64 {
    let vocab = want[0].len();
    assert_eq!(got.len(), want.len() * vocab);
    let rows = got.chunks(vocab).zip(want);
    rows.map(|(got, want)| {
        let scale = want.iter().fold(0.0f64, |m, x| m.max(x.abs()));
        let worst = got.iter().zip(want).map(|(g, w)| (f64::from(*g) - w).abs());
        worst.fold(0.0, f64::max) / scale
    })
    .fold(0.0, f64::max)
}

#[test]
fn logits_agree_over_geometries_and_seeds() {
    for overrides in variants() {
        for seed in 1..=3 {
            let tiny = Tiny::new(seed, &overrides);
            for count in [1, 2, 33, 70] {
                let tokens = tokens(seed, count);
                let want = reference(&tiny, &tokens, &vec![count; count]);
                let error = error(&tiny.model().logits(&tokens).unwrap(), &want);
                assert!(
                    error < 1e-4,
                    "{overrides} seed {seed}, {count} tokens: {error}"
                );
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
            let error = error(&model.logits(&tokens).unwrap(), &want);
            assert!(error < most, "{overrides} {dtype:?}: {error}");
            // Rounding is visible, so the model does not compute in f32.
            assert!(error > 1e-4, "{overrides} {dtype:?}: {error}");
        }
    }
}

#[test]
fn logits_of_four_bits_are_near() {
    let tiny = Tiny::new(
        5,
        &json!({"d_model": 192, "n_heads": 6, "mlp_hidden_size": 512}),
    );
    let tokens = tokens(5, 33);
    let want = reference(&tiny, &tokens, &[33; 33]);
    let model = tiny.model_as(WeightDtype::Int4);
    assert_eq!(model.info().formats.matrices, WeightDtype::Int4);
    let error = error(&model.logits(&tokens).unwrap(), &want);
    // Uniform weights are the worst case of 4 bits, and two layers amplify it.
    assert!((1e-2..0.8).contains(&error), "{error}");
}

#[test]
fn rows_that_are_no_whole_groups_are_refused_for_four_bits() {
    let refused = |overrides: Value| {
        let files = Files::memory(Tiny::new(5, &overrides).files(Store::F32));
        let mut checkpoint = Checkpoint::open(&files).unwrap();
        let surveyed = checkpoint
            .survey(WeightDtype::Int4)
            .unwrap_err()
            .to_string();
        let loaded = Model::load(checkpoint.with_dtype(WeightDtype::Int4))
            .err()
            .unwrap();
        assert_eq!(loaded.to_string(), surveyed);
        surveyed
    };
    assert_eq!(
        refused(json!({"d_model": 72, "n_heads": 6})),
        "model.transformer.blocks.0.q_proj: expected rows of a multiple of 32 weights for int4, \
         found 72"
    );
    assert_eq!(
        refused(json!({"d_model": 64, "mlp_hidden_size": 80})),
        "model.transformer.blocks.0.ff_out: expected rows of a multiple of 32 weights for int4, \
         found 80"
    );
}

#[test]
fn logits_agree_over_file_formats() {
    for (seed, store) in [(4, Store::F32), (5, Store::Bf16), (6, Store::F16)] {
        let overrides = json!({"d_model": 72, "n_heads": 6, "n_kv_heads": 3});
        let tiny = Tiny::new(seed, &overrides).rounded(store);
        let tokens = tokens(seed, 19);
        let want = reference(&tiny, &tokens, &[19; 19]);
        let single = load(tiny.files(store)).unwrap().logits(&tokens).unwrap();
        let sharded = load(tiny.sharded(store)).unwrap().logits(&tokens).unwrap();
        assert!(error(&single, &want) < 1e-4);
        assert_eq!(single, sharded);
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
            let mut from = 0;
            for blocks in [2, 1, 5, 40] {
                let to = end((from + (blocks - 1) * block).min(tokens.len() - 1));
                let mut batch = Batch::default();
                let rows = (from..to)
                    .map(|i| row(tokens[i], i as u32, visible_ends[i] as u32))
                    .collect::<Vec<_>>();
                push(&mut batch, rows.clone(), &table, Sampling::GREEDY);
                push(
                    &mut batch,
                    rows[..1].iter().map(|r| row(r.token, 0, 1)).collect(),
                    &other,
                    Sampling::GREEDY,
                );
                let output = execute(&mut executor, &batch);
                assert_eq!(output.candidates.len(), to - from + 1);
                for i in from..to {
                    assert_candidate(&output.candidates[i - from], &want[i], tokens[i]);
                }
                from = to;
                if from == tokens.len() {
                    break;
                }
            }
            assert_eq!(from, tokens.len());
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
        rows.map(|r| step::Row { score, ..r }).collect::<Vec<_>>()
    };
    let mut batch = Batch::default();
    push(
        &mut batch,
        rows(0..10, Score::None),
        &[4, 5],
        Sampling::GREEDY,
    );
    assert_eq!(execute(&mut executor, &batch).candidates, []);
    // The sequence continues on a copy of the second page; the same batch overwrites the original.
    let mut batch = Batch::default();
    batch.copies.push(PageCopy {
        from: PageId(5),
        to: PageId(1),
    });
    push(
        &mut batch,
        vec![step::Row {
            slot: Slot::new(8),
            ..row(9, 8, 9)
        }],
        &[4, 5],
        Sampling::GREEDY,
    );
    push(
        &mut batch,
        rows(10..12, Score::Candidate),
        &[4, 1],
        Sampling::GREEDY,
    );
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
        .map(|i| step::Row {
            slot: Slot::new((i * 7 + 3) % 20),
            ..row(tokens[i as usize], i, 20)
        })
        .collect();
    let mut batch = Batch::default();
    push(&mut batch, rows, &[3, 0, 2], Sampling::GREEDY);
    let output = execute(&mut executor, &batch);
    for (i, candidate) in output.candidates.iter().enumerate() {
        assert_candidate(candidate, &want[i], tokens[i]);
    }
}
