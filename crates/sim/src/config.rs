//! The configuration of a simulated model.

use std::collections::BTreeMap;
use std::ops::Range;

use step::{Attention, ExecutorSpec, LogitShift, TokenId};

/// Fixed texts instead of hidden ones, so that a client meets a model which answers as a test wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// The token that ends a turn of the conversation; replies do not contain it.
    pub turn_end: TokenId,
    /// The tokens of the reply to a prompt by the number of turns that end in it, without the stop token. Other
    /// prompts get a hidden text.
    pub replies: BTreeMap<u32, Vec<TokenId>>,
}

/// The fidelity of a simulated forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fidelity {
    /// Keeps a KV store. A batch that reads a slot its sequence never wrote, or writes a slot twice,
    /// is an error.
    Strict,
    /// Keeps a KV store. Such a batch gets different candidates, as from a real model.
    Lenient,
    /// Does almost no work, to measure the code above the executor. Keeps no KV store. In every
    /// segment the first [`SimConfig::free_width`] masked rows are confident and the others are
    /// not; the text depends on positions alone and has no stop token.
    Free,
}

/// The gap between the best logit and the runner-up's, in nats:
/// `base + left * L + right * R - difficulty * u + jitter * v`, at least [`Self::least`], plus
/// `present` if the row's input is already the token.
///
/// `L` and `R` in `0..1` measure how many tokens are known among the eight positions on either
/// side, nearer ones weighing more by `decay`; `u` in `0..1` is the position's difficulty; `v` in
/// `-1..1` is a hash of everything that the row sees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConfidenceLaw {
    /// Gap of a position of difficulty 0 without known tokens near it.
    pub base: f64,
    /// Weight of the known tokens on the left.
    pub left: f64,
    /// Weight of the known tokens on the right.
    pub right: f64,
    /// Weight of a neighbour relative to the next nearer one, in `0.0..1.0`.
    pub decay: f64,
    /// Weight of the position's difficulty.
    pub difficulty: f64,
    /// Weight of the hash of the visible slots.
    pub jitter: f64,
    /// Added if the row's input is already the token.
    pub present: f64,
    /// Smallest gap, `> 0`, so that the hidden text is always the argmax.
    pub least: f64,
}

impl Default for ConfidenceLaw {
    /// Gives two to four tokens per forward pass under a threshold of 0.9 in blocks of 32.
    fn default() -> Self {
        Self {
            base: 1.0,
            left: 8.5,
            right: 3.5,
            decay: 0.8,
            difficulty: 4.5,
            jitter: 0.3,
            present: 3.0,
            least: 0.1,
        }
    }
}

/// A simulated model: sizes, hidden text, confidence.
#[derive(Clone, Debug, PartialEq)]
pub struct SimConfig {
    /// Slots per KV page, `>= 1`.
    pub page_size: u32,
    /// Number of KV pages.
    pub pages: u32,
    /// Number of tokens with a logit.
    pub vocab_size: u32,
    /// Most positions of a sequence.
    pub max_positions: u32,
    /// The mask token, never proposed.
    pub mask: TokenId,
    /// The rows that a row must attend to.
    pub attention: Attention,
    /// The row that predicts a position.
    pub logit_shift: LogitShift,
    /// Seed of the hidden texts and of the difficulty of positions.
    pub seed: u64,
    /// The token at the end of a hidden text and everywhere after it.
    pub stop_token: TokenId,
    /// Length of the hidden texts in tokens without the stop token, drawn per prompt. If its start
    /// is at least `max_positions`, texts never end.
    pub text_len: Range<u32>,
    /// A token that ends sentences, if any.
    pub period: Option<TokenId>,
    /// Mean distance between two periods in tokens, `>= 2`.
    pub period_every: u32,
    /// The tokens of which texts consist; empty for all tokens but mask, stop token and period.
    pub words: Vec<TokenId>,
    /// Replies to conversations, if they are fixed.
    pub script: Option<Script>,
    /// The model's confidence.
    pub law: ConfidenceLaw,
    /// The fidelity of simulated passes.
    pub fidelity: Fidelity,
    /// Confident rows per segment under [`Fidelity::Free`].
    pub free_width: u32,
}

