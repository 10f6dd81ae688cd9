//! Penalties of repeated tokens, as biases.

use decode::{Effect, as_index, to_single};
use step::{Bias, TokenId};

use crate::request::{Penalties, Request};

/// One bias per token that occurs, updated as tokens are committed; empty if all penalties are off.
#[derive(Clone, Debug)]
pub(crate) struct PenaltyBiases {
    penalties: Penalties,
    /// Ascending by token.
    biases: Vec<Bias>,
    /// By bias: how often its token is committed.
    counts: Vec<u32>,
}

impl PenaltyBiases {
    /// The biases of prompt and suffix. Allocates all room that `budget` later tokens need.
    pub(crate) fn new(request: &Request, budget: u32) -> Self {
        let penalties = request.logits.penalties;
        let mut new = Self { penalties, biases: Vec::new(), counts: Vec::new() };
        let pinned = request.given.pins.iter().map(|pin| &pin.token);
        let read = request.prompt.iter().chain(&request.given.suffix).chain(pinned);
        if penalties.repetition != 1.0 {
            new.biases = read.map(|token| new.bias(*token, 0)).collect();
            new.biases.sort_unstable_by_key(|bias| bias.token);
            new.biases.dedup_by_key(|bias| bias.token);
            new.counts.resize(new.biases.len(), 0);
        }
        if penalties != Penalties::default() {
            new.biases.reserve(as_index(budget));
            new.counts.reserve(as_index(budget));
        }
        new
    }

    pub(crate) fn as_slice(&self) -> &[Bias] {
        &self.biases
    }

    /// Counts the tokens that a step committed.
    pub(super) fn observe(&mut self, effects: &[Effect]) {
        if self.penalties == Penalties::default() {
            return;
        }
        for effect in effects {
            if let Effect::Commit(commit) = effect {
                self.count(commit.token);
            }
        }
    }

    fn count(&mut self, token: TokenId) {
        let found = self.biases.binary_search_by_key(&token, |bias| bias.token);
        let index = found.unwrap_or_else(|index| {
            self.biases.insert(index, Bias::add(token, 0.0));
            self.counts.insert(index, 0);
            index
        });
        self.counts[index] += 1;
        self.biases[index] = self.bias(token, self.counts[index]);
    }

    fn bias(&self, token: TokenId, count: u32) -> Bias {
        let Penalties { frequency, presence, repetition } = self.penalties;
        let once = if count > 0 { presence } else { 0.0 };
        Bias { token, repetition, amount: -(frequency * to_single(f64::from(count)) + once) }
    }
}
