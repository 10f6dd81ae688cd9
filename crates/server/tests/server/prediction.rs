//! `prediction` of chats: an expected answer that is verified.

use sim::SimConfig;
use step::{Attention, LogitShift};

use crate::common::*;

fn causal(logit_shift: LogitShift) -> Server {
    wide_server_where(|options| {
        let attention = Attention::Causal;
        options.sim = SimConfig { attention, logit_shift, ..options.sim.clone() };
    })
}

fn predicted(text: &str, more: Value) -> Value {
    let prediction = json!({"type": "content", "content": text});
    merge(json!({"max_tokens": 40, "prediction": prediction, "return_token_ids": true}), more)
}

/// Accepted and rejected tokens.
fn counts(answer: &Value) -> (u64, u64) {
    let details = &answer["usage"]["completion_tokens_details"];
    let count = |name: &str| details[name].as_u64().unwrap();
    (count("accepted_prediction_tokens"), count("rejected_prediction_tokens"))
}

#[tokio::test]
async fn a_prediction_changes_forwards_and_no_token() {
    let server = causal(LogitShift::One);
    for settings in [json!({}), json!({"temperature": 1, "seed": 7})] {
        let plain = merge(json!({"max_tokens": 40, "return_token_ids": true}), settings.clone());
        let plain = server.ask(CHAT, plain).await;
        assert!(plain["usage"].get("completion_tokens_details").is_none());
        let forwards = |answer: &Value| answer["usage"]["diffusion"]["forwards"].as_u64().unwrap();
        let tokens = plain["usage"]["completion_tokens"].as_u64().unwrap();
        // The answer itself, the same with another word in it, another text, and parts.
        let text = text(&plain).to_owned();
        let mut words: Vec<&str> = text.split(' ').collect();
        let middle = words.len() / 2;
        words[middle] = "zebra";
        let changed = words.join(" ");
        let mut costs = Vec::new();
        for expected in [&text, &changed, "Something else."] {
            let answer = server.ask(CHAT, predicted(expected, settings.clone())).await;
            assert_eq!(answer["choices"], plain["choices"], "{expected}");
            let (accepted, _) = counts(&answer);
            // A forward writes one token beside the accepted ones.
            assert_eq!(accepted + forwards(&answer), tokens + 1, "{answer}");
            costs.push((forwards(&answer), accepted));
        }
        assert!(costs[0].0 * 3 < 2 * forwards(&plain), "{costs:?} {plain}");
        assert!(costs[1].0 < forwards(&plain) && costs[1].0 >= costs[0].0, "{costs:?}");
        assert!(costs[2].0 <= forwards(&plain), "{costs:?}");
    }
    let parts = json!({"type": "content", "content": [{"type": "text", "text": "a"}]});
    server.ask(CHAT, json!({"max_tokens": 4, "prediction": parts})).await;
    let stream = server
        .stream(CHAT, predicted("a", json!({"stream_options": {"include_usage": true}})))
        .await;
    let last = events(&stream).pop().unwrap();
    assert!(last["usage"]["completion_tokens_details"].is_object(), "{last}");
}

#[tokio::test]
async fn predictions_that_would_change_the_text_are_refused() {
    let server = wide_server();
    let refused = refusals! {
        {"prediction": {"type": "content", "content": "a"}} => unsupported_parameter "prediction";
        {"prediction": {"type": "text", "content": "a"}} => invalid_value "prediction.type";
        {"prediction": {"type": "content"}} => missing_required_parameter "prediction.content";
        {"prediction": "a"} => invalid_type "prediction";
    };
    server.refuses(CHAT, &refused).await;
    server
        .refused(
            COMPLETIONS,
            &json!({"prediction": {"type": "content", "content": "a"}}),
            "unsupported_parameter",
            "prediction",
        )
        .await;
    for (settings, cause) in [
        (json!({"preset": "low_latency"}), "nested_drafts"),
        (json!({"preset": "fast_dllm_dual", "max_forwards": 9}), "max_forwards"),
    ] {
        let body = predicted("a", json!({"diffusion": settings}));
        let message = server.refused(CHAT, &body, "unsupported_parameter", "prediction").await;
        assert!(message.contains(cause) && message.contains("preset fast_dllm_dual"), "{message}");
    }
    let dual = json!({"diffusion": {"preset": "fast_dllm_dual"}});
    for settings in [
        json!({"temperature": 1}),
        json!({"frequency_penalty": 1}),
        json!({"logprobs": true}),
        json!({"response_format": {"type": "json_object"}}),
    ] {
        let body = predicted("a", merge(dual.clone(), settings));
        server.refused(CHAT, &body, "invalid_value", "prediction").await;
    }
    let server = causal(LogitShift::None);
    let window = predicted("a", json!({"diffusion": {"preset": "wedlm"}}));
    server.refused(CHAT, &window, "unsupported_parameter", "prediction").await;
}

/// Masked weights by whole forwards of a block, block-causal ones, and causal ones that fill a window.
#[tokio::test]
async fn a_prediction_is_verified_by_the_rule_of_the_request() {
    let weights = |attention| {
        wide_server_where(move |options| {
            options.sim = SimConfig { attention, ..options.sim.clone() };
        })
    };
    let cases = [
        (Attention::Full, json!({"preset": "fast_dllm_dual"})),
        (Attention::Full, json!({"preset": "vanilla"})),
        (Attention::Blocks(8), json!({})),
        (Attention::Causal, json!({})),
        (Attention::Causal, json!({"preset": "autoregressive"})),
    ];
    for (attention, diffusion) in cases {
        let server = weights(attention);
        let settings = json!({"temperature": 0, "diffusion": diffusion});
        let plain = merge(json!({"max_tokens": 40, "return_token_ids": true}), settings.clone());
        let plain = server.ask(CHAT, plain).await;
        let forwards = |answer: &Value| answer["usage"]["diffusion"]["forwards"].as_u64().unwrap();
        let answer = server.ask(CHAT, predicted(text(&plain), settings)).await;
        assert_eq!(answer["choices"], plain["choices"], "{diffusion}");
        assert!(forwards(&answer) < forwards(&plain), "{diffusion} {answer} {plain}");
        let draft = &answer["usage"]["diffusion"]["draft_model"];
        let (accepted, rejected) = counts(&answer);
        assert!(accepted > 0, "{answer}");
        assert_eq!(draft["drafted_tokens"], accepted + rejected, "{answer}");
    }
}
