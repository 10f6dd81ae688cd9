//! The executor's contract: limits, biases, sampling, errors.

use crate::common::{Tiny, execute, push, row};
use asynclane_model::{ExecutorConfig, ModelExecutor};
use serde_json::json;
use step::{Batch, BatchOutput, Bias, Executor, PageCopy, PageId, Row, Sampling};

fn tiny() -> Tiny {
    Tiny::new(11, &json!({"vocab_size": 61, "embedding_size": 64}))
}

#[test]
fn the_spec_is_that_of_configuration_and_model() {
    let executor = tiny().executor(6, 1);
    let spec = executor.spec();
    assert_eq!((spec.page_size, spec.pages), (8, 6));
    assert_eq!(
        (spec.vocab_size, spec.max_positions, spec.mask),
        (61, 256, 5)
    );
    for (page_size, pages) in [(0, 4), (4, 0), (1 << 16, 1 << 16)] {
        let config = ExecutorConfig {
            page_size,
            pages,
            threads: None,
        };
        let error = ModelExecutor::new(tiny().model(), config)
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("KV slots"), "{error}");
    }
}

#[test]
fn an_empty_batch_is_a_pass_of_nothing() {
    let mut executor = tiny().executor(2, 1);
    let mut output = BatchOutput::default();
    let mut batch = Batch::default();
    push(&mut batch, vec![row(1, 0, 1)], &[0], Sampling::GREEDY);
    executor.execute(&batch, &mut output).unwrap();
    assert_eq!(output.candidates.len(), 1);
    executor.execute(&Batch::default(), &mut output).unwrap();
    assert_eq!(output.candidates, []);
}

#[test]
fn batches_that_index_beyond_a_limit_are_errors_and_the_next_one_works() {
    let mut executor = tiny().executor(4, 1);
    let good = row(1, 0, 1);
    let cases: Vec<(Row, &str)> = vec![
        (
            Row {
                token: 64,
                ..good.clone()
            },
            "row 0: token 64 of 64",
        ),
        (
            Row {
                position: 256,
                ..good.clone()
            },
            "row 0: position 256 of 256",
        ),
        (
            Row {
                slot: 16,
                ..good.clone()
            },
            "row 0: slot 16, 1 visible, of 16 slots",
        ),
        (
            Row {
                visible: 17,
                ..good.clone()
            },
            "row 0: slot 0, 17 visible, of 16 slots",
        ),
        (
            Row {
                biases: 0..2,
                ..good.clone()
            },
            "row 0: biases 0..2 of 1",
        ),
        (
            Row {
                biases: 0..1,
                ..good.clone()
            },
            "row 0: bias for token 61 of 61",
        ),
    ];
    let mut output = BatchOutput::default();
    for (bad, message) in cases {
        let mut batch = Batch::default();
        batch.biases.push(Bias {
            token: 61,
            amount: 1.0,
        });
        push(&mut batch, vec![bad], &[2, 3], Sampling::GREEDY);
        let error = executor
            .execute(&batch, &mut output)
            .unwrap_err()
            .to_string();
        assert_eq!(error, format!("forward pass failed: {message}"));
    }
    let mut batch = Batch::default();
    push(&mut batch, vec![good.clone()], &[4], Sampling::GREEDY);
    let error = executor
        .execute(&batch, &mut output)
        .unwrap_err()
        .to_string();
    assert_eq!(error, "forward pass failed: page 4 of 4");
    let mut batch = Batch::default();
    batch.copies.push(PageCopy {
        from: PageId(9),
        to: PageId(0),
    });
    assert!(executor.execute(&batch, &mut output).is_err());
    let mut batch = Batch::default();
    push(&mut batch, vec![good.clone(); 2], &[0], Sampling::GREEDY);
    batch.segments[0].rows = 0..1;
    let error = executor
        .execute(&batch, &mut output)
        .unwrap_err()
        .to_string();
    assert_eq!(error, "forward pass failed: segments end at row 1 of 2");
    let mut batch = Batch::default();
    push(&mut batch, vec![good], &[0], Sampling::GREEDY);
    executor.execute(&batch, &mut output).unwrap();
}

