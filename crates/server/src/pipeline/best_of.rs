//! `best_of`: selects the most likely answers to a prompt.

use crate::pipeline::assemble::Delta;

/// Selects, of every `best_of` whole answers, the `n` with the highest mean log-probability per
/// token, best first, and renumbers them. Equal answers keep their order; an answer without tokens
/// ranks last.
pub fn choose(answers: Vec<Delta>, n: usize, best_of: usize) -> Vec<Delta> {
    let mut answers = answers.into_iter();
    let mut chosen = Vec::new();
    loop {
        let mut prompt: Vec<Delta> = answers.by_ref().take(best_of).collect();
        if prompt.is_empty() {
            return chosen;
        }
        // A stable sort: equal answers keep their order.
        prompt.sort_by(|a, b| mean(b).total_cmp(&mean(a)));
        prompt.truncate(n);
        for answer in prompt {
            let index = chosen.len();
            chosen.push(Delta { index, ..answer });
        }
    }
}

/// Mean log-probability of a token, in nats.
fn mean(answer: &Delta) -> f64 {
    let scored = &answer.scored;
    if scored.is_empty() {
        return f64::NEG_INFINITY;
    }
    let sum: f64 = scored.iter().map(|one| f64::from(one.logprob.logprob)).sum();
    sum / scored.len() as f64
}

#[cfg(test)]
mod tests;
