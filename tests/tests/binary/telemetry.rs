//! Logs, tracing spans and exported metrics: their content, and the absence of prompts and keys.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

use asynclane_tests::client::Client;
use asynclane_tests::process::{Server, run, stderr};
use demo::EXAMPLES;
use serde_json::{Value, json};

use crate::folder;

const CHAT: &str = "/v1/chat/completions";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
/// A word that occurs in prompts only.
const PROMPT: &str = "canaryprompt";
const KEY: &str = "canary-key-91e0";

/// A collector: its address, and the path and body of every export.
fn collector() -> (String, Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (taken, exports) = channel();
    // Ends with the process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            let taken = taken.clone();
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                while let Some((path, length)) = head(&mut reader) {
                    let mut body = vec![0; length];
                    reader.read_exact(&mut body).unwrap();
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                    // Before the answer: what one thread exports in order is received in order.
                    let _ = taken.send((path, body));
                    (&stream).write_all(answer).unwrap();
                }
            });
        }
    });
    (address, exports)
}

/// Path and length of the next request; `None` at the end of the connection.
fn head(reader: &mut impl BufRead) -> Option<(String, usize)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut length = 0;
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let lower = line.trim().to_ascii_lowercase();
        if lower.is_empty() {
            return Some((path, length));
        }
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn chat(content: &str) -> Value {
    json!({"model": "demo", "messages": [{"role": "user", "content": content}], "max_tokens": 16})
}

/// The objects of a JSON log, all of its lines.
fn objects(log: &str) -> Vec<Value> {
    let object = |line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}"));
    log.lines().map(object).collect()
}

#[test]
fn a_request_is_a_part_of_its_clients_trace() {
    let (address, exports) = collector();
    let flags = ["--otlp-endpoint", &address, "--log-format", "json"];
    let server = Server::start_with(&flags, |command| {
        command.env("ASYNCLANE_LISTENS", "1");
    });
    let client = server.client();
    let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let headers = [("traceparent", &*parent)];
    let body = chat(EXAMPLES[0]).to_string();
    let answer = client.ask(("POST", CHAT), &headers, body.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    let log = server.stop();

    let is_span = |(path, _): &(String, Vec<u8>)| path == "/v1/traces";
    let spans = exports.iter().take_while(is_span).flat_map(|export| export.1);
    let spans: Vec<u8> = spans.collect();
    let digits = (0..TRACE.len()).step_by(2).map(|start| &TRACE[start..start + 2]);
    let id: Vec<u8> = digits.map(|two| u8::from_str_radix(two, 16).unwrap()).collect();
    assert!(holds(&spans, &id), "the client's trace");
    let names = "request queue prefill decode first_token service.name gen_ai.operation.name \
                 gen_ai.usage.output_tokens";
    for name in names.split(' ') {
        assert!(holds(&spans, name.as_bytes()), "{name}");
    }
    assert!(!holds(&spans, EXAMPLES[0].as_bytes()), "a prompt left");

    let lines = objects(&log);
    let unknown = "unknown environment variable ASYNCLANE_LISTENS ignored";
    let is_warning = |line: &Value| {
        let message = line["message"].as_str().unwrap_or_default();
        line["level"] == "WARN" && message.starts_with(unknown)
    };
    assert_eq!(lines.iter().filter(|line| is_warning(line)).count(), 1);
    let finished = lines.iter().find(|line| line["message"] == "finished");
    has_the_request(finished.expect("a line per finished request"));
}

/// Asserts that a line of the log has the fields of a finished request.
fn has_the_request(line: &Value) {
    let fields = "decoder nfe tpf forks prompt_tokens completion_tokens queue_ms ttft_ms tpot_ms e2e_ms \
                  timestamp level";
    for field in fields.split(' ') {
        assert!(!line[field].is_null(), "{field} in {line}");
    }
    let span = &line["span"];
    for (found, expected) in [
        (&line["status"], json!(200)),
        (&line["finish_reason"], json!("length")),
        (&span["trace_id"], json!(TRACE)),
        (&span["route"], json!(CHAT)),
        (&span["model"], json!("demo")),
    ] {
        assert_eq!(*found, expected, "{line}");
    }
    assert!(span["request_id"].as_str().unwrap().starts_with("req-"));
}

/// The fields of a protobuf message: numbers, and bytes of those with a length or 8 bytes.
fn fields(mut message: &[u8]) -> Vec<(u64, &[u8])> {
    fn number(message: &mut &[u8]) -> u64 {
        let length = message.iter().take_while(|byte| **byte > 127).count() + 1;
        let (own, rest) = message.split_at(length);
        *message = rest;
        let bytes = own.iter().rev();
        bytes.fold(0, |all, byte| (all << 7) | u64::from(byte & 127))
    }
    let mut found = Vec::new();
    while !message.is_empty() {
        let tag = number(&mut message);
        let length = match tag % 8 {
            0 => {
                number(&mut message);
                0
            }
            1 => 8,
            2 => usize::try_from(number(&mut message)).unwrap(),
            other => panic!("wire type {other}"),
        };
        let (own, rest) = message.split_at(length);
        found.push((tag / 8, own));
        message = rest;
    }
    found
}

/// The messages at a path of field numbers.
fn at<'a>(message: &'a [u8], path: &[u64]) -> Vec<&'a [u8]> {
    let Some((first, rest)) = path.split_first() else {
        return vec![message];
    };
    let inner = fields(message).into_iter().filter(|(number, _)| number == first);
    inner.flat_map(|(_, own)| at(own, rest)).collect()
}

