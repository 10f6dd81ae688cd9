//! What is done to a row's logits before anything is read from them: biases and bans.

/// A change of one token's logit: a positive logit is divided by `repetition`, any other
/// multiplied with it; then `amount` is added.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogitBias {
    /// Whose logit.
    pub token: u32,
    /// `> 0`; 1 changes nothing, more makes the token less likely.
    pub repetition: f32,
    /// What is added; minus infinity bans the token.
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

/// Bans the tokens outside `set`, of which bit `t % 32` of word `t / 32` is token t.
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
