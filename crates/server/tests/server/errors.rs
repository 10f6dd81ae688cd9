//! The error table, row by row: status, type, code, parameter, and the contents of messages.

use crate::common::*;
use axum::body::Body;

#[tokio::test]
async fn bodies_other_than_objects_are_invalid_json() {
    let server = server();
    let deep = "[".repeat(2000) + &"]".repeat(2000);
    let deep = format!(r#"{{"model":"m","prompt":{deep}}}"#);
    let cases: [&[u8]; 13] = rows! {
        b""; b"  "; b"[]"; b"\"x\""; b"{"; b"{} x"; b"{\"prompt\": NaN}"; b"{\"prompt\": 1e999}";
        b"{\"prompt\": \"\\ud800\"}"; b"{\"prompt\": \"\xff\"}"; b"{\"a\": 1, \"a\": 2}";
        b"\xef\xbb\xbf{}"; deep.as_bytes();
    };
    for body in cases {
        let reply = server.send("POST", COMPLETIONS, &[], body.to_vec()).await;
        assert_eq!(reply.fault(400), "invalid_json", "{body:?}");
        assert!(reply.json()["error"]["param"].is_null(), "{body:?}");
    }
}

#[tokio::test]
async fn required_fields_are_missed_and_types_are_strict() {
    let server = server();
    let cases = refusals! {
        {"prompt": null} => missing_required_parameter "prompt";
        {"model": 7} => invalid_type "model";
        {"prompt": 7} => invalid_type "prompt";
        {"prompt": ["a", 1]}, {"prompt": [1, "a"]}, {"prompt": [1, 2.5]}, {"prompt": [[7], "a"]}
            => invalid_type "prompt[1]";
        {"prompt": [true]} => invalid_type "prompt[0]";
        {"max_tokens": "8"}, {"max_tokens": 1.5}, {"max_tokens": true}
            => invalid_type "max_tokens";
        {"temperature": "1"} => invalid_type "temperature";
        {"stream": 1} => invalid_type "stream";
        {"seed": 1.5} => invalid_type "seed";
        {"priority": "1"} => invalid_type "priority";
        {"stop": 1} => invalid_type "stop";
        {"stop": ["a", 1]} => invalid_type "stop[1]";
        {"stop_token_ids": [1, "2"]} => invalid_type "stop_token_ids[1]";
        {"stream": true, "stream_options": {"include_usage": 1}}
            => invalid_type "stream_options.include_usage";
        {"user": 1} => invalid_type "user";
        {"diffusion": []} => invalid_type "diffusion";
        {"diffusion": {"threshold": "0.9"}}, {"diffusion": {"threshold": [0.9]}}
            => invalid_type "diffusion.threshold";
        {"logprobs": true} => invalid_type "logprobs";
        {"logit_bias": {"7": "1"}} => invalid_type "logit_bias.7";
        {"tools": [1]} => invalid_type "tools[0]";
        {"echo": 1} => invalid_type "echo";
        {"add_special_tokens": 1} => invalid_type "add_special_tokens";
        {"suffix": 1}, {"suffix": ["a"]}, {"suffix": false} => invalid_type "suffix";
        {"frequency_penalty": "1"} => invalid_type "frequency_penalty";
        {"presence_penalty": true} => invalid_type "presence_penalty";
        {"repetition_penalty": [1]} => invalid_type "repetition_penalty";
        {"best_of": "2"} => invalid_type "best_of";
        {"prompt": [7.5]} => invalid_type "prompt[0]";
        {"diffusion": {"block_length": 8.5}} => invalid_type "diffusion.block_length";
    };
    server.refuses(COMPLETIONS, &cases).await;
    let user = |content: Value| json!({"messages": [{"role": "user", "content": content}]});
    let cases = refusals! {
        {"messages": null} => missing_required_parameter "messages";
        {"messages": [{"content": "x"}]} => missing_required_parameter "messages[0].role";
        {"messages": [{"role": "user"}]}, (user(json!(null)))
            => missing_required_parameter "messages[0].content";
        (user(json!([{"type": "text"}])))
            => missing_required_parameter "messages[0].content[0].text";
        {"messages": [{"role": "assistant", "content": [{"type": "refusal", "text": "x"}]}]}
            => missing_required_parameter "messages[0].content[0].refusal";
        (user(json!([{"type": "refusal", "refusal": "x"}])))
            => invalid_value "messages[0].content[0].type";
        {"messages": "x"} => invalid_type "messages";
        {"messages": ["x"]} => invalid_type "messages[0]";
        {"messages": [{"role": 1}]} => invalid_type "messages[0].role";
        (user(json!(1))) => invalid_type "messages[0].content";
        {"logprobs": 1} => invalid_type "logprobs";
        {"max_completion_tokens": "1"} => invalid_type "max_completion_tokens";
    };
    server.refuses(CHAT, &cases).await;
}

#[tokio::test]
async fn values_are_in_range() {
    let server = server();
    let cases = refusals! {
        {"prompt": []}, {"prompt": ""} => invalid_value "prompt";
        {"prompt": [[]]} => invalid_value "prompt[0]";
        {"prompt": [[1, 842]]} => invalid_value "prompt[0][1]";
        {"prompt": [-1]} => invalid_value "prompt[0]";
        {"max_tokens": -1}, {"max_tokens": -1e30} => invalid_value "max_tokens";
        {"temperature": -1}, {"temperature": 2.01} => invalid_value "temperature";
        {"top_p": 1.1} => invalid_value "top_p";
        {"min_p": -0.1} => invalid_value "min_p";
        {"top_k": -2}, {"top_k": 1e19} => invalid_value "top_k";
        {"priority": 1_i64 << 31} => invalid_value "priority";
        {"n": 0}, {"n": 129} => invalid_value "n";
        {"seed": 1e300} => invalid_value "seed";
        {"stop": ""}, {"stop": vec!["a"; 65]} => invalid_value "stop";
        {"stop": ["a", "x".repeat(1025)]} => invalid_value "stop[1]";
        {"stop_token_ids": [842]} => invalid_value "stop_token_ids[0]";
        {"min_tokens": -1}, {"min_tokens": 17} => invalid_value "min_tokens";
        {"prompt": vec!["a"; 1025]} => invalid_value "prompt";
        {"prompt": vec!["a"; 9], "n": 128} => invalid_value "n";
        {"stream_options": {}} => invalid_value "stream_options";
        {"logprobs": 21} => invalid_value "logprobs";
        {"best_of": 0}, {"best_of": 129}, {"best_of": 2, "n": 3},
        {"best_of": 2, "stream": true}, {"best_of": 128, "prompt": vec!["a"; 9]}
            => invalid_value "best_of";
        {"best_of": 128, "n": 128, "prompt": vec!["a"; 9]} => invalid_value "n";
        {"logit_bias": {"842": 1}} => invalid_value "logit_bias.842";
        {"logit_bias": {"x": 1}} => invalid_value "logit_bias.x";
        {"logit_bias": {"07": 1}} => invalid_value "logit_bias.07";
        {"logit_bias": {"+7": 1}} => invalid_value "logit_bias.+7";
        {"logit_bias": {"7": 101}} => invalid_value "logit_bias.7";
        {"truncate_prompt_tokens": 0} => invalid_value "truncate_prompt_tokens";
        {"frequency_penalty": 2.01} => invalid_value "frequency_penalty";
        {"presence_penalty": -2.01} => invalid_value "presence_penalty";
        {"repetition_penalty": 0}, {"repetition_penalty": -1}, {"repetition_penalty": 1e300}
            => invalid_value "repetition_penalty";
        {"tool_choice": "some"} => invalid_value "tool_choice";
        {"diffusion": {"threshold": 1.5}} => invalid_value "diffusion.threshold";
        {"diffusion": {"schedule": "diagonal"}} => invalid_value "diffusion.schedule";
        {"diffusion": {"schedule": "block_wise", "lookahead": 3}}
            => invalid_value "diffusion.lookahead";
        {"diffusion": {"treshold": 1}} => unknown_parameter "diffusion.treshold";
        {"tools": [{}]} => unsupported_value "tools";
        {"tool_choice": "required"}, {"tool_choice": {}} => unsupported_value "tool_choice";
        {"echo": true, "logprobs": 1} => unsupported_value "echo";
    };
    server.refuses(COMPLETIONS, &cases).await;
    let cases = refusals! {
        {"messages": []} => invalid_value "messages";
        {"messages": [{"role": "function", "content": "x"}]}
            => invalid_value "messages[0].role";
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}
            => invalid_value "messages[0].content[0].type";
        {"max_tokens": 0} => invalid_value "max_tokens";
        {"max_completion_tokens": 0} => invalid_value "max_completion_tokens";
        {"top_logprobs": 2} => invalid_value "top_logprobs";
        {"continue_final_message": true} => invalid_value "continue_final_message";
        {"suffix": "x"} => unsupported_parameter "suffix";
    };
    server.refuses(CHAT, &cases).await;
}

