//! Adjusts a row's logits before scoring: biases and bans.

use step::Bias;

/// Applies `biases` in order to the logits of their tokens.
pub(super) fn bias(logits: &mut [f32], biases: &[Bias]) {
    for bias in biases {
        let logit = &mut logits[bias.token as usize];
        let scaled = match *logit > 0.0 {
            true => *logit / bias.repetition,
            false => *logit * bias.repetition,
        };
        *logit = scaled + bias.amount;
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