/// Observations of a histogram in an export, with a label and without it.
fn observed(export: &[u8], name: &str, label: &str) -> (u64, u64) {
    // ResourceMetrics, ScopeMetrics, Metric.
    let mut metrics = at(export, &[1, 2, 2]).into_iter();
    let metric = metrics.find(|metric| at(metric, &[1]) == [name.as_bytes()]);
    let metric = metric.unwrap_or_else(|| panic!("{name} is not exported"));
    assert_eq!(at(metric, &[3]), [b"s"], "{name} is in seconds");
    let (mut with, mut without) = (0, 0);
    for point in at(metric, &[9, 1]) {
        let count = u64::from_le_bytes(at(point, &[4])[0].try_into().unwrap());
        assert!(holds(point, b"gen_ai.provider.name") && holds(point, b"chat"));
        match at(point, &[9, 1]).contains(&label.as_bytes()) {
            true => with += count,
            false => without += count,
        }
    }
    (with, without)
}

#[test]
fn the_metrics_of_a_model_server_reach_a_collector() {
    let (address, exports) = collector();
    let server = Server::start_with(&["--otlp-endpoint", &address], |command| {
        command.env("OTEL_TRACES_EXPORTER", "none");
    });
    let client = server.client();
    for _ in 0..2 {
        assert_eq!(client.post(CHAT, &chat("2+2=")).status, 200);
    }
    let mut wrong = chat("2+2=");
    wrong["temperature"] = json!(9);
    assert_eq!(client.post(CHAT, &wrong).status, 400);
    server.stop();
    // The last export has everything: counts are cumulative.
    let (path, first) = exports.recv().unwrap();
    let export = exports.try_iter().last().map_or(first, |(_, body)| body);
    assert_eq!(path, "/v1/metrics");
    for (name, counts) in [
        ("gen_ai.server.request.duration", (1, 2)),
        ("gen_ai.server.time_to_first_token", (0, 2)),
        ("gen_ai.server.time_per_output_token", (0, 2)),
    ] {
        assert_eq!(observed(&export, name, "error.type"), counts, "{name}");
    }
}

/// A server's count of spans in a state.
fn spans(client: &Client, state: &str) -> f64 {
    let scrape = client.metrics();
    scrape.sum("asynclane_trace_spans_total", &[("state", state)])
}

#[test]
fn spans_are_counted_and_a_dead_collector_costs_nothing_else() {
    let (address, exports) = collector();
    let soon = |command: &mut std::process::Command| {
        command.env("OTEL_BSP_SCHEDULE_DELAY", "20");
    };
    let server = Server::start_with(&["--otlp-endpoint", &address], soon);
    let client = server.client();
    let counts = ["ended", "exported"].map(|state| spans(&client, state));
    assert_eq!(counts, [0.0, 0.0]);
    assert_eq!(client.post(CHAT, &chat("2+2=")).status, 200);
    exports.recv().unwrap();
    while spans(&client, "exported") < spans(&client, "ended") {
        std::thread::yield_now();
    }
    assert_eq!(spans(&client, "ended"), 4.0);

    // A port that was free a moment ago.
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = format!("http://{}", gone.local_addr().unwrap());
    let server = Server::start_with(&["--otlp-endpoint", &gone], soon);
    let client = server.client();
    for _ in 0..3 {
        assert_eq!(client.post(CHAT, &chat("2+2=")).status, 200);
    }
    assert_eq!(spans(&client, "exported"), 0.0);
    assert!(spans(&client, "ended") >= 8.0);
    // An export failed before the end, or failed or lasted too long then.
    let log = server.stop();
    let told = ["the collector takes no spans", "the last spans are lost"];
    assert!(told.iter().any(|line| log.contains(line)), "{log}");
}