#[tokio::test]
async fn every_token_is_among_more_than_the_vocabulary() {
    let server = server();
    let sampled = async |top_k: i64| {
        let fields = json!({"top_k": top_k, "temperature": 1, "seed": 5, "max_tokens": 9});
        server.complete(fields).await["choices"].clone()
    };
    let all = sampled(-1).await;
    for top_k in [842, i64::from(u32::MAX), 1 << 32, i64::MAX] {
        assert_eq!(sampled(top_k).await, all, "{top_k}");
    }
}

#[tokio::test]
async fn checks_come_in_order() {
    let server = server();
    let mut fields = json!({"temperature": 9, "min_tokens": 99, "tools": [{}]});
    for (correction, code, param) in refusals! {
        {} => invalid_value "temperature";
        {"temperature": 0} => invalid_value "min_tokens";
        {"min_tokens": 0, "model": "other", "max_tokens": 100_000} => unsupported_value "tools";
    } {
        fields = crate::common::merge(fields, correction);
        server.refused(COMPLETIONS, &fields, code, param).await;
    }
    fields["tools"] = Value::Null;
    let (status, answer) = server.post(COMPLETIONS, &completion(fields.clone())).await;
    assert_eq!(status, 404);
    assert_error(&answer);
    assert_eq!(answer["error"]["code"], "model_not_found");
    assert_eq!(answer["error"]["param"], "model");
    fields["model"] = json!(MODEL);
    let case = (fields, "context_length_exceeded", "max_tokens");
    server.refuses(COMPLETIONS, &[case]).await;
}

