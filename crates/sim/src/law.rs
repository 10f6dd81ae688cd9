//! The logits of a row as a function of what it sees.

use step::{Attention, LogitShift, Position, Row, TokenId};

use crate::context::Context;
use crate::distribution::Distribution;
use crate::hash::{mix, unit};
use crate::text::HiddenText;
use crate::{ConfidenceLaw, SimConfig};

/// Logits of the alternatives to the hidden token, that of the runner-up first.
const ALTERNATIVES: [f64; 3] = [0.0, -1.5, -2.5];

/// Logit of all remaining tokens together.
pub(crate) const TAIL: f64 = -4.0;

/// A row and what it sees.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub row: &'a Row,
    pub logit_shift: LogitShift,
    /// A hash of everything that the row sees.
    pub content: u64,
}

/// The logits of a row.
pub(crate) fn propose(
    law: &ConfidenceLaw,
    text: &HiddenText,
    context: &Context,
    seen: Seen<'_>,
) -> Proposed {
    let Seen { row, logit_shift, content } = seen;
    let position = predicted(row, logit_shift);
    let origin = context.origin(position);
    let (left, right) = context.support(position, law.decay);
    let jitter = 2.0 * unit(mix(content, 0x717)) - 1.0;
    let gap = law.base + law.left * left + law.right * right
        - law.difficulty * text.difficulty(origin, position)
        + law.jitter * jitter;
    let token = text.token(origin, position);
    let bonus =
        if logit_shift == LogitShift::None && row.token == token { law.present } else { 0.0 };
    let mut logits = vec![(token, gap.max(law.least) + bonus)];
    for (rank, logit) in (1..).zip(ALTERNATIVES) {
        let other = text.word(origin, position, rank);
        if logits.iter().all(|&(token, _)| token != other) {
            logits.push((other, logit));
        }
    }
    Proposed { logits, tail: TAIL }
}

/// The position whose token a row predicts: with an open block, a mask its own one and a token the next.
pub(crate) fn shift_of(row: &Row, config: &SimConfig) -> LogitShift {
    match config.attention {
        Attention::OpenBlock(_) if row.token != config.mask => LogitShift::One,
        _ => config.logit_shift,
    }
}

/// The position that a row predicts.
pub(crate) fn predicted(row: &Row, logit_shift: LogitShift) -> Position {
    match logit_shift {
        LogitShift::None => row.position,
        LogitShift::One => row.position.next(),
    }
}

/// The logits before biases.
#[derive(Debug)]
pub(crate) struct Proposed {
    /// Distinct tokens and their logits.
    pub logits: Vec<(TokenId, f64)>,
    /// Logit of all other tokens together.
    pub tail: f64,
}

impl Proposed {
    /// The distribution over the vocabulary without the mask.
    pub(crate) fn over<'a>(self, vocab_size: u32, mask: TokenId) -> Distribution<'a> {
        Distribution::new(self.logits, self.tail, vocab_size, mask)
    }
}
