//! Draft-and-verify commits in the order of the static schedule, in at most as many forwards.

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
            run(&config, budget, &|canvas: &[Option<TokenId>], at| says(seed, steady, canvas, at))
        };
        let fixed = decode(commit("top_k").with("tokens_per_step", tokens_per_step));
        let drafted = commit("draft_verify").with("tokens_per_step", tokens_per_step);
        let drafted = decode(drafted.with("draft_steps", draft_steps));
        prop_assert_eq!(&drafted.commits, &fixed.commits);
        prop_assert_eq!(drafted.emitted, fixed.emitted);
        prop_assert!(drafted.forwards <= fixed.forwards);
    }
}

/// Every guess is right if the model ignores the context.
#[test]
fn guesses_that_come_true_save_forwards() {
    let config = |commit| DecoderConfig { commit, ..with_schedule(blocks(16)) };
    let fixed = |_: &[Option<TokenId>], at: Offset| (id("a"), 0.9 - f64::from(at.get()) / 1000.0);
    assert_eq!(run(&config(commit("top_k")), 32, &fixed).forwards, 32);
    let drafted = commit("draft_verify").with("draft_steps", 4u32);
    // Per block: one forward without guesses, then four tokens each for 15 masks.
    assert_eq!(run(&config(drafted), 32, &fixed).forwards, 2 * (1 + 4));
}

type Says<'a> = &'a dyn Fn(&[Option<TokenId>], Offset) -> (TokenId, f64);

struct Outcome {
    commits: Vec<(u32, TokenId)>,
    emitted: Offset,
    forwards: u32,
}

/// The model's candidate for `at` on this canvas. Some positions depend on the whole canvas.
fn says(seed: u64, steady: u64, canvas: &[Option<TokenId>], at: Offset) -> (TokenId, f64) {
    let own = mix(seed, u64::from(at.get()));
    let known = |hash, (at, token): (usize, &Option<TokenId>)| {
        token.map_or(hash, |token| mix(hash, (at as u64) << 32 | u64::from(token)))
    };
    let all = canvas.iter().enumerate().fold(own, known);
    let choice = if own % 20 < steady { own } else { all };
    let token = 1 + (choice % 20) as TokenId;
    (token, ((choice >> 8) % 1000) as f64 / 1000.0)
}

fn filled(canvas: &Canvas, guesses: &[Proposal]) -> Vec<Option<TokenId>> {
    let mut cells: Vec<_> = canvas.span().iter().map(|at| canvas.get(at)).collect();
    for guess in guesses {
        assert_eq!(cells[guess.offset.index()], None, "only masks are guessed");
        cells[guess.offset.index()] = Some(guess.candidate.token);
    }
    cells
}

fn run(config: &DecoderConfig, budget: u32, says: Says<'_>) -> Outcome {
    let mut effects = Vec::new();
    let mut decoder = Decoder::new(config, Input::new(budget, STOPS), &mut effects);
    while !decoder.is_done() {
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
    }
    Outcome {
        commits: committed(&effects),
        emitted: decoder.canvas().emitted(),
        forwards: decoder.step(),
    }
}
