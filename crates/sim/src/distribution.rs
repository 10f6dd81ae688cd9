//! Logits over the vocabulary, most of them equal, and their reduction to a candidate.

use std::cmp::Ordering;

use step::{Bias, Candidate, Position, Sampling, TokenId, TopToken, as_count, as_index};

use crate::allowed::Allowed;
use crate::hash::{below, mix_all, unit};

/// A few tokens with logits of their own, and one logit for every other allowed token (the tail).
#[derive(Debug)]
pub(crate) struct Distribution<'a> {
    /// Tokens with their own logit, by id; minus infinity bans one. Always holds the mask.
    own: Vec<Scored>,
    /// Logit of each token of the tail.
    tail_logit: f64,
    /// Size of the tail.
    tail_len: u32,
    /// Tokens outside this set are not in the tail; with a logit of their own they are banned.
    allowed: Allowed<'a>,
    vocab_size: u32,
}

/// One token with its logit.
type Scored = (TokenId, f64);

impl<'a> Distribution<'a> {
    /// `logits` are of distinct tokens; `tail` is the logit of all others taken together.
    pub(crate) fn new(mut logits: Vec<Scored>, tail: f64, vocab_size: u32, mask: TokenId) -> Self {
        logits.push((mask, f64::NEG_INFINITY));
        logits.sort_unstable_by_key(|&(token, _)| token);
        let count = f64::from(vocab_size).max(2.0);
        Self {
            tail_len: vocab_size - as_count(logits.len()),
            own: logits,
            tail_logit: tail - count.ln(),
            allowed: Allowed::all(vocab_size),
            vocab_size,
        }
    }

    /// Changes one token's logit; to be called before [`Self::restrict`].
    pub(crate) fn bias(&mut self, bias: Bias) {
        let (repetition, amount) = (f64::from(bias.repetition), f64::from(bias.amount));
        let changed = |logit: f64| match logit > 0.0 {
            true => logit / repetition + amount,
            false => logit * repetition + amount,
        };
        match self.own.binary_search_by_key(&bias.token, |&(token, _)| token) {
            Ok(index) => self.own[index].1 = changed(self.own[index].1),
            Err(index) => {
                self.own.insert(index, (bias.token, changed(self.tail_logit)));
                self.tail_len -= 1;
            }
        }
    }

    /// Bans the tokens outside a set of the batch.
    pub(crate) fn restrict(&mut self, words: &'a [u32]) {
        self.allowed = Allowed::set(self.vocab_size, words);
        self.tail_len = self.allowed.count(0..self.vocab_size);
        for (token, logit) in &mut self.own {
            if self.allowed.contains(*token) {
                self.tail_len -= 1;
            } else {
                *logit = f64::NEG_INFINITY;
            }
        }
    }