#[test]
fn no_prompt_and_no_key_is_logged_or_exported() {
    let (address, exports) = collector();
    let keys = folder("canary").join("keys");
    std::fs::write(&keys, format!("team:{KEY}\n")).unwrap();
    let flags = ["--log", "trace", "--log-format", "json", "--otlp-endpoint", &address];
    let more = ["--api-keys-file", keys.to_str().unwrap()];
    let server = Server::start_with(&[&flags[..], &more].concat(), |command| {
        command.env("HF_TOKEN", "canary-token");
    });
    let client = server.client();
    let bearer = format!("Bearer {KEY}");
    let headers = [("authorization", &*bearer)];
    let post = |path: &str, body: &str| client.ask(("POST", path), &headers, body.as_bytes());
    let text = format!("{PROMPT} 2+2=");
    let completion = json!({"model": "demo", "prompt": text, "max_tokens": 8});
    let mut statuses = Vec::new();
    for (path, mut body) in [
        (CHAT, chat(&text)),
        ("/v1/completions", completion.clone()),
        ("/v1/diffusion/trace", completion.clone()),
        ("/tokenize", json!({"model": "demo", "prompt": text})),
        ("/detokenize", json!({"model": "demo", "tokens": [1, 2, 3]})),
    ] {
        statuses.push(post(path, &body.to_string()).status);
        body[PROMPT] = json!(1);
        statuses.push(post(path, &body.to_string()).status);
        statuses.push(post(path, &format!("{{\"{PROMPT}\": ")).status);
        let wrong = client.ask(("POST", path), &[], body.to_string().as_bytes());
        statuses.push(wrong.status);
        let wrong = format!("Bearer {KEY}x");
        let wrong = client.ask(("POST", path), &[("authorization", &wrong)], b"{}");
        statuses.push(wrong.status);
    }
    let mut long = completion;
    long["prompt"] = json!(text.repeat(2000));
    statuses.push(post("/v1/completions", &long.to_string()).status);
    long["max_tokens"] = json!(PROMPT);
    statuses.push(post("/v1/completions", &long.to_string()).status);
    let path = format!("/{PROMPT}?{KEY}");
    statuses.push(client.ask(("GET", &path), &headers, b"").status);
    for expected in [200, 400, 401, 404] {
        assert!(statuses.contains(&expected), "{statuses:?}");
    }
    let log = server.stop();
    let level = |name: &str| objects(&log).iter().any(|line| line["level"] == name);
    assert!(level("TRACE") && level("DEBUG"), "everything is logged");
    let exported: Vec<u8> = exports.try_iter().flat_map(|(_, body)| body).collect();
    assert!(holds(&exported, b"step"), "steps are spans at this level");
    for canary in [PROMPT, KEY, "canary-token"] {
        let line = log.lines().find(|line| line.contains(canary));
        assert_eq!(line, None, "{canary} is in the log");
        let left = holds(&exported, canary.as_bytes());
        assert!(!left, "{canary} was exported");
    }
}

/// Standard error is a pipe that nobody reads after the first lines: it takes 64 KiB.
#[test]
fn a_log_that_nobody_reads_holds_up_nobody() {
    let mut command = asynclane_tests::process::command(&["serve", "--listen", "127.0.0.1:0"]);
    command.args(["--log", "trace"]);
    let (mut server, _unread) = Server::spawn_unread(command);
    let client = server.client();
    let body = json!({"model": "demo", "prompt": "a", "max_tokens": 4, "ignore_eos": true});
    let mut lost = 0.0;
    for _ in 0..2000 {
        client.json("/v1/completions", &body);
        lost = client.metrics().sum("asynclane_log_lines_lost_total", &[]);
        if lost > 0.0 {
            break;
        }
    }
    assert!(lost > 0.0, "the log has no bound");
    server.signal("TERM");
    assert_eq!(server.end().code(), Some(0));
}

/// Off a terminal the log says once what is served; under `json` every line is an object, and numbers are
/// short.
#[test]
fn one_line_tells_what_is_served() {
    let server = Server::start(&["demo-sdar", "--log-format", "json", "--max-model-len", "512"]);
    let body = json!({"model": "demo-sdar", "max_tokens": 8, "prompt": "a"});
    server.client().json("/v1/completions", &body);
    let log = server.stop();
    let object = |line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}"));
    let lines: Vec<Value> = log.lines().map(object).collect();
    let record = |message: &str| {
        let mut found = lines.iter().filter(|line| line["message"] == message);
        let first = found.next().unwrap_or_else(|| panic!("{message} in {log}"));
        assert!(found.next().is_none(), "{log}");
        first
    };
    let loaded = record("model loaded");
    for (key, expected) in [
        ("version", json!(env!("CARGO_PKG_VERSION"))),
        ("model", json!("demo-sdar")),
        ("device", json!("cpu")),
        ("context", json!(512)),
        ("kv", json!("f32")),
    ] {
        assert_eq!(loaded[key], expected, "{key} in {loaded}");
    }
    assert!(loaded["kv_bytes"].as_u64() > Some(1 << 20), "{loaded}");
    assert!(loaded["decoder"].as_str().unwrap().starts_with("block_causal"), "{loaded}");
    let finished = record("finished");
    for key in ["queue_ms", "ttft_ms", "tpot_ms", "e2e_ms", "tpf"] {
        let number = finished[key].to_string();
        let decimals = number.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        assert!(finished[key].is_number() && decimals <= 3, "{key}: {number}");
    }
    record("draining; Ctrl-C again, or a second SIGTERM, ends now");
    let refused = run(&["serve", "--log-format", "json", "--max-running", "0"]);
    let text = stderr(&refused);
    assert!(!refused.status.success() && !text.is_empty());
    for line in text.lines() {
        assert_eq!(object(line)["level"], "ERROR", "{line}");
    }
}
