//! Bad requests get a complete error object that names the field, and leave no resources behind.

use asynclane_tests::client::Client;
use asynclane_tests::served::{MODEL, Served};
use serde_json::{Value, json};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";
/// Positions of the model, and its vocabulary.
const CONTEXT: usize = 1024;

/// An invalid body and the expected error.
struct Fault {
    path: &'static str,
    body: String,
    status: u16,
    code: &'static str,
    param: Option<&'static str>,
}

/// A completion with `field` set to `value`.
fn completion(field: &str, value: Value, code: &'static str, param: &'static str) -> Fault {
    let mut body = json!({"model": MODEL, "prompt": "Hi", "max_tokens": 4});
    body[field] = value;
    Fault {
        path: COMPLETIONS,
        body: body.to_string(),
        status: if code == "model_not_found" { 404 } else { 400 },
        code,
        param: Some(param),
    }
}

/// A chat with these messages.
fn chat(messages: Value, code: &'static str, param: &'static str) -> Fault {
    Fault {
        path: CHAT,
        body: json!({"model": MODEL, "messages": messages}).to_string(),
        status: 400,
        code,
        param: Some(param),
    }
}

/// A body that is not a JSON object.
fn broken(path: &'static str, body: &str) -> Fault {
    Fault {
        path,
        body: body.to_owned(),
        status: 400,
        code: "invalid_json",
        param: None,
    }
}

fn faults() -> Vec<Fault> {
    let long = vec![10; CONTEXT + 1];
    let full = vec![10; CONTEXT - 2];
    let exceeded = "context_length_exceeded";
    vec![
        completion("model", json!("gpt-4o"), "model_not_found", "model"),
        completion("model", json!(null), "missing_required_parameter", "model"),
        completion("max_tokens", json!("8"), "invalid_type", "max_tokens"),
        completion("stream", json!(1), "invalid_type", "stream"),
        completion("temperature", json!(2.5), "invalid_value", "temperature"),
        completion("top_p", json!(-0.1), "invalid_value", "top_p"),
        completion("n", json!(0), "invalid_value", "n"),
        completion("prompt", json!([]), "invalid_value", "prompt"),
        completion("prompt", json!(long), exceeded, "prompt"),
        completion("prompt", json!(full), exceeded, "max_tokens"),
        completion(
            "diffusion",
            json!({"treshold": 0.9}),
            "unknown_parameter",
            "diffusion.treshold",
        ),
        completion(
            "diffusion",
            json!({"threshold": 2}),
            "invalid_value",
            "diffusion.threshold",
        ),
        completion(
            "diffusion",
            json!({"schedule": "asynclane", "cache": "dual"}),
            "invalid_value",
            "diffusion.cache",
        ),
        chat(json!(null), "missing_required_parameter", "messages"),
        chat(json!("Hi"), "invalid_type", "messages"),
        chat(
            json!([{"role": "user", "content": 7}]),
            "invalid_type",
            "messages[0].content",
        ),
        broken(COMPLETIONS, "{\"model\": \"demo\", \"prompt\": "),
        broken(CHAT, ""),
        broken(CHAT, "[1, 2]"),
    ]
}

fn check(client: Client, fault: &Fault) {
    let answer = client.post_bytes(fault.path, fault.body.as_bytes());
    let body: String = fault.body.chars().take(100).collect();
    assert_eq!(answer.status, fault.status, "{body}: {}", answer.text());
    let content_type = answer.headers.get("content-type").map(String::as_str);
    assert_eq!(content_type, Some("application/json"), "{body}");
    let error = answer.error();
    assert_eq!(error["type"], "invalid_request_error", "{body}");
    assert_eq!(error["code"], fault.code, "{body}: {error:?}");
    assert_eq!(error["param"], json!(fault.param), "{body}: {error:?}");
    let message = error["message"].as_str().expect("a message");
    assert!((1..=500).contains(&message.chars().count()), "{message}");
    if let (Some(param), 400) = (fault.param, fault.status) {
        assert!(message.contains(param), "{message} names {param}");
    }
}

#[test]
fn bad_requests_get_whole_errors_and_leave_no_trace() {
    let served = Served::start();
    let client = served.client();
    let good = json!({"model": MODEL, "prompt": "Reverse the list eggs, pens.",
                      "max_tokens": 24, "return_token_ids": true});
    let ask = || client.post(COMPLETIONS, &good).json()["choices"].clone();
    let before = ask();
    let faults = faults();
    for fault in &faults {
        check(client, fault);
    }
    let metrics = client.metrics();
    let count = |outcome| metrics.sum("asynclane_requests_total", &[("outcome", outcome)]);
    assert_eq!(count("invalid"), faults.len() as f64);
    assert_eq!(count("ok"), 1.0);
    assert_eq!(metrics.sum("asynclane_num_requests_running", &[]), 0.0);
    assert_eq!(before, ask());
}

#[test]
fn unknown_paths_and_methods_get_whole_errors() {
    let served = Served::start();
    let client = served.client();
    for (path, status, code) in [
        ("/v1/embeddings", 404, "unknown_url"),
        (COMPLETIONS, 405, "method_not_allowed"),
    ] {
        let answer = client.get(path);
        assert_eq!(answer.status, status, "{path}");
        let error = &answer.json()["error"];
        assert_eq!(error["code"], code, "{path}");
        assert_eq!(error["type"], "invalid_request_error", "{path}");
        assert_eq!(error["param"], json!(null), "{path}");
    }
}
