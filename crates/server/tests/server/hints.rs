//! Hints about thinking: the chat template's switch, or a name in the header.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use serde_json::{Value, json};

use crate::common::translated::{MESSAGES, RESPONSES, wide};
use crate::common::{Server, chat, merge, server_with};

const CHAT: &str = "/v1/chat/completions";

/// As Qwen3's: on without a variable.
const ENABLE: &str = "{% if enable_thinking is defined and enable_thinking is false %}off\
    {% elif enable_thinking is defined %}on{% else %}as it likes{% endif %}";
/// As DeepSeek-V3.1's: off without a variable.
const THINKING: &str = "{% if not thinking is defined %}{% set thinking = false %}{% endif %}\
    {% if thinking %}on{% else %}off{% endif %}";
/// As gpt-oss's.
const EFFORT: &str = "{% if reasoning_effort is not defined %}{% set reasoning_effort = 'medium' %}\
    {% endif %}{{ reasoning_effort }}";
/// Refuses other efforts than its own.
const STRICT: &str = "{% set effort = reasoning_effort | default('none') %}\
    {% if effort not in ['none', 'high'] %}{{ raise_exception('no') }}{% endif %}{{ effort }}";
/// Has the words, but no switch.
const NONE: &str = "{% set thinking = 'x' %}<think>{% for m in messages %}{{ m.thinking }}\
    {{ m['enable_thinking'] }}{{ 'reasoning_effort' }}{% endfor %}{# thinking #}";

fn server(template: &'static str) -> Server {
    let mut options = wide();
    options.template = Some(template);
    server_with(options)
}

/// The text that the model sees, and the hints that the answer's header names.
async fn shown(server: &Server, fields: &Value) -> (String, Option<String>) {
    let ids = json!({"max_tokens": 1, "return_token_ids": true});
    let body = chat(merge(fields.clone(), ids));
    let (answer, named) = ask(server, CHAT, &body).await;
    let ids = answer["choices"][0]["prompt_token_ids"].as_array().unwrap();
    let ids: Vec<u32> = ids.iter().map(|id| id.as_u64().unwrap() as u32).collect();
    (server.tokenizer.decode(&ids, false), named)
}

async fn ask(server: &Server, path: &str, body: &Value) -> (Value, Option<String>) {
    let request = Request::post(path).body(Body::from(body.to_string()));
    let (status, headers, bytes) = server.call(request.unwrap()).await;
    let answer: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(status, StatusCode::OK, "{body}: {answer}");
    let named = headers.get("x-ignored-fields");
    let named = named.map(|value| value.to_str().unwrap().to_owned());
    (answer, named)
}

#[tokio::test]
async fn an_effort_sets_the_templates_switch() {
    let ignored = Some("reasoning_effort".to_owned());
    let cases = [
        (ENABLE, json!(null), "as it likes", None),
        (ENABLE, json!("none"), "off", None),
        (ENABLE, json!("minimal"), "off", None),
        (ENABLE, json!("low"), "on", None),
        (ENABLE, json!("a new one"), "on", None),
        (ENABLE, json!(3), "as it likes", ignored.clone()),
        (THINKING, json!("none"), "off", None),
        (THINKING, json!("high"), "on", None),
        (EFFORT, json!(null), "medium", None),
        (EFFORT, json!("high"), "high", None),
        (EFFORT, json!([]), "medium", ignored.clone()),
        (STRICT, json!("high"), "high", None),
        (STRICT, json!("low"), "none", ignored.clone()),
        (NONE, json!("high"), "<think>reasoning_effort", ignored),
    ];
    for (template, effort, text, named) in cases {
        let server = server(template);
        let found = shown(&server, &json!({"reasoning_effort": effort})).await;
        assert_eq!(found, (text.to_owned(), named), "{template} {effort}");
    }
}

#[tokio::test]
async fn a_variable_of_the_request_wins_over_an_effort() {
    let server = server(ENABLE);
    let variables = json!({"enable_thinking": false});
    for (effort, named) in [
        ("none", None),
        ("high", Some("reasoning_effort".to_owned())),
    ] {
        let fields = json!({"reasoning_effort": effort, "chat_template_kwargs": variables});
        assert_eq!(shown(&server, &fields).await, ("off".to_owned(), named));
    }
}

#[tokio::test]
async fn every_chat_endpoint_has_its_own_field() {
    let cases = [
        (
            RESPONSES,
            json!({"reasoning": {"effort": "none"}}),
            "reasoning.effort",
        ),
        (
            RESPONSES,
            json!({"text": {"verbosity": "low"}}),
            "text.verbosity",
        ),
        (
            MESSAGES,
            json!({"output_config": {"effort": "low"}}),
            "output_config.effort",
        ),
        (
            MESSAGES,
            json!({"thinking": {"type": "disabled"}}),
            "thinking",
        ),
        (
            MESSAGES,
            json!({"thinking": {"type": "adaptive"}}),
            "thinking",
        ),
        (MESSAGES, json!({"speed": "fast"}), "speed"),
        (
            MESSAGES,
            json!({"output_config": {"task_budget": {"type": "tokens", "total": 9}}}),
            "output_config.task_budget",
        ),
    ];
    let (plain, switched) = (server(NONE), server(ENABLE));
    let length = |answer: &Value| {
        let names = ["input_tokens", "cache_read_input_tokens"];
        let counts = names
            .iter()
            .filter_map(|name| answer["usage"][name].as_u64());
        counts.sum::<u64>()
    };
    for (endpoint, fields, name) in cases {
        let body = endpoint.body(&fields);
        assert_eq!(
            ask(&plain, endpoint.path, &body).await.1.as_deref(),
            Some(name)
        );
        let (answer, named) = ask(&switched, endpoint.path, &body).await;
        let is_switch = !["speed", "text.verbosity", "output_config.task_budget"].contains(&name);
        assert_eq!(named.is_none(), is_switch, "{name}: {named:?}");
        let (untouched, _) = ask(&switched, endpoint.path, &endpoint.body(&json!({}))).await;
        assert_eq!(length(&answer) == length(&untouched), !is_switch, "{name}");
    }
    let budget = json!({"thinking": {"type": "enabled", "budget_tokens": 1024},
        "cache_control": {"type": "ephemeral"}});
    let (_, named) = ask(&switched, MESSAGES.path, &MESSAGES.body(&budget)).await;
    assert_eq!(named.as_deref(), Some("thinking.budget_tokens"));
    // The count of a body is that of its answer.
    let body = MESSAGES.body(&json!({"output_config": {"effort": "low"}}));
    let (count, _) = ask(&switched, "/v1/messages/count_tokens", &body).await;
    let (answer, _) = ask(&switched, MESSAGES.path, &body).await;
    assert_eq!(count["input_tokens"].as_u64(), Some(length(&answer)));
}