#[test]
fn tokens_beyond_the_vocabulary_are_inputs_and_never_candidates() {
    let mut executor = tiny().executor(4, 1);
    let mut batch = Batch::default();
    push(
        &mut batch,
        (0..20).map(|i| row(61 + i % 3, i, 20)).collect(),
        &[1, 2, 3],
        {
            Sampling {
                temperature: 2.0,
                ..Sampling::GREEDY
            }
        },
    );
    for candidate in execute(&mut executor, &batch).candidates {
        assert!(candidate.token < 61 && candidate.token != 5);
        assert!(candidate.runner_up < 61 && candidate.runner_up != candidate.token);
        assert_eq!(candidate.present, 0.0);
    }
}

#[test]
fn a_ban_moves_the_argmax_and_raises_the_rest() {
    let mut executor = tiny().executor(1, 1);
    let mut batch = Batch::default();
    push(
        &mut batch,
        vec![
            row(1, 0, 1),
            Row {
                slot: 1,
                ..row(1, 0, 1)
            },
        ],
        &[0],
        Sampling::GREEDY,
    );
    let plain = execute(&mut executor, &batch).candidates[0];
    batch.biases.push(Bias {
        token: plain.token,
        amount: f32::NEG_INFINITY,
    });
    batch.rows[0].biases = 0..1;
    let output = execute(&mut executor, &batch);
    let (banned, free) = (output.candidates[0], output.candidates[1]);
    assert_eq!(free, plain);
    assert_eq!(banned.token, plain.runner_up);
    let expected = plain.runner_up_probability / (1.0 - plain.probability);
    assert!((banned.probability - expected).abs() < 1e-9);
}

#[test]
fn noise_is_a_function_of_seed_clock_and_position() {
    let mut executor = tiny().executor(8, 2);
    let mut draw = |seed, clock, position: u32, pages: &[u32]| {
        let mut batch = Batch::default();
        let sampling = Sampling {
            temperature: 5.0,
            seed,
            clock,
            ..Sampling::GREEDY
        };
        let rows = (0..16)
            .map(|i| Row {
                slot: i,
                ..row(5, position + i, 16)
            })
            .collect();
        push(&mut batch, rows, pages, sampling);
        let output = execute(&mut executor, &batch);
        output
            .candidates
            .iter()
            .map(|c| c.token)
            .collect::<Vec<_>>()
    };
    let first = draw(1, 2, 3, &[0, 1]);
    assert_eq!(draw(1, 2, 3, &[5, 2]), first);
    assert_ne!(draw(2, 2, 3, &[0, 1]), first);
    assert_ne!(draw(1, 3, 3, &[0, 1]), first);
    assert_ne!(draw(1, 2, 40, &[0, 1]), first);
}

#[test]
fn temperature_zero_ignores_seed_and_filters() {
    let mut executor = tiny().executor(2, 1);
    let mut run = |sampling| {
        let mut batch = Batch::default();
        push(
            &mut batch,
            (0..9).map(|i| row(5, i, 9)).collect(),
            &[0, 1],
            sampling,
        );
        execute(&mut executor, &batch)
    };
    let greedy = run(Sampling::GREEDY);
    let other = Sampling {
        seed: 9,
        clock: 4,
        top_k: 1,
        top_p: 0.1,
        ..Sampling::GREEDY
    };
    assert_eq!(run(other), greedy);
    let one = Sampling {
        temperature: 1.5,
        seed: 9,
        top_k: 1,
        ..Sampling::GREEDY
    };
    assert_eq!(run(one), greedy);
}

#[test]
fn logits_check_their_tokens_and_leave_the_pool_alone() {
    let mut executor = tiny().executor(1, 1);
    let mut batch = Batch::default();
    push(&mut batch, vec![row(9, 0, 1)], &[0], Sampling::GREEDY);
    execute(&mut executor, &batch);
    let mut next = Batch::default();
    push(&mut next, vec![row(8, 1, 2)], &[0], Sampling::GREEDY);
    let before = execute(&mut executor, &next);
    assert_eq!(executor.logits(&[4, 5, 6]).unwrap().len(), 3 * 61);
    assert_eq!(execute(&mut executor, &next), before);
    let error = |tokens: &[u32]| executor.logits(tokens).unwrap_err().to_string();
    assert_eq!(
        error(&[]),
        "forward pass failed: 0 tokens, expected 1..=256"
    );
    assert_eq!(error(&[64]), "forward pass failed: token 64 of 64");
    assert!(error(&[0; 257]).contains("257 tokens"));
}
