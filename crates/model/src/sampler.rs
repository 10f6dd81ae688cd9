//! Converts scores to the types of the `step` crate.

use kernels::{Scored, Scores, Top};
use step::{BatchOutput, Candidate, TopToken};

/// Appends scores to `output` in row order.
pub(crate) fn emit(scores: Scores, output: &mut BatchOutput) {
    let records = scores.records.into_iter();
    output.candidates.extend(records.map(candidate));
    output.tops.extend(scores.tops.into_iter().map(top));
}

/// Converts a record.
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

/// Converts one of the most probable tokens.
pub(crate) fn top(top: Top) -> TopToken {
    TopToken {
        token: top.token,
        logprob: top.log_probability as f32,
    }
}
