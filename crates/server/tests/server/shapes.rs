//! The JSON shapes of answers: objects, choices, usage, options.

use crate::common::{CONTEXT, MODEL, Options, server, server_with};
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use serde_json::{Value, json};
use sim::ConfidenceLaw;

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<_> = value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    keys.sort_unstable();
    keys
}

#[tokio::test]
async fn a_completion_has_the_documented_shape() {
    let answer = server().complete(json!({"max_tokens": 64})).await;
    let expected = [
        "choices",
        "created",
        "id",
        "model",
        "object",
        "system_fingerprint",
        "usage",
    ];
    assert_eq!(keys(&answer), expected);
    assert!(answer["id"].as_str().unwrap().starts_with("cmpl-"));
    assert_eq!(answer["object"], "text_completion");
    assert_eq!(answer["model"], MODEL);
    assert_eq!(answer["system_fingerprint"], "0.1.0-sim");
    let choice = &answer["choices"][0];
    assert_eq!(keys(choice), ["finish_reason", "index", "logprobs", "text"]);
    assert_eq!(choice["index"], 0);
    assert_eq!(choice["logprobs"], Value::Null);
    assert_eq!(choice["finish_reason"], "stop");
    let usage = &answer["usage"];
    assert_eq!(
        keys(usage),
        [
            "completion_tokens",
            "diffusion",
            "prompt_tokens",
            "total_tokens"
        ]
    );
    let tokens = |key: &str| usage[key].as_u64().unwrap();
    assert!((20..40).contains(&tokens("completion_tokens")));
    assert_eq!(
        tokens("total_tokens"),
        tokens("prompt_tokens") + tokens("completion_tokens")
    );
}

#[tokio::test]
async fn the_cost_in_forwards_is_consistent() {
    let answer = server()
        .complete(json!({"max_tokens": 64, "seed": 9}))
        .await;
    let usage = &answer["usage"];
    let cost = &usage["diffusion"];
    let expected = [
        "committed_tokens",
        "decode_forwards",
        "decoder",
        "drafts",
        "edits",
        "forks",
        "forwards",
        "lanes",
        "positions",
        "prefill_forwards",
        "refresh_forwards",
        "seed",
        "steps",
        "tokens_per_forward",
    ];
    assert_eq!(keys(cost), expected);
    let count = |key: &str| cost[key].as_u64().unwrap();
    let kinds = ["prefill_forwards", "decode_forwards", "refresh_forwards"];
    assert_eq!(count("forwards"), kinds.map(count).iter().sum::<u64>());
    assert_eq!(count("steps"), count("forwards"));
    assert_eq!(cost["decoder"], "asynclane+entropy_bound+fused");
    assert_eq!(cost["seed"], 9);
    let tokens = usage["completion_tokens"].as_f64().unwrap();
    assert_eq!(
        cost["tokens_per_forward"].as_f64().unwrap(),
        tokens / count("forwards") as f64
    );
}

#[tokio::test]
async fn a_chat_has_the_documented_shape() {
    let answer = server().chat(json!({})).await;
    assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!(answer["object"], "chat.completion");
    let choice = &answer["choices"][0];
    assert_eq!(
        keys(choice),
        ["finish_reason", "index", "logprobs", "message"]
    );
    assert_eq!(keys(&choice["message"]), ["content", "role"]);
    assert_eq!(choice["message"]["role"], "assistant");
    assert!(!choice["message"]["content"].as_str().unwrap().is_empty());
}

#[tokio::test]
async fn chats_accept_parts_roles_and_null_content() {
    let server = server();
    let plain = json!([{"role": "system", "content": "ab"}, {"role": "assistant", "content": ""},
        {"role": "user", "content": "Hi", "name": "ignored"}]);
    let parts = json!([{"role": "developer", "content": [{"type": "text", "text": "a"},
        {"type": "text", "text": "b"}]}, {"role": "assistant", "content": null},
        {"role": "user", "content": "Hi"}]);
    let first = server.chat(json!({"messages": plain})).await;
    let second = server.chat(json!({"messages": parts})).await;
    assert_eq!(first["choices"], second["choices"]);
    assert_eq!(
        first["usage"]["prompt_tokens"],
        second["usage"]["prompt_tokens"]
    );
}

