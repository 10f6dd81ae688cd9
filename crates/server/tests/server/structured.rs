//! Structured output: every text conforms to its grammar.

use crate::common::*;

/// A schema with bounded texts: nested, with enums and ranges.
fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "zeta": {"enum": ["red", "green", "blue"]},
            "alpha": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3},
            "inner": {
                "type": "object",
                "properties": {"count": {"type": "integer", "minimum": 0, "maximum": 99}},
                "required": ["count"],
                "additionalProperties": false,
            },
        },
        "required": ["zeta", "alpha", "inner"],
        "additionalProperties": false,
    })
}

/// Checks a text of [`schema`], its members in the order of the schema.
#[track_caller]
fn assert_conforms(text: &str) {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let names: Vec<_> = value.as_object().unwrap().keys().collect();
    assert_eq!(names, ["zeta", "alpha", "inner"], "{text}");
    let zeta = value["zeta"].as_str().unwrap();
    assert!(["red", "green", "blue"].contains(&zeta), "{text}");
    let list = items(&value["alpha"]);
    assert!((2..=3).contains(&list.len()), "{text}");
    assert!(list.iter().all(Value::is_boolean), "{text}");
    let count = &value["inner"]["count"];
    assert_eq!(value["inner"], json!({"count": count}), "{text}");
    assert!((0..=99).contains(&count.as_i64().unwrap()), "{text}");
}

fn format(schema: Value) -> Value {
    json!({"type": "json_schema",
        "json_schema": {"name": "answer", "strict": true, "schema": schema}})
}

#[tokio::test]
async fn a_json_schema_is_followed() {
    let server = server();
    let fields = json!({"max_tokens": 200, "response_format": format(schema())});
    assert_conforms(text(&server.chat(fields.clone()).await));
    for preset in [None, Some("fast"), Some("balanced"), Some("quality")] {
        let preset = json!({"diffusion": {"preset": preset}});
        let answer = server.complete(merge(fields.clone(), preset)).await;
        assert_eq!(answer["choices"][0]["finish_reason"], "stop");
        assert_conforms(text(&answer));
    }
}

#[tokio::test]
async fn every_sequence_follows_it_by_itself() {
    let answer = ask!(server(), COMPLETIONS {"prompt": ["One", "Two"], "n": 2, "best_of": 3,
        "temperature": 1.3, "seed": 4, "max_tokens": 200,
        "structured_outputs": {"json": schema()}});
    let choices = items(&answer["choices"]);
    assert_eq!(choices.len(), 4);
    for choice in choices {
        assert_eq!(choice["finish_reason"], "stop");
        assert_conforms(choice["text"].as_str().unwrap());
    }
}

/// The schema comes in a field of its endpoint, and in fields of other servers.
#[tokio::test]
async fn every_endpoint_follows_a_schema() {
    let server = wide_server();
    let schema =
        json!({"type": "object", "properties": {"x": {"enum": [1, 22]}}, "required": ["x"]});
    let kind = "json_schema";
    let bare = json!({"type": kind, "schema": schema});
    let named = json!({"type": kind, "name": "x", "schema": schema, "strict": true});
    let chat = json!({"type": kind, "json_schema": {"name": "x", "schema": schema}});
    let tool = json!({"name": "f", "input_schema": {"type": "object"}});
    for (path, fields) in rows! {
        CHAT, json!({"response_format": chat});
        CHAT, json!({"response_format": {"type": "json_object", "schema": schema}});
        CHAT, json!({"response_format": {"type": "json_object", "value": schema}});
        CHAT, json!({"response_format": {"type": "json", "value": schema}});
        CHAT, json!({"guided_json": schema});
        CHAT, json!({"guided_json": schema.to_string()});
        RESPONSES, json!({"text": {"format": named}});
        MESSAGES, json!({"output_config": {"format": bare}});
        MESSAGES, json!({"output_format": bare});
        MESSAGES, json!({"output_config": {"format": bare, "effort": "low"}, "tools": [tool],
            "tool_choice": {"type": "none"}});
    } {
        for seed in 0..4 {
            let sampling = json!({"temperature": 1, "seed": seed});
            let answer = server.ask(path, merge(fields.clone(), sampling)).await;
            let value: Value = serde_json::from_str(text(&answer)).unwrap();
            let values = [json!({"x": 1}), json!({"x": 22})];
            assert!(values.contains(&value), "{fields}: {value}");
            assert!(path != RESPONSES || answer["text"] == fields["text"]);
        }
    }
    server.until_idle().await;
}

