//! Logits over the whole vocabulary, most of them equal, and the candidate they reduce to.

use step::{Bias, Candidate, Sampling, TokenId};

use crate::hash::{mix_all, unit};

/// A few tokens with their own logit, all others (the tail) with a common one.
#[derive(Debug)]
pub(crate) struct Distribution {
    /// Tokens with their own logit, by id; minus infinity bans one. Always holds the mask.
    own: Vec<(TokenId, f64)>,
    /// Logit of each token of the tail.
    tail_logit: f64,
    vocab_size: u32,
}

/// One token with its logit.
type Scored = (TokenId, f64);

impl Distribution {
    /// `logits` are of distinct tokens; `tail` is the logit of all others taken together.
    pub(crate) fn new(mut logits: Vec<Scored>, tail: f64, vocab_size: u32, mask: TokenId) -> Self {
        logits.push((mask, f64::NEG_INFINITY));
        logits.sort_unstable_by_key(|&(token, _)| token);
        let count = f64::from(vocab_size).max(2.0);
        Self {
            own: logits,
            tail_logit: tail - count.ln(),
            vocab_size,
        }
    }

    /// Adds an amount to one token's logit.
    pub(crate) fn bias(&mut self, bias: Bias) {
        let amount = f64::from(bias.amount);
        match self
            .own
            .binary_search_by_key(&bias.token, |&(token, _)| token)
        {
            Ok(index) => self.own[index].1 += amount,
            Err(index) => self
                .own
                .insert(index, (bias.token, self.tail_logit + amount)),
        }
    }

    /// The candidate for a row at `position` that carried the token `present`; `None` if every
    /// token is banned.
    pub(crate) fn candidate(
        &self,
        sampling: &Sampling,
        position: u32,
        present: TokenId,
    ) -> Option<Candidate> {
        let top = self.best(None)?;
        let second = self.best(Some(top.0));
        let chosen = if sampling.temperature > 0.0 {
            self.draw(sampling, position, top)
        } else {
            top
        };
        let runner_up = if chosen.0 == top.0 { second } else { Some(top) };
        let runner_up = runner_up.unwrap_or((u32::from(chosen.0 == 0), f64::NEG_INFINITY));
        let norm = self.log_norm(top.1);
        Some(Candidate {
            token: chosen.0,
            probability: (chosen.1 - norm).exp(),
            runner_up: runner_up.0,
            runner_up_probability: (runner_up.1 - norm).exp(),
            entropy: self.entropy(norm) as f32,
            gap: second.map_or(f32::INFINITY, |second| (top.1 - second.1) as f32),
            present: (self.logit(present) - norm).exp(),
        })
    }

    /// The best token other than `except`, the lowest id on ties.
    fn best(&self, except: Option<TokenId>) -> Option<Scored> {
        let own = self
            .own
            .iter()
            .copied()
            .filter(|&(token, _)| Some(token) != except);
        let tail = self
            .tail_token(0, except)
            .map(|token| (token, self.tail_logit));
        let allowed = own
            .chain(tail)
            .filter(|&(_, logit)| logit > f64::NEG_INFINITY);
        allowed.reduce(|best, other| {
            let better = other.1 > best.1 || (other.1 == best.1 && other.0 < best.0);
            if better { other } else { best }
        })
    }

    /// Gumbel-max over the tokens that the filters leave, the tail drawn as a whole.
    fn draw(&self, sampling: &Sampling, position: u32, top: Scored) -> Scored {
        let temperature = f64::from(sampling.temperature);
        let words = [u64::from(sampling.clock), u64::from(position)];
        let key = mix_all(sampling.seed, &words);
        let noise = |token: u64| -(-unit(mix_all(key, &[token])).ln()).ln();
        let (kept, with_tail) = self.filtered(sampling, top);
        let mut best = (top, f64::NEG_INFINITY);
        for scored in kept {
            let value = scored.1 / temperature + noise(u64::from(scored.0));
            if value > best.1 {
                best = (scored, value);
            }
        }
        let start = mix_all(key, &[u64::MAX]) % u64::from(self.vocab_size);
        if let Some(token) = self.tail_token(start as u32, None).filter(|_| with_tail) {
            // The largest of n equal logits with Gumbel noise is one such draw, shifted by ln n.
            let shift = f64::from(self.tail_len()).ln();
            if self.tail_logit / temperature + shift + noise(u64::MAX) > best.1 {
                best.0 = (token, self.tail_logit);
            }
        }
        best.0
    }

    /// The tokens with their own logit that top-k, top-p and min-p leave, and whether the tail
    /// stays too.
    fn filtered(&self, sampling: &Sampling, top: Scored) -> (Vec<Scored>, bool) {
        let mut kept: Vec<_> = self
            .own
            .iter()
            .copied()
            .filter(|own| own.1 > f64::NEG_INFINITY)
            .collect();
        kept.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let mut with_tail = true;
        if sampling.min_p > 0.0 {
            let least = top.1 + f64::from(sampling.min_p).ln();
            kept.retain(|own| own.1 >= least);
            with_tail = self.tail_logit >= least;
        }
        if sampling.top_k > 0 && (sampling.top_k as usize) <= kept.len() {
            kept.truncate(sampling.top_k as usize);
            with_tail = false;
        }
        if sampling.top_p < 1.0 {
            let norm = self.log_norm(top.1);
            let mut mass = 0.0;
            let whole = kept.iter().position(|own| {
                mass += (own.1 - norm).exp();
                mass >= f64::from(sampling.top_p)
            });
            if let Some(last) = whole {
                kept.truncate(last + 1);
                with_tail = false;
            }
        }
        (kept, with_tail)
    }

    fn logit(&self, token: TokenId) -> f64 {
        match self.own.binary_search_by_key(&token, |&(token, _)| token) {
            Ok(index) => self.own[index].1,
            Err(_) => self.tail_logit,
        }
    }

    fn log_norm(&self, top: f64) -> f64 {
        let own: f64 = self.own.iter().map(|own| (own.1 - top).exp()).sum();
        top + (own + f64::from(self.tail_len()) * (self.tail_logit - top).exp()).ln()
    }

    fn entropy(&self, norm: f64) -> f64 {
        let term = |logit: f64| {
            let log = logit - norm;
            if log > f64::NEG_INFINITY {
                -log.exp() * log
            } else {
                0.0
            }
        };
        let own: f64 = self.own.iter().map(|own| term(own.1)).sum();
        (own + f64::from(self.tail_len()) * term(self.tail_logit)).max(0.0)
    }

    fn tail_len(&self) -> u32 {
        self.vocab_size - self.own.len() as u32
    }

    /// The first token of the tail at or (cyclically) after `start`, other than `except`.
    fn tail_token(&self, start: TokenId, except: Option<TokenId>) -> Option<TokenId> {
        let listed = |token: &TokenId| {
            self.own
                .binary_search_by_key(token, |&(own, _)| own)
                .is_ok()
        };
        (start..self.vocab_size)
            .chain(0..start)
            .take(self.own.len() + 2)
            .find(|token| !listed(token) && Some(*token) != except)
    }
}
