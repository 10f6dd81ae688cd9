//! `/v1/diffusion/trace`: named events that add up to the plain answer.

use std::collections::BTreeMap;

use crate::common::*;
use futures_util::StreamExt;
use tower::ServiceExt;

/// The name and the data of each event of a trace.
type Events = Vec<(String, Value)>;

async fn traced(server: &Server, fields: Value) -> Events {
    named_events(&server.stream(TRACE, fields).await)
}

/// The frames of a trace, which the server makes as the test reads them.
async fn frames(server: &Server, fields: Value) -> axum::body::BodyDataStream {
    let request = request("POST", TRACE, &[], body(TRACE, fields).to_string());
    let response = server.router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    response.into_body().into_data_stream()
}

fn number(value: &Value) -> u64 {
    serde_json::from_value(value.clone()).unwrap()
}

/// The data of all steps.
fn steps(events: &Events) -> impl Iterator<Item = &Value> {
    let steps = events.iter().filter(|(name, _)| name == "step");
    steps.map(|(_, data)| data)
}

/// The states of a cell; only a canvas of noise has the last two.
const CELL_STATES: [&str; 7] = rows! {
    "committed"; "draft"; "edited"; "provisional"; "masked"; "kept"; "renoised";
};

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

fn replay(events: &Events) -> Replay {
    let mut replay = Replay::default();
    let last = events.len() - 1;
    assert_eq!((&*events[0].0, &*events[last].0), ("open", "done"));
    for (name, data) in &events[1..last] {
        if name == "text" {
            replay.text.push_str(data["text"].as_str().unwrap());
            continue;
        }
        assert_eq!(name, "step");
        replay.steps += 1 + number(&data["skipped"]);
        assert_eq!(data["step"], replay.steps);
        let kind = data["kind"].as_str().unwrap();
        assert!(["prefill", "decode", "refresh"].contains(&kind), "{kind}");
        let frontier = number(&data["frontier"]);
        assert!(frontier >= replay.frontier);
        replay.frontier = frontier;
        // The canvas holds the streamed tokens and never grows.
        let canvas = number(&data["canvas"]);
        let before = replay.canvas.replace(canvas).unwrap_or(canvas);
        assert!((frontier..=before).contains(&canvas), "{data}");
        for cell in items(&data["cells"]) {
            let probability = cell[3].as_f64().unwrap();
            assert!((0.0..=1.0).contains(&probability), "{cell}");
            assert!(CELL_STATES.contains(&cell[4].as_str().unwrap()), "{cell}");
            replay.cells.insert(number(&cell[0]), cell.clone());
        }
        for lane in items(&data["lanes"]) {
            let id = number(&lane["id"]);
            let parent = lane["parent"].as_u64();
            assert!(parent.is_none_or(|parent| parent < id), "{lane}");
            assert_eq!(parent.is_none(), id == 0, "{lane}");
            replay.lanes.insert(id, lane.clone());
        }
    }
    replay
}

async fn assert_trace_is_plain(server: &Server, fields: Value) {
    let fields = merge(json!({"seed": 3}), fields);
    let is_chat = fields.get("messages").is_some();
    let path = if is_chat { CHAT } else { COMPLETIONS };
    let plain = merge(fields.clone(), json!({"return_token_ids": true}));
    let plain = server.ask(path, plain).await;
    let choice = &plain["choices"][0];

    let events = traced(server, fields.clone()).await;
    let replay = replay(&events);
    assert_eq!(replay.text, text(&plain), "{fields}");
    let open = &events[0].1;
    assert!(open["id"].as_str().unwrap().starts_with("trace-"));
    has!(*open, {"object": "diffusion.trace", "model": MODEL,
        "prompt_tokens": plain["usage"]["prompt_tokens"]});
    let done = &events.last().unwrap().1;
    assert_eq!(done["finish_reason"], choice["finish_reason"], "{fields}");
    assert_eq!(done["usage"], plain["usage"], "{fields}");

    for (offset, id) in (0u64..).zip(ids(&choice["token_ids"])) {
        let cell = &replay.cells[&offset];
        assert_eq!(cell[1], id, "{fields}: {cell}");
        assert_eq!(cell[2], server.tokenizer.token_text(id));
        assert_ne!(cell[4], "masked", "{fields}: {cell}");
        assert!(offset < replay.frontier, "{fields}");
    }
    let lanes = replay.lanes.values();
    let forks = lanes.filter(|lane| lane["state"] == "forked").count();
    has!(plain["usage"]["diffusion"], {"steps": replay.steps, "forks": forks,
        "lanes": replay.lanes.len()});
}

