//! Exact batches under causal and block-causal attention, and with predictions from the row before.

use asynclane_engine::Refusal;
use step::{Attention, LogitShift};

use crate::common::{Lab, Scripted, config, request, sim};

const CAUSAL: (Attention, LogitShift) = (Attention::Causal, LogitShift::None);
const NEXT: (Attention, LogitShift) = (Attention::Causal, LogitShift::One);
const BLOCKS: (Attention, LogitShift) = (Attention::Blocks(4), LogitShift::None);
const SHIFTED: (Attention, LogitShift) = (Attention::Full, LogitShift::One);

/// WeDLM §3: the committed tokens of the window come first, then its masks, both by position. A token
/// left of the frontier is forwarded once more and then stays cached.
#[test]
fn a_streaming_window_puts_committed_tokens_in_front_of_masks() {
    let settings = "schedule=streaming,window=4,commit=threshold,threshold=0.9";
    let mut scripted = Scripted::of(request(&[10, 11, 12], 8, settings), CAUSAL);
    assert_eq!(
        scripted.step(&[(0, 20, 0.95), (2, 22, 0.95)]),
        ["pages 0 1: 0..7 = 10 11 12 ? ? ? ? see back"]
    );
    // Offset 0 is final and gets its slot; offset 2 comes before the masks of 1, 3 and 4.
    assert_eq!(
        scripted.step(&[(1, 21, 0.95), (4, 24, 0.95)]),
        ["pages 0 1: 3..4 = 20 see back; 5..6 at 4 = 22 see back; \
          4..5 at 5 = ? see back; 6..8 = ? ? see back"]
    );
    assert_eq!(
        scripted.step(&[]),
        ["pages 0 1 2: 4..6 = 21 22 see back; 7..8 at 6 = 24 see back; \
          6..7 at 7 = ? see back; 8..10 = ? ? see back"]
    );
}

/// Two rows a step: the token just committed and the next mask.
#[test]
fn a_window_of_one_is_an_autoregressive_model() {
    let mut scripted = Scripted::of(request(&[10, 11], 4, "autoregressive"), CAUSAL);
    assert_eq!(scripted.step(&[(0, 20, 0.2)]), ["pages 0: 0..3 = 10 11 ? see back"]);
    assert_eq!(scripted.step(&[(1, 21, 0.2)]), ["pages 0: 2..4 = 20 ? see back"]);
    assert_eq!(scripted.step(&[(2, 22, 0.2)]), ["pages 0 1: 3..5 = 21 ? see back"]);
}

/// One row a step: the token just committed, whose row predicts the next one. No mask is read.
#[test]
fn autoregressive_weights_read_no_mask() {
    let mut scripted = Scripted::of(request(&[10, 11], 4, "autoregressive"), NEXT);
    assert_eq!(scripted.step(&[(0, 20, 0.2)]), ["pages 0: 0..2 = 10 11! see back"]);
    assert_eq!(scripted.step(&[(1, 21, 0.2)]), ["pages 0: 2..3 = 20! see back"]);
    assert_eq!(scripted.step(&[(2, 22, 0.2)]), ["pages 0: 3..4 = 21! see back"]);
}

/// A prompt whose pages are all known is forwarded again from its last token.
#[test]
fn a_known_prompt_is_read_from_its_last_token() {
    let mut model = sim(64, 4);
    (model.attention, model.logit_shift) = NEXT;
    let executor = sim::SimExecutor::new(model).expect("a valid model");
    let mut lab = Lab::new(&config(), executor);
    let prompt: Vec<u32> = (10..18).collect();
    let mut outcomes = Vec::new();
    for seed in 0..2 {
        let mut asked = request(&prompt, 6, "autoregressive");
        asked.sampling.seed = seed;
        let id = lab.submit(asked);
        lab.finish();
        outcomes.push(lab.outcome(id.expect("there is room")).expect("it ends"));
    }
    assert_eq!(outcomes[0].tokens, outcomes[1].tokens);
    assert_eq!(outcomes[1].stats.cached_tokens, 8);
    let rows = outcomes.iter().map(|outcome| outcome.stats.positions);
    assert_eq!(rows.collect::<Vec<_>>(), [8 + 5, 1 + 5]);
}

#[test]
fn autoregressive_weights_take_one_position_at_a_time() {
    let mut model = sim(64, 4);
    (model.attention, model.logit_shift) = NEXT;
    for (settings, said) in [
        ("wedlm", "window must be 1: this model predicts the next token only"),
        (
            "block_causal",
            "schedule block_wise does not apply, this model predicts the next token only: use preset \
             autoregressive",
        ),
        (
            "balanced",
            "cache fused does not go with this model's causal attention: use preset autoregressive",
        ),
    ] {
        let executor = sim::SimExecutor::new(model.clone()).expect("a valid model");
        match Lab::new(&config(), executor).submit(request(&[10], 8, settings)) {
            Err(Refusal::Rule { field, message }) => assert_eq!(format!("{field} {message}"), said),
            other => panic!("{settings}: {other:?}"),
        }
    }
}

