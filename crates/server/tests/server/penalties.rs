//! Frequency, presence and repetition penalties.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{Options, Server, completion, server, server_with};
use axum::http::StatusCode;
use serde_json::{Value, json};
use sim::{ConfidenceLaw, SimConfig};

/// A model with few words, so that texts repeat them, and little confidence.
fn wordy() -> Server {
    server_with(Options {
        sim: SimConfig {
            words: (60..68).collect(),
            text_len: 512..513,
            law: ConfidenceLaw {
                base: 0.5,
                left: 0.0,
                right: 0.0,
                difficulty: 0.0,
                ..ConfidenceLaw::default()
            },
            ..Options::default().sim
        },
        ..Options::default()
    })
}

/// The ids of an answer of 40 tokens with one commit per step, so that each affects the next.
async fn ids(server: &Server, extra: Value) -> Vec<u64> {
    let mut fields = json!({"prompt": [60, 61, 62], "max_tokens": 40, "return_token_ids": true,
        "diffusion": {"schedule": "block_wise", "commit": "top_k", "tokens_per_step": 1,
            "block_length": 1, "cache": "none"}});
    for (name, value) in extra.as_object().unwrap() {
        fields[name] = value.clone();
    }
    let answer = server.complete(fields).await;
    let ids = answer["choices"][0]["token_ids"].as_array().unwrap();
    assert_eq!(ids.len(), 40);
    ids.iter().map(|id| id.as_u64().unwrap()).collect()
}

/// How often the most frequent token of an answer occurs.
async fn most(server: &Server, extra: Value) -> usize {
    let mut counts = BTreeMap::<u64, usize>::new();
    for id in ids(server, extra).await {
        *counts.entry(id).or_default() += 1;
    }
    counts.into_values().max().unwrap()
}

#[tokio::test]
async fn neutral_penalties_change_nothing() {
    let server = wordy();
    let plain = ids(&server, json!({})).await;
    let neutral = json!({"frequency_penalty": 0, "presence_penalty": 0.0,
        "repetition_penalty": 1});
    assert_eq!(ids(&server, neutral).await, plain);
}

#[tokio::test]
async fn a_frequency_penalty_counts_every_time() {
    let server = wordy();
    let plain = most(&server, json!({})).await;
    let evened = most(&server, json!({"frequency_penalty": 2})).await;
    let driven = most(&server, json!({"frequency_penalty": -2})).await;
    assert!(
        evened < plain && plain < driven,
        "{evened} {plain} {driven}"
    );
}

#[tokio::test]
async fn a_presence_penalty_counts_once() {
    let server = wordy();
    let plain = ids(&server, json!({})).await;
    let once = ids(&server, json!({"presence_penalty": 1.5})).await;
    let every = ids(&server, json!({"frequency_penalty": 1.5})).await;
    assert_ne!(once, plain);
    // Both are equal until a word has occurred twice.
    let same = once
        .iter()
        .zip(&every)
        .take_while(|(once, every)| once == every)
        .count();
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
        let fields = json!({"prompt": prompt, "max_tokens": 1, "logprobs": 0,
            "repetition_penalty": repetition});
        let answer = server.complete(fields).await;
        answer["choices"][0]["logprobs"]["token_logprobs"][0]
            .as_f64()
            .unwrap()
    };
    let plain = first(60..68, 1.0).await;
    let (punished, favoured) = (first(60..68, 1.5).await, first(60..68, 0.5).await);
    assert!(
        punished < plain && plain < favoured,
        "{punished} {plain} {favoured}"
    );
    // A prompt without words penalises tokens that are improbable anyway.
    let change = first(70..78, 1.5).await - first(70..78, 1.0).await;
    assert!(change.abs() < 0.01 * (plain - punished), "{change}");
}

#[tokio::test]
async fn ranges_are_checked() {
    let server = server();
    let cases = [
        ("frequency_penalty", json!(2.01), "invalid_value"),
        ("frequency_penalty", json!("1"), "invalid_type"),
        ("presence_penalty", json!(-2.01), "invalid_value"),
        ("presence_penalty", json!(true), "invalid_type"),
        ("repetition_penalty", json!(0), "invalid_value"),
        ("repetition_penalty", json!(-1), "invalid_value"),
        ("repetition_penalty", json!(1e300), "invalid_value"),
        ("repetition_penalty", json!([1]), "invalid_type"),
    ];
    for (name, value, code) in cases {
        let mut body = completion(json!({}));
        body[name] = value;
        let (status, answer) = server.post("/v1/completions", &body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
        assert_eq!(answer["error"]["code"], code, "{body}");
        assert_eq!(answer["error"]["param"], name, "{body}");
    }
}
