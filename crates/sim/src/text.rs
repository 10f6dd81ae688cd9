//! The hidden text: the tokens that the simulated model proposes after the tokens it sees.
//!
//! A reader visits the known tokens in order of position. A token that equals the hidden text's
//! changes nothing. Any other token (of the prompt, sampled or biased) is a surprise: after it a
//! new text starts, chosen by all surprises before. So the text after a prompt is a function of the
//! prompt, generated tokens of that text keep it, masks are skipped, and prompt and generation need
//! no marker between them.

use step::{Position, TokenId, as_count, as_index};

use crate::hash::{below, mix, mix_all, unit};
use crate::{Fidelity, Script, SimConfig};

/// The state of a reader: the text, and the position where it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Hash of the surprises before.
    pub key: u64,
    /// Position after the last surprise.
    pub start: Position,
    /// Turns of a scripted conversation that have ended.
    pub turns: u32,
}

/// All hidden texts of one simulated model.
#[derive(Debug)]
pub(crate) struct HiddenText {
    words: Vec<TokenId>,
    stop_token: TokenId,
    period: Option<TokenId>,
    period_every: u32,
    text_len: std::ops::Range<u32>,
    endless: bool,
    script: Option<Script>,
    seed: u64,
}

impl HiddenText {
    pub(crate) fn new(config: &SimConfig) -> Self {
        let special = [Some(config.mask), Some(config.stop_token), config.period];
        let words = if config.words.is_empty() {
            (0..config.vocab_size).filter(|token| !special.contains(&Some(*token))).collect()
        } else {
            config.words.clone()
        };
        Self {
            words,
            stop_token: config.stop_token,
            period: config.period,
            period_every: config.period_every,
            text_len: config.text_len.clone(),
            endless: config.fidelity == Fidelity::Free
                || config.text_len.start >= config.max_positions,
            script: config.script.clone(),
            seed: mix(0x7E47, config.seed),
        }
    }

    /// The state of a reader before the first token.
    pub(crate) fn origin(&self) -> Origin {
        Origin { key: self.seed, start: Position::ZERO, turns: 0 }
    }

    /// The state of a reader after one more known token.
    pub(crate) fn read(&self, origin: Origin, position: Position, token: TokenId) -> Origin {
        if self.token(origin, position) == token && !self.ends_turn(token) {
            return origin;
        }
        Origin {
            key: mix_all(origin.key, &[u64::from(position.get()), u64::from(token)]),
            start: position.next(),
            turns: origin.turns + u32::from(self.ends_turn(token)),
        }
    }

    fn ends_turn(&self, token: TokenId) -> bool {
        let script = self.script.as_ref();
        script.is_some_and(|script| script.turn_end == token)
    }

    /// The scripted reply after the turns of the prompt.
    fn reply(&self, origin: Origin) -> Option<&[TokenId]> {
        let script = self.script.as_ref()?;
        script.replies.get(&origin.turns).map(Vec::as_slice)
    }

    /// The token of the text at a position, which must not lie left of the text's start.
    pub(crate) fn token(&self, origin: Origin, position: Position) -> TokenId {
        let offset = position.distance_from(origin.start.min(position));
        if let Some(reply) = self.reply(origin) {
            let token = reply.get(as_index(offset)).copied();
            return token.unwrap_or(self.stop_token);
        }
        if !self.endless && offset >= self.len(origin) {
            return self.stop_token;
        }
        match self.period {
            Some(period) if self.ends_sentence(origin, offset) => period,
            _ => self.word(origin, position, 0),
        }
    }

    /// The alternative of this rank at a position; it may equal the text's own token.
    pub(crate) fn word(&self, origin: Origin, position: Position, rank: u64) -> TokenId {
        let hash = mix_all(origin.key, &[u64::from(position.get()), rank, 0x3014]);
        let count = as_count(self.words.len());
        self.words[as_index(below(hash, count))]
    }

    /// Difficulty of a position in this text, in `0..1`.
    pub(crate) fn difficulty(&self, origin: Origin, position: Position) -> f64 {
        unit(mix_all(origin.key, &[u64::from(position.get()), 0xD1FF]))
    }

    /// Number of tokens of the text before its stop token.
    fn len(&self, origin: Origin) -> u32 {
        let choices = self.text_len.end - self.text_len.start;
        self.text_len.start + below(mix(origin.key, 0x1E4), choices)
    }

    /// One period per cell of `period_every` tokens, somewhere in the cell's second half.
    fn ends_sentence(&self, origin: Origin, offset: u32) -> bool {
        let (cell, inside) = (offset / self.period_every, offset % self.period_every);
        let half = self.period_every / 2;
        let choices = self.period_every - half;
        let hash = mix_all(origin.key, &[u64::from(cell), 0xD07]);
        inside == half + below(hash, choices)
    }
}