#[tokio::test]
async fn all_four_prompt_forms_agree() {
    let server = server();
    let texts = ["Mia has 12 eggs.", "Ben has 3 boxes."];
    let ids: Vec<_> = texts
        .iter()
        .map(|text| server.tokenizer.encode(text, true).unwrap())
        .collect();
    let of = async |prompt: Value| {
        let answer = server
            .complete(json!({"prompt": prompt, "max_tokens": 64}))
            .await;
        (
            answer["choices"].clone(),
            answer["usage"]["prompt_tokens"].clone(),
        )
    };
    assert_eq!(of(json!(texts[0])).await, of(json!(ids[0])).await);
    let both = of(json!(texts)).await;
    assert_eq!(both, of(json!(ids)).await);
    assert_eq!(both.0[0]["text"], of(json!(texts[0])).await.0[0]["text"]);
    assert_eq!(both.0[1]["text"], of(json!(texts[1])).await.0[0]["text"]);
    assert_ne!(both.0[0]["text"], both.0[1]["text"]);
    assert_eq!(both.1, ids[0].len() + ids[1].len());
}

#[tokio::test]
async fn choices_differ_by_seed_and_come_in_order() {
    // A model without confidence, so that sampling matters.
    let law = ConfidenceLaw {
        base: 0.2,
        left: 0.5,
        right: 0.5,
        ..ConfidenceLaw::default()
    };
    let mut options = Options::default();
    options.sim.law = law;
    let server = server_with(options);
    let fields = json!({"temperature": 1.5, "seed": 3, "n": 3, "max_tokens": 24,
        "prompt": ["Mia has 12 eggs.", "Ben has 3 boxes."]});
    let answer = server.complete(fields.clone()).await;
    let choices = answer["choices"].as_array().unwrap();
    let indices: Vec<_> = choices
        .iter()
        .map(|choice| choice["index"].as_u64().unwrap())
        .collect();
    assert_eq!(indices, [0, 1, 2, 3, 4, 5]);
    assert_ne!(choices[0]["text"], choices[1]["text"]);
    assert_ne!(choices[1]["text"], choices[2]["text"]);
    let again = server.complete(fields).await;
    assert_eq!(again["choices"], answer["choices"]);
    assert_eq!(again["usage"], answer["usage"]);
    let alone = server
        .complete(json!({"temperature": 1.5, "seed": 3, "max_tokens": 24}))
        .await;
    assert_eq!(alone["choices"][0]["text"], choices[0]["text"]);
}

#[tokio::test]
async fn a_budget_is_exact() {
    let server = server();
    for max_tokens in [0, 1, 7, 33, 200] {
        let fields = json!({"max_tokens": max_tokens, "ignore_eos": true,
            "return_token_ids": true});
        let answer = server.complete(fields).await;
        let choice = &answer["choices"][0];
        assert_eq!(answer["usage"]["completion_tokens"], max_tokens);
        assert_eq!(choice["token_ids"].as_array().unwrap().len(), max_tokens);
        assert_eq!(choice["finish_reason"], "length");
    }
    let nothing = server.complete(json!({"max_tokens": 0})).await;
    assert_eq!(nothing["choices"][0]["text"], "");
    assert_eq!(nothing["usage"]["diffusion"]["forwards"], 0);
    let chat = server.chat(json!({"ignore_eos": true})).await;
    let used = &chat["usage"];
    assert_eq!(
        used["total_tokens"], CONTEXT,
        "without a limit a chat takes the rest"
    );
    let limited = server
        .chat(json!({"max_tokens": 9, "max_completion_tokens": 5, "ignore_eos": true}))
        .await;
    assert_eq!(limited["usage"]["completion_tokens"], 5);
}

