//! `best_of`: the most likely of several sequences.

use crate::common::*;

fn mean(choice: &Value) -> f64 {
    let values = items(&choice["logprobs"]["token_logprobs"]);
    let sum: f64 = values.iter().map(|value| value.as_f64().unwrap()).sum();
    sum / values.len() as f64
}

#[tokio::test]
async fn the_best_of_all_choices_are_returned() {
    let server = server();
    // Choice i samples from (seed, i), so `best_of` ranks the sequences that `n` returns.
    let fields = json!({"max_tokens": 24, "ignore_eos": true, "temperature": 1.5, "seed": 8,
        "logprobs": 0, "return_token_ids": true});
    let all = merge(fields.clone(), json!({"n": 5}));
    let all = server.complete(all).await;
    let mut ranked = items(&all["choices"]).to_vec();
    ranked.sort_by(|a, b| mean(b).total_cmp(&mean(a)));
    assert_ne!(ranked[0]["index"], 0, "another seed is needed");
    let best = merge(fields, json!({"n": 2, "best_of": 5}));
    let answer = server.complete(best.clone()).await;
    let choices = items(&answer["choices"]);
    assert_eq!(choices.len(), 2);
    for (index, (choice, expected)) in choices.iter().zip(&ranked).enumerate() {
        assert_eq!(*choice, merge(expected.clone(), json!({"index": index})));
    }
    // Usage counts the delivered tokens and the forwards of all sequences.
    let usage = &answer["usage"];
    let forwards = &all["usage"]["diffusion"]["forwards"];
    has!(answer["usage"], {"completion_tokens": 48, "diffusion": {"forwards": forwards},
        "prompt_tokens": all["usage"]["prompt_tokens"]});
    let per_forward = 48.0 / forwards.as_f64().unwrap();
    let shown = usage["diffusion"]["tokens_per_forward"].as_f64().unwrap();
    assert!((shown - per_forward).abs() < 1e-12);

    // Log-probabilities are shown on request only.
    let hidden = merge(best, json!({"logprobs": null}));
    let hidden = server.complete(hidden).await;
    for (choice, expected) in items(&hidden["choices"]).iter().zip(choices) {
        has!(*choice, {"logprobs": null, "text": expected["text"]});
    }
}

#[tokio::test]
async fn every_prompt_has_its_best() {
    let server = server();
    let answer = ask!(server, COMPLETIONS {"prompt": [[9, 8], [30, 31, 32]], "max_tokens": 10,
        "temperature": 1, "seed": 2, "n": 2, "best_of": 3, "return_token_ids": true, "echo": true});
    has!(answer, {"choices": [
        {"index": 0, "prompt_token_ids": [9, 8]},
        {"index": 1, "prompt_token_ids": [9, 8]},
        {"index": 2, "prompt_token_ids": [30, 31, 32]},
        {"index": 3, "prompt_token_ids": [30, 31, 32]},
    ]});
    let choices = items(&answer["choices"]).iter();
    let tokens: usize = choices.map(|choice| ids(&choice["token_ids"]).len()).sum();
    assert_eq!(answer["usage"]["completion_tokens"], tokens);
    let generated = metric(&server.metrics().await, "generation_tokens_total");
    assert_eq!(generated, tokens as f64);
}

/// Sequences share the pages of their prompt, which count once.
#[tokio::test]
async fn cached_tokens_are_among_those_of_the_prompt() {
    let server = server_where(|options| options.sim.attention = step::Attention::Causal);
    let cached = async |fields: Value| {
        let fields = merge(fields, json!({"prompt": vec![9; 40], "max_tokens": 3}));
        let usage = server.complete(fields).await["usage"].clone();
        assert_eq!(usage["prompt_tokens"], 40);
        usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0)
    };
    assert_eq!(cached(json!({"n": 4})).await, 0);
    assert_eq!(cached(json!({"n": 4, "temperature": 1})).await, 32);
    assert_eq!(cached(json!({"best_of": 5, "n": 2})).await, 32);
}

#[tokio::test]
async fn equals_keep_their_order() {
    let server = server();
    let answer = ask!(server, COMPLETIONS {"max_tokens": 12, "n": 2, "best_of": 4});
    let plain = ask!(server, COMPLETIONS {"max_tokens": 12});
    let text = text(&plain);
    has!(answer, {"choices": [{"text": text}, {"text": text}]});
    // `best_of` equal to `n` selects nothing, so a stream may have it.
    let fields = json!({"best_of": 2, "n": 2, "max_tokens": 3});
    server.stream(COMPLETIONS, fields).await;
}