    /// The candidate for a row at `position` that asks for the token `present`; `None` if every
    /// token is banned.
    pub(crate) fn candidate(
        &self,
        sampling: &Sampling,
        position: Position,
        present: TokenId,
    ) -> Option<Candidate> {
        let top = self.best(None)?;
        let second = self.best(Some(top.0));
        let chosen =
            if sampling.temperature > 0.0 { self.draw(sampling, position, top) } else { top };
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

    /// The `count` most probable tokens, the lower id first on ties. Entries beyond the allowed
    /// tokens name any token but the mask.
    pub(crate) fn tops(&self, count: usize, mask: TokenId) -> Vec<TopToken> {
        let Some(top) = self.best(None).filter(|_| count > 0) else {
            return Vec::new();
        };
        let norm = self.log_norm(top.1);
        let mut ranked = self.ranked();
        ranked.extend(self.tail().take(count).map(|token| (token, self.tail_logit)));
        ranked.sort_by(by_rank);
        ranked.resize(count, (u32::from(mask == 0), f64::NEG_INFINITY));
        let tops = ranked
            .iter()
            .map(|&(token, logit)| TopToken { token, logprob: (logit - norm).min(0.0) as f32 });
        tops.collect()
    }

    /// The `count` most probable tokens of a set, with their probabilities among all tokens; as
    /// [`Self::tops`] otherwise.
    pub(crate) fn among(&self, set: &Allowed<'_>, count: usize, mask: TokenId) -> Vec<TopToken> {
        let norm = self.best(None).map_or(0.0, |top| self.log_norm(top.1));
        let mut listed: Vec<Scored> =
            set.iter_from(0).map(|token| (token, self.logit(token))).collect();
        listed.retain(|&(_, logit)| logit > f64::NEG_INFINITY);
        listed.sort_by(by_rank);
        listed.resize(count, (u32::from(mask == 0), f64::NEG_INFINITY));
        let top = |(token, logit): Scored| {
            let logprob = (logit - norm).min(0.0) as f32;
            TopToken { token, logprob }
        };
        listed.into_iter().map(top).collect()
    }

    /// The best token other than `except`, the lowest id on ties.
    fn best(&self, except: Option<TokenId>) -> Option<Scored> {
        let tail = self.tail().map(|token| (token, self.tail_logit));
        let own = self.own.iter().copied();
        let own = own.filter(|&(_, logit)| logit > f64::NEG_INFINITY);
        let others = |&(token, _): &Scored| Some(token) != except;
        own.filter(others).chain(tail.filter(others).take(1)).min_by(by_rank)
    }

    /// Gumbel-max over the tokens that the filters leave, the tail drawn as a whole.
    fn draw(&self, sampling: &Sampling, position: Position, top: Scored) -> Scored {
        let temperature = f64::from(sampling.temperature);
        let words = [u64::from(sampling.clock), u64::from(position.get())];
        let key = mix_all(sampling.seed, &words);
        let noise = |token: u64| -(-unit(mix_all(key, &[token])).ln()).ln();
        let (kept, tail_len) = self.filtered(sampling, top);
        let mut best = (top, f64::NEG_INFINITY);
        for scored in kept {
            let value = scored.1 / temperature + noise(u64::from(scored.0));
            if value > best.1 {
                best = (scored, value);
            }
        }
        if tail_len > 0 {
            // The largest of n equal logits with Gumbel noise is one such draw, shifted by ln n.
            let shift = f64::from(tail_len).ln();
            if self.tail_logit / temperature + shift + noise(u64::MAX) > best.1 {
                let number = below(mix_all(key, &[u64::MAX]), tail_len);
                if let Some(token) = self.tail_token(number) {
                    best.0 = (token, self.tail_logit);
                }
            }
        }
        best.0
    }

    /// The tokens with a logit of their own that top-k, top-p and min-p keep, and the number of
    /// tail tokens that they keep, by id from the lowest.
    fn filtered(&self, sampling: &Sampling, top: Scored) -> (Vec<Scored>, u32) {
        let mut kept = self.ranked();
        let mut tail_len = self.tail_len;
        if sampling.min_p > 0.0 {
            let least = top.1 + f64::from(sampling.min_p).ln();
            kept.retain(|own| own.1 >= least);
            if self.tail_logit < least {
                tail_len = 0;
            }
        }
        // By probability the tail lies between `kept` and `others`.
        let mut others = kept.split_off(kept.partition_point(|own| own.1 >= self.tail_logit));
        if sampling.top_k > 0 {
            let mut left = sampling.top_k;
            kept.truncate(as_index(left));
            left -= as_count(kept.len());
            tail_len = tail_len.min(left);
            left -= tail_len;
            others.truncate(as_index(left));
        }
        if sampling.top_p < 1.0 {
            let norm = self.log_norm(top.1);
            // The best token is always kept.
            let mut missing = f64::from(sampling.top_p).max(f64::MIN_POSITIVE);
            keep_mass(&mut kept, norm, &mut missing);
            let each = (self.tail_logit - norm).exp();
            tail_len = tail_len.min((missing / each).ceil().max(0.0) as u32);
            missing -= self.of_tail(tail_len, |_| each);
            keep_mass(&mut others, norm, &mut missing);
        }
        kept.append(&mut others);
        (kept, tail_len)
    }

    /// The tokens with their own logit that are not banned, the likeliest first.
    fn ranked(&self) -> Vec<Scored> {
        let own = self.own.iter().copied();
        let mut ranked: Vec<_> = own.filter(|own| own.1 > f64::NEG_INFINITY).collect();
        ranked.sort_by(by_rank);
        ranked
    }

    fn logit(&self, token: TokenId) -> f64 {
        match self.own.binary_search_by_key(&token, |&(token, _)| token) {
            Ok(index) => self.own[index].1,
            Err(_) if self.allowed.contains(token) => self.tail_logit,
            Err(_) => f64::NEG_INFINITY,
        }
    }

    fn log_norm(&self, top: f64) -> f64 {
        let own: f64 = self.own.iter().map(|own| (own.1 - top).exp()).sum();
        top + (own + self.of_tail(self.tail_len, |logit| (logit - top).exp())).ln()
    }

    fn entropy(&self, norm: f64) -> f64 {
        let term = |logit: f64| {
            let log = logit - norm;
            if log > f64::NEG_INFINITY { -log.exp() * log } else { 0.0 }
        };
        let own: f64 = self.own.iter().map(|own| term(own.1)).sum();
        (own + self.of_tail(self.tail_len, term)).max(0.0)
    }

    /// The sum of a term over `count` tokens of the tail; 0 for an empty tail.
    fn of_tail(&self, count: u32, term: impl Fn(f64) -> f64) -> f64 {
        match count {
            0 => 0.0,
            count => f64::from(count) * term(self.tail_logit),
        }
    }

    fn tail(&self) -> impl Iterator<Item = TokenId> + '_ {
        let listed = |token: TokenId| self.own.binary_search_by_key(&token, |own| own.0);
        let allowed = self.allowed.iter_from(0);
        allowed.filter(move |&token| listed(token).is_err()).take(as_index(self.tail_len))
    }

    /// The token of the tail with `number` smaller ones.
    fn tail_token(&self, number: u32) -> Option<TokenId> {
        let (mut start, mut left) = (0, number);
        for &(token, _) in &self.own {
            let between = self.allowed.count(start..token);
            if left < between {
                break;
            }
            left -= between;
            start = token + 1;
        }
        self.allowed.nth(start, left)
    }
}

/// The likelier token first, the lower id on ties.
fn by_rank(a: &Scored, b: &Scored) -> Ordering {
    let likelier = b.1.partial_cmp(&a.1).unwrap_or(Ordering::Equal);
    likelier.then(a.0.cmp(&b.0))
}

/// Keeps the first tokens until their probabilities sum to `missing`, and subtracts them from it.
fn keep_mass(ranked: &mut Vec<Scored>, norm: f64, missing: &mut f64) {
    let enough = ranked.iter().position(|own| {
        if *missing <= 0.0 {
            return true;
        }
        *missing -= (own.1 - norm).exp();
        false
    });
    ranked.truncate(enough.unwrap_or(ranked.len()));
}

#[cfg(test)]
mod tests;