#[tokio::test]
async fn ids_and_echo_come_when_asked_for() {
    let server = server();
    let plain = server.complete(json!({"max_tokens": 12})).await;
    let text = plain["choices"][0]["text"].as_str().unwrap();
    let fields = json!({"max_tokens": 12, "echo": true, "return_token_ids": true});
    let answer = server.complete(fields).await;
    let choice = &answer["choices"][0];
    assert_eq!(choice["text"], format!("Mia has 12 eggs.{text}"));
    let ids = |key: &str| {
        let ids = choice[key].as_array().unwrap().iter();
        ids.map(|id| id.as_u64().unwrap() as u32)
            .collect::<Vec<_>>()
    };
    let prompt = server.tokenizer.encode("Mia has 12 eggs.", true).unwrap();
    assert_eq!(ids("prompt_token_ids"), prompt);
    assert_eq!(server.tokenizer.decode(&ids("token_ids"), true), text);
    assert_eq!(
        answer["usage"]["completion_tokens"],
        plain["usage"]["completion_tokens"]
    );
}

#[tokio::test]
async fn stop_strings_and_ids_end_an_answer() {
    let server = server();
    let whole = server
        .complete(json!({"max_tokens": 64, "return_token_ids": true}))
        .await;
    let choice = &whole["choices"][0];
    let text = choice["text"].as_str().unwrap();
    let stop: String = text.chars().skip(10).take(4).collect();
    let at = text.find(&stop).unwrap();
    let cut = server
        .complete(json!({"max_tokens": 64, "stop": [stop, "never"]}))
        .await;
    assert_eq!(cut["choices"][0]["text"], &text[..at]);
    assert_eq!(cut["choices"][0]["finish_reason"], "stop");
    let fields = json!({"max_tokens": 64, "stop": stop, "include_stop_str_in_output": true});
    let kept = server.complete(fields).await;
    assert_eq!(kept["choices"][0]["text"], &text[..at + stop.len()]);
    let ids = choice["token_ids"].as_array().unwrap();
    let first = ids.iter().position(|id| *id == ids[5]).unwrap();
    let by_id = server
        .complete(json!({"max_tokens": 64, "stop_token_ids": [ids[5]]}))
        .await;
    assert_eq!(by_id["usage"]["completion_tokens"], first);
    assert_eq!(by_id["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn nothing_stops_before_min_tokens() {
    let server = server();
    let fields = json!({"max_tokens": 60, "return_token_ids": true});
    let whole = server.complete(fields.clone()).await;
    let ids = whole["choices"][0]["token_ids"].as_array().unwrap();
    let length = ids.len();
    assert!(length < 60, "it ends by itself");
    let early = ids[2].clone();
    let with = async |extra: Value| {
        let mut body = fields.clone();
        body.as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        let answer = server.complete(body).await;
        answer["choices"][0]["token_ids"].as_array().unwrap().len()
    };
    assert!(with(json!({"stop_token_ids": [early]})).await <= 2);
    for least in [5, length, length + 3, 60] {
        let stops = json!({"stop_token_ids": [early], "min_tokens": least});
        assert!(with(stops).await >= least, "{least}");
        assert!(with(json!({"min_tokens": least})).await >= least, "{least}");
    }
}

#[tokio::test]
async fn special_tokens_show_when_asked_for() {
    let server = server();
    // A special token that is no stop token, and a plain one.
    let special = server.tokenizer.decode(&[2], false);
    let fields = json!({"max_tokens": 6, "logit_bias": {"2": 100}, "return_token_ids": true});
    for (skip, text) in [
        (json!(null), ""),
        (json!(true), ""),
        (json!(false), &*special.repeat(6)),
    ] {
        let mut body = fields.clone();
        body["skip_special_tokens"] = skip;
        let answer = server.complete(body).await;
        assert_eq!(answer["choices"][0]["token_ids"], json!([2, 2, 2, 2, 2, 2]));
        assert_eq!(answer["choices"][0]["text"], text);
    }
}

#[tokio::test]
async fn neutral_values_pass_and_change_nothing() {
    let server = server();
    let plain = server.complete(json!({})).await;
    let neutral = json!({"logprobs": null, "logit_bias": {}, "frequency_penalty": 0,
        "presence_penalty": 0.0, "repetition_penalty": 1.0, "best_of": 1, "priority": 0,
        "truncate_prompt_tokens": null, "response_format": {"type": "text"}, "tools": [],
        "tool_choice": "auto", "suffix": null, "stop": null, "user": "u", "metadata": {"a": [1]},
        "store": false, "stream": false, "top_k": -1, "top_p": 1, "min_p": 0, "diffusion": {}});
    let answer = server.complete(neutral).await;
    assert_eq!(answer["choices"], plain["choices"]);
}

#[tokio::test]
async fn models_are_listed_and_found() {
    let server = server();
    let (status, _, list) = server.get("/v1/models").await;
    assert_eq!(status, StatusCode::OK);
    let list: Value = serde_json::from_slice(&list).unwrap();
    assert_eq!(list["object"], "list");
    let model = &list["data"][0];
    assert_eq!(model["id"], MODEL);
    assert_eq!(model["object"], "model");
    assert_eq!(model["created"], 1_760_000_000);
    assert_eq!(model["owned_by"], "asynclane");
    assert_eq!(model["max_model_len"], CONTEXT);
    assert_eq!(model["demo"], true);
    assert_eq!(
        model["diffusion"]["presets"]["balanced"]["schedule"],
        "asynclane"
    );
    let find = |registry: &str, name: &str| {
        let members = model["diffusion"][registry].as_array().unwrap();
        let found = members.iter().find(|member| member["name"] == name);
        found
            .unwrap_or_else(|| panic!("{registry}: {name}"))
            .clone()
    };
    assert_eq!(find("schedules", "window")["caches"][0], "dual");
    assert_eq!(find("caches", "elastic")["settings"][1], "drift_threshold");
    let threshold = find("commits", "threshold");
    assert_eq!(
        threshold["settings"],
        json!(["threshold", "min_tokens_per_step"])
    );
    assert_eq!(threshold["unavailable"], Value::Null);
    let edit = find("commits", "edit");
    assert_eq!(edit["schedules"], json!(["block_wise"]));
    let why = edit["unavailable"].as_str().unwrap();
    assert!(why.starts_with("needs weights that were trained"), "{why}");
    for path in ["/v1/models/org/demo", "/v1/models/org%2Fdemo"] {
        let (status, _, one) = server.get(path).await;
        assert_eq!(status, StatusCode::OK, "{path}");
        assert_eq!(serde_json::from_slice::<Value>(&one).unwrap(), *model);
    }
}

#[tokio::test]
async fn probes_answer() {
    let server = server();
    for path in ["/health", "/ping", "/ready"] {
        assert_eq!(server.get(path).await.0, StatusCode::OK, "{path}");
    }
    let json =
        async |path: &str| serde_json::from_slice::<Value>(&server.get(path).await.2).unwrap();
    assert_eq!(json("/version").await, json!({"version": "0.1.0"}));
    assert_eq!(json("/load").await, json!({"server_load": 0}));
}

#[tokio::test]
async fn methods_are_those_of_the_path() {
    let server = server();
    let with = |method: Method, path: &str| {
        let request = Request::builder().method(method).uri(path);
        server.call(request.body(Body::empty()).unwrap())
    };
    let (status, headers, body) = with(Method::HEAD, "/health").await;
    assert_eq!((status, body.len()), (StatusCode::OK, 0));
    assert!(headers.contains_key("x-request-id"));
    let (status, headers, _) = with(Method::OPTIONS, "/v1/completions").await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    assert_eq!(headers["allow"], "POST, OPTIONS");
    let (status, headers, _) = with(Method::DELETE, "/v1/models/org/demo").await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(headers["allow"], "GET, HEAD, OPTIONS");
    let (status, _, _) = with(Method::OPTIONS, "*").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn request_ids_are_echoed_or_made() {
    let server = server();
    let with = async |id: &str| {
        let request = Request::get("/health").header("x-request-id", id);
        let headers = server.call(request.body(Body::empty()).unwrap()).await.1;
        headers["x-request-id"].to_str().unwrap().to_owned()
    };
    assert_eq!(with("A.b_c:d/e-9").await, "A.b_c:d/e-9");
    assert_ne!(with("no spaces").await, "no spaces");
    assert_ne!(with(&"x".repeat(129)).await, "x".repeat(129));
    assert_eq!(with(&"x".repeat(128)).await, "x".repeat(128));
    let (first, second) = (with("").await, with("").await);
    assert!(first.starts_with("req-") && first != second);
}
