//! Structured output: every text conforms to its grammar.

use crate::common::{MODEL, chat, completion, events, server};
use axum::http::StatusCode;
use serde_json::{Value, json};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

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
fn assert_conforms(text: &str) {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let object = value.as_object().expect("an object");
    let keys: Vec<_> = object.keys().map(String::as_str).collect();
    assert_eq!(keys, ["zeta", "alpha", "inner"], "{text}");
    assert!(
        ["red", "green", "blue"].contains(&value["zeta"].as_str().unwrap()),
        "{text}"
    );
    let list = value["alpha"].as_array().unwrap();
    assert!(
        (2..=3).contains(&list.len()) && list.iter().all(Value::is_boolean),
        "{text}"
    );
    assert_eq!(value["inner"].as_object().unwrap().len(), 1, "{text}");
    assert!(
        (0..=99).contains(&value["inner"]["count"].as_i64().unwrap()),
        "{text}"
    );
}

fn format(schema: Value) -> Value {
    json!({"type": "json_schema",
        "json_schema": {"name": "answer", "strict": true, "schema": schema}})
}

#[tokio::test]
async fn a_json_schema_is_followed() {
    let server = server();
    let fields = json!({"max_tokens": 200, "response_format": format(schema())});
    let answer = server.complete(fields.clone()).await;
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "stop");
    assert_conforms(choice["text"].as_str().unwrap());
    let answer = server.chat(fields.clone()).await;
    assert_conforms(answer["choices"][0]["message"]["content"].as_str().unwrap());
    for preset in ["fast", "balanced", "quality"] {
        let mut fields = fields.clone();
        fields["diffusion"] = json!({"preset": preset});
        let answer = server.complete(fields).await;
        assert_conforms(answer["choices"][0]["text"].as_str().unwrap());
    }
}

#[tokio::test]
async fn every_sequence_follows_it_by_itself() {
    let server = server();
    let fields = json!({"prompt": ["One", "Two"], "n": 2, "best_of": 3, "temperature": 1.3,
        "seed": 4, "max_tokens": 200, "structured_outputs": {"json": schema()}});
    let answer = server.complete(fields).await;
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 4);
    for choice in choices {
        assert_eq!(choice["finish_reason"], "stop");
        assert_conforms(choice["text"].as_str().unwrap());
    }
}

#[tokio::test]
async fn streamed_structured_output_equals_the_plain_answer() {
    let server = server();
    let mut body = chat(
        json!({"max_tokens": 200, "response_format": format(schema()),
        "temperature": 1, "seed": 9, "logprobs": true, "top_logprobs": 2}),
    );
    let (status, plain) = server.post(CHAT, &body).await;
    assert_eq!(status, StatusCode::OK, "{plain}");
    body["stream"] = json!(true);
    let (mut text, mut tokens) = (String::new(), Vec::new());
    for event in events(&server.stream(CHAT, &body).await) {
        let choice = &event["choices"][0];
        text += choice["delta"]["content"].as_str().unwrap_or_default();
        tokens.extend(
            choice["logprobs"]["content"]
                .as_array()
                .cloned()
                .unwrap_or_default(),
        );
    }
    assert_eq!(plain["choices"][0]["message"]["content"], text);
    assert_eq!(plain["choices"][0]["logprobs"]["content"], json!(tokens));
    assert_conforms(&text);
}

#[tokio::test]
async fn a_budget_that_runs_out_leaves_a_beginning() {
    let server = server();
    let fields = json!({"max_tokens": 5, "response_format": {"type": "json_object"}});
    let answer = server.complete(fields).await;
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(answer["usage"]["completion_tokens"], 5);
    assert!(
        choice["text"].as_str().unwrap().starts_with('{'),
        "{choice}"
    );
}

