//! `/v1/diffusion/trace`: named events that add up to the plain answer.

use std::collections::BTreeMap;

use crate::common::{
    Gate, MODEL, OpenAtEnd, Options, Server, chat, completion, series, server, server_with,
};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use futures_util::StreamExt;
use serde_json::{Value, json};

const TRACE: &str = "/v1/diffusion/trace";

/// Names and data of a trace's events; checks the framing.
fn parse(text: &str) -> Vec<(String, Value)> {
    let parse = |event: &str| {
        let (name, data) = event.split_once('\n').expect("two lines");
        let name = name.strip_prefix("event: ").expect("a name");
        let data = data.strip_prefix("data: ").expect("data");
        assert!(!data.contains('\n'), "{data}");
        (name.to_owned(), serde_json::from_str(data).unwrap())
    };
    assert!(text.ends_with("\n\n"), "{text}");
    text.split_terminator("\n\n").map(parse).collect()
}

/// The state of a client at the end of a trace.
#[derive(Default)]
struct Replay {
    text: String,
    cells: BTreeMap<u64, Value>,
    lanes: BTreeMap<u64, Value>,
    steps: u64,
    frontier: u64,
    canvas: Option<u64>,
}

fn replay(events: &[(String, Value)]) -> Replay {
    let mut replay = Replay::default();
    let (first, rest) = events.split_first().unwrap();
    let (last, steps) = rest.split_last().unwrap();
    assert_eq!((first.0.as_str(), last.0.as_str()), ("open", "done"));
    for (name, data) in steps {
        if name == "text" {
            replay.text.push_str(data["text"].as_str().unwrap());
            continue;
        }
        assert_eq!(name, "step");
        replay.steps += 1 + data["skipped"].as_u64().unwrap();
        assert_eq!(data["step"], replay.steps);
        let kind = data["kind"].as_str().unwrap();
        assert!(["prefill", "decode", "refresh"].contains(&kind), "{kind}");
        let frontier = data["frontier"].as_u64().unwrap();
        assert!(frontier >= replay.frontier);
        replay.frontier = frontier;
        // The canvas holds the streamed tokens and never grows.
        let canvas = data["canvas"].as_u64().unwrap();
        let before = replay.canvas.replace(canvas).unwrap_or(canvas);
        assert!((frontier..=before).contains(&canvas), "{data}");
        for cell in data["cells"].as_array().unwrap() {
            let probability = cell[3].as_f64().unwrap();
            assert!((0.0..=1.0).contains(&probability), "{cell}");
            replay.cells.insert(cell[0].as_u64().unwrap(), cell.clone());
        }
        for lane in data["lanes"].as_array().unwrap() {
            let id = lane["id"].as_u64().unwrap();
            let known = |parent: u64| parent < id;
            assert!(lane["parent"].as_u64().is_none_or(known), "{lane}");
            assert_eq!(lane["parent"].is_null(), id == 0, "{lane}");
            replay.lanes.insert(id, lane.clone());
        }
    }
    replay
}