#[tokio::test]
async fn a_trace_adds_up_to_the_plain_answer() {
    let server = server_where(|options| {
        options.sim.period = Some(9);
        options.sim.text_len = 40..70;
    });
    for fields in [
        json!({"max_tokens": 100}),
        json!({"max_tokens": 16}),
        json!({"max_tokens": 0}),
        json!({"max_tokens": 33, "ignore_eos": true, "temperature": 1, "seed": 5}),
        json!({"max_tokens": 60, "stop": ["a", "e"]}),
        json!({"max_tokens": 60, "stop": ["zzz"], "echo": true}),
        json!({"max_tokens": 60, "diffusion": {"preset": "fast"}}),
        json!({"max_tokens": 60, "diffusion": {"schedule": "block_wise", "commit": "top_k",
            "cache": "none", "preset": null, "block_length": 8}}),
        json!({"max_tokens": 90, "diffusion": {"max_forwards": 3}}),
        json!({"max_tokens": 200, "response_format": {"type": "json_object"}}),
        chat(json!({"max_tokens": 50})),
    ] {
        assert_trace_is_plain(&server, fields).await;
    }
    // A trace is a stream with and without the field `stream`.
    let body = body(TRACE, json!({"max_tokens": 4})).to_string();
    let reply = server.send("POST", TRACE, &[], body).await;
    assert!(!replay(&named_events(&reply.text())).text.is_empty());
    let metrics = server.metrics().await;
    assert_eq!(outcomes(&metrics, TRACE, "ok"), 12.0);
}

#[tokio::test]
async fn lanes_start_fork_and_finish() {
    let server = server_where(|options| {
        (options.sim.period, options.sim.period_every) = (Some(9), 8);
        options.sim.text_len = 60..61;
    });
    let fields = json!({"max_tokens": 100, "diffusion": {"fork": "sentence"}});
    let events = traced(&server, fields).await;
    has!(steps(&events).next().unwrap()["lanes"][0], {"id": 0, "role": "generate", "start": 0});
    let mut clocks = BTreeMap::new();
    for lane in steps(&events).flat_map(|step| items(&step["lanes"])) {
        let clock = number(&lane["clock"]);
        let before = clocks.insert(number(&lane["id"]), clock);
        assert!(before.is_none_or(|before| before <= clock));
    }
    let lanes = replay(&events).lanes;
    assert!(lanes.len() > 1, "no lane was started");
    let mut states = lanes.values().map(|lane| &lane["state"]);
    assert!(states.all(|state| state != "active"), "{lanes:?}");
}

/// The first block begins before the first token of the answer, whose lane is the rest of it.
#[tokio::test]
async fn the_first_lane_of_block_causal_weights_ends_with_its_block() {
    let server = server_where(|options| options.sim.attention = step::Attention::Blocks(8));
    for prompt in [8, 11] {
        let fields = json!({"prompt": vec![6; prompt], "max_tokens": 30});
        let events = traced(&server, fields).await;
        has!(events[1].1["lanes"][0], {"start": 0, "len": 8 - prompt % 8});
    }
}

#[tokio::test]
async fn unread_steps_are_merged_beyond_a_few() {
    const UNREAD: u64 = 64;
    let server = server();
    let fields = json!({"max_tokens": 200, "ignore_eos": true, "diffusion": {"preset": "vanilla"}});
    let plain = server.ask(COMPLETIONS, fields.clone()).await;
    let count = number(&plain["usage"]["diffusion"]["steps"]);
    assert!(count > 2 * UNREAD);
    let mut frames = frames(&server, fields).await;
    let open = frames.next().await.unwrap().unwrap();
    assert!(open.starts_with(b"event: open\n"));
    server.until_steps(2 * count).await;
    server.until_idle().await;
    let mut bytes = open.to_vec();
    while let Some(frame) = frames.next().await {
        bytes.extend_from_slice(&frame.unwrap());
    }
    let events = named_events(&String::from_utf8(bytes).unwrap());
    let skipped: Vec<u64> = steps(&events).map(|step| number(&step["skipped"])).collect();
    let (kept, merged) = skipped.split_at(64);
    assert!(kept.iter().all(|skipped| *skipped == 0), "{skipped:?}");
    // The last step's events may arrive after the engine is idle.
    assert!(merged[0] >= count - UNREAD - 2, "{skipped:?}");
    assert_eq!(replay(&events).steps, count);
}

