//! Checked guesses: the text is the one that the checks alone write from left to right, whatever is
//! guessed, in at most as many forwards as that takes.

use asynclane_decode::{
    Candidate, CommitConfig, Decoder, DecoderConfig, Input, Offset, Proposal, ScheduleConfig,
    TokenId,
};
use proptest::prelude::*;

use crate::common::{
    STOPS, blocks, candidate, cases, commit, mix, schedule, wanted, with_schedule,
};

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn a_window_of_checked_guesses_writes_what_one_position_writes(
        law in law(),
        sizes in (1..64u32, 1..80u32),
        bound in 0.0..4.0f64,
        prune in any::<bool>(),
    ) {
        let (window, budget) = sizes;
        let rule = commit("causal_check").with("entropy_threshold", bound);
        let run = law.run(schedule("streaming").with("window", window), rule, (budget, prune));
        let text = law.text(budget);
        prop_assert_eq!(&run.text, &text);
        prop_assert!(run.forwards <= budget);
        let most = text.len() as u32 + 1;
        prop_assert!(!prune || run.forwards <= most, "{} forwards of {most}", run.forwards);
    }

    /// With runs of any length checked, no token comes from the forward that guesses.
    #[test]
    fn blocks_that_check_themselves_write_what_their_checks_write(
        law in law(),
        sizes in (1..64u32, 1..80u32),
        prune in any::<bool>(),
    ) {
        let (block_length, budget) = sizes;
        let run = law.run(blocks(block_length), commit("self_speculative"), (budget, prune));
        prop_assert_eq!(run.text, law.text(budget));
        prop_assert!(run.forwards <= 2 * budget);
    }

    /// Whatever runs are checked, every step but those that guess commits a token.
    #[test]
    fn blocks_that_check_some_runs_end(
        law in law(),
        sizes in (1..40u32, 1..60u32, 1..8u32),
        threshold in 0.0..1.0f64,
        router in proptest::sample::select(vec!["span", "score", "hysteresis", "bandit"]),
    ) {
        let (block_length, budget, span) = sizes;
        let rule = commit("self_speculative").with("min_span", span).with("threshold", threshold);
        let rule = rule.with("router", router).with("score_on", 0.5);
        let run = law.run(blocks(block_length), rule, (budget, true));
        prop_assert!(run.forwards <= 2 * budget);
        prop_assert!(run.text.len() <= budget as usize);
    }
}

/// A random but reproducible model.
#[derive(Clone, Copy, Debug)]
struct Law {
    seed: u64,
    /// Number of positions among 8 whose token depends on no other.
    steady: u64,
    /// One of this many tokens is a stop token.
    stop_every: u64,
}

struct Run {
    text: Vec<TokenId>,
    forwards: u32,
}

fn law() -> impl Strategy<Value = Law> {
    (any::<u64>(), 0..9u64, 4..60u64).prop_map(|(seed, steady, stop_every)| Law {
        seed,
        steady,
        stop_every,
    })
}

impl Law {
    /// The token behind `before`, of which `None` is a mask.
    fn next(&self, before: &[Option<TokenId>]) -> TokenId {
        let own = mix(self.seed, before.len() as u64);
        let context = before.iter().rev().take(2);
        let known = context.fold(own, |hash, token| mix(hash, token.map_or(u64::MAX, u64::from)));
        let choice = if own % 8 < self.steady { own } else { known };
        match (choice >> 8).is_multiple_of(self.stop_every) {
            true => STOPS[0],
            false => 3 + (choice >> 20) as TokenId % 8,
        }
    }

    /// The text from left to right, without the stop token.
    fn text(&self, budget: u32) -> Vec<TokenId> {
        let mut text = Vec::new();
        while text.len() < budget as usize {
            text.push(Some(self.next(&text)));
            if text.last() == Some(&Some(STOPS[0])) {
                text.pop();
                break;
            }
        }
        text.into_iter().flatten().collect()
    }

    /// A candidate of this token, with an entropy of its own.
    fn says(&self, offset: Offset, step: u32, token: TokenId) -> Candidate {
        let hash = mix(mix(self.seed, u64::from(offset.get())), u64::from(step));
        Candidate {
            entropy: (hash % 300) as f32 / 100.0,
            ..candidate(token, (hash >> 20) as f64 % 100.0 / 100.0)
        }
    }

    /// The answer of a forward. `shuffles`: where it checks nothing, a mask is predicted from both sides, and
    /// now and then as another token.
    fn forward(&self, decoder: &Decoder, shuffles: bool) -> Vec<Proposal> {
        let (canvas, guesses) = (decoder.canvas(), decoder.guesses_to_check());
        let mut cells: Vec<_> = canvas.span().iter().map(|offset| canvas.get(offset)).collect();
        for guess in guesses {
            assert_eq!(cells[guess.offset.index()], None, "only masks are guessed");
            cells[guess.offset.index()] = Some(guess.candidate.token);
        }
        let says = |(offset, _): (Offset, _)| {
            let token = self.next(&cells[..offset.index()]);
            let mood = mix(self.seed ^ 7, u64::from(offset.get()));
            let differs = shuffles && guesses.is_empty() && mood.is_multiple_of(5);
            let token = token + TokenId::from(differs);
            let candidate = self.says(offset, decoder.step(), token);
            Proposal { offset, candidate }
        };
        wanted(decoder).into_iter().map(says).collect()
    }

    fn run(
        &self,
        schedule: ScheduleConfig,
        commit: CommitConfig,
        (budget, prune): (u32, bool),
    ) -> Run {
        let config = DecoderConfig { commit, prune, ..with_schedule(schedule) };
        let input = Input::new(budget, STOPS);
        let mut effects = Vec::new();
        let mut decoder = Decoder::new(&config, input, &mut effects);
        let shuffles = config.commit.name() == "self_speculative";
        while !decoder.is_done() {
            let proposals = self.forward(&decoder, shuffles);
            decoder.apply(&proposals, &mut effects);
            assert!(decoder.step() <= 3 * budget, "it never ends");
        }
        let emitted = Offset::ZERO.to(decoder.canvas().emitted()).iter();
        Run {
            text: emitted.filter_map(|offset| decoder.canvas().get(offset)).collect(),
            forwards: decoder.step(),
        }
    }
}