async fn assert_trace_is_plain(server: &Server, mut body: Value) {
    if body.get("seed").is_none() {
        body["seed"] = json!(3);
    }
    let path = match body.get("messages") {
        Some(_) => "/v1/chat/completions",
        None => "/v1/completions",
    };
    let mut asked = body.clone();
    asked["return_token_ids"] = json!(true);
    asked["stream"] = json!(false);
    let (status, plain) = server.post(path, &asked).await;
    assert_eq!(status, StatusCode::OK, "{plain}");
    let choice = &plain["choices"][0];
    let text = choice.get("text").unwrap_or(&choice["message"]["content"]);

    let events = parse(&server.stream(TRACE, &body).await);
    let replay = replay(&events);
    assert_eq!(replay.text, text.as_str().unwrap(), "{body}");
    let open = &events[0].1;
    assert!(open["id"].as_str().unwrap().starts_with("trace-"));
    assert_eq!(open["object"], "diffusion.trace");
    assert_eq!(open["model"], MODEL);
    assert_eq!(open["prompt_tokens"], plain["usage"]["prompt_tokens"]);
    let done = &events.last().unwrap().1;
    assert_eq!(done["finish_reason"], choice["finish_reason"], "{body}");
    assert_eq!(done["usage"], plain["usage"], "{body}");

    let cost = &plain["usage"]["diffusion"];
    assert_eq!(cost["steps"], replay.steps, "{body}");
    for (offset, id) in (0u64..).zip(choice["token_ids"].as_array().unwrap()) {
        let cell = &replay.cells[&offset];
        assert_eq!(cell[1], *id, "{body}: {cell}");
        let id = u32::try_from(id.as_u64().unwrap()).unwrap();
        assert_eq!(cell[2], server.tokenizer.token_text(id));
        assert!(offset < replay.frontier, "{body}");
    }
    let forked = replay
        .lanes
        .values()
        .filter(|lane| lane["state"] == "forked");
    assert_eq!(cost["forks"], forked.count(), "{body}");
    assert_eq!(cost["lanes"], replay.lanes.len(), "{body}");
}

#[tokio::test]
async fn a_trace_adds_up_to_the_plain_answer() {
    let options = Options {
        sim: sim::SimConfig {
            period: Some(9),
            text_len: 40..70,
            ..Options::default().sim
        },
        ..Options::default()
    };
    let server = server_with(options);
    for fields in [
        json!({"max_tokens": 100}),
        json!({"max_tokens": 16}),
        json!({"max_tokens": 0}),
        json!({"max_tokens": 33, "ignore_eos": true, "temperature": 1, "seed": 5}),
        json!({"max_tokens": 60, "stop": ["a", "e"]}),
        json!({"max_tokens": 60, "stop": ["zzz"], "echo": true}),
        json!({"max_tokens": 60, "stream": true, "diffusion": {"preset": "fast"}}),
        json!({"max_tokens": 60, "diffusion": {"schedule": "block_wise", "commit": "top_k",
            "cache": "none", "preset": null, "block_length": 8}}),
        json!({"max_tokens": 90, "diffusion": {"max_forwards": 3}}),
    ] {
        assert_trace_is_plain(&server, completion(fields)).await;
    }
    assert_trace_is_plain(&server, chat(json!({"max_tokens": 50}))).await;
    let name = format!(
        "asynclane_requests_total{{endpoint=\"{TRACE}\",model_name=\"{MODEL}\",outcome=\"ok\"}}"
    );
    assert_eq!(series(&server.metrics().await, &name), 10.0);
}

#[tokio::test]
async fn lanes_start_fork_and_finish() {
    let server = server_with(Options {
        sim: sim::SimConfig {
            period: Some(9),
            period_every: 8,
            text_len: 60..61,
            ..Options::default().sim
        },
        ..Options::default()
    });
    let body = completion(json!({"max_tokens": 100, "diffusion": {"fork": "sentence"}}));
    let events = parse(&server.stream(TRACE, &body).await);
    let (name, first) = &events[1];
    assert_eq!(name, "step");
    assert_eq!(first["lanes"][0]["id"], 0);
    assert_eq!(first["lanes"][0]["role"], "generate");
    assert_eq!(first["lanes"][0]["start"], 0);
    let mut clocks = BTreeMap::new();
    for (_, step) in events.iter().filter(|(name, _)| name == "step") {
        for lane in step["lanes"].as_array().unwrap() {
            let clock = lane["clock"].as_u64().unwrap();
            let before = clocks.insert(lane["id"].as_u64().unwrap(), clock);
            assert!(before.is_none_or(|before| before <= clock));
        }
    }
    let lanes = replay(&events).lanes;
    assert!(lanes.len() > 1, "no lane was started");
    assert!(
        lanes.values().all(|lane| lane["state"] != "active"),
        "{lanes:?}"
    );
}

