//! Bitwise batch invariance: a row's result depends only on its own sequence.

use crate::common::{Noise, Tiny, execute, push, row, sized};
use asynclane_model::WeightDtype;
use serde_json::{Value, json};
use step::{Batch, BatchOutput, Bias, Sampling, Score, set_words};

/// The demo model's geometry, an odd one with grouped heads, and one with whole groups of 32 weights.
fn geometries() -> [Value; 3] {
    [
        json!({"d_model": 192, "n_heads": 6, "n_layers": 2, "mlp_hidden_size": 512,
            "vocab_size": 1024, "embedding_size": 1024}),
        json!({"d_model": 72, "n_heads": 6, "n_kv_heads": 2, "mlp_hidden_size": 200,
            "vocab_size": 301, "embedding_size": 320}),
        json!({"d_model": 96, "n_heads": 6, "n_kv_heads": 2, "mlp_hidden_size": 224,
            "vocab_size": 301, "embedding_size": 320}),
    ]
}

/// Every geometry with every dtype that its rows allow.
fn kinds() -> impl Iterator<Item = (Value, WeightDtype)> {
    let with = |geometry: Value| WeightDtype::ALL.map(|dtype| (geometry.clone(), dtype));
    let all = geometries().into_iter().flat_map(with);
    all.filter(|(geometry, dtype)| {
        let width = geometry["d_model"].as_u64().unwrap();
        width.is_multiple_of(dtype.group() as u64)
    })
}

/// Adds a sequence of `count` rows under full attention with its own seed, on `pages`. Some rows
/// have biases, request tops or have a set of allowed tokens.
fn sequence(batch: &mut Batch, vocab: u32, seed: u64, count: usize, pages: &[u32]) {
    let mut noise = Noise(seed);
    let first = batch.biases.len() as u32;
    batch.biases.push(Bias::ban(7));
    batch.biases.push(Bias::add(9, noise.next()));
    batch.biases.push(Bias { token: 11, repetition: 1.3, amount: 0.1 });
    let words = set_words(vocab);
    let set = (batch.allowed.len() / words) as u32;
    batch.allowed.extend((0..words).map(|_| noise.next().to_bits()));
    let rows = (0..count as u32)
        .map(|i| step::Row {
            biases: if i % 3 == 0 { first..first + 3 } else { 0..0 },
            allowed: (i % 5 == 1).then_some(set),
            score: match i % 4 {
                2 => Score::Top((i % 20) as u8 + 1),
                _ => Score::Candidate,
            },
            ..row(noise.below(300) as u32, i, count as u32)
        })
        .collect();
    let temperature = if seed.is_multiple_of(2) { 0.0 } else { 0.8 };
    let sampling = Sampling { temperature, top_p: 0.95, seed, clock: 4, ..Sampling::GREEDY };
    push(batch, rows, pages, sampling);
}

/// All bits of each row's candidate and tops; all rows are scored.
fn bits(batch: &Batch, output: &BatchOutput) -> Vec<Vec<u64>> {
    assert_eq!(output.candidates.len(), batch.rows.len());
    let mut tops = output.tops.iter();
    let rows = batch.rows.iter().zip(&output.candidates);
    rows.map(|(row, c)| {
        let mut bits = vec![
            u64::from(c.token),
            c.probability.to_bits(),
            u64::from(c.runner_up),
            c.runner_up_probability.to_bits(),
            u64::from(c.entropy.to_bits()),
            u64::from(c.gap.to_bits()),
            c.present.to_bits(),
        ];
        for top in tops.by_ref().take(row.score.tops()) {
            bits.extend([u64::from(top.token), u64::from(top.logprob.to_bits())]);
        }
        bits
    })
    .collect()
}

/// Tokens with a logit.
fn vocab(geometry: &Value) -> u32 {
    geometry["vocab_size"].as_u64().unwrap() as u32
}

#[test]
fn a_sequence_has_the_same_bits_alone_in_pairs_and_among_many() {
    for (geometry, dtype) in kinds() {
        let tiny = Tiny::new(1, &geometry);
        let mut executor = sized(tiny.model_as(dtype), 80, 2);
        let count = |i: usize| 1 + (i * 13) % 40;
        let vocab = vocab(&geometry);
        // Five pages of eight slots fit the longest sequence.
        let alone = (0..16).map(|i| {
            let mut batch = Batch::default();
            sequence(&mut batch, vocab, i as u64, count(i), &[11, 3, 70, 2, 41]);
            bits(&batch, &execute(&mut executor, &batch))
        });
        let alone: Vec<Vec<_>> = alone.collect();
        let orders: [Vec<usize>; 4] = [
            vec![0, 1],
            vec![15, 4],
            (0..16).collect(),
            (0..16).map(|i| (i * 7 + 5) % 16).collect(),
        ];
        for order in orders {
            let mut batch = Batch::default();
            for (place, &i) in order.iter().enumerate() {
                let pages: Vec<u32> = (0..5).map(|p| (place * 5 + p) as u32).collect();
                sequence(&mut batch, vocab, i as u64, count(i), &pages);
            }
            let together = bits(&batch, &execute(&mut executor, &batch));
            let expected: Vec<_> = order.iter().flat_map(|&i| &alone[i]).cloned().collect();
            assert!(together == expected, "{geometry} {dtype:?}: {order:?}");
        }
    }
}

#[test]
fn any_row_count_yields_the_same_bits() {
    for (geometry, dtype) in kinds() {
        let tiny = Tiny::new(2, &geometry);
        let mut executor = sized(tiny.model_as(dtype), 80, 2);
        let mut fixed = Batch::default();
        sequence(&mut fixed, vocab(&geometry), 3, 5, &[79]);
        let expected = bits(&fixed, &execute(&mut executor, &fixed));
        for others in (0..70).chain([150, 295]) {
            // The five rows come after `others` single rows of other sequences, which have pages,
            // biases and sets of allowed tokens of their own.
            let mut batch = Batch::default();
            for other in 0..others {
                let page = Noise(other).below(70) as u32;
                sequence(&mut batch, vocab(&geometry), 100 + other, 1, &[page]);
            }
            sequence(&mut batch, vocab(&geometry), 3, 5, &[74]);
            let all = bits(&batch, &execute(&mut executor, &batch));
            let found = &all[others as usize..];
            assert!(found == expected, "{geometry} {dtype:?} behind {others}");
        }
    }
}

#[test]
fn threads_do_not_change_bits() {
    let tiny = Tiny::new(3, &geometries()[0]);
    for dtype in WeightDtype::ALL {
        let mut outputs = [1, 2, 3, 5].map(|threads| {
            let mut executor = sized(tiny.model_as(dtype), 40, threads);
            let mut batch = Batch::default();
            for i in 0..6 {
                let pages: Vec<u32> = (0..5).map(|p| i * 5 + p).collect();
                sequence(&mut batch, 1024, u64::from(i), 37, &pages);
            }
            bits(&batch, &execute(&mut executor, &batch))
        });
        let first = std::mem::take(&mut outputs[0]);
        let equal = outputs[1..].iter().all(|other| *other == first);
        assert!(equal, "{dtype:?}");
    }
}