#[tokio::test]
async fn a_trace_is_of_one_sequence() {
    let server = server();
    let user = json!([{"role": "user", "content": "Hi"}]);
    let cases = refusals! {
        {"n": 2} => invalid_value "n";
        {"best_of": 2} => invalid_value "best_of";
        {"prompt": ["a", "b"]} => invalid_value "prompt";
        {"prompt": "a", "messages": []} => invalid_value "messages";
        {"prompt": null} => missing_required_parameter "prompt";
        {"model": MODEL, "messages": user, "temperature": 3} => invalid_value "temperature";
        {"logprobs": 0}, {"model": MODEL, "messages": user, "logprobs": true}
            => unsupported_parameter "logprobs";
    };
    server.refuses(TRACE, &cases).await;
}

#[tokio::test]
async fn a_dropped_trace_is_cancelled() {
    let server = server();
    drop(frames(&server, json!({"max_tokens": 400, "ignore_eos": true})).await);
    server.state.shutdown().drained().await;
    server.until_idle().await;
}

/// A traced answer with calls and reasoning has the parts of the plain one.
#[tokio::test]
async fn parts_are_those_of_the_plain_answer() {
    let server =
        wide_server_where(|options| options.formats.reasoning = Some(text::ReasoningFormat::Think));
    let tool = json!({"type": "function", "function": {"name": "add", "parameters": {
        "type": "object", "properties": {"a": {"enum": [1, 2, 3]}}, "required": ["a"]}}});
    let calls = json!({"tools": [tool], "tool_choice": "required", "parallel_tool_calls": false});
    let thought = json!({"grammar": "start: \"<think>Long.</think>Short.\""});
    for fields in [calls, thought] {
        let fields = chat(merge(fields, json!({"max_tokens": 80, "seed": 3})));
        let plain = server.chat(fields.clone()).await;
        let message = &plain["choices"][0]["message"];
        let events = traced(&server, fields).await;
        assert_eq!(events[0].1["has_parts"], true);
        let reason = &plain["choices"][0]["finish_reason"];
        assert_eq!(events.last().unwrap().1["finish_reason"], *reason);
        let parts = events.iter().filter(|(name, _)| name == "parts");
        let parts: Vec<&Value> = parts.flat_map(|(_, data)| items(&data["parts"])).collect();
        let joined = |kind: &str| {
            let parts = parts.iter().filter(|part| part["type"] == kind);
            let texts = parts.filter_map(|part| part["text"].as_str());
            texts.collect::<String>()
        };
        match message["tool_calls"].as_array() {
            Some(calls) => {
                let call = parts.iter().find(|part| part["type"] == "call").unwrap();
                has!(calls[0]["function"],
                    {"name": call["name"], "arguments": joined("arguments")});
            }
            None => has!(*message,
                {"reasoning_content": joined("reasoning"), "content": joined("text")}),
        }
    }
    let events = traced(&server, json!({"max_tokens": 4})).await;
    assert_eq!(events[0].1["has_parts"], false);
    assert!(events.iter().all(|(name, _)| name != "parts"));
}

/// On a canvas of noise, every step tells for each open position the drawn token and whether it is
/// kept.
#[tokio::test]
async fn a_canvas_of_noise_tells_the_kept_tokens() {
    const LENGTH: u64 = 8;
    let (server, gate) = gated(|options| {
        options.sim.attention = step::Attention::Canvas(8);
        options.sim.text_len = 30..31;
    });
    let fields = json!({"max_tokens": 20, "seed": 3,
        "diffusion": {"preset": "canvas", "block_length": LENGTH}});
    let mut frames = frames(&server, fields.clone()).await;
    let mut bytes = Vec::new();
    // One pass at a time, so that no steps are merged.
    while let Some(frame) = frames.next().await {
        bytes.extend_from_slice(&frame.unwrap());
        gate.0.admit(1);
    }
    let mut states = std::collections::BTreeSet::new();
    for step in steps(&named_events(&String::from_utf8(bytes).unwrap())) {
        assert_eq!(step["skipped"], 0, "{step}");
        let frontier = number(&step["frontier"]);
        let cells = items(&step["cells"]);
        let is_final = cells.iter().all(|cell| cell[4] == "committed");
        assert!(is_final || cells.len() as u64 == LENGTH, "{step}");
        for cell in cells {
            states.insert(cell[4].as_str().unwrap().to_owned());
            let is_open = (frontier..frontier + LENGTH).contains(&number(&cell[0]));
            assert!(is_final || is_open, "{step}");
            let id = u32::try_from(number(&cell[1])).unwrap();
            assert_eq!(cell[2], server.tokenizer.token_text(id));
        }
    }
    let states: Vec<&str> = states.iter().map(|state| &**state).collect();
    assert_eq!(states, ["committed", "kept", "renoised"]);
    gate.0.open();
    assert_trace_is_plain(&server, fields).await;
}
