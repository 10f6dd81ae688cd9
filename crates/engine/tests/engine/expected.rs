//! An expected text: the text is the one without it, in fewer forward passes.

use asynclane_engine::{Penalties, Refusal, Request};
use sim::SimConfig;
use step::{Attention, LogitShift};

use crate::common::{Automaton, Lab, alone, config, decoding, request, seeds, sim};
use sim::SimExecutor;

/// Decoders that verify an expected text, and the weights that they are for.
const EXPECTING: [(&str, Attention, LogitShift); 10] = [
    ("vanilla,block_length=16", Attention::Full, LogitShift::None),
    ("fast_dllm,lone_stops=false", Attention::Full, LogitShift::None),
    ("fast_dllm_prefix", Attention::Full, LogitShift::One),
    ("fast_dllm_dual", Attention::Full, LogitShift::None),
    ("fast_dllm_dual_published", Attention::Full, LogitShift::One),
    ("block_causal,block_length=8,commit=entropy_bound", Attention::Blocks(8), LogitShift::None),
    ("block_causal,block_length=8", Attention::Blocks(16), LogitShift::One),
    ("block_causal,block_length=8", Attention::BlocksAfterPrompt(8), LogitShift::None),
    ("wedlm_exact", Attention::Causal, LogitShift::None),
    ("wedlm_next", Attention::Causal, LogitShift::None),
];

/// The request with `text` expected.
fn expecting(plain: &Request, text: &[u32]) -> Request {
    let mut request = plain.clone();
    request.given.prediction = text.to_vec();
    request.decoding = plain.decoding.expecting().expect("a decoder that verifies");
    request
}

#[test]
fn an_expected_text_changes_forwards_and_no_token() {
    for (settings, attention, logit_shift) in EXPECTING {
        let mut forwards = [0; 3];
        for seed in seeds(12) {
            let model = SimConfig { attention, logit_shift, seed, ..sim(512, 16) };
            let plain = request(&[10, 11, 12, 13, 14], 60, settings);
            let written = alone(&plain, &model);
            // The text itself, with another token in place of every tenth, with four of them missing.
            let mut changed = written.tokens.clone();
            changed.iter_mut().skip(4).step_by(10).for_each(|token| *token = 63);
            let mut shorter = written.tokens.clone();
            shorter.drain(2..shorter.len().min(6));
            forwards[0] += written.stats.forwards();
            for (number, text) in [&written.tokens, &changed, &shorter].into_iter().enumerate() {
                let verified = alone(&expecting(&plain, text), &model);
                assert_eq!(verified.tokens, written.tokens, "{settings} {seed} {number}");
                assert_eq!(verified.reason, written.reason);
                let counts = verified.stats.draft_model;
                assert!(counts.verified <= counts.drafted, "{settings}: {counts:?}");
                if let Some(sum) = forwards.get_mut(1 + number) {
                    *sum += verified.stats.forwards();
                }
            }
        }
        let [plain, same, changed] = forwards;
        assert!(same < plain, "{settings}: {forwards:?}");
        assert!(changed <= plain || attention == Attention::Causal, "{settings}: {forwards:?}");
    }
}

#[test]
fn a_decoder_whose_text_could_change_is_named() {
    let cases = [
        ("balanced", "asynclane"),
        ("low_latency", "nested_drafts"),
        ("schedule=block_wise,cache=fused", "fused"),
        ("d2f", "multi_block"),
        ("wedlm", "streaming"),
        ("s2d2", "self_speculative"),
        ("editing", "edit"),
        ("canvas", "renoise"),
        ("vanilla,commit=draft_verify", "draft_verify"),
        ("vanilla,max_forwards=9", "max_forwards"),
    ];
    for (settings, name) in cases {
        assert_eq!(decoding(settings).expecting().err(), Some(name), "{settings}");
    }
}

#[test]
fn requests_whose_candidates_depend_on_steps_are_refused() {
    let executor = SimExecutor::new(sim(512, 16)).expect("a valid model");
    let mut lab = Lab::new(&config(), executor);
    let plain = expecting(&request(&[10, 11], 8, "fast_dllm_dual"), &[20, 21]);
    let mut warm = plain.clone();
    warm.sampling.temperature = 0.5;
    let mut scored = plain.clone();
    scored.extras.logprobs = Some(1);
    let mut penal = plain.clone();
    penal.logits.penalties = Penalties { frequency: 0.5, ..Penalties::default() };
    let mut ruled = plain.clone();
    ruled.constraint = Some(Box::new(Automaton::new(1)));
    let refused = [
        (warm, "a temperature above 0"),
        (scored, "log-probabilities"),
        (penal, "penalties"),
        (ruled, "a grammar"),
    ];
    for (request, words) in refused {
        let message = format!("does not go with {words}");
        let found = lab.submit(request).expect_err(words);
        assert_eq!(found, Refusal::Field { field: "prediction", message });
    }
    let mut unknown = plain.clone();
    unknown.given.prediction.push(64);
    let found = lab.submit(unknown).expect_err("a token that is none");
    assert_eq!(found, Refusal::UnknownToken { token: 64, vocab_size: 64 });
    lab.submit(plain).expect("a plain request");
}
