//! Lifecycles of sequences and connections: disconnects, overload, drain, HTTP rules.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{
    Gate, OpenAtEnd, Options, chat, completion, events, post_text, read_until, send, series,
    server, server_with,
};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use serde_json::{Value, json};
use tokio::sync::oneshot;

fn gated(max_running: u32, max_waiting: u32) -> (crate::common::Server, OpenAtEnd) {
    let gate = Gate::default();
    let options = Options {
        gate: Some(gate.clone()),
        max_running,
        max_waiting,
        ..Options::default()
    };
    (server_with(options), OpenAtEnd(gate))
}

const CANCELLED: &str = "asynclane_requests_total{endpoint=\"/v1/completions\",\
                         model_name=\"org/demo\",outcome=\"cancelled\"}";

#[tokio::test]
async fn a_client_that_leaves_frees_its_sequence() {
    for stream in [false, true] {
        let (server, gate) = gated(8, 8);
        let (address, _) = server.listen(std::future::pending()).await;
        let body = completion(json!({"max_tokens": 300, "ignore_eos": true, "stream": stream}));
        let connection = send(address, &post_text("/v1/completions", &body)).await;
        // The gate holds the first pass: the sequence stays in the batch.
        server
            .until(|server| server.counters.steps() == 1 || server.engine.load().running > 0)
            .await;
        server
            .until(|server| server.state.shutdown().in_flight() == 1)
            .await;
        drop(connection);
        server.state.shutdown().drained().await;
        gate.0.open();
        server.until_idle().await;
        assert!(
            server.counters.steps() <= 2,
            "the sequence ended at a step boundary"
        );
        assert_eq!(series(&server.metrics().await, CANCELLED), 1.0);
    }
}

#[tokio::test]
async fn a_full_queue_refuses_whole_requests() {
    let (server, gate) = gated(1, 3);
    let router = server.router.clone();
    let spawn = |fields: Value| {
        let body = completion(fields).to_string();
        let request = Request::post("/v1/completions")
            .body(Body::from(body))
            .unwrap();
        tokio::spawn(tower::ServiceExt::oneshot(router.clone(), request))
    };
    let first = spawn(json!({"max_tokens": 4}));
    server.until(|server| server.counters.steps() == 1).await;
    let second = spawn(json!({"max_tokens": 4, "n": 2}));
    server
        .until(|server| server.state.shutdown().in_flight() == 2)
        .await;
    // Submission takes the places of the queue, so no step of the engine is needed.
    let body = completion(json!({"n": 3})).to_string();
    let request = Request::post("/v1/completions")
        .body(Body::from(body))
        .unwrap();
    let (status, headers, bytes) = server.call(request).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    let seconds: u32 = headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=30).contains(&seconds));
    let error: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(error["error"]["type"], "rate_limit_error");
    assert_eq!(error["error"]["code"], "overloaded");
    // One that never fits is not worth another try.
    let (status, answer) = server
        .post("/v1/completions", &completion(json!({"n": 4})))
        .await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(answer["error"]["param"], "n");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("at most 3 sequences (engine.max_waiting)"),
        "{message}"
    );
    gate.0.open();
    for answer in [first, second] {
        assert_eq!(answer.await.unwrap().unwrap().status(), StatusCode::OK);
    }
    server.until_idle().await;
    server.complete(json!({"n": 3, "max_tokens": 2})).await;
}

/// Lets one pass run; returns when the next one waits at the gate or nothing is left to run. The
/// engine's load is then that after the pass.
async fn one_pass(server: &crate::common::Server, gate: &OpenAtEnd) {
    let before = server.counters.steps();
    gate.0.admit(1);
    server
        .until(|server| {
            let load = server.engine.load();
            server.counters.steps() > before || load.running + load.waiting == 0
        })
        .await;
}