/// The first block begins before the first token of the answer, whose lane is the rest of it.
#[tokio::test]
async fn the_first_lane_of_block_causal_weights_ends_with_its_block() {
    let server = server_with(Options {
        sim: sim::SimConfig {
            attention: step::Attention::Blocks(8),
            ..Options::default().sim
        },
        ..Options::default()
    });
    for prompt in [8, 11] {
        let body = completion(json!({"prompt": vec![6; prompt], "max_tokens": 30}));
        let events = parse(&server.stream(TRACE, &body).await);
        let first = &events[1].1["lanes"][0];
        assert_eq!(first["start"], 0);
        assert_eq!(first["len"], 8 - prompt % 8, "{first}");
    }
}

#[tokio::test]
async fn unread_steps_are_merged() {
    let server = server();
    let body = completion(json!({"max_tokens": 64}));
    let (_, plain) = server.post("/v1/completions", &body).await;
    let steps = plain["usage"]["diffusion"]["steps"].as_u64().unwrap();
    assert!(steps > 2);
    let request = Request::post(TRACE)
        .body(Body::from(body.to_string()))
        .unwrap();
    let response = tower::ServiceExt::oneshot(server.router.clone(), request);
    let response = response.await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut frames = response.into_body().into_data_stream();
    let open = frames.next().await.unwrap().unwrap();
    assert!(open.starts_with(b"event: open\n"));
    server
        .until(|server| server.counters.steps() == 2 * steps)
        .await;
    server.until_idle().await;
    let mut text = String::from_utf8(open.to_vec()).unwrap();
    while let Some(frame) = frames.next().await {
        text.push_str(std::str::from_utf8(&frame.unwrap()).unwrap());
    }
    let events = parse(&text);
    // The last step's events may arrive after the engine is idle.
    assert_eq!(events[1].0, "step");
    assert!(events[1].1["skipped"].as_u64().unwrap() >= steps - 2);
    assert_eq!(replay(&events).steps, steps);
}

