//! Reduces hidden states to candidates and tops; the LM head runs in chunks of bounded size.

use crate::inputs::Inputs;
use crate::network::Network;
use crate::profile::{Clock, Stage};
use candle_core::{Result, Tensor};
use kernels::{Scored, Scorer, Top, score};
use step::{BatchOutput, Candidate, TopToken};

/// Rows whose logits exist at the same time; does not affect results.
const CHUNK: usize = 64;

/// Appends to `output` the candidates and tops of the scored rows of `hidden [r, d]`, in row order.
pub(crate) fn sample(
    network: &dyn Network,
    hidden: &Tensor,
    inputs: &Inputs,
    clock: &mut Clock<'_>,
    output: &mut BatchOutput,
) -> Result<()> {
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
        let logits = network.logits(&scored.narrow(0, from, to - from)?, clock)?;
        let scorer = Scorer {
            rows: &inputs.scorers[from..to],
            biases: &inputs.biases,
            allowed: &inputs.allowed,
            draws: &inputs.draws,
            mask: inputs.mask,
        };
        let scores = score(&logits, &scorer)?;
        let records = scores.records.into_iter();
        output.candidates.extend(records.map(candidate));
        output.tops.extend(scores.tops.into_iter().map(top));
        clock.lap(Stage::Score);
    }
    Ok(())
}

/// Converts a record to the type of the `step` crate.
pub(crate) fn candidate(scored: Scored) -> Candidate {
    Candidate {
        token: scored.token,
        probability: scored.probability,
        runner_up: scored.runner_up,
        runner_up_probability: scored.runner_up_probability,
        entropy: scored.entropy as f32,
        gap: scored.gap as f32,
        present: scored.present,
    }
}

/// Converts one of the most probable tokens to the type of the `step` crate.
pub(crate) fn top(top: Top) -> TopToken {
    TopToken {
        token: top.token,
        logprob: top.log_probability as f32,
    }
}