#[tokio::test]
async fn the_extensions_are_followed() {
    let server = server();
    let text = async |fields: Value| {
        let mut body = completion(json!({"max_tokens": 60}));
        for (key, value) in fields.as_object().unwrap() {
            body[key] = value.clone();
        }
        let (status, answer) = server.post(COMPLETIONS, &body).await;
        assert_eq!(status, StatusCode::OK, "{fields}: {answer}");
        assert_eq!(answer["choices"][0]["finish_reason"], "stop", "{fields}");
        answer["choices"][0]["text"].as_str().unwrap().to_owned()
    };
    let is_code = |text: &str| {
        let (letters, digits) = text.split_at(2);
        text.len() == 5
            && letters.bytes().all(|byte| byte.is_ascii_uppercase())
            && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    for fields in [
        json!({"regex": "[A-Z]{2}[0-9]{3}"}),
        json!({"structured_outputs": {"regex": "[A-Z]{2}[0-9]{3}", "json": null}}),
    ] {
        let text = text(fields).await;
        assert!(is_code(&text), "{text}");
    }
    for fields in [
        json!({"grammar": "start: \"yes\" | \"no\""}),
        json!({"structured_outputs": {"grammar": "start: \"yes\" | \"no\""}}),
        json!({"structured_outputs": {"choice": ["yes", "no"], "json_object": false}}),
    ] {
        let text = text(fields).await;
        assert!(["yes", "no"].contains(&text.as_str()), "{text}");
    }
    let written = json!({"structured_outputs": {"json": schema().to_string()}, "max_tokens": 200});
    assert_conforms(&text(written).await);
    let any = json!({"max_tokens": 80, "structured_outputs": {"json_object": true},
        "logit_bias": {}});
    let answer = server.complete(any).await;
    assert!(
        answer["choices"][0]["text"]
            .as_str()
            .unwrap()
            .starts_with('{')
    );
}

#[tokio::test]
async fn neutral_values_change_nothing() {
    let server = server();
    let plain = server.complete(json!({})).await;
    for fields in [
        json!({"response_format": {"type": "text"}}),
        json!({"response_format": null, "regex": null, "grammar": null,
            "structured_outputs": null}),
    ] {
        assert_eq!(server.complete(fields).await["choices"], plain["choices"]);
    }
}

#[tokio::test]
async fn a_trace_follows_it_too() {
    let server = server();
    let body = completion(json!({"max_tokens": 200, "response_format": format(schema())}));
    let (_, plain) = server.post(COMPLETIONS, &body).await;
    let stream = server.stream("/v1/diffusion/trace", &body).await;
    let mut text = String::new();
    let mut cells = std::collections::BTreeMap::new();
    for event in stream.split_terminator("\n\n") {
        let (name, data) = event.split_once('\n').unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        match name {
            "event: text" => text += data["text"].as_str().unwrap(),
            "event: step" => {
                for cell in data["cells"].as_array().unwrap() {
                    cells.insert(cell[0].as_u64().unwrap(), cell.clone());
                }
            }
            _ => {}
        }
    }
    assert_eq!(plain["choices"][0]["text"], text);
    // The last event of every delivered position has the delivered token.
    let count = plain["usage"]["completion_tokens"].as_u64().unwrap();
    let said: String = (0..count)
        .map(|offset| cells[&offset][2].as_str().unwrap())
        .collect();
    assert_eq!(said, text);
    let kinds = ["committed", "draft", "edited", "provisional", "masked"];
    assert!(
        cells
            .values()
            .all(|cell| kinds.contains(&cell[4].as_str().unwrap())),
        "{cells:?}"
    );
    assert!(
        (0..count).all(|offset| cells[&offset][4] != "masked"),
        "{cells:?}"
    );
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
async fn faults_name_the_field() {
    let server = server();
    let object = json!({"type": "json_object"});
    let cases = [
        (
            json!({"response_format": 1}),
            "invalid_type",
            "response_format",
        ),
        (
            json!({"response_format": {}}),
            "missing_required_parameter",
            "response_format.type",
        ),
        (
            json!({"response_format": {"type": 1}}),
            "invalid_type",
            "response_format.type",
        ),
        (
            json!({"response_format": {"type": "yaml"}}),
            "invalid_value",
            "response_format.type",
        ),
        (
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}}),
            "missing_required_parameter",
            "response_format.json_schema.schema",
        ),
        (
            json!({"response_format": {"type": "json_schema", "json_schema": {"schema": []}}}),
            "invalid_type",
            "response_format.json_schema.schema",
        ),
        (
            json!({"response_format": {"type": "json_schema",
                "json_schema": {"schema": {}, "strict": 1}}}),
            "invalid_type",
            "response_format.json_schema.strict",
        ),
        (json!({"regex": 1}), "invalid_type", "regex"),
        (json!({"regex": ""}), "invalid_value", "regex"),
        (json!({"grammar": ["start: x"]}), "invalid_type", "grammar"),
        (
            json!({"structured_outputs": []}),
            "invalid_type",
            "structured_outputs",
        ),
        (
            json!({"structured_outputs": {}}),
            "invalid_value",
            "structured_outputs",
        ),
        (
            json!({"structured_outputs": {"xml": true}}),
            "unknown_parameter",
            "structured_outputs.xml",
        ),
        (
            json!({"structured_outputs": {"json": "{"}}),
            "invalid_value",
            "structured_outputs.json",
        ),
        (
            json!({"structured_outputs": {"json": 1}}),
            "invalid_type",
            "structured_outputs.json",
        ),
        (
            json!({"structured_outputs": {"json_object": 1}}),
            "invalid_type",
            "structured_outputs.json_object",
        ),
        (
            json!({"structured_outputs": {"choice": []}}),
            "invalid_value",
            "structured_outputs.choice",
        ),
        (
            json!({"structured_outputs": {"choice": ["a", 1]}}),
            "invalid_type",
            "structured_outputs.choice[1]",
        ),
        (
            json!({"structured_outputs": {"regex": "a", "choice": ["a"]}}),
            "invalid_value",
            "structured_outputs.choice",
        ),
        (
            json!({"regex": "a", "grammar": "start: \"a\""}),
            "invalid_value",
            "grammar",
        ),
        (
            json!({"regex": "a", "response_format": object}),
            "invalid_value",
            "regex",
        ),
        (
            json!({"structured_outputs": {"regex": "a"}, "response_format": object}),
            "invalid_value",
            "structured_outputs",
        ),
        (
            json!({"regex": "a", "ignore_eos": true}),
            "invalid_value",
            "ignore_eos",
        ),
        (
            json!({"regex": "a", "min_tokens": 1}),
            "invalid_value",
            "min_tokens",
        ),
    ];
    for (fields, code, param) in cases {
        let trace = "/v1/diffusion/trace";
        for (path, body) in [
            (COMPLETIONS, completion(fields.clone())),
            (CHAT, chat(fields.clone())),
            (trace, completion(fields.clone())),
        ] {
            let (status, answer) = server.post(path, &body).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{fields}");
            assert_eq!(answer["error"]["code"], code, "{fields}");
            assert_eq!(answer["error"]["param"], param, "{fields}");
        }
    }
    // Neutral beside a grammar.
    let fields = json!({"regex": "ab", "ignore_eos": false, "min_tokens": 0,
        "response_format": {"type": "text"}});
    assert_eq!(server.complete(fields).await["choices"][0]["text"], "ab");
}