#[tokio::test]
async fn a_trace_is_of_one_sequence() {
    let server = server();
    let cases = [
        (completion(json!({"n": 2})), "n"),
        (completion(json!({"prompt": ["a", "b"]})), "prompt"),
        (completion(json!({"messages": []})), "messages"),
        (json!({"model": MODEL}), "prompt"),
        (chat(json!({"temperature": 3})), "temperature"),
        (completion(json!({"logprobs": 0})), "logprobs"),
        (chat(json!({"logprobs": true})), "logprobs"),
    ];
    for (body, param) in cases {
        let (status, answer) = server.post(TRACE, &body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
        assert_eq!(answer["error"]["param"], param, "{body}");
    }
}

#[tokio::test]
async fn faults_after_the_start_are_error_events() {
    let server = server_with(Options {
        failing: vec![1],
        ..Options::default()
    });
    let events = parse(&server.stream(TRACE, &completion(json!({}))).await);
    let (name, data) = events.last().unwrap();
    assert_eq!(name, "error");
    assert_eq!(data["error"]["code"], "internal_error");
    assert!(events.iter().all(|(name, _)| name != "done"));
}

#[tokio::test]
async fn a_dropped_trace_is_cancelled() {
    let server = server();
    let body = completion(json!({"max_tokens": 400, "ignore_eos": true})).to_string();
    let request = Request::post(TRACE).body(Body::from(body)).unwrap();
    let response = tower::ServiceExt::oneshot(server.router.clone(), request);
    drop(response.await.unwrap());
    server.state.shutdown().drained().await;
    server.until_idle().await;
}

/// A traced answer with calls and reasoning has the parts of the plain one.
#[tokio::test]
async fn parts_are_those_of_the_plain_answer() {
    let mut options = crate::common::translated::wide();
    options.formats.reasoning = Some(text::ReasoningFormat::Think);
    let server = server_with(options);
    let tool = json!({"type": "function", "function": {"name": "add", "parameters": {"type": "object",
        "properties": {"a": {"enum": [1, 2, 3]}}, "required": ["a"]}}});
    let calls = json!({"tools": [tool], "tool_choice": "required", "parallel_tool_calls": false});
    let thought = json!({"grammar": "start: \"<think>Long.</think>Short.\""});
    for fields in [calls, thought] {
        let mut fields = fields;
        fields["max_tokens"] = json!(80);
        fields["seed"] = json!(3);
        let plain = server.chat(fields.clone()).await;
        let (choice, message) = (&plain["choices"][0], &plain["choices"][0]["message"]);
        let events = parse(&server.stream(TRACE, &chat(fields)).await);
        assert_eq!(events[0].1["has_parts"], true);
        assert_eq!(
            events.last().unwrap().1["finish_reason"],
            choice["finish_reason"]
        );
        let parts = events.iter().filter(|(name, _)| name == "parts");
        let parts: Vec<&Value> = parts
            .flat_map(|(_, data)| data["parts"].as_array().unwrap())
            .collect();
        let joined = |kind: &str| {
            let of = parts.iter().filter(|part| part["type"] == kind);
            of.map(|part| part["text"].as_str().unwrap())
                .collect::<String>()
        };
        match message["tool_calls"].as_array() {
            Some(calls) => {
                let call = parts.iter().find(|part| part["type"] == "call").unwrap();
                assert_eq!(call["name"], calls[0]["function"]["name"]);
                assert_eq!(calls[0]["function"]["arguments"], joined("arguments"));
            }
            None => {
                assert_eq!(message["reasoning_content"], joined("reasoning"));
                assert_eq!(message["content"], joined("text"));
            }
        }
    }
    let events = parse(
        &server
            .stream(TRACE, &completion(json!({"max_tokens": 4})))
            .await,
    );
    assert_eq!(events[0].1["has_parts"], false);
    assert!(events.iter().all(|(name, _)| name != "parts"));
}

/// Of a canvas of noise, every step tells each open position: what was drawn, and whether it is kept.
#[tokio::test]
async fn a_canvas_of_noise_tells_what_is_kept() {
    const LENGTH: u64 = 8;
    let gate = Gate::default();
    let server = server_with(Options {
        gate: Some(gate.clone()),
        sim: sim::SimConfig {
            attention: step::Attention::Canvas(8),
            text_len: 30..31,
            ..Options::default().sim
        },
        ..Options::default()
    });
    let _open = OpenAtEnd(gate.clone());
    let diffusion = json!({"preset": "canvas", "block_length": LENGTH});
    let body = completion(json!({"max_tokens": 20, "seed": 3, "diffusion": diffusion}));
    let request = Request::post(TRACE).body(Body::from(body.to_string()));
    let response = tower::ServiceExt::oneshot(server.router.clone(), request.unwrap());
    let mut frames = response.await.unwrap().into_body().into_data_stream();
    let mut text = String::new();
    // One pass at a time, so that no steps are merged.
    while let Some(frame) = frames.next().await {
        text.push_str(std::str::from_utf8(&frame.unwrap()).unwrap());
        gate.admit(1);
    }
    let mut counts = BTreeMap::new();
    for (_, step) in parse(&text).iter().filter(|(name, _)| name == "step") {
        assert_eq!(step["skipped"], 0, "{step}");
        let frontier = step["frontier"].as_u64().unwrap();
        let cells = step["cells"].as_array().unwrap();
        let state = |cell: &Value| cell[4].as_str().unwrap().to_owned();
        let is_final = cells.iter().all(|cell| state(cell) == "committed");
        assert!(is_final || cells.len() as u64 == LENGTH, "{step}");
        for cell in cells {
            *counts.entry(state(cell)).or_insert(0) += 1;
            let offset = cell[0].as_u64().unwrap();
            assert!(
                is_final || (frontier..frontier + LENGTH).contains(&offset),
                "{step}"
            );
            let id = u32::try_from(cell[1].as_u64().unwrap()).unwrap();
            assert_eq!(cell[2], server.tokenizer.token_text(id));
        }
    }
    let states: Vec<&str> = counts.keys().map(String::as_str).collect();
    assert_eq!(states, ["committed", "kept", "renoised"], "{counts:?}");
    gate.open();
    assert_trace_is_plain(&server, body).await;
}