#[tokio::test]
async fn lower_priorities_start_first() {
    let (server, gate) = gated(1, 8);
    let order = Arc::new(Mutex::new(Vec::new()));
    let (completions, chats) = ("/v1/completions", "/v1/chat/completions");
    let first = {
        let (server, order) = (server.clone(), Arc::clone(&order));
        tokio::spawn(async move {
            server.complete(json!({"max_tokens": 30})).await;
            order.lock().unwrap().push(None);
        })
    };
    let mut answers = vec![first];
    // The first one holds the only place of the batch.
    server.until(|server| server.counters.steps() == 1).await;
    for (turn, priority) in (1_u32..).zip([7, 0, -3, 0, i32::MAX]) {
        let fields = json!({"priority": priority, "max_tokens": 4, "stream": true});
        let (path, body) = match turn % 2 {
            0 => (chats, chat(fields)),
            _ => (completions, completion(fields)),
        };
        let request = Request::post(path)
            .body(Body::from(body.to_string()))
            .unwrap();
        // The headers come once the sequence is with the engine.
        let stream = tower::ServiceExt::oneshot(server.router.clone(), request);
        let stream = stream.await.unwrap().into_body();
        let order = Arc::clone(&order);
        answers.push(tokio::spawn(async move {
            http_body_util::BodyExt::collect(stream).await.unwrap();
            order.lock().unwrap().push(Some(priority));
        }));
    }
    let sequences = u32::try_from(answers.len()).unwrap();
    while server.engine.load().waiting < sequences - 1 {
        one_pass(&server, &gate).await;
    }
    // Pass by pass: a client has seen the end of its sequence before another one can end.
    let mut ended = 0;
    while ended < sequences {
        one_pass(&server, &gate).await;
        let load = server.engine.load();
        ended = sequences - load.running - load.waiting;
        server
            .until(|_| order.lock().unwrap().len() == ended as usize)
            .await;
    }
    for answer in answers {
        answer.await.unwrap();
    }
    let expected = [None, Some(-3), Some(0), Some(0), Some(7), Some(i32::MAX)];
    assert_eq!(*order.lock().unwrap(), expected);
}

#[tokio::test]
async fn a_drain_lets_accepted_requests_finish() {
    let (server, gate) = gated(8, 8);
    let (stop, stopped) = oneshot::channel::<()>();
    let (address, served) = server.listen(async { drop(stopped.await) }).await;
    let body = completion(json!({"stream": true, "max_tokens": 30}));
    let mut accepted = send(address, &post_text("/v1/completions", &body)).await;
    server.until(|server| server.counters.steps() == 1).await;
    stop.send(()).unwrap();
    server
        .state
        .shutdown()
        .reached(asynclane_server::Phase::Draining)
        .await;
    for (request, status) in [
        (post_text("/v1/completions", &body), "503"),
        (
            "GET /ready HTTP/1.1\r\nhost: test\r\n\r\n".to_owned(),
            "503",
        ),
        (
            "GET /health HTTP/1.1\r\nhost: test\r\n\r\n".to_owned(),
            "200",
        ),
    ] {
        let mut connection = send(address, &request).await;
        let answer = read_until(&mut connection, "}").await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{answer}"
        );
        assert_eq!(
            answer.contains("shutting_down"),
            status == "503",
            "{answer}"
        );
    }
    gate.0.open();
    let answer = read_until(&mut accepted, "\r\n0\r\n\r\n").await;
    assert!(answer.contains("\"finish_reason\":\"") && answer.contains("data: [DONE]"));
    served.await.unwrap().unwrap();
    assert!(
        tokio::net::TcpStream::connect(address).await.is_err(),
        "nobody listens any more"
    );
}

/// A server with the drain delay `delay` after its shutdown signal.
async fn leaving(
    delay: Duration,
) -> (
    crate::common::Server,
    std::net::SocketAddr,
    tokio::task::JoinHandle<std::io::Result<()>>,
) {
    let mut options = Options::default();
    options.settings.timeouts.drain_delay = delay;
    let server = server_with(options);
    let (address, served) = server.listen(std::future::ready(())).await;
    (server, address, served)
}

#[tokio::test]
async fn requests_are_taken_for_the_drain_delay() {
    // Far longer than the test, so that the test sees the delay alone.
    let (server, address, _served) = leaving(Duration::from_secs(3600)).await;
    server
        .state
        .shutdown()
        .reached(asynclane_server::Phase::Leaving)
        .await;
    let body = completion(json!({"max_tokens": 3}));
    for (request, status, mark) in [
        (
            "GET /ready HTTP/1.1\r\nhost: test\r\n\r\n".to_owned(),
            "503",
            "shutting_down",
        ),
        (
            "GET /health HTTP/1.1\r\nhost: test\r\n\r\n".to_owned(),
            "200",
            "ok",
        ),
        (post_text("/v1/completions", &body), "200", "finish_reason"),
    ] {
        let mut connection = send(address, &request).await;
        // Every answer is the last of its connection.
        let answer = read_until(&mut connection, "the end of the connection").await;
        let begin = format!("HTTP/1.1 {status}");
        assert!(
            answer.starts_with(&begin) && answer.contains(mark),
            "{answer}"
        );
        assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    }
    assert_eq!(
        server.state.shutdown().phase(),
        asynclane_server::Phase::Leaving
    );
}

