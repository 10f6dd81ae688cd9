//! An endpoint outside the server: this file, and one route.

use asynclane_tests::crowd::model;
use asynclane_tests::served::{MODEL, Served};
use axum::Json;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::json;
use server::api::fields::numbers::Int;
use server::api::fields::types::Required;
use server::pipeline::generation::FieldNames;
use server::{ApiError, Backend, Delivery, Endpoint, Generation, Input, JsonBody, Route};
use sim::SimExecutor;

/// `POST /v1/echo_generate`: continues a text and returns both.
struct EchoGenerate {
    text: String,
}

/// The body.
#[derive(Deserialize)]
struct Fields {
    text: Required<String>,
    max_tokens: Option<Int<1, 64>>,
}

/// The answer.
#[derive(Serialize)]
struct Echo<'a> {
    id: &'a str,
    text: &'a str,
    generated: &'a str,
    tokens: u64,
}

impl Endpoint for EchoGenerate {
    const PATH: &'static str = "/v1/echo_generate";
    const ID_PREFIX: &'static str = "echo";

    fn read(body: &JsonBody<'_>, backend: &Backend) -> Result<(Self, Generation), ApiError> {
        let fields: Fields = body.read()?;
        let text = fields.text.0;
        let input = Input::Texts(vec![text.clone()]);
        let mut generation = Generation {
            names: FieldNames { prompt: "text", max_tokens: "max_tokens" },
            ..Generation::new(input, backend.default_decoding(&[])?)
        };
        generation.stops.max_tokens = Some(fields.max_tokens.map_or(16, Int::count));
        Ok((Self { text }, generation))
    }

    async fn respond(self, mut delivery: Delivery) -> Response {
        match delivery.collect().await {
            Ok((choices, usage)) => Json(Echo {
                id: &delivery.answer().id,
                text: &self.text,
                generated: &choices[0].text,
                tokens: usage.completion_tokens,
            })
            .into_response(),
            Err(error) => error.into_response(),
        }
    }
}

#[test]
fn an_endpoint_is_one_file_and_one_route() {
    let executor = SimExecutor::new(model()).expect("the model is possible");
    let served = Served::with_routes(Box::new(executor), vec![Route::endpoint::<EchoGenerate>()]);
    let client = served.client();

    // The same tokens as those of an endpoint of the server's own.
    let body = json!({"text": "Mia has 12 eggs.", "max_tokens": 8});
    let echo = client.json(EchoGenerate::PATH, &body);
    let body = json!({"model": MODEL, "prompt": "Mia has 12 eggs.", "max_tokens": 8});
    let completion = client.post("/v1/completions", &body).json();
    assert_eq!(echo["text"], "Mia has 12 eggs.");
    assert_eq!(echo["generated"], completion["choices"][0]["text"]);
    assert_eq!(echo["tokens"], completion["usage"]["completion_tokens"]);
    let id = echo["id"].as_str().unwrap_or_default();
    assert!(id.starts_with("echo-"), "{id}");

    // Its faults are worded like all others.
    let range = "max_tokens must be an integer in 1..64, got 65";
    let required = "missing_required_parameter";
    for (body, code, message) in [
        (json!({"text": "x", "max_tokens": 65}), "invalid_value", range),
        (json!({"text": 7}), "invalid_type", "text must be a string, got an integer"),
        (json!({"text": null}), required, "text is required"),
        (json!({"text": ""}), "invalid_value", "text has no tokens"),
    ] {
        let answer = client.post(EchoGenerate::PATH, &body);
        assert_eq!(answer.status, 400, "{body}");
        let error = &answer.json()["error"];
        assert_eq!(error["code"], code, "{body}");
        assert_eq!(error["message"], message, "{body}");
    }

    // So are its requests counted.
    let metrics = client.metrics();
    let counted = |outcome| {
        let labels = [("endpoint", EchoGenerate::PATH), ("outcome", outcome)];
        metrics.sum("asynclane_requests_total", &labels)
    };
    assert_eq!((counted("ok"), counted("invalid")), (1.0, 4.0));
}