#[tokio::test]
async fn the_context_is_a_limit() {
    let server = server();
    let ids = |count: u32| vec![9; count as usize];
    let cases = refusals! {
        {"prompt": ids(CONTEXT + 1)}, {"prompt": ids(CONTEXT)},
        {"prompt": ids(CONTEXT), "max_tokens": 1} => context_length_exceeded "prompt";
        {"max_tokens": CONTEXT},
        {"max_tokens": 10_000_000_000_u64} => context_length_exceeded "max_tokens";
    };
    server.refuses(COMPLETIONS, &cases).await;
    let cases = refusals! {
        {"messages": [{"role": "user", "content": "egg ".repeat(2000)}]}
            => context_length_exceeded "messages";
        {"max_completion_tokens": CONTEXT} => context_length_exceeded "max_completion_tokens";
        {"max_tokens": CONTEXT} => context_length_exceeded "max_tokens";
    };
    server.refuses(CHAT, &cases).await;
    let full = ask!(server, COMPLETIONS {"prompt": ids(CONTEXT), "max_tokens": 0});
    assert_eq!(full["usage"]["prompt_tokens"], CONTEXT);
    // The default is what is left.
    let short = ask!(server, COMPLETIONS {"prompt": ids(CONTEXT - 9), "stop": "never said"});
    assert!(short["usage"]["completion_tokens"].as_u64() <= Some(9), "{short}");
}

#[tokio::test]
async fn unknown_paths_and_models_have_error_objects() {
    let server = server();
    for (path, status, code) in rows! {
        "/v1/embeddings", 404, "unknown_url"; COMPLETIONS, 405, "method_not_allowed";
        "/v1/models/none", 404, "model_not_found"; "/v1/models/%ff", 404, "model_not_found";
    } {
        assert_eq!(server.get(path).await.fault(status), code, "{path}");
    }
}

#[tokio::test]
async fn bodies_have_a_type_and_a_size() {
    let server = server_where(|options| options.settings.limits.max_body_bytes = 1000);
    let body = completion(json!({})).to_string();
    let with = async |name: &str, value: &str, body: Body| {
        let headers = [(name, value)];
        server.send("POST", COMPLETIONS, &headers, body).await
    };
    for (name, value) in [
        ("content-type", "text/plain"),
        ("content-encoding", "gzip"),
        ("content-encoding", "identity, gzip"),
    ] {
        let reply = with(name, value, body.clone().into()).await;
        assert_eq!(reply.fault(415), "unsupported_media_type", "{value}");
    }
    for (name, value) in rows! {
        "content-type", "application/json"; "content-type", "Application/JSON; charset=utf-8";
        "content-encoding", "identity"; "content-encoding", "Identity";
    } {
        let reply = with(name, value, body.clone().into()).await;
        assert_eq!(reply.status, 200, "{value}");
    }
    let long = vec![b'x'; 1001];
    let chunks = long.chunks(300).map(|chunk| Ok(chunk.to_vec()));
    let chunks: Vec<Result<_, std::io::Error>> = chunks.collect();
    let chunked = Body::from_stream(futures_util::stream::iter(chunks));
    for (name, value, body) in [
        ("accept", "*/*", Body::from(long)),
        ("accept", "*/*", chunked),
        ("content-length", "1001", Body::empty()),
    ] {
        let reply = with(name, value, body).await;
        assert_eq!(reply.fault(413), "request_too_large", "{name}");
    }
}

