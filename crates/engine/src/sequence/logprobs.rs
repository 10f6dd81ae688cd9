//! Log-probabilities of the tokens on a canvas.

use decode::{Effect, Offset, Pin, Proposal, Span, TokenId, as_index, to_single};
use step::TopToken;

use crate::event::TokenLogprob;

/// Log-probabilities by offset, of the forward that wrote the token there.
#[derive(Clone, Debug)]
pub(crate) struct Logprobs {
    /// Most probable tokens per offset.
    count: usize,
    tokens: Vec<Option<f32>>,
    /// `count` per offset.
    tops: Vec<TopToken>,
}

/// The model's output for one sequence in one step: `count` tops per proposal, in the same
/// order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModelOutput<'a> {
    pub(crate) proposals: &'a [Proposal],
    pub(crate) tops: &'a [TopToken],
}

const NONE: TopToken = TopToken { token: 0, logprob: f32::NEG_INFINITY };

impl Logprobs {
    /// Room for `budget` offsets with `count` tops each. At `pins` no other token is possible.
    pub(crate) fn new(count: u8, budget: u32, pins: &[Pin]) -> Self {
        let (count, budget) = (usize::from(count), as_index(budget));
        let mut new = Self { count, tokens: vec![None; budget], tops: vec![NONE; budget * count] };
        for pin in pins {
            new.only(pin.offset, pin.token);
        }
        new
    }

    /// Notes that no other token is possible at an offset.
    fn only(&mut self, offset: Offset, token: TokenId) {
        let index = offset.index();
        self.tokens[index] = Some(0.0);
        let own = &mut self.tops[index * self.count..(index + 1) * self.count];
        own.fill(NONE);
        if let Some(first) = own.first_mut() {
            *first = TopToken { token, logprob: 0.0 };
        }
    }

    /// Most probable tokens per offset.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Follows the tokens that a step wrote.
    pub(crate) fn observe(&mut self, effects: &[Effect], output: ModelOutput<'_>) {
        for effect in effects {
            match *effect {
                Effect::Place(commit) | Effect::Commit(commit) => {
                    let (offset, token, probability) =
                        (commit.offset, commit.token, commit.probability);
                    let proposals = output.proposals;
                    let found = proposals.binary_search_by_key(&offset, |proposal| proposal.offset);
                    // A canvas is committed with its most probable tokens, not with those drawn.
                    let said = |index: &usize| {
                        let candidate = proposals[*index].candidate;
                        let other = (candidate.runner_up, candidate.runner_up_probability);
                        candidate.token == token || other == (token, probability)
                    };
                    let found = found.ok().filter(said);
                    let index = offset.index();
                    let own = &mut self.tops[index * self.count..(index + 1) * self.count];
                    if let Some(row) = found {
                        self.tokens[index] = Some(to_single(probability.ln()));
                        own.copy_from_slice(&output.tops[row * self.count..(row + 1) * self.count]);
                    } else if self.tokens[index].is_none() {
                        // The grammar forced the token.
                        self.only(offset, token);
                    }
                }
                Effect::Revoke { offset } => self.tokens[offset.index()] = None,
                _ => {}
            }
        }
    }

    /// The entries of committed offsets.
    pub(crate) fn of(&self, offsets: Span<Offset>) -> Box<[TokenLogprob]> {
        let entry = |offset: Offset| {
            let index = offset.index();
            let tops = &self.tops[index * self.count..(index + 1) * self.count];
            let possible = tops.iter().filter(|top| top.logprob > f32::NEG_INFINITY);
            TokenLogprob {
                logprob: self.tokens[index].unwrap_or(f32::NEG_INFINITY),
                top: possible.copied().collect(),
            }
        };
        offsets.iter().map(entry).collect()
    }
}
