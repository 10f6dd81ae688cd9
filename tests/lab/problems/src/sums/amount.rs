//! A quantity in halves.

use std::fmt;

/// A quantity, counted in halves so that it stays exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Amount {
    pub(super) halves: u64,
}

impl Amount {
    pub(super) const fn whole(number: u32) -> Self {
        Self { halves: 2 * number as u64 }
    }

    /// Reads `17` or `17.5`, and nothing else but trailing zeros of the fraction.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(fraction) {
            return None;
        }
        let half = match fraction.trim_end_matches('0') {
            "" => 0,
            "5" => 1,
            _ => return None,
        };
        Some(Self { halves: 2 * u64::from(whole.parse::<u32>().ok()?) + half })
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.halves / 2, if self.halves % 2 == 1 { ".5" } else { "" })
    }
}
