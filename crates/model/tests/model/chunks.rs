//! A prompt in chunks, none of whose rows is scored, leaves the bits of a whole prompt.

use crate::common::{Noise, Tiny, execute, row, single, sized};
use asynclane_model::{KvDtype, Model, WeightDtype};
use serde_json::json;
use step::{BatchOutput, Executor, Row, Score};

/// Tokens of the prompt, and scored rows behind it.
const PROMPT: u32 = 75;
const SCORED: u32 = 6;
/// Pages of 8 slots, out of order.
const PAGES: [u32; 11] = [4, 9, 0, 7, 2, 10, 1, 8, 3, 6, 5];

/// Rows of a prompt and masks behind it, in blocks of `block` positions.
fn rows(block: u32) -> Vec<Row> {
    let mut noise = Noise(40);
    let end = PROMPT + SCORED;
    let row = |position: u32| {
        let seen = (position / block + 1) * block;
        let score = match position < PROMPT {
            true => Score::None,
            false => Score::Top(3),
        };
        Row { score, ..row(noise.below(61) as u32, position, seen.min(end)) }
    };
    (0..end).map(row).collect()
}

/// The output of the last pass over rows that are split at `cuts`.
fn run(executor: &mut dyn Executor, block: u32, cuts: &[usize]) -> BatchOutput {
    let mut rest = rows(block);
    let mut done = 0;
    for cut in cuts {
        let later = rest.split_off(cut - done);
        done = *cut;
        let batch = single(std::mem::replace(&mut rest, later), &PAGES);
        assert_eq!(execute(executor, &batch), BatchOutput::default());
    }
    execute(executor, &single(rest, &PAGES))
}

/// Asserts that chunks of any length give the output of a whole prompt, with causal rows and in blocks
/// of four.
pub fn check(name: &str, mut executor: impl FnMut() -> Box<dyn Executor>) {
    for block in [1, 4] {
        let whole = run(&mut *executor(), block, &[]);
        assert_eq!(whole.candidates.len(), SCORED as usize);
        for length in [1, 4, 20, 36, 64].map(|length| length * block as usize) {
            let last = PROMPT as usize / block as usize * block as usize;
            let cuts = (length..last).step_by(length).chain([last]);
            let cuts: Vec<usize> = cuts.collect();
            let split = run(&mut *executor(), block, &cuts);
            assert_eq!(split, whole, "{name}, blocks of {block}, {length} rows");
        }
    }
}

#[test]
fn chunks_have_the_bits_of_a_whole_prompt_in_every_dtype() {
    let sizes = json!({"d_model": 96, "n_heads": 6, "n_kv_heads": 2, "n_layers": 3,
        "mlp_hidden_size": 224, "vocab_size": 61, "embedding_size": 64});
    let tiny = Tiny::new(17, &sizes);
    for dtype in WeightDtype::ALL {
        for kv in [KvDtype::F32, KvDtype::Bf16, KvDtype::Int8] {
            let executor = || -> Box<dyn Executor> {
                let checkpoint = tiny.checkpoint().with_dtype(dtype).with_kv_dtype(kv);
                Box::new(sized(Model::load(checkpoint).unwrap(), 11, 2))
            };
            check(&format!("{dtype:?} {kv:?}"), executor);
        }
    }
}