#[tokio::test]
async fn the_extensions_are_followed() {
    let server = server();
    let is_code = |text: &str| {
        let (letters, digits) = text.split_at(2);
        text.len() == 5
            && letters.bytes().all(|byte| byte.is_ascii_uppercase())
            && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    let code = "[A-Z]{2}[0-9]{3}";
    let word = "start: \"yes\" | \"no\"";
    for fields in rows! {
        json!({"regex": code});
        json!({"structured_outputs": {"regex": code, "json": null}});
        json!({"grammar": word});
        json!({"structured_outputs": {"grammar": word}});
        json!({"structured_outputs": {"choice": ["yes", "no"], "json_object": false}});
    } {
        let has_code = fields.to_string().contains(code);
        let fields = merge(fields, json!({"max_tokens": 60}));
        let answer = server.complete(fields).await;
        assert_eq!(answer["choices"][0]["finish_reason"], "stop", "{answer}");
        let conforms = match text(&answer) {
            text if has_code => is_code(text),
            text => ["yes", "no"].contains(&text),
        };
        assert!(conforms, "{answer}");
    }
    let written = ask!(server, COMPLETIONS {"max_tokens": 200,
        "structured_outputs": {"json": schema().to_string()}});
    assert_conforms(text(&written));
    // A budget that runs out leaves a beginning.
    for fields in [
        json!({"response_format": {"type": "json_object"}}),
        json!({"structured_outputs": {"json_object": true}, "logit_bias": {}}),
    ] {
        let fields = merge(fields, json!({"max_tokens": 5}));
        let answer = server.complete(fields).await;
        has!(answer, {"choices": [{"finish_reason": "length"}], "usage": {"completion_tokens": 5}});
        assert!(text(&answer).starts_with('{'), "{answer}");
    }
    let beside = ask!(server, COMPLETIONS {"regex": "ab", "ignore_eos": false, "min_tokens": 0,
        "response_format": {"type": "text"}});
    assert_eq!(text(&beside), "ab");
}

#[tokio::test]
async fn faults_name_the_field() {
    let server = server();
    let object = json!({"type": "json_object"});
    let cases = refusals! {
        {"response_format": 1} => invalid_type "response_format";
        {"response_format": {}} => missing_required_parameter "response_format.type";
        {"response_format": {"type": 1}} => invalid_type "response_format.type";
        {"response_format": {"type": "yaml"}} => invalid_value "response_format.type";
        {"response_format": {"type": "json_schema"}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}}
            => missing_required_parameter "response_format.json_schema.schema";
        {"response_format": {"type": "json_schema", "json_schema": {"schema": []}}}
            => invalid_type "response_format.json_schema.schema";
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {}, "strict": 1}}}
            => invalid_type "response_format.json_schema.strict";
        {"regex": 1} => invalid_type "regex";
        {"regex": ""} => invalid_value "regex";
        {"grammar": ["start: x"]} => invalid_type "grammar";
        {"structured_outputs": []} => invalid_type "structured_outputs";
        {"structured_outputs": {}} => invalid_value "structured_outputs";
        {"structured_outputs": {"xml": true}} => unknown_parameter "structured_outputs.xml";
        {"structured_outputs": {"json": "{"}} => invalid_value "structured_outputs.json";
        {"structured_outputs": {"json": 1}} => invalid_type "structured_outputs.json";
        {"structured_outputs": {"json_object": 1}}
            => invalid_type "structured_outputs.json_object";
        {"structured_outputs": {"choice": []}} => invalid_value "structured_outputs.choice";
        {"structured_outputs": {"choice": ["a", 1]}}
            => invalid_type "structured_outputs.choice[1]";
        {"structured_outputs": {"regex": "a", "choice": ["a"]}}
            => invalid_value "structured_outputs.choice";
        {"regex": "a", "grammar": "start: \"a\""} => invalid_value "grammar";
        {"regex": "a", "response_format": object} => invalid_value "regex";
        {"structured_outputs": {"regex": "a"}, "response_format": object}
            => invalid_value "structured_outputs";
        {"regex": "a", "ignore_eos": true} => invalid_value "ignore_eos";
        {"regex": "a", "min_tokens": 1} => invalid_value "min_tokens";
    };
    for path in [COMPLETIONS, CHAT, TRACE] {
        server.refuses(path, &cases).await;
    }
}

#[tokio::test]
async fn grammars_that_cannot_be_followed_name_the_field() {
    let server = server();
    let foreign = json!({"$ref": "https://example.com/s.json"});
    let cases = refusals! {
        {"regex": "("} => invalid_value "regex";
        {"grammar": "start: missing"} => invalid_value "grammar";
        {"structured_outputs": {"regex": "["}} => invalid_value "structured_outputs.regex";
        {"structured_outputs": {"grammar": "???"}}
            => invalid_value "structured_outputs.grammar";
        {"structured_outputs": {"json": {"type": "x".repeat(400)}}}
            => invalid_value "structured_outputs.json";
        {"response_format": format(json!({"type": "wrong"}))},
        {"response_format": format(foreign)}
            => invalid_value "response_format.json_schema.schema";
    };
    for (fields, code, param) in cases {
        let message = server.refused(COMPLETIONS, &fields, code, param).await;
        assert!(message.starts_with(param), "{message}");
        assert!(!message.contains(&"x".repeat(65)), "{message}");
    }
    // A reason is a whole sentence.
    let either = json!({"oneOf": [{"type": "integer"}, {"type": "number"}]});
    for (schema, end) in rows! {
        either, "oneOf whose branches can both match is not supported; use anyOf";
        json!({"type": "x".repeat(400)}), "...";
    } {
        let fields = json!({"structured_outputs": {"json": schema}});
        let param = "structured_outputs.json";
        let message = server.refused(COMPLETIONS, &fields, "invalid_value", param).await;
        assert!(message.ends_with(end), "{message}");
    }
    // The next good request works.
    assert_eq!(text(&ask!(server, COMPLETIONS {"regex": "ok"})), "ok");
}
