//! Canvases of noise: what stands in them from step to step, and when they are committed.

use asynclane_decode::{
    Candidate, Decoder, DecoderConfig, DoneReason, Effect, Input, Offset, Proposal, TokenId,
};

use crate::common::{Bench, Toy, at, candidate, commit, committed, schedule, with_schedule};

const LENGTH: u32 = 4;

/// Canvases of four tokens.
fn config(settings: &[(&'static str, f64)], steps: u32) -> DecoderConfig {
    let rule = commit("renoise").with("max_denoising_steps", steps);
    let commit = settings.iter().fold(rule, |rule, (name, value)| rule.with(name, *value));
    DecoderConfig { commit, ..with_schedule(schedule("canvas").with("block_length", LENGTH)) }
}

fn decoder(config: &DecoderConfig, budget: u32, limit: u32, stops: &[TokenId]) -> Decoder {
    let input = Input { limit, ..Input::new(budget, stops) };
    Decoder::new(config, input, &mut Vec::new())
}

/// A token drawn with probability 0.2, another that is likelier, and an entropy.
fn drawn(offset: u32, token: TokenId, likelier: TokenId, entropy: f32) -> Proposal {
    Proposal {
        offset: at(offset),
        candidate: Candidate {
            runner_up: likelier,
            runner_up_probability: 0.7,
            entropy,
            ..candidate(token, 0.2)
        },
    }
}

/// One step over the canvas from `first` on; the likelier token is always `best`.
fn step(decoder: &mut Decoder, first: u32, entropies: [f32; 4], best: TokenId) -> Vec<Effect> {
    let offsets = (first..first + LENGTH).zip(entropies);
    let said: Vec<Proposal> =
        offsets.map(|(offset, entropy)| drawn(offset, 10 + offset, best, entropy)).collect();
    let mut effects = Vec::new();
    decoder.apply(&said, &mut effects);
    effects
}

fn standing(decoder: &Decoder, first: u32) -> [Option<TokenId>; 4] {
    [0, 1, 2, 3].map(|offset| decoder.denoising()?.token(at(first + offset)))
}

/// The entropies are 0.5, 0.06, 0.05 and 0.9; the two lowest sum to 0.11: two tokens stay.
#[test]
fn tokens_of_low_entropy_stay_and_the_others_become_noise() {
    let mut decoder = decoder(&config(&[], 48), 8, 8, &[]);
    assert_eq!(standing(&decoder, 0), [None; 4], "the first canvas is noise");
    assert_eq!(step(&mut decoder, 0, [0.5, 0.06, 0.05, 0.9], 7), []);
    assert_eq!(standing(&decoder, 0), [None, Some(11), Some(12), None]);
    // A token that stayed before is noise if it is not kept again.
    assert_eq!(step(&mut decoder, 0, [0.01, 0.5, 0.5, 0.9], 7), []);
    assert_eq!(standing(&decoder, 0), [Some(10), Some(11), None, None]);
}

/// Temperatures fall by equal differences from `t_max`; the last one is a difference above `t_min`.
#[test]
fn the_canvas_cools() {
    let mut decoder = decoder(&config(&[("t_min", 0.4), ("t_max", 0.8)], 4), 8, 8, &[]);
    for expected in [0.8, 0.7, 0.6, 0.5, 0.8] {
        let said = decoder.denoising().expect("a canvas");
        assert!((said.temperature - expected).abs() < 1e-12, "{said:?}");
        let first = decoder.tree().generate().map_or(0, |lane| lane.start.get());
        assert_eq!(said.conditioned, !decoder.step().is_multiple_of(4));
        let best = decoder.step();
        step(&mut decoder, first, [1.0; 4], best);
    }
}

/// A canvas is final with its most probable tokens, not with those drawn, once they are those of the
/// step before and the mean entropy is low.
#[test]
fn a_stable_and_certain_canvas_is_committed_as_a_whole() {
    let mut decoder = decoder(&config(&[], 48), 6, 6, &[]);
    let certain = [0.004; 4];
    assert_eq!(step(&mut decoder, 0, certain, 7), [], "nothing to compare with");
    assert_eq!(step(&mut decoder, 0, certain, 8), [], "other tokens");
    assert_eq!(step(&mut decoder, 0, [0.006; 4], 8), [], "not certain");
    let effects = step(&mut decoder, 0, certain, 8);
    assert_eq!(committed(&effects), [(0, 8), (1, 8), (2, 8), (3, 8)]);
    let start = effects
        .iter()
        .any(|effect| matches!(effect, Effect::Start { start, len: 2, .. } if *start == at(4)));
    assert!(start, "the next canvas ends with the budget: {effects:?}");
    assert_eq!(standing(&decoder, 4), [None; 4]);
    let fresh = decoder.denoising().is_some_and(|said| !said.conditioned);
    assert!(fresh, "the next canvas has no distribution yet");
}

/// The text ends in the middle of a canvas: where it may not be longer, or after a stop token.
#[test]
fn a_canvas_is_cut_at_the_limit_and_after_a_stop_token() {
    let config = config(&[], 1);
    let mut limited = decoder(&config, 8, 6, &[]);
    step(&mut limited, 0, [1.0; 4], 7);
    assert!(!limited.is_done());
    let effects = step(&mut limited, 4, [1.0; 4], 7);
    assert!(effects.contains(&Effect::Shorten { len: 6 }), "{effects:?}");
    assert_eq!(limited.canvas().emitted(), Offset::new(6));
    assert_eq!(limited.done(), Some(DoneReason::Budget));
    let mut stopped = decoder(&config, 8, 8, &[7]);
    step(&mut stopped, 0, [1.0; 4], 7);
    assert_eq!(stopped.canvas().emitted(), Offset::ZERO);
    assert_eq!(stopped.done(), Some(DoneReason::StopToken));
}

/// Under a grammar every step commits at least the token at the frontier, and every committed token
/// follows the grammar. Every canvas begins with noise that no forward pass has read.
#[test]
fn a_grammar_is_followed_on_a_canvas() {
    for seed in 0..40 {
        let config = config(&[("entropy_bound", 0.5)], 6);
        let mut bench = Bench::under(Toy::new(seed), &config, 12);
        let mut grammar = Toy::new(seed);
        for _ in 0..12 {
            if bench.decoder.is_done() {
                break;
            }
            let before = bench.decoder.canvas().frontier();
            let allowed = bench.decoder.allowed().expect("a grammar").to_vec();
            let lane = bench.decoder.tree().generate().expect("a lane");
            let denoising = bench.decoder.denoising().expect("a canvas");
            let begins = lane.clock == 0;
            assert!(!(begins && denoising.conditioned), "seed {seed}: {lane:?}");
            assert!(!begins || (denoising.temperature - 0.8).abs() < 1e-12);
            let lane = lane.range();
            let canvas = bench.decoder.canvas();
            let masks = lane.iter().filter(|offset| canvas.is_mask(*offset)).collect::<Vec<_>>();
            let said: Vec<Proposal> = masks
                .into_iter()
                .map(|offset| {
                    let is_frontier = offset == before;
                    let word = |token: &TokenId| {
                        let bits = allowed.get(*token as usize / 32);
                        bits.is_some_and(|bits| bits >> (token % 32) & 1 == 1)
                    };
                    let token = (1..60).find(|token| !is_frontier || word(token)).unwrap_or(0);
                    let mut said = drawn(offset.get(), token, token + 1, 0.1);
                    if is_frontier {
                        // Its row is scored under the grammar: no other token is likelier.
                        said.candidate.runner_up_probability = 0.0;
                    }
                    said
                })
                .collect();
            let mut effects = Vec::new();
            bench.decoder.apply(&said, &mut effects);
            assert!(bench.decoder.canvas().frontier() > before, "seed {seed}");
            let mut tokens = committed(&effects);
            tokens.sort_unstable();
            for (_, token) in tokens {
                follow(&mut grammar, token, seed);
            }
        }
    }
}

/// Takes a step of the grammar; a stop token ends it.
fn follow(grammar: &mut Toy, token: TokenId, seed: u64) {
    use asynclane_decode::Constraint;
    let fits = grammar.accept(token).expect("a sound grammar");
    assert!(fits || grammar.may_end(), "seed {seed}: {token}");
}