/// Blocks of four positions count from the prompt's first token, so the first block of the answer is
/// shorter by the prompt tokens in it. A full block is forwarded once more with the next one.
#[test]
fn blocks_are_sealed_together_with_the_next_block() {
    let settings = "block_causal,block_length=4,threshold=0.9";
    let mut scripted = Scripted::of(request(&[10, 11, 12, 13, 14], 11, settings), BLOCKS);
    assert_eq!(
        scripted.step(&[(0, 20, 0.95), (1, 21, 0.95)]),
        ["pages 0 1: 0..4 = 10 11 12 13 see 4; 4..8 = 14 ? ? ? see 8"]
    );
    assert_eq!(scripted.step(&[(2, 22, 0.95)]), ["pages 0 1: 4..8 = 14 20 21 ? see 8"]);
    assert_eq!(
        scripted.step(&[(4, 24, 0.95)]),
        ["pages 0 1 2: 4..8 = 14 20 21 22 see 8; 8..12 = ? ? ? ? see 12"]
    );
    assert_eq!(scripted.step(&[]), ["pages 0 1 2: 8..12 = ? 24 ? ? see 12"]);
}

/// Fast-dLLM on Dream: the pass that begins a block commits its first token alone, whatever else is
/// sure, so the row before the block has no part in the passes after it.
#[test]
fn the_row_before_a_block_is_read_once() {
    let settings = "fast_dllm_dual,block_length=4,threshold=0.9";
    let mut scripted = Scripted::of(request(&[10, 11], 8, settings), SHIFTED);
    assert_eq!(
        scripted.step(&[(0, 20, 0.2), (1, 21, 0.95), (2, 22, 0.95)]),
        ["pages 0 1 2: 0..10 = 10 11! ? ? ? _ _ _ _ _ see 10"]
    );
    assert_eq!(
        scripted.step(&[(1, 21, 0.95), (2, 22, 0.95), (3, 23, 0.95)]),
        ["pages 0 1 2: 2..6 = 20! ? ? _ see 10"]
    );
    assert_eq!(
        scripted.step(&[(4, 24, 0.2), (7, 27, 0.95)]),
        ["pages 0 1 2: 0..10 = 10 11 20 21 22 23! ? ? ? _ see 10"]
    );
    assert_eq!(scripted.step(&[]), ["pages 0 1 2: 6..10 = 24! ? ? _ see 10"]);
}

/// Open rows leave settled tokens out, except the one before a mask.
#[test]
fn open_rows_have_a_reader() {
    let settings = "asynclane,block_length=4,lookahead=0,fork=off,threshold=0.9";
    let mut scripted = Scripted::of(request(&[10, 11], 8, settings), SHIFTED);
    scripted.step(&[(0, 20, 0.95), (1, 21, 0.95)]);
    assert_eq!(scripted.step(&[(2, 22, 0.1)]), ["pages 0 1: 2..6 = 20 21! ? _ see 6"]);
    assert_eq!(scripted.step(&[]), ["pages 0 1: 4..6 = 22! _ see 6"]);
}

#[test]
fn a_cache_that_the_weights_do_not_go_with_is_refused() {
    let refused = |settings: &str, (attention, logit_shift): (Attention, LogitShift)| {
        let mut model = sim(64, 4);
        (model.attention, model.logit_shift) = (attention, logit_shift);
        let executor = sim::SimExecutor::new(model).expect("a valid model");
        let mut asked = request(&[10, 11], 8, settings);
        asked.given.suffix = if settings == "wedlm" { vec![12] } else { Vec::new() };
        if logit_shift == LogitShift::One {
            asked.prompt.clear();
        }
        match Lab::new(&config(), executor).submit(asked) {
            Err(Refusal::Rule { field, message } | Refusal::Field { field, message }) => {
                format!("{field} {message}")
            }
            other => panic!("{settings}: {other:?}"),
        }
    };
    assert_eq!(
        refused("balanced", CAUSAL),
        "cache fused does not go with this model's causal attention: use preset wedlm_next"
    );
    assert_eq!(
        refused("vanilla", BLOCKS),
        "cache none does not go with this model's block-causal attention: use preset editing"
    );
    assert_eq!(
        refused("autoregressive", (Attention::Full, LogitShift::None)),
        "cache exact does not go with this model's full attention: use preset balanced"
    );
    assert_eq!(
        refused("wedlm", CAUSAL),
        "suffix needs a model with full attention, this one has causal attention"
    );
    assert_eq!(
        refused("block_causal,commit=edit,force=true", CAUSAL),
        "commit edit does not go with this model's causal attention"
    );
    assert_eq!(refused("balanced", SHIFTED), "prompt must have at least one token");
}