impl Default for SimConfig {
    /// 512 tokens (0 mask, 1 stop, 2 period), 1,024 pages of 16 slots, 4,096 positions, texts of
    /// 40 to 119 tokens with a period about every 12, strict.
    fn default() -> Self {
        Self {
            page_size: 16,
            pages: 1024,
            vocab_size: 512,
            max_positions: 4096,
            mask: 0,
            attention: Attention::Full,
            logit_shift: LogitShift::None,
            seed: 0,
            stop_token: 1,
            text_len: 40..120,
            period: Some(2),
            period_every: 12,
            words: Vec::new(),
            script: None,
            law: ConfidenceLaw::default(),
            fidelity: Fidelity::Strict,
            free_width: 3,
        }
    }
}

/// An invalid configuration.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("simulated model: {key}: expected {expected}, found {found}")]
pub struct SimConfigError {
    /// Field of [`SimConfig`].
    pub key: &'static str,
    /// The values it may have.
    pub expected: String,
    /// The value it has.
    pub found: String,
}

impl SimConfig {
    /// The sizes and properties of the executor.
    pub fn spec(&self) -> ExecutorSpec {
        ExecutorSpec {
            page_size: self.page_size,
            pages: self.pages,
            vocab_size: self.vocab_size,
            max_positions: self.max_positions,
            mask: Some(self.mask),
            attention: self.attention,
            logit_shift: self.logit_shift,
        }
    }

    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of range.
    pub fn validate(&self) -> Result<(), SimConfigError> {
        at_least("page_size", self.page_size, 1)?;
        at_least("pages", self.pages, 1)?;
        at_least("max_positions", self.max_positions, 1)?;
        at_least("vocab_size", self.vocab_size, 4)?;
        at_least("period_every", self.period_every, 2)?;
        self.special("mask", self.mask)?;
        self.special("stop_token", self.stop_token)?;
        if self.stop_token == self.mask {
            return Err(problem("stop_token", "another token than the mask", self.mask));
        }
        if let Some(period) = self.period {
            self.special("period", period)?;
            if period == self.mask || period == self.stop_token {
                return Err(problem("period", "neither mask nor stop_token", period));
            }
        }
        if self.text_len.is_empty() {
            return Err(problem("text_len", "a range that is not empty", "an empty one"));
        }
        for &word in &self.words {
            self.special("words", word)?;
            if word == self.mask || word == self.stop_token {
                return Err(problem("words", "neither mask nor stop_token", word));
            }
        }
        if let Some(script) = &self.script {
            self.validate_script(script)?;
        }
        self.law.validate()
    }

    fn validate_script(&self, script: &Script) -> Result<(), SimConfigError> {
        self.special("script.turn_end", script.turn_end)?;
        let taken = [script.turn_end, self.mask, self.stop_token];
        for &token in script.replies.values().flatten() {
            self.special("script.replies", token)?;
            if taken.contains(&token) {
                let expected = "neither turn_end nor mask nor stop_token";
                return Err(problem("script.replies", expected, token));
            }
        }
        Ok(())
    }

    fn special(&self, key: &'static str, token: TokenId) -> Result<(), SimConfigError> {
        if token < self.vocab_size {
            return Ok(());
        }
        Err(problem(key, format!("a token below {}", self.vocab_size), token))
    }
}

impl ConfidenceLaw {
    fn validate(&self) -> Result<(), SimConfigError> {
        let sides = [self.base, self.left, self.right];
        let own = [self.difficulty, self.jitter, self.present, self.least];
        if sides.iter().chain(&own).any(|term| !term.is_finite()) {
            return Err(problem("law", "finite numbers", format!("{self:?}")));
        }
        if !(0.0..1.0).contains(&self.decay) {
            return Err(problem("law.decay", "a number in 0.0..1.0", self.decay));
        }
        if self.least <= 0.0 {
            return Err(problem("law.least", "a positive number", self.least));
        }
        Ok(())
    }
}

fn at_least(key: &'static str, found: u32, least: u32) -> Result<(), SimConfigError> {
    if found >= least {
        return Ok(());
    }
    Err(problem(key, format!("at least {least}"), found))
}

fn problem(key: &'static str, expected: impl Into<String>, found: impl ToString) -> SimConfigError {
    SimConfigError { key, expected: expected.into(), found: found.to_string() }
}
