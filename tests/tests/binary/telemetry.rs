//! Logs and tracing spans: their content, and the absence of prompts and keys.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

use asynclane_tests::client::Client;
use asynclane_tests::process::Server;
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
                    (&stream).write_all(answer).unwrap();
                    let _ = taken.send((path, body));
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

/// The objects of a JSON log.
fn objects(log: &str) -> Vec<Value> {
    let lines = log.lines().filter(|line| line.starts_with('{'));
    lines
        .map(|line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}")))
        .collect()
}

#[test]
fn a_request_is_a_part_of_its_clients_trace() {
    let (address, exports) = collector();
    let flags = ["--otlp-endpoint", &address, "--log-format", "json"];
    let server = Server::start(&flags);
    let client = server.client();
    let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let headers = [("traceparent", &*parent)];
    let body = chat(EXAMPLES[0]).to_string();
    let answer = client.ask(("POST", CHAT), &headers, body.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    server.signal("TERM");
    let (status, log) = server.wait();
    assert_eq!(status.code(), Some(0), "{log}");

    let (path, spans) = exports.recv().unwrap();
    let mut spans = spans;
    spans.extend(exports.try_iter().flat_map(|(_, body)| body));
    assert_eq!(path, "/v1/traces");
    let id: Vec<u8> = (0..TRACE.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&TRACE[at..at + 2], 16).unwrap())
        .collect();
    let mut parts = vec![id];
    for name in [
        "request",
        "queue",
        "prefill",
        "decode",
        "first_token",
        "service.name",
        "gen_ai.operation.name",
        "gen_ai.usage.output_tokens",
    ] {
        parts.push(name.as_bytes().to_vec());
    }
    for part in parts {
        assert!(holds(&spans, &part), "{}", String::from_utf8_lossy(&part));
    }
    assert!(!holds(&spans, EXAMPLES[0].as_bytes()), "a prompt left");

    let finished = objects(&log);
    let finished = finished.iter().find(|line| line["message"] == "finished");
    let line = finished.expect("a line per finished request");
    for field in [
        "decoder",
        "nfe",
        "tpf",
        "forks",
        "prompt_tokens",
        "completion_tokens",
        "queue_ms",
        "ttft_ms",
        "tpot_ms",
        "e2e_ms",
        "timestamp",
        "level",
    ] {
        assert!(!line[field].is_null(), "{field} in {line}");
    }
    assert_eq!(
        (&line["status"], &line["finish_reason"]),
        (&json!(200), &json!("length"))
    );
    let span = &line["span"];
    assert_eq!(span["trace_id"], TRACE);
    assert_eq!(
        (&span["route"], &span["model"]),
        (&json!(CHAT), &json!("demo"))
    );
    assert!(span["request_id"].as_str().unwrap().starts_with("req-"));
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
    assert_eq!(
        (spans(&client, "ended"), spans(&client, "exported")),
        (0.0, 0.0)
    );
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
    server.signal("TERM");
    let (status, log) = server.wait();
    assert_eq!(status.code(), Some(0), "{log}");
}

#[test]
fn no_prompt_and_no_key_is_logged_or_exported() {
    let (address, exports) = collector();
    let keys = folder("canary").join("keys");
    std::fs::write(&keys, format!("team:{KEY}\n")).unwrap();
    let flags = [
        "--log",
        "trace",
        "--log-format",
        "json",
        "--otlp-endpoint",
        &address,
    ];
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
    statuses.push(
        client
            .ask(("GET", &format!("/{PROMPT}?{KEY}")), &headers, b"")
            .status,
    );
    for expected in [200, 400, 401, 404] {
        assert!(statuses.contains(&expected), "{statuses:?}");
    }
    server.signal("TERM");
    let (status, log) = server.wait();
    assert_eq!(status.code(), Some(0), "{log}");
    let level = |name: &str| objects(&log).iter().any(|line| line["level"] == name);
    assert!(level("TRACE") && level("DEBUG"), "everything is logged");
    let exported: Vec<u8> = exports.try_iter().flat_map(|(_, body)| body).collect();
    assert!(holds(&exported, b"step"), "steps are spans at this level");
    for canary in [PROMPT, KEY, "canary-token"] {
        let line = log.lines().find(|line| line.contains(canary));
        assert_eq!(line, None, "{canary} is in the log");
        assert!(
            !holds(&exported, canary.as_bytes()),
            "{canary} was exported"
        );
    }
}
