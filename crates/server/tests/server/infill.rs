//! `suffix`: infilling.

use crate::common::{CONTEXT, chat, completion, server};
use axum::http::StatusCode;
use serde_json::{Value, json};

/// Number of tokens of a text, without special tokens around it.
fn length(text: &str) -> usize {
    crate::common::tokenizer()
        .encode(text, false)
        .unwrap()
        .len()
}

#[tokio::test]
async fn a_suffix_is_seen_and_counts_as_prompt() {
    let server = server();
    let plain = server
        .complete(json!({"max_tokens": 20, "ignore_eos": true}))
        .await;
    let suffix = " is what Mia has left.";
    let fields = json!({"max_tokens": 20, "ignore_eos": true, "suffix": suffix});
    let answer = server.complete(fields.clone()).await;
    let usage = |answer: &Value, key: &str| answer["usage"][key].as_u64().unwrap();
    let more = usage(&answer, "prompt_tokens") - usage(&plain, "prompt_tokens");
    assert_eq!(more, length(suffix) as u64);
    assert_eq!(usage(&answer, "completion_tokens"), 20);
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    // The answer has the prompt's ids; no list has the suffix.
    let mut shown = fields.clone();
    shown["return_token_ids"] = json!(true);
    let shown = server.complete(shown).await;
    let choice = &shown["choices"][0];
    assert_eq!(choice["text"], answer["choices"][0]["text"]);
    let prompt = choice["prompt_token_ids"].as_array().unwrap().len() as u64;
    assert_eq!(prompt, usage(&plain, "prompt_tokens"));
    // Usage counts each prompt once, with its suffix.
    let mut two = fields.clone();
    (two["prompt"], two["n"]) = (json!([[9, 8], [7]]), json!(3));
    let two = server.complete(two).await;
    assert_eq!(usage(&two, "prompt_tokens"), 3 + 2 * more);
    // A stream has the same usage.
    let mut streamed = completion(fields);
    streamed["stream"] = json!(true);
    let stream = server.stream("/v1/completions", &streamed).await;
    let text: String = crate::common::events(&stream)
        .iter()
        .map(|event| event["choices"][0]["text"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(answer["choices"][0]["text"], text);
}

#[tokio::test]
async fn positions_behind_the_budget_carry_the_suffix() {
    let server = server();
    // The simulated model is surer next to known tokens, on either side.
    let logprobs = async |suffix: &str| {
        let fields = json!({"max_tokens": 6, "ignore_eos": true, "logprobs": 0, "suffix": suffix,
            "diffusion": {"schedule": "block_wise", "commit": "top_k", "tokens_per_step": 6,
                "block_length": 6, "cache": "none"}});
        let answer = server.complete(fields).await;
        answer["choices"][0]["logprobs"]["token_logprobs"][5]
            .as_f64()
            .unwrap()
    };
    assert!(logprobs(" and nothing else.").await > logprobs("").await);
}

#[tokio::test]
async fn empty_and_null_are_absent() {
    let server = server();
    let plain = server.complete(json!({})).await;
    for suffix in [json!(""), json!(null)] {
        let answer = server.complete(json!({"suffix": suffix})).await;
        assert_eq!(answer["choices"], plain["choices"]);
        assert_eq!(
            answer["usage"]["prompt_tokens"],
            plain["usage"]["prompt_tokens"]
        );
    }
}

#[tokio::test]
async fn an_echo_is_of_the_prompt_alone() {
    let server = server();
    let fields = json!({"max_tokens": 8, "suffix": " the end"});
    let plain = server.complete(fields.clone()).await;
    let mut echo = fields;
    echo["echo"] = json!(true);
    let echo = server.complete(echo).await;
    let text = plain["choices"][0]["text"].as_str().unwrap();
    assert_eq!(
        echo["choices"][0]["text"],
        format!("Mia has 12 eggs.{text}")
    );
    assert_eq!(
        echo["usage"]["prompt_tokens"],
        plain["usage"]["prompt_tokens"]
    );
}

#[tokio::test]
async fn the_context_holds_prompt_suffix_and_budget() {
    let server = server();
    let refused = async |fields: Value| {
        let (status, answer) = server.post("/v1/completions", &completion(fields)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
        let part = |key: &str| answer["error"][key].as_str().unwrap().to_owned();
        (part("code"), part("param"), part("message"))
    };
    let suffix = "a b c d";
    let behind = length(suffix);
    let context = CONTEXT as usize;
    let fits = context - 3 - behind;
    let fields =
        |budget: usize| json!({"prompt": [9, 8, 7], "suffix": suffix, "max_tokens": budget});
    assert_eq!(
        server.complete(fields(fits)).await["usage"]["prompt_tokens"],
        3 + behind
    );
    let (code, param, message) = refused(fields(fits + 1)).await;
    assert_eq!(
        (code.as_str(), param.as_str()),
        ("context_length_exceeded", "max_tokens")
    );
    assert!(message.contains(&format!("at most {fits}")), "{message}");
    let long = json!({"prompt": [9], "suffix": "a b ".repeat(context), "max_tokens": 1});
    let (code, param, _) = refused(long.clone()).await;
    assert_eq!(
        (code.as_str(), param.as_str()),
        ("context_length_exceeded", "suffix")
    );
    // The error of a prompt that is too long by itself names the prompt.
    let mut both = long;
    both["prompt"] = json!(vec![9; context + 1]);
    assert_eq!(refused(both.clone()).await.1, "prompt");
    // Truncation applies to the prompt, not to the suffix.
    (both["suffix"], both["truncate_prompt_tokens"]) = (json!(suffix), json!(5));
    assert_eq!(
        server.complete(both).await["usage"]["prompt_tokens"],
        5 + behind
    );
}

#[tokio::test]
async fn types_are_checked() {
    let server = server();
    for suffix in [json!(1), json!(["a"]), json!(false)] {
        let body = completion(json!({"suffix": suffix}));
        let (status, answer) = server.post("/v1/completions", &body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert_eq!(answer["error"]["code"], "invalid_type");
        assert_eq!(answer["error"]["param"], "suffix");
    }
    // Chats do not support it.
    let (status, answer) = server
        .post("/v1/chat/completions", &chat(json!({"suffix": "x"})))
        .await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(answer["error"]["code"], "unsupported_parameter");
}
