//! Checkpoints with more rows than their tokenizer has tokens, as Qwen's: 151,936 and 151,669.

use crate::common::{execute, push, row, sized};
use crate::official::Case;
use asynclane_model::Model;
use step::{Batch, Executor, Sampling};

/// The tokens of the tiny checkpoints' tokenizer; their tables have 47 rows.
const TOKENS: usize = 41;

fn load(case: &Case, tokens: usize) -> Model {
    Model::load(case.checkpoint().with_vocabulary(tokens)).unwrap()
}

#[test]
fn padding_has_no_logit_and_changes_no_other() {
    for name in ["qwen2", "qwen2-tied-bf16", "qwen3-moe", "wedlm-7b"] {
        let case = Case::named(name);
        let (whole, cut) = (load(&case, 47), load(&case, TOKENS));
        let size = cut.info().vocabulary.size;
        let mask = whole.info().vocabulary.mask.map_or(0, |mask| mask as usize + 1);
        assert_eq!(size, TOKENS.max(mask), "{name}: the mask stays an id");
        assert_eq!(cut.info().vocabulary.embedding_size, 47);
        let logits = |model: &Model| model.logits(&case.tokens).unwrap();
        let (whole, cut) = (logits(&whole), logits(&cut));
        let rows = whole.chunks(47).zip(cut.chunks(size));
        assert_eq!(cut.len(), case.tokens.len() * size);
        for (whole, cut) in rows {
            assert_eq!(whole[..size], *cut, "{name}");
        }
    }
}

/// At a temperature at which every token is about as likely as any other, no padded id is drawn, and an
/// input with such an id is read.
#[test]
fn a_padded_id_is_never_drawn() {
    let mut drawn = [false; 47];
    let mut executor = sized(load(&Case::named("qwen2"), TOKENS), 8, 0);
    assert_eq!(executor.spec().vocab_size as usize, TOKENS);
    for seed in 0..300 {
        let mut batch = Batch::default();
        let rows = vec![row(46, 0, 1), row(3, 1, 2)];
        let sampling = Sampling { temperature: 1000.0, seed, ..Sampling::GREEDY };
        push(&mut batch, rows, &[0], sampling);
        for candidate in execute(&mut executor, &batch).candidates {
            drawn[candidate.token as usize] = true;
            drawn[candidate.runner_up as usize] = true;
        }
    }
    assert!(drawn[TOKENS..].iter().all(|drawn| !drawn));
    assert!(drawn.iter().filter(|drawn| **drawn).count() > 30);
}
