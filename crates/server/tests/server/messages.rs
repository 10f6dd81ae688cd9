//! Anthropic's Messages: the same answers as chats, in its own objects, events and errors.

use crate::common::*;

fn tool() -> Value {
    json!({"name": "add", "description": "Adds.", "input_schema": {"type": "object",
        "properties": {"a": {"enum": [1, 2, 3]}}, "required": ["a"]}})
}

#[tokio::test]
async fn a_text_is_the_answer_of_a_chat() {
    let server = wide_server();
    let chat = json!({"max_tokens": 60, "messages": [{"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"}]});
    let chat = server.chat(chat).await;
    let is_cut = chat["choices"][0]["finish_reason"] == "length";
    let reason = if is_cut { "max_tokens" } else { "end_turn" };
    let blocks = json!([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]);
    let system =
        json!([{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]);
    for fields in [
        json!({"system": "Be brief."}),
        json!({"system": system, "messages": blocks, "metadata": {"user_id": "u"}}),
    ] {
        let answer = server.ask(MESSAGES, fields).await;
        assert!(answer["id"].as_str().unwrap().starts_with("msg-"));
        assert_eq!(text(&answer), text(&chat));
        has!(answer, {"type": "message", "role": "assistant", "stop_reason": reason, "usage": {
            "input_tokens": chat["usage"]["prompt_tokens"],
            "output_tokens": chat["usage"]["completion_tokens"]}});
    }
}

/// The forms that several SDKs send for one prompt.
#[tokio::test]
async fn texts_are_put_into_the_chat_as_in_other_servers() {
    let server = wide_server();
    let said = async |path: &str, fields: Value| {
        let answer = server.ask(path, fields).await;
        (prompt_tokens(&answer), text(&answer).to_owned())
    };
    let user = |content: Value| json!({"role": "user", "content": content});
    let system = json!({"role": "system", "content": "Be brief."});
    let part = |text: &str| json!({"type": "text", "text": text});
    for (fields, chat) in [
        (json!({"system": "", "messages": [user(json!("Hi"))]}), json!([user(json!("Hi"))])),
        (json!({"system": [], "messages": [user(json!("Hi"))]}), json!([user(json!("Hi"))])),
        (
            json!({"system": [part("Be"), part("brief.")], "messages": [user(json!("Hi"))]}),
            json!([{"role": "system", "content": "Be\nbrief."}, user(json!("Hi"))]),
        ),
        (
            json!({"messages": [user(json!([part("One."), part("Two.")])), system]}),
            json!([user(json!("One.\nTwo.")), system]),
        ),
    ] {
        let [fields, chat] = [fields, json!({"messages": chat})]
            .map(|fields| merge(fields, json!({"max_tokens": 20})));
        assert_eq!(said(MESSAGES, fields.clone()).await, said(CHAT, chat).await, "{fields}");
    }
    let plain = said(RESPONSES, json!({"input": "Hi"})).await;
    assert_eq!(said(RESPONSES, json!({"input": "Hi", "instructions": ""})).await, plain);
}

/// Clients of Anthropic then send the whole history.
#[tokio::test]
async fn a_stored_thread_is_refused_with_its_word() {
    let server = wide_server();
    let fields = json!({"thread": {"type": "continue", "previous_message_id": "msg-1"}});
    let (_, answer) = server.post(MESSAGES, &body(MESSAGES, fields)).await;
    has!(answer, {"error": {"type": "invalid_request_error",
        "details": {"error_code": "thread_unsupported_request", "unsupported": []}}});
}

#[tokio::test]
async fn a_stop_sequence_is_named() {
    let answer = ask!(wide_server(), MESSAGES {"grammar": "start: \"one two three\"",
        "stop_sequences": ["zzz", " thr"]});
    has!(answer, {"content": [{"text": "one two"}], "stop_reason": "stop_sequence",
        "stop_sequence": " thr"});
}

#[tokio::test]
async fn a_call_that_a_stop_cut_is_told_by_the_stop_reason() {
    let server = wide_server();
    let fields = json!({"tools": [tool()], "tool_choice": {"type": "any"},
        "stop_sequences": ["}"], "max_tokens": 300});
    let answer = server.ask(MESSAGES, fields.clone()).await;
    let end = json!({"stop_reason": "stop_sequence", "stop_sequence": "}"});
    assert_has(&answer, &end);
    let content = answer["content"].as_array().unwrap();
    assert_eq!(content.len(), 1);
    assert_has(&content[0], &json!({"type": "tool_use", "name": "add", "input": {}}));
    let events = named_events(&server.stream(MESSAGES, fields).await);
    assert_has(&events[events.len() - 2].1["delta"], &end);
    let names: Vec<&str> = events.iter().map(|(name, _)| &**name).collect();
    assert!(names.contains(&"content_block_delta") && names.contains(&"content_block_stop"));
}

#[tokio::test]
async fn a_loop_of_calls_goes_through() {
    let server = wide_server();
    for kind in ["any", "tool"] {
        let choice = json!({"type": kind, "name": "add", "disable_parallel_tool_use": true});
        let first = ask!(server, MESSAGES {"tools": [tool()], "tool_choice": choice});
        let call = &first["content"][0];
        has!(first, {"stop_reason": "tool_use", "content": [{"type": "tool_use", "name": "add"}]});
        assert!((1..=3).contains(&call["input"]["a"].as_i64().unwrap()));
        let result = json!({"type": "tool_result", "tool_use_id": call["id"],
            "content": [{"type": "text", "text": "7"}]});
        let second = ask!(server, MESSAGES {"tools": [tool()], "tool_choice": {"type": "none"},
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": first["content"]},
            {"role": "user", "content": [result, {"type": "text", "text": "So?"}]},
        ]});
        assert_eq!(second["content"][0]["type"], "text");
    }
}

