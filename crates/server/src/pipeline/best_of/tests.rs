//! The ranking by log-probabilities.

use engine::TokenLogprob;

use super::choose;
use crate::pipeline::assemble::Delta;
use crate::pipeline::logprobs::ScoredToken;

fn answer(index: usize, logprobs: &[f32]) -> Delta {
    let scored = logprobs.iter().map(|&logprob| ScoredToken {
        token: 7,
        logprob: TokenLogprob { logprob, top: Box::default() },
        offset: 0,
    });
    Delta { index, text: index.to_string(), scored: scored.collect(), ..Delta::default() }
}

fn order(answers: &[&[f32]], n: usize, best_of: usize) -> Vec<(usize, String)> {
    let answers = answers.iter().enumerate();
    let answers = answers.map(|(index, logprobs)| answer(index, logprobs));
    let chosen = choose(answers.collect(), n, best_of);
    let named = chosen.into_iter().map(|delta| (delta.index, delta.text));
    named.collect()
}

fn named(texts: &[&str]) -> Vec<(usize, String)> {
    let texts = texts.iter().enumerate();
    texts.map(|(index, text)| (index, (*text).to_owned())).collect()
}

#[test]
fn the_mean_counts_and_not_the_sum() {
    let answers: [&[f32]; 3] = [&[-1.0], &[-0.5, -0.6, -0.7, -0.8], &[-0.9, -0.9]];
    assert_eq!(order(&answers, 3, 3), named(&["1", "2", "0"]));
    assert_eq!(order(&answers, 1, 3), named(&["1"]));
}

#[test]
fn equals_keep_their_order_and_empty_answers_come_last() {
    let answers: [&[f32]; 4] = [&[], &[-2.0, -4.0], &[-3.0], &[-9.0]];
    assert_eq!(order(&answers, 4, 4), named(&["1", "2", "3", "0"]));
}

#[test]
fn every_prompt_has_its_own_best() {
    let answers: [&[f32]; 6] = [&[-3.0], &[-1.0], &[-2.0], &[-7.0], &[-9.0], &[-8.0]];
    assert_eq!(order(&answers, 2, 3), named(&["1", "2", "3", "5"]));
}
