//! What repeated tokens lose, as biases.

use step::{Bias, TokenId};

use crate::request::{Penalties, Request};

/// One bias per token that occurs, kept up to date as tokens are committed; empty if no penalty
/// is on.
#[derive(Clone, Debug)]
pub(crate) struct PenaltyBiases {
    penalties: Penalties,
    /// By token.
    biases: Vec<Bias>,
    /// How often each of them is committed.
    counts: Vec<u32>,
}

impl PenaltyBiases {
    /// Those of prompt and suffix. Nothing is allocated later.
    pub(crate) fn new(request: &Request) -> Self {
        let penalties = request.penalties;
        let mut new = Self {
            penalties,
            biases: Vec::new(),
            counts: Vec::new(),
        };
        let read = request.prompt.iter().chain(&request.suffix);
        if penalties.repetition != 1.0 {
            new.biases = read.map(|token| new.bias(*token, 0)).collect();
            new.biases.sort_unstable_by_key(|bias| bias.token);
            new.biases.dedup_by_key(|bias| bias.token);
            new.counts.resize(new.biases.len(), 0);
        }
        if penalties != Penalties::default() {
            new.biases.reserve(request.max_tokens as usize);
            new.counts.reserve(request.max_tokens as usize);
        }
        new
    }

    pub(crate) fn as_slice(&self) -> &[Bias] {
        &self.biases
    }

    /// `token` is committed.
    pub(crate) fn count(&mut self, token: TokenId) {
        if self.penalties == Penalties::default() {
            return;
        }
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
        let Penalties {
            frequency,
            presence,
            repetition,
        } = self.penalties;
        let once = if count > 0 { presence } else { 0.0 };
        Bias {
            token,
            repetition,
            amount: -(frequency * count as f32 + once),
        }
    }
}