#[tokio::test]
async fn little_of_the_input_comes_back() {
    let server = server();
    let long = "\u{1F600}".repeat(5000);
    for (path, fields) in [
        (COMPLETIONS, json!({"model": long})),
        (COMPLETIONS, json!({"diffusion": {long.clone(): 1}})),
        (COMPLETIONS, json!({"diffusion": {"schedule": long}})),
        (COMPLETIONS, json!({"tool_choice": long})),
        (COMPLETIONS, json!({"response_format": {"type": long}})),
        (COMPLETIONS, json!({"logit_bias": {long.clone(): 1}})),
        (CHAT, json!({"messages": [{"role": long, "content": "x"}]})),
    ] {
        let (_, answer) = server.post(path, &crate::common::body(path, fields)).await;
        assert_error(&answer);
        let message = answer["error"]["message"].as_str().unwrap();
        let copied = message.matches('\u{1F600}').count();
        assert!((1..=64).contains(&copied), "{message}");
        if path == CHAT {
            assert_eq!(answer["error"]["param"], "messages[0].role");
        }
    }
}

#[tokio::test]
async fn a_failed_step_is_an_internal_error() {
    let server = server_where(|options| options.failing = vec![0]);
    let body = completion(json!({})).to_string();
    let reply = server.send("POST", COMPLETIONS, &[], body).await;
    assert_eq!(reply.fault(500), "internal_error");
    has!(reply.json(), {"error": {"type": "server_error", "param": null}});
    assert!(!reply.text().contains("told to fail"));
    // Later requests are not affected.
    server.complete(json!({})).await;
    // After the start of a stream, the error is the last event.
    let error = json!({"code": "internal_error", "type": "server_error", "param": null});
    for (path, name, expected) in rows! {
        COMPLETIONS, "", json!({"error": error});
        CHAT, "", json!({"error": error});
        TRACE, "error", json!({"error": {"code": "internal_error"}});
        RESPONSES, "error", json!({"code": "internal_error"});
        MESSAGES, "error", json!({"error": {"type": "api_error"}});
    } {
        let server = server_where(|options| options.failing = vec![1]);
        let stream = server.stream(path, json!({})).await;
        let (found, data) = match name {
            "" => (String::new(), events(&stream).pop().unwrap()),
            _ => named_events(&stream).pop().unwrap(),
        };
        assert_eq!(found, name, "{path}");
        assert!(!stream.contains("event: done"), "{path}");
        assert_has(&data, &expected);
        server.complete(json!({})).await;
    }
}

#[tokio::test]
async fn a_loading_server_says_so() {
    let router = loading_router();
    for (path, method, status) in rows! {
        "/version", "GET", 200; "/", "GET", 200; "/openapi.json", "GET", 200;
        "/health", "GET", 503; "/ping", "GET", 503; "/ready", "GET", 503; COMPLETIONS, "POST", 503;
        "/v1/models", "GET", 503;
    } {
        let reply = call(&router, request(method, path, &[], "")).await;
        assert_eq!(reply.status, status, "{path}");
        if status == 503 {
            assert!(reply.headers.contains_key("retry-after"));
            assert_eq!(reply.fault(503), "loading");
        }
    }
}

#[tokio::test]
async fn the_reason_of_a_chat_templates_failure_is_told() {
    let server: Server = server_where(|options| {
        options.template = Some(
            "{% for m in messages %}{% if m.role == 'system' %}\n{{ 'a' + 1 }}{% endif %}\
             {% if m.content == 'x' %}{{ raise_exception('no x') }}{% endif %}{% endfor %}\
             {{ strftime_now('%d %b %Y') }}",
        );
    });
    let chat_of =
        |role: &str, content: &str| chat(json!({"messages": [{"role": role, "content": content}]}));
    let dated = |date: &str| chat(json!({"chat_template_kwargs": {"strftime_now": date}}));
    let refused = "messages was refused by the chat template: ";
    for (body, start) in rows! {
        chat_of("system", "a"),
            "messages cannot be put into the chat template: chat_template.jinja: line 2: ".into();
        chat_of("user", "x"), format!("{refused}no x");
        dated("soon"), format!("{refused}strftime_now: expected a date such as ");
    } {
        let (status, answer) = server.post(CHAT, &body).await;
        assert_eq!(status, 400, "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.starts_with(&*start), "{message}");
    }
    assert_eq!(server.post(CHAT, &dated("2024-07-26")).await.0, 200);
}
