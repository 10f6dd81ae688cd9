//! `best_of`: the most likely of several sequences.

use crate::common::{completion, series, server};
use axum::http::StatusCode;
use serde_json::{Value, json};

fn mean(choice: &Value) -> f64 {
    let values = choice["logprobs"]["token_logprobs"].as_array().unwrap();
    let sum: f64 = values.iter().map(|value| value.as_f64().unwrap()).sum();
    sum / values.len() as f64
}

#[tokio::test]
async fn the_best_of_all_choices_are_returned() {
    let server = server();
    // Choice i samples from (seed, i), so `n` sequences equal those that `best_of` ranks.
    let fields = json!({"max_tokens": 24, "ignore_eos": true, "temperature": 1.5, "seed": 6,
        "logprobs": 0, "return_token_ids": true});
    let mut all = fields.clone();
    all["n"] = json!(5);
    let all = server.complete(all).await;
    let mut ranked = all["choices"].as_array().unwrap().clone();
    ranked.sort_by(|a, b| mean(b).total_cmp(&mean(a)));
    assert_ne!(
        ranked[0]["index"], 0,
        "the first is the best anyway: another seed is needed"
    );
    let mut asked = fields;
    (asked["n"], asked["best_of"]) = (json!(2), json!(5));
    let answer = server.complete(asked.clone()).await;
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 2);
    for (index, (choice, expected)) in choices.iter().zip(&ranked).enumerate() {
        assert_eq!(choice["index"], index);
        for key in ["text", "token_ids", "logprobs", "finish_reason"] {
            assert_eq!(choice[key], expected[key]);
        }
    }
    // Usage counts the delivered tokens and the forwards of all sequences.
    let usage = &answer["usage"];
    assert_eq!(usage["completion_tokens"], 48);
    assert_eq!(usage["prompt_tokens"], all["usage"]["prompt_tokens"]);
    assert_eq!(
        usage["diffusion"]["forwards"],
        all["usage"]["diffusion"]["forwards"]
    );
    let per_forward = 48.0 / usage["diffusion"]["forwards"].as_f64().unwrap();
    let shown = usage["diffusion"]["tokens_per_forward"].as_f64().unwrap();
    assert!((shown - per_forward).abs() < 1e-12);

    // Log-probabilities are shown on request only.
    asked.as_object_mut().unwrap().remove("logprobs");
    let hidden = server.complete(asked).await;
    for (choice, expected) in hidden["choices"].as_array().unwrap().iter().zip(choices) {
        assert_eq!(choice["logprobs"], Value::Null);
        assert_eq!(choice["text"], expected["text"]);
    }
}

#[tokio::test]
async fn every_prompt_has_its_best() {
    let server = server();
    let fields = json!({"prompt": [[9, 8], [30, 31, 32]], "max_tokens": 10, "temperature": 1,
        "seed": 2, "n": 2, "best_of": 3, "return_token_ids": true, "echo": true});
    let answer = server.complete(fields).await;
    let choices = answer["choices"].as_array().unwrap();
    let prompts: Vec<_> = choices
        .iter()
        .map(|choice| &choice["prompt_token_ids"])
        .collect();
    let (first, second) = (json!([9, 8]), json!([30, 31, 32]));
    assert_eq!(prompts, [&first, &first, &second, &second]);
    let indices: Vec<_> = choices
        .iter()
        .map(|choice| choice["index"].as_u64())
        .collect();
    assert_eq!(indices, [Some(0), Some(1), Some(2), Some(3)]);
    let tokens: usize = choices
        .iter()
        .map(|choice| choice["token_ids"].as_array().unwrap().len())
        .sum();
    assert_eq!(answer["usage"]["completion_tokens"], tokens);
    let generated = series(
        &server.metrics().await,
        "asynclane_generation_tokens_total{model_name=\"org/demo\"}",
    );
    assert_eq!(generated, tokens as f64);
}

#[tokio::test]
async fn equals_keep_their_order() {
    let server = server();
    let fields = json!({"max_tokens": 12, "n": 2, "best_of": 4});
    let answer = server.complete(fields).await;
    let plain = server.complete(json!({"max_tokens": 12})).await;
    for index in 0..2 {
        assert_eq!(
            answer["choices"][index]["text"],
            plain["choices"][0]["text"]
        );
    }
}

#[tokio::test]
async fn faults_name_the_field() {
    let server = server();
    let cases = [
        (json!({"best_of": 0}), "invalid_value", "best_of"),
        (json!({"best_of": 129}), "invalid_value", "best_of"),
        (json!({"best_of": "2"}), "invalid_type", "best_of"),
        (json!({"best_of": 2, "n": 3}), "invalid_value", "best_of"),
        (
            json!({"best_of": 2, "stream": true}),
            "invalid_value",
            "best_of",
        ),
        (
            json!({"best_of": 128, "prompt": vec!["a"; 9]}),
            "invalid_value",
            "best_of",
        ),
        (
            json!({"best_of": 128, "n": 128, "prompt": vec!["a"; 9]}),
            "invalid_value",
            "n",
        ),
    ];
    for (fields, code, param) in cases {
        let (status, answer) = server
            .post("/v1/completions", &completion(fields.clone()))
            .await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{fields}");
        assert_eq!(answer["error"]["code"], code, "{fields}");
        assert_eq!(answer["error"]["param"], param, "{fields}");
    }
    let traced = completion(json!({"best_of": 2}));
    let (status, answer) = server.post("/v1/diffusion/trace", &traced).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(answer["error"]["param"], "best_of");
    // `best_of` equal to `n` selects nothing, so a stream may have it.
    let body = completion(json!({"best_of": 2, "n": 2, "stream": true, "max_tokens": 3}));
    server.stream("/v1/completions", &body).await;
}
