//! Guessed canvases change no commit and take at most as many forwards: draft-and-verify, and an expected
//! text under any rule that reads nothing but masks.

use asynclane_decode::{Canvas, Decoder, DecoderConfig, Input, Offset, Proposal, TokenId};
use proptest::prelude::*;

use crate::common::{
    STOPS, blocks, branches, candidate, cases, commit, committed, id, mix, wanted, with_schedule,
};

proptest! {
    #![proptest_config(cases())]

    /// FreeDave: every candidate depends on the whole canvas, so a wrong guess must not change
    /// a result.
    #[test]
    fn the_order_of_commits_is_the_static_one(
        seed in any::<u64>(),
        sizes in (1..20u32, 1..80u32, 1..4u32, 1..7u32),
        steady in 0..20u64,
        prune in any::<bool>(),
    ) {
        let (block_length, budget, tokens_per_step, draft_steps) = sizes;
        let decode = |commit| {
            let config = DecoderConfig {
                commit,
                prune,
                ..with_schedule(blocks(block_length))
            };
            run(&config, budget, &|canvas: &[Option<TokenId>], at| says(seed, steady, canvas, at), &[])
        };
        let fixed = decode(commit("top_k").with("tokens_per_step", tokens_per_step));
        let drafted = commit("draft_verify").with("tokens_per_step", tokens_per_step);
        let drafted = decode(drafted.with("draft_steps", draft_steps));
        prop_assert_eq!(&drafted.commits, &fixed.commits);
        prop_assert_eq!(drafted.emitted, fixed.emitted);
        prop_assert!(drafted.forwards <= fixed.forwards);
        prop_assert!(drafted.steps == fixed.steps);
    }

    /// Whatever is expected, the steps are those without it.
    #[test]
    fn an_expected_text_changes_no_step(
        seed in any::<u64>(),
        sizes in (1..20u32, 1..80u32, 1..9u32),
        rule in 0..RULES.len(),
        (steady, wrong) in (0..20u64, 0..20u64),
        prune in any::<bool>(),
        lone_stops in any::<bool>(),
    ) {
        let (block_length, budget, expected) = sizes;
        let config = DecoderConfig {
            commit: commit(RULES[rule]),
            prune,
            lone_stops,
            ..with_schedule(blocks(block_length))
        };
        let model = |canvas: &[Option<TokenId>], at| says(seed, steady, canvas, at);
        let plain = run(&config, budget, &model, &[]);
        let mut text = vec![0; budget as usize];
        for (offset, token) in &plain.commits {
            let is_wrong = mix(seed ^ 1, u64::from(*offset)) % 20 < wrong;
            text[*offset as usize] = if is_wrong { id("c") } else { *token };
        }
        let guided = run(&DecoderConfig { expected, ..config }, budget, &model, &text);
        prop_assert_eq!(&guided.commits, &plain.commits);
        prop_assert_eq!(guided.emitted, plain.emitted);
        prop_assert_eq!(guided.steps, plain.steps);
        prop_assert!(guided.forwards <= plain.forwards);
        prop_assert!(guided.right <= guided.verified);
    }
}

const RULES: [&str; 8] =
    ["threshold", "top_k", "entropy", "entropy_bound", "margin", "credit", "scheduled", "factor"];

/// A text that is the decoder's own saves forwards, and every verified token is right or is not.
#[test]
fn an_expected_text_saves_forwards() {
    let config = DecoderConfig { commit: commit("top_k"), ..with_schedule(blocks(16)) };
    let fixed =
        |_: &[Option<TokenId>], offset: Offset| (id("a"), 0.9 - f64::from(offset.get()) / 1000.0);
    let expecting = DecoderConfig { expected: 3, ..config };
    let right = run(&expecting, 32, &fixed, &[id("a"); 32]);
    // Per block: the real canvas gives a step, and each guess one more.
    assert_eq!((right.forwards, right.steps), (2 * 4, 32));
    assert_eq!((right.verified, right.right), (2 * 4 * 3, 2 * 4 * 3));
    let wrong = run(&expecting, 32, &fixed, &[id("c"); 32]);
    assert_eq!((wrong.forwards, wrong.steps, wrong.right), (32, 32, 0));
    assert!(wrong.verified > 0);
}

/// Every guess is right if the model ignores the context.
#[test]
fn guesses_that_come_true_save_forwards() {
    let config = |commit| DecoderConfig { commit, ..with_schedule(blocks(16)) };
    let fixed =
        |_: &[Option<TokenId>], offset: Offset| (id("a"), 0.9 - f64::from(offset.get()) / 1000.0);
    assert_eq!(run(&config(commit("top_k")), 32, &fixed, &[]).forwards, 32);
    let drafted = commit("draft_verify").with("draft_steps", 4u32);
    // Per block: one forward without guesses, then four tokens each for 15 masks.
    assert_eq!(run(&config(drafted), 32, &fixed, &[]).forwards, 2 * (1 + 4));
}

type Says<'a> = &'a dyn Fn(&[Option<TokenId>], Offset) -> (TokenId, f64);

struct Outcome {
    commits: Vec<(u32, TokenId)>,
    emitted: Offset,
    forwards: u32,
    steps: u32,
    /// Verified tokens of the expected text, and the right ones.
    verified: u32,
    right: u32,
}

/// The model's candidate for `offset` on this canvas. Some positions depend on the whole canvas.
fn says(seed: u64, steady: u64, canvas: &[Option<TokenId>], offset: Offset) -> (TokenId, f64) {
    let own = mix(seed, u64::from(offset.get()));
    let known = |hash, (index, token): (usize, &Option<TokenId>)| {
        token.map_or(hash, |token| mix(hash, (index as u64) << 32 | u64::from(token)))
    };
    let all = canvas.iter().enumerate().fold(own, known);
    let choice = if own % 20 < steady { own } else { all };
    let token = 1 + (choice % 20) as TokenId;
    (token, ((choice >> 8) % 1000) as f64 / 1000.0)
}

fn filled(canvas: &Canvas, guesses: &[Proposal]) -> Vec<Option<TokenId>> {
    let mut cells: Vec<_> = canvas.span().iter().map(|offset| canvas.get(offset)).collect();
    for guess in guesses {
        assert_eq!(cells[guess.offset.index()], None, "only masks are guessed");
        cells[guess.offset.index()] = Some(guess.candidate.token);
    }
    cells
}

fn run(config: &DecoderConfig, budget: u32, says: Says<'_>, text: &[TokenId]) -> Outcome {
    let mut effects = Vec::new();
    let mut decoder = Decoder::new(config, Input::new(budget, STOPS), &mut effects);
    let (mut forwards, mut verified, mut right) = (0, 0, 0);
    while !decoder.is_done() {
        let start = decoder.canvas().frontier().index().min(text.len());
        decoder.expect(&text[start..]);
        let mut proposals = Vec::new();
        for guesses in std::iter::once(Vec::new()).chain(branches(&decoder)) {
            let cells = filled(decoder.canvas(), &guesses);
            for (offset, _) in wanted(&decoder) {
                if cells[offset.index()].is_none() {
                    let (token, probability) = says(&cells, offset);
                    let candidate = candidate(token, probability);
                    proposals.push(Proposal { offset, candidate });
                }
            }
        }
        decoder.apply(&proposals, &mut effects);
        forwards += 1;
        let counts = decoder.verified();
        (verified, right) = (verified + counts.0, right + counts.1);
    }
    Outcome {
        commits: committed(&effects),
        emitted: decoder.canvas().emitted(),
        forwards,
        steps: decoder.step(),
        verified,
        right,
    }
}
