//! Keys and values in narrow formats: near those in f32 in every family, the same bits in every batch,
//! in pieces as at once, and refused where a backend has no such format.

use crate::canvas::{self, canvas, encoded, scaled};
use crate::common::{Noise, Tiny, execute, push, row, single, sized};
use crate::families::{executor, undisturbed};
use crate::official::Case;
use asynclane_model::{Candle, ExecutorConfig, KvDtype, Model, ModelExecutor};
use serde_json::json;
use step::{Batch, BatchOutput};

const NARROW: [KvDtype; 2] = [KvDtype::Bf16, KvDtype::Int8];
/// Bounds of [`difference`], without experts and with. Nothing trained these weights to be robust.
const BOUNDS: [(KvDtype, [f32; 2]); 2] =
    [(KvDtype::Bf16, [0.02, 0.02]), (KvDtype::Int8, [0.03, 0.05])];

fn model(case: &Case, kv: KvDtype) -> Model {
    Model::load(case.checkpoint().with_kv_dtype(kv)).unwrap()
}

/// The largest difference of a logit in each row of `vocab` logits, over the largest logit of all rows:
/// of the worst row, or of the median row if a model has experts. A rounding that changes the order of
/// two experts with nearly equal weights changes a row of random weights without bound.
fn difference((a, b): (&[f32], &[f32]), vocab: usize, has_experts: bool) -> f32 {
    let largest = a.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let rows = a.chunks(vocab).zip(b.chunks(vocab));
    let rows = rows.map(|(a, b)| {
        let pairs = a.iter().zip(b);
        pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / largest
    });
    let mut rows: Vec<f32> = rows.collect();
    rows.sort_by(f32::total_cmp);
    match has_experts {
        true => rows[rows.len() / 2],
        false => rows[rows.len() - 1],
    }
}

#[test]
fn every_family_stays_near_its_logits_in_f32() {
    let mut wrong = Vec::new();
    for case in Case::all() {
        let exact = model(&case, KvDtype::F32);
        let (vocab, has_experts) = (exact.info().vocabulary.size, exact.info().experts.is_some());
        let exact = exact.logits(&case.tokens).unwrap();
        for (kv, bounds) in BOUNDS {
            let bound = bounds[usize::from(has_experts)];
            let logits = model(&case, kv).logits(&case.tokens).unwrap();
            let found = difference((&exact, &logits), vocab, has_experts);
            if found == 0.0 || found >= bound {
                wrong.push(format!("{} {kv:?}: {found}", case.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn canvases_stay_near_their_scores_in_f32_and_have_the_same_bits_in_every_batch() {
    let case = &canvas::Case::all()[0];
    let (prompt, b) = (case.tokens("prompt"), case.tokens("canvas_b"));
    let run = |others: bool, kv: KvDtype| -> BatchOutput {
        let model = Model::load(case.checkpoint().with_kv_dtype(kv)).unwrap();
        let vocab = model.info().vocabulary.size;
        let mut executor = sized(model, 12, 0);
        let mut last = BatchOutput::default();
        for conditioned in [false, true] {
            let mut batch = Batch::default();
            let given = match conditioned {
                true => Vec::new(),
                false => encoded(&prompt, 0),
            };
            let rows = [given, canvas(&b, prompt.len(), conditioned, vocab)].concat();
            push(&mut batch, rows, &canvas::PAGES, scaled(0.6));
            if others {
                let more = [encoded(&prompt[..9], 0), canvas(&b, 9, false, vocab)].concat();
                push(&mut batch, more, &[6, 7, 8], scaled(0.5));
            }
            last = execute(&mut executor, &batch);
            last.candidates.truncate(b.len());
        }
        last
    };
    let exact = run(false, KvDtype::F32);
    for kv in KvDtype::ALL {
        let (alone, beside) = (run(false, kv), run(true, kv));
        assert_eq!(alone.candidates, beside.candidates, "{kv:?}");
        let pairs = alone.candidates.iter().zip(&exact.candidates);
        let largest = pairs.map(|(a, b)| (a.entropy - b.entropy).abs());
        let largest = largest.fold(0.0, f32::max);
        let is_near = (0.0 < largest) == (kv != KvDtype::F32) && largest < 0.1;
        assert!(is_near, "{kv:?}: {largest}");
    }
}

#[test]
fn neighbours_change_no_bit() {
    for case in Case::all() {
        for kv in NARROW {
            let mut executor = executor(model(&case, kv));
            undisturbed(&mut executor, &case, kv.name());
        }
    }
}

#[test]
fn forwarding_in_pieces_yields_the_same_bits_as_at_once() {
    // Causal attention: cached keys and values equal recomputed ones.
    let tiny = Tiny::new(
        4,
        &json!({"d_model": 72, "n_heads": 6, "n_kv_heads": 2, "mlp_hidden_size": 200,
            "vocab_size": 301, "embedding_size": 320}),
    );
    for kv in KvDtype::ALL {
        let mut executor = tiny.executor_kv(kv, 40, 2);
        let mut noise = Noise(9);
        let rows = (0..90).map(|i| row(noise.below(300) as u32, i, i + 1));
        let rows: Vec<_> = rows.collect();
        let table: Vec<u32> = (0..12).map(|page| (page * 7 + 2) % 40).collect();
        let mut run = |pieces: &[usize]| {
            let mut rest = rows.clone().into_iter();
            let pieces = pieces.iter().flat_map(|piece| {
                let batch = single(rest.by_ref().take(*piece).collect(), &table);
                execute(&mut executor, &batch).candidates
            });
            pieces.collect::<Vec<_>>()
        };
        let whole = run(&[90]);
        assert_eq!(whole.len(), 90);
        for pieces in [&[1; 90][..], &[64, 1, 25], &[13, 70, 7]] {
            assert_eq!(run(pieces), whole, "{kv:?}");
        }
    }
}

#[test]
fn candle_refuses_them_by_name() {
    let tiny = Tiny::new(1, &json!({}));
    for kv in NARROW {
        let checkpoint = tiny.checkpoint().with_kv_dtype(kv);
        let model = Model::load_on(Candle::default(), checkpoint).unwrap();
        let sizes = ExecutorConfig { page_size: 8, pages: 2, threads: None };
        let error = ModelExecutor::new(model, sizes).err().unwrap().to_string();
        let named = error.contains("candle") && error.contains(kv.name());
        assert!(named, "{error}");
    }
}

#[test]
fn bytes_of_a_position_contain_scales() {
    let tiny = Tiny::new(1, &json!({"d_model": 72, "n_heads": 6, "n_kv_heads": 2}));
    for (kv, each, scale) in [(KvDtype::F32, 4, 0), (KvDtype::Bf16, 2, 0), (KvDtype::Int8, 1, 4)] {
        let model = Model::load(tiny.checkpoint().with_kv_dtype(kv)).unwrap();
        let info = model.info();
        let heads = 2 * info.layers * info.heads.num_kv_heads;
        let numbers = heads * info.heads.head_width;
        assert_eq!(info.kv_numbers_per_position(), numbers);
        let bytes = each * numbers + scale * heads;
        assert_eq!(info.kv_bytes_per_position(), bytes, "{kv:?}");
    }
}