#[tokio::test]
async fn grammars_that_cannot_be_followed_name_the_field() {
    let server = server();
    let long = "x".repeat(400);
    let cases = [
        (json!({"regex": "("}), "regex"),
        (json!({"grammar": "start: missing"}), "grammar"),
        (
            json!({"structured_outputs": {"regex": "["}}),
            "structured_outputs.regex",
        ),
        (
            json!({"structured_outputs": {"grammar": "???"}}),
            "structured_outputs.grammar",
        ),
        (
            json!({"structured_outputs": {"json": {"type": long}}}),
            "structured_outputs.json",
        ),
        (
            json!({"response_format": format(json!({"type": "wrong"}))}),
            "response_format.json_schema.schema",
        ),
        (
            json!({"response_format": format(json!({"$ref": "https://example.com/s.json"}))}),
            "response_format.json_schema.schema",
        ),
    ];
    for (fields, param) in cases {
        let (status, answer) = server.post(COMPLETIONS, &completion(fields.clone())).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{fields}: {answer}");
        assert_eq!(answer["error"]["code"], "invalid_value", "{fields}");
        assert_eq!(answer["error"]["param"], param, "{fields}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(
            message.starts_with(param) && message.chars().count() <= 500,
            "{message}"
        );
        assert!(!message.contains(&"x".repeat(65)), "{message}");
    }
    // The next good request works.
    let good = json!({"model": MODEL, "prompt": "x", "regex": "ok"});
    assert_eq!(server.complete(good).await["choices"][0]["text"], "ok");
}
