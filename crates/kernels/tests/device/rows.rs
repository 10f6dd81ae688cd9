//! Embedding, norms, copies of pages.

use crate::common::{BOTH, Random, array, kept, near, poisoned, rounding, tensor, values};
use asynclane_kernels::device::{
    BatchArrays, BatchLimits, Buffer, Device, DeviceBatch, DevicePool, Places, PoolSizes,
    Precision, copy_pages, embed, norm,
};
use asynclane_kernels::{AttentionSegment, Draw, ScorerRow, rms_norm};
use candle_core::Tensor;

const DRAW: Draw = Draw {
    temperature: 0.0,
    top_p: 1.0,
    min_p: 0.0,
    top_k: 0,
    seed: 0,
    clock: 0,
};

/// A batch of these tokens, of which these rows are scored, after these copies.
fn batch(tokens: &[u32], scored: &[u32], copies: &[(u32, u32)]) -> DeviceBatch {
    let row = ScorerRow {
        input: 0,
        position: 0,
        biases: 0..0,
        allowed: None,
        tops: 0,
        draw: 0,
    };
    let zeros = vec![0; tokens.len()];
    let arrays = BatchArrays {
        tokens,
        positions: &zeros,
        slots: &zeros,
        visible: &zeros,
        segments: &[AttentionSegment {
            rows: 0..tokens.len() as u32,
            pages: 0..0,
        }],
        pages: &[],
        scored,
        scorers: &vec![row; scored.len()],
        biases: &[],
        allowed: &[],
        set_words: 1,
        hosted: &[],
        draws: &[DRAW],
        copies,
    };
    let limits = BatchLimits {
        tokens: 9,
        positions: 1,
        vocab: 9,
        pages: 5,
        page: 1,
        tile: 64,
        pad: 1,
    };
    let mut batch = DeviceBatch::default();
    batch.upload(&Device::emulated(), &arrays, &limits).unwrap();
    batch
}

#[test]
fn tokens_become_rows_of_the_table() {
    let mut random = Random(5);
    for precision in BOTH {
        let d = 70;
        let numbers = kept(&random.numbers(9 * d), precision);
        let tokens = [8, 0, 3, 3];
        let out = poisoned(Precision::F32, 4, d, false);
        embed(
            &array(precision, &numbers, d, false),
            &batch(&tokens, &[], &[]),
            &out,
        )
        .unwrap();
        let rows = tokens.map(|token| &numbers[token as usize * d..(token as usize + 1) * d]);
        assert_eq!(out.read(4).unwrap(), rows.concat());
    }
}

#[test]
fn a_norm_is_that_of_the_cpu() {
    let mut random = Random(6);
    for precision in BOTH {
        for d in [1, 37, 300] {
            let (x, weight) = (random.numbers(6 * d), random.numbers(d));
            let cpu = |x: &[f32]| {
                let weight = Tensor::from_slice(&weight, d, &candle_core::Device::Cpu).unwrap();
                values(&rms_norm(&tensor(x, d), &weight, 1e-5).unwrap())
            };
            let device = Device::emulated();
            let weights = Buffer::floats(&device, &weight).unwrap();
            let batch = batch(&[0; 6], &[1, 4, 5], &[]);
            let (from, out) = (
                array(Precision::F32, &x, d, false),
                poisoned(precision, 6, d, true),
            );
            let share = rounding(precision);
            norm((&from, &Places::First(6)), &batch, (&weights, 1e-5), &out).unwrap();
            near(&out.read(6).unwrap(), &cpu(&x), share, "all rows");
            out.buffer().fill(0xFF).unwrap();
            norm(
                (&from, &Places::Scored(1..3)),
                &batch,
                (&weights, 1e-5),
                &out,
            )
            .unwrap();
            near(
                &out.read(2).unwrap(),
                &cpu(&x[4 * d..]),
                share,
                "scored rows",
            );
            let beyond = norm(
                (&from, &Places::Scored(1..4)),
                &batch,
                (&weights, 1e-5),
                &out,
            );
            assert!(beyond.is_err());
        }
    }
}

#[test]
fn copies_of_pages_follow_one_another_in_every_layer() {
    let sizes = PoolSizes {
        precision: Precision::Bf16,
        layers: 3,
        groups: 2,
        head_width: 24,
        page: 7,
        pages: 5,
    };
    let device = Device::emulated();
    let pool = DevicePool::new(&device, sizes).unwrap();
    let page = 2 * 24 * 7 * 2;
    let mut bytes: Vec<u8> = (0..6 * 5 * page)
        .map(|i| (i * 31 + i / page) as u8)
        .collect();
    pool.buffer().upload(&bytes).unwrap();
    let copies = [(0, 1), (1, 3), (4, 0)];
    copy_pages(&pool, &batch(&[0], &[], &copies)).unwrap();
    for part in bytes.chunks_exact_mut(5 * page) {
        for (from, to) in copies {
            let from = from as usize * page;
            part.copy_within(from..from + page, to as usize * page);
        }
    }
    let mut got = vec![0; bytes.len()];
    pool.buffer().download(0, &mut got).unwrap();
    assert!(got == bytes);
}

#[test]
fn a_batch_that_indexes_beyond_a_limit_is_refused() {
    let good = [0u32; 2];
    let segment = |rows, pages| AttentionSegment { rows, pages };
    let limits = BatchLimits {
        tokens: 3,
        positions: 3,
        vocab: 9,
        pages: 2,
        page: 4,
        tile: 64,
        pad: 1,
    };
    let whole = [segment(0..2, 0..1)];
    let arrays = BatchArrays {
        tokens: &good,
        positions: &good,
        slots: &good,
        visible: &good,
        segments: &whole,
        pages: &[0],
        scored: &[],
        scorers: &[],
        biases: &[],
        allowed: &[],
        set_words: 1,
        hosted: &[],
        draws: &[DRAW],
        copies: &[],
    };
    let device = Device::emulated();
    let sent = |arrays: &BatchArrays<'_>| DeviceBatch::default().upload(&device, arrays, &limits);
    assert_eq!(sent(&arrays), Ok(()));
    let bad = [
        BatchArrays {
            tokens: &[0, 3],
            ..arrays
        },
        BatchArrays {
            positions: &[0, 3],
            ..arrays
        },
        BatchArrays {
            positions: &[0],
            ..arrays
        },
        BatchArrays {
            slots: &[8, 0],
            ..arrays
        },
        BatchArrays {
            visible: &[5, 0],
            ..arrays
        },
        BatchArrays {
            pages: &[2],
            ..arrays
        },
        BatchArrays {
            copies: &[(0, 2)],
            ..arrays
        },
        BatchArrays {
            scored: &[1],
            ..arrays
        },
        BatchArrays {
            hosted: &[2],
            ..arrays
        },
        BatchArrays {
            set_words: 2,
            ..arrays
        },
        BatchArrays {
            segments: &[segment(0..1, 0..1)],
            ..arrays
        },
        BatchArrays {
            segments: &[segment(0..2, 0..2)],
            ..arrays
        },
    ];
    for (i, bad) in bad.iter().enumerate() {
        assert!(sent(bad).is_err(), "{i}");
    }
}