#[tokio::test]
async fn the_drain_follows_its_delay() {
    let (server, address, served) = leaving(Duration::from_millis(1)).await;
    served.await.unwrap().unwrap();
    assert!(server.state.shutdown().phase() > asynclane_server::Phase::Leaving);
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_drain_aborts_requests_after_its_timeout() {
    let gate = Gate::default();
    let mut options = Options {
        gate: Some(gate.clone()),
        ..Options::default()
    };
    options.settings.timeouts.drain_timeout = Duration::ZERO;
    let (server, _open) = (server_with(options), OpenAtEnd(gate));
    let (stop, stopped) = oneshot::channel::<()>();
    let (address, served) = server.listen(async { drop(stopped.await) }).await;
    let streamed = chat(json!({"stream": true}));
    let mut streamed = send(address, &post_text("/v1/chat/completions", &streamed)).await;
    let head = read_until(&mut streamed, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let mut plain = send(
        address,
        &post_text("/v1/completions", &completion(json!({}))),
    )
    .await;
    server
        .until(|server| server.state.shutdown().in_flight() == 2)
        .await;
    stop.send(()).unwrap();
    let answer = read_until(&mut streamed, "[DONE]").await;
    let (_, body) = answer.split_once("data: ").unwrap();
    let error: Value = serde_json::from_str(body.lines().next().unwrap()).unwrap();
    assert_eq!(error["error"]["code"], "shutting_down");
    assert!(
        read_until(&mut plain, "}}")
            .await
            .starts_with("HTTP/1.1 503")
    );
    served.await.unwrap().unwrap();
}

#[tokio::test]
async fn connections_are_kept_and_answers_stay_in_order() {
    let server = server();
    let (address, _) = server.listen(std::future::pending()).await;
    let good = post_text("/v1/completions", &completion(json!({"max_tokens": 3})));
    let bad = post_text("/v1/completions", &json!({}));
    let last = "GET /version HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
    let mut connection = send(address, &format!("{bad}{good}{last}")).await;
    let answers = read_until(&mut connection, "{\"version\":").await;
    let statuses: Vec<_> = answers
        .match_indices("HTTP/1.1 ")
        .map(|(at, found)| answers[at + found.len()..][..3].to_owned())
        .collect();
    assert_eq!(statuses, ["400", "200", "200"], "{answers}");
}

#[tokio::test]
async fn http_1_0_streams_are_not_chunked() {
    let server = server();
    let (address, _) = server.listen(std::future::pending()).await;
    let body = completion(json!({"stream": true, "max_tokens": 8})).to_string();
    let length = body.len();
    let request =
        format!("POST /v1/completions HTTP/1.0\r\ncontent-length: {length}\r\n\r\n{body}");
    let mut connection = send(address, &request).await;
    let answer = read_until(&mut connection, "the end of the connection").await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.0 200"), "{head}");
    assert!(!head.to_lowercase().contains("transfer-encoding"));
    assert!(!events(body).is_empty());
}

#[tokio::test]
async fn incomplete_headers_time_out() {
    let mut options = Options::default();
    options.settings.timeouts.header = Duration::from_millis(5);
    let server = server_with(options);
    let (address, _) = server.listen(std::future::pending()).await;
    for begun in ["", "GET /health HTTP/1.1\r\nhost: te"] {
        let mut connection = send(address, begun).await;
        // Ends when the server closes the connection.
        read_until(&mut connection, "never sent").await;
    }
    assert_eq!(server.get("/health").await.0, StatusCode::OK);
}

#[tokio::test]
async fn header_blocks_have_a_limit() {
    let server = server();
    let (address, _) = server.listen(std::future::pending()).await;
    let padding = "x".repeat(70_000);
    let request = format!("GET /health HTTP/1.1\r\nhost: test\r\nx-padding: {padding}\r\n\r\n");
    let mut connection = send(address, &request).await;
    let answer = read_until(&mut connection, "\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
}

#[tokio::test]
async fn other_requests_in_the_batch_change_nothing() {
    let server = server();
    let fields = json!({"temperature": 0.8, "seed": 4, "max_tokens": 40});
    let alone = server.complete(fields.clone()).await;
    let neighbours = async {
        let others = (0..6).map(|seed| {
            server.complete(json!({"temperature": 1.0, "seed": seed, "n": 2, "prompt": "Ben"}))
        });
        futures_util::future::join_all(others).await
    };
    let (_, together) = tokio::join!(neighbours, server.complete(fields));
    assert_eq!(together["choices"], alone["choices"]);
    assert_eq!(together["usage"], alone["usage"]);
}
