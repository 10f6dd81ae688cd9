//! Structured output on a model that was never trained on JSON: every text is valid, under every
//! decoder and with every budget.

use asynclane_tests::client::Client;
use asynclane_tests::reply::with;
use asynclane_tests::served::{MODEL, Served};
use serde_json::{Value, json};

const DECODERS: [&str; 6] =
    ["balanced", "fast", "asynclane_paper", "fast_dllm_dual", "adablock", "vanilla"];

/// A schema with finite texts only: nested objects, lists, enums, bounds, references.
fn schema() -> Value {
    json!({"$defs": {"count": {"type": "integer", "minimum": 0, "maximum": 99}}, "type": "object",
        "properties": {"name": {"enum": ["Tom", "Mia", "Zoe"]}, "before": {"$ref": "#/$defs/count"},
        "steps": {"type": "array", "minItems": 1, "maxItems": 3,
        "items": {"type": "object", "properties": {"kind": {"enum": ["gain", "lose"]},
        "count": {"$ref": "#/$defs/count"}}, "required": ["kind", "count"],
        "additionalProperties": false}}, "done": {"type": "boolean"}},
        "required": ["name", "before", "steps", "done"], "additionalProperties": false})
}

fn ask(client: Client, format: &Value, more: &Value) -> (String, String) {
    let question = "Tom has 9 coins. Then he buys 6 more coins. How many coins does Tom have now?";
    let body = json!({"model": MODEL, "response_format": format,
        "messages": [{"role": "user", "content": question}]});
    let answer = client.json("/v1/chat/completions", &with(body, more));
    let choice = &answer["choices"][0];
    let text = choice["message"]["content"].as_str().unwrap().to_owned();
    (text, choice["finish_reason"].as_str().unwrap().to_owned())
}

#[test]
fn the_demo_model_writes_valid_json_only() {
    let served = Served::start();
    let client = served.client();
    let conforms = |value: &Value| jsonschema::validate(&schema(), value).is_ok();
    let format = json!({"type": "json_schema",
        "json_schema": {"name": "answer", "schema": schema()}});
    let mut texts = Vec::new();
    for preset in DECODERS {
        for temperature in [0.0, 1.0] {
            let more = json!({"max_tokens": 300, "temperature": temperature, "seed": 5,
                "diffusion": {"preset": preset}});
            let (text, reason) = ask(client, &format, &more);
            let value: Value = serde_json::from_str(&text).expect("valid JSON");
            assert!(conforms(&value), "{preset}: {text}");
            assert_eq!(reason, "stop", "{preset}: {text}");
            texts.push((more, text));
        }
    }
    // The same request gives the same text; a budget that runs out gives its beginning and `length`.
    let (more, whole) = &texts[0];
    assert_eq!(&ask(client, &format, more).0, whole);
    let mut cut = 0;
    for budget in [1, 2, 3, 5, 8, 13, 21, 34] {
        let mut more = more.clone();
        more["max_tokens"] = json!(budget);
        let (text, reason) = ask(client, &format, &more);
        match reason.as_str() {
            "stop" => assert!(conforms(&serde_json::from_str(&text).expect("valid JSON"))),
            _ => {
                cut += 1;
                assert!(text.starts_with("{\"name\":") || "{\"name\":".starts_with(&text));
            }
        }
    }
    assert!(cut >= 4, "small budgets run out");
}

#[test]
fn any_json_object_is_valid_or_says_that_it_was_cut() {
    let served = Served::start();
    for seed in 0..4 {
        let more = json!({"max_tokens": 120, "temperature": 0.7, "seed": seed});
        let format = json!({"type": "json_object"});
        let (text, reason) = ask(served.client(), &format, &more);
        assert!(text.starts_with('{'), "{text}");
        if reason == "stop" {
            let value: Value = serde_json::from_str(&text).expect("valid JSON");
            assert!(value.is_object());
        } else {
            assert_eq!(reason, "length");
        }
    }
}
