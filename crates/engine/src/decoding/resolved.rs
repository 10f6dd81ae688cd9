//! A decoder as a composition: lane schedule × commit rule × cache policy.

use decode::{CommitInput, DecoderConfig, Guesses, Reads};

use super::registry::MAX_FORWARDS;
use crate::cache::CacheConfig;

/// Budget of an answer whose request sets none.
const BUDGET: u32 = 1024;
/// The same if the budget is the length of a canvas that is read as a whole: every mask costs a row, and
/// changes the text. Fast-dLLM's evaluation has this length.
const CANVAS: u32 = 256;

/// Guessed canvases beside the real one while a text is expected.
const EXPECTED: u32 = 8;

/// A fully resolved decoder. [`Decoders::resolve`](super::Decoders::resolve) builds one, or
/// [`DecodingSpec::resolve`](super::DecodingSpec::resolve) for no weights in particular.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoding {
    /// Lanes and commits.
    pub decoder: DecoderConfig,
    /// The cache policy: the K/V that forwards read.
    pub cache: CacheConfig,
    /// Most forward passes; the sequence ends with what is committed by then. `None` = no limit.
    pub max_forwards: Option<u32>,
    /// `schedule+commit+cache`, for usage and logs.
    pub label: String,
}

impl Decoding {
    /// The budget in tokens of a chat's answer whose request sets none.
    pub fn default_budget(&self) -> u32 {
        match self.cache.info().forwards.whole {
            true => CANVAS,
            false => BUDGET,
        }
    }

    /// Most steps of a sequence of `max_tokens` tokens.
    pub fn most_steps(&self, max_tokens: u32) -> u32 {
        let longest = self.decoder.schedule.longest_lane(max_tokens).max(1);
        let idle = self.decoder.commit.idle(longest);
        // The first lane may be shorter than the others.
        let lanes = max_tokens.div_ceil(longest).saturating_add(1);
        max_tokens.saturating_add(lanes.saturating_mul(idle))
    }

    /// The same decoder, which verifies an expected text. Where its rule checks guesses, they are those of
    /// the text. Else a forward runs over the canvases of the text's next commits too, and one counts if the
    /// decoder's own steps arrive at exactly it: its candidates are then those of the forward saved. That
    /// takes a block whose rows are all computed in every forward, so that a forward depends on the
    /// canvas alone and not on the canvases of those before.
    ///
    /// # Errors
    /// The name of the rule, cache policy, schedule or setting under which the text could change.
    pub fn expecting(&self) -> Result<Self, &'static str> {
        let DecoderConfig { schedule, commit, .. } = &self.decoder;
        let mut rule = commit.build(&CommitInput::default());
        let checks = rule.replace_guesses(&[]);
        let reads_masks = rule.reads() == Reads::default() && rule.denoising(0).is_none();
        let verifies = checks || reads_masks && matches!(rule.guesses(), Guesses::None);
        match (schedule.name(), self.cache.name()) {
            _ if self.max_forwards.is_some() => Err(MAX_FORWARDS.name),
            _ if !verifies => Err(commit.name()),
            (schedule, "none" | "dual" | "prefix" | "exact")
                if checks || schedule == "block_wise" =>
            {
                let decoder = DecoderConfig { expected: EXPECTED, ..self.decoder.clone() };
                Ok(Self { decoder, ..self.clone() })
            }
            ("block_wise", cache) => Err(cache),
            (schedule, _) => Err(schedule),
        }
    }

    /// Length of the lanes into which blocks of `length` positions fit whole: that of the schedule's
    /// blocks if they are longer.
    pub(crate) fn lane_within(&self, length: u32) -> u32 {
        let named = self.decoder.schedule.settings().get("block_length");
        let named = named.and_then(|value| value.as_count()).unwrap_or_default();
        named.max(length)
    }

    /// Positions right of a token that take part in its choice: the rest of a window, unless its guesses
    /// are checked.
    pub(crate) fn behind(&self) -> u32 {
        match self.decoder.commit.info().requires.checks {
            true => 0,
            false => self.window().unwrap_or(1).saturating_sub(1),
        }
    }

    /// Positions of the schedule's window, committed ones included; 1 if drafts follow it, `None` if it
    /// has no window.
    pub fn window(&self) -> Option<u32> {
        if self.decoder.schedule.drafts() > 0 {
            return Some(1);
        }
        let window = self.decoder.schedule.settings().get("window");
        window.and_then(|window| window.as_count())
    }
}
