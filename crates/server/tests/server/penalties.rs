//! Frequency, presence and repetition penalties.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::*;
use sim::ConfidenceLaw;

/// A model with few words, so that texts repeat them, and little confidence.
fn wordy() -> Server {
    server_where(|options| {
        options.sim.words = (60..68).collect();
        options.sim.text_len = 512..513;
        options.sim.law = ConfidenceLaw {
            base: 0.5,
            left: 0.0,
            right: 0.0,
            difficulty: 0.0,
            ..ConfidenceLaw::default()
        };
    })
}

/// The ids of an answer of 40 tokens with one commit per step, so that each affects the next.
async fn tokens(server: &Server, extra: Value) -> Vec<u32> {
    let fields = json!({"prompt": [60, 61, 62], "max_tokens": 40, "return_token_ids": true,
        "diffusion": {"schedule": "block_wise", "commit": "top_k", "tokens_per_step": 1,
            "block_length": 1, "cache": "none"}});
    let answer = server.complete(merge(fields, extra)).await;
    let ids = ids(&answer["choices"][0]["token_ids"]);
    assert_eq!(ids.len(), 40);
    ids
}

#[tokio::test]
async fn a_frequency_penalty_counts_every_occurrence() {
    let server = wordy();
    // The number of occurrences of the most frequent token.
    let most = async |penalty: i32| {
        let mut counts = BTreeMap::<u32, usize>::new();
        for id in tokens(&server, json!({"frequency_penalty": penalty})).await {
            *counts.entry(id).or_default() += 1;
        }
        counts.into_values().max().unwrap()
    };
    let (low, plain, high) = (most(2).await, most(0).await, most(-2).await);
    assert!(low < plain && plain < high, "{low} {plain} {high}");
}

#[tokio::test]
async fn a_presence_penalty_counts_once() {
    let server = wordy();
    let plain = tokens(&server, json!({})).await;
    let once = tokens(&server, json!({"presence_penalty": 1.5})).await;
    let every = tokens(&server, json!({"frequency_penalty": 1.5})).await;
    assert_ne!(once, plain);
    let neutral = json!({"frequency_penalty": 0, "presence_penalty": 0.0, "repetition_penalty": 1});
    assert_eq!(tokens(&server, neutral).await, plain);
    // Both are equal until a word has occurred twice.
    let pairs = once.iter().zip(&every);
    let same = pairs.take_while(|(once, every)| once == every).count();
    assert!(same < 40, "{once:?}");
    let words: BTreeSet<_> = once[..same].iter().collect();
    assert!(words.len() < same, "{once:?} {every:?}");
}

#[tokio::test]
async fn a_repetition_penalty_sees_the_prompt() {
    let server = wordy();
    // Before the first commit only the prompt's tokens are penalised: here all words.
    let first = async |prompt: std::ops::Range<u32>, repetition: f64| {
        let prompt: Vec<u32> = prompt.collect();
        let answer = ask!(server, COMPLETIONS {"prompt": prompt, "max_tokens": 1, "logprobs": 0,
            "repetition_penalty": repetition});
        let values = &answer["choices"][0]["logprobs"]["token_logprobs"];
        values[0].as_f64().unwrap()
    };
    let plain = first(60..68, 1.0).await;
    let (low, high) = (first(60..68, 1.5).await, first(60..68, 0.5).await);
    assert!(low < plain && plain < high, "{low} {plain} {high}");
    // A prompt without words penalises tokens that are improbable anyway.
    let change = first(70..78, 1.5).await - first(70..78, 1.0).await;
    assert!(change.abs() < 0.01 * (plain - low), "{change}");
}
