//! A decoder as a composition: lane schedule × commit rule × cache policy.

use decode::DecoderConfig;

use crate::cache::CacheConfig;

/// A fully resolved decoder. [`Decoders::resolve`](super::Decoders::resolve) builds one, or
/// [`DecodingSpec::resolve`](super::DecodingSpec::resolve) for no weights in particular.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoding {
    /// Lanes and commits.
    pub decoder: DecoderConfig,
    /// Which K/V forwards read.
    pub cache: CacheConfig,
    /// Most forward passes; the sequence ends with what is committed by then. `None` = no limit.
    pub max_forwards: Option<u32>,
    /// `schedule+commit+cache`, for usage and logs.
    pub label: String,
}

impl Decoding {
    /// Most steps of a sequence of `max_tokens` tokens.
    pub fn most_steps(&self, max_tokens: u32) -> u32 {
        let longest = self.decoder.schedule.longest_lane(max_tokens).max(1);
        let idle = self.decoder.commit.idle(longest);
        // The first lane may be shorter than the others.
        let lanes = max_tokens.div_ceil(longest).saturating_add(1);
        max_tokens.saturating_add(lanes.saturating_mul(idle))
    }

    /// Length of the lanes into which blocks of `length` positions fit whole: that of the schedule's
    /// blocks if they are longer.
    pub(crate) fn lane_within(&self, length: u32) -> u32 {
        let named = self.decoder.schedule.settings().get("block_length");
        let named = named.and_then(|of| of.as_count()).unwrap_or_default();
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
