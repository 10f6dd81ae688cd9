//! Adjusts a row's logits before scoring: biases and bans.

/// A change of one token's logit: a positive logit is divided by `repetition`, any other logit is
/// multiplied by it; then `amount` is added.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogitBias {
    /// The token.
    pub token: u32,
    /// Repetition penalty, `> 0`; 1: none, larger values make the token less likely.
    pub repetition: f32,
    /// Added to the logit; minus infinity bans the token.
    pub amount: f32,
}

impl LogitBias {
    fn apply(&self, logit: f32) -> f32 {
        let scaled = if logit > 0.0 {
            logit / self.repetition
        } else {
            logit * self.repetition
        };
        scaled + self.amount
    }
}

/// Applies `biases` in order to the logits of their tokens.
pub(super) fn bias(logits: &mut [f32], biases: &[LogitBias]) {
    for bias in biases {
        let logit = &mut logits[bias.token as usize];
        *logit = bias.apply(*logit);
    }
}

/// Bans the tokens outside `set`; token t is bit `t % 32` of word `t / 32`.
pub(super) fn restrict(logits: &mut [f32], set: &[u32]) {
    for (logits, &word) in logits.chunks_mut(32).zip(set) {
        match word {
            u32::MAX => {}
            0 => logits.fill(f32::NEG_INFINITY),
            _ => {
                for (bit, logit) in logits.iter_mut().enumerate() {
                    if word >> bit & 1 == 0 {
                        *logit = f32::NEG_INFINITY;
                    }
                }
            }
        }
    }
}