#[tokio::test]
async fn the_events_of_a_text_and_of_a_call_come_in_order() {
    let server = wide_server();
    let call = json!({"tools": [tool()],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": true}});
    let grammar = json!({"grammar": "start: \"Hello you\""});
    let expected = rows! {
        "message_start"; "ping"; "content_block_start"; "content_block_delta"; "content_block_stop";
        "message_delta"; "message_stop";
    };
    for (fields, reason) in [(call, "tool_use"), (grammar, "end_turn")] {
        let plain = server.ask(MESSAGES, fields.clone()).await;
        let events = named_events(&server.stream(MESSAGES, fields).await);
        let mut kinds: Vec<&str> = Vec::new();
        let mut said = String::new();
        for (name, event) in &events {
            assert_eq!(event["type"], **name);
            kinds.push(name);
            let delta = &event["delta"];
            let part = delta["text"].as_str().or(delta["partial_json"].as_str());
            said += part.unwrap_or_default();
        }
        // A block has one or more deltas.
        kinds.dedup();
        assert_eq!(kinds, expected);
        let start = &events[0].1["message"];
        has!(*start, {"content": [], "stop_reason": null});
        if reason == "end_turn" {
            assert_eq!(text(&plain), said);
        } else {
            let input: Value = serde_json::from_str(&said).unwrap();
            assert_eq!(plain["content"][0]["input"], input);
        }
        has!(events[events.len() - 2].1, {"delta": {"stop_reason": reason},
            "usage": {"output_tokens": plain["usage"]["output_tokens"]}});
    }
}

#[tokio::test]
async fn tokens_are_counted_as_they_are_used() {
    let server = wide_server();
    let fields = json!({"system": "Be brief.", "tools": [tool()]});
    let count = server.ask(COUNT, fields.clone()).await;
    let answer = server.ask(MESSAGES, fields).await;
    assert!(answer["usage"]["cache_read_input_tokens"].is_u64());
    assert_eq!(count, json!({"input_tokens": prompt_tokens(&answer)}));
    let cases = refusals! { {"messages": null} => invalid_request_error "messages"; };
    server.refuses(COUNT, &cases).await;
}

#[tokio::test]
async fn a_prefill_is_continued() {
    let server = wide_server();
    let messages =
        json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Mia"}]);
    let chat = json!({"messages": messages, "continue_final_message": true, "max_tokens": 60});
    let chat = server.chat(chat).await;
    let blocks = json!([messages[0], {"role": "assistant",
        "content": [{"type": "text", "text": "Mi"}, {"type": "text", "text": "a"}]}]);
    for messages in [messages, blocks] {
        let answer = ask!(server, MESSAGES {"messages": messages});
        assert_eq!(text(&answer), text(&chat));
        assert_eq!(prompt_tokens(&answer), prompt_tokens(&chat));
        let count = ask!(server, COUNT {"messages": messages});
        assert_eq!(count["input_tokens"], prompt_tokens(&chat));
    }
}

#[tokio::test]
async fn errors_have_anthropics_shape() {
    let server = server_where(|options| options.settings.keys = one_key("secret"));
    let good = body(MESSAGES, json!({"max_tokens": 2}));
    let other = body(MESSAGES, json!({"model": "claude"}));
    let key = ("x-api-key", "secret");
    let bearer = ("authorization", "Bearer secret");
    let wrong = ("x-api-key", "wrong");
    let none = ("accept", "*/*");
    for (method, path, header, body, status, kind) in rows! {
        "POST", MESSAGES, key, &good, 200, "";
        "POST", MESSAGES, bearer, &good, 200, "";
        "POST", MESSAGES, none, &good, 401, "authentication_error";
        "POST", MESSAGES, wrong, &good, 401, "authentication_error";
        "POST", MESSAGES, key, &json!({}), 400, "invalid_request_error";
        "POST", MESSAGES, key, &other, 404, "not_found_error";
        "POST", "/v1/messages/batches", key, &json!({}), 404, "not_found_error";
        "GET", MESSAGES, key, &json!({}), 405, "invalid_request_error";
    } {
        let headers = [header, ("content-type", "application/json")];
        let reply = server.send(method, path, &headers, body.to_string()).await;
        let answer = reply.json();
        assert_eq!(reply.status, status, "{answer}");
        assert_eq!(reply.headers["request-id"], reply.headers["x-request-id"]);
        if status != 200 {
            has!(answer, {"type": "error", "error": {"type": kind}});
            assert!(answer["request_id"].as_str().unwrap().starts_with("req-"));
        }
        let allowed = (status == 405).then_some("POST, OPTIONS");
        assert_eq!(reply.header("allow"), allowed);
    }
}

#[tokio::test]
async fn an_error_inside_a_stream_has_the_id_of_its_request() {
    let server = server_where(|options| options.failing = vec![1]);
    let body = body(MESSAGES, json!({"stream": true})).to_string();
    let reply = server.send("POST", MESSAGES, &[("x-request-id", "mine")], body).await;
    let (name, error) = named_events(&reply.text()).pop().unwrap();
    assert_eq!(name, "error");
    has!(error, {"type": "error", "error": {"type": "api_error"}, "request_id": "mine"});
}

#[tokio::test]
async fn faults_name_the_field() {
    let server = wide_server();
    let user = |block: Value| json!({"messages": [{"role": "user", "content": [block]}]});
    let format = |format: Value| json!({"output_config": {"format": format}});
    let schema = json!({"type": "json_schema", "schema": {}});
    let cases = refusals! {
        {"max_tokens": null}, {"max_tokens": 100_000} => invalid_request_error "max_tokens";
        {"messages": []} => invalid_request_error "messages";
        {"messages": [{"role": "tool", "content": "x"}]}
            => invalid_request_error "messages[0].role";
        {"messages": [{"role": "system", "content": [{"type": "tool_result", "tool_use_id": "t"}]}]}
            => invalid_request_error "messages[0].content[0].type";
        {"thread": {"type": "create"}} => invalid_request_error "thread";
        (user(json!({"text": "x"}))), (user(json!({"type": "image"})))
            => invalid_request_error "messages[0].content[0].type";
        (user(json!({"type": "text"}))) => invalid_request_error "messages[0].content[0].text";
        (user(json!({"type": "tool_use", "id": "t", "name": "f", "input": {}})))
            => invalid_request_error "messages[0].content[0].type";
        (user(json!({"type": "tool_result", "tool_use_id": "t"})))
            => invalid_request_error "messages[0].content[0].tool_use_id";
        {"tools": [{"name": "f"}]} => invalid_request_error "tools[0].input_schema";
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}
            => invalid_request_error "tools[0].type";
        {"tools": [tool(), tool()]} => invalid_request_error "tools[1].name";
        {"tools": [tool()], "tool_choice": {"type": "tool", "name": "f"}},
        {"tools": [tool()], "tool_choice": {"type": "tool"}}
            => invalid_request_error "tool_choice.name";
        {"stop_sequences": [""]} => invalid_request_error "stop_sequences[0]";
        {"thinking": {"type": "long"}} => invalid_request_error "thinking.type";
        (format(json!({"type": "json_object"})))
            => invalid_request_error "output_config.format.type";
        (format(json!({"type": "json_schema"})))
            => invalid_request_error "output_config.format.schema";
        {"output_format": {"type": "json_schema", "schema": {"$ref": "x"}}}
            => invalid_request_error "output_format.schema";
        (merge(format(schema), json!({"regex": "a"})))
            => invalid_request_error "output_config.format";
        {"n": 2} => invalid_request_error "n";
        {"top_p": 2} => invalid_request_error "top_p";
    };
    server.refuses(MESSAGES, &cases).await;
    server.until_idle().await;
}
