//! From hidden states to candidates: the LM head in bounded chunks, reduced at once.

use crate::arch::Network;
use crate::inputs::Inputs;
use candle_core::{Result, Tensor};
use kernels::{Scorer, score};
use step::{Candidate, TokenId};

/// Rows whose logits exist at the same time; no part of the numerics.
const CHUNK: usize = 64;

/// Replaces `candidates` by one per scored row of `hidden [r, d]`, in row order.
pub(crate) fn sample(
    network: &dyn Network,
    hidden: &Tensor,
    inputs: &Inputs,
    mask: TokenId,
    candidates: &mut Vec<Candidate>,
) -> Result<()> {
    candidates.clear();
    let count = inputs.scored.len();
    if count == 0 {
        return Ok(());
    }
    let scored = if count == hidden.dim(0)? {
        hidden.clone()
    } else {
        let indices = Tensor::from_slice(&inputs.scored, count, hidden.device())?;
        hidden.index_select(&indices, 0)?
    };
    for from in (0..count).step_by(CHUNK) {
        let to = (from + CHUNK).min(count);
        let logits = network.logits(&scored.narrow(0, from, to - from)?)?;
        let scorer = Scorer {
            rows: &inputs.scorers[from..to],
            biases: &inputs.biases,
            draws: &inputs.draws,
            mask,
        };
        candidates.extend(
            score(&logits, &scorer)?
                .into_iter()
                .map(|scored| Candidate {
                    token: scored.token,
                    probability: scored.probability,
                    runner_up: scored.runner_up,
                    runner_up_probability: scored.runner_up_probability,
                    entropy: scored.entropy as f32,
                    gap: scored.gap as f32,
                    present: scored.present,
                }),
        );
    }
    Ok(())
}
