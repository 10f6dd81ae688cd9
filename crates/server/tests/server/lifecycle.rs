//! Lifecycles of sequences and connections: disconnects, overload, drain.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::*;
use asynclane_server::Phase;
use futures_util::StreamExt;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tower::ServiceExt;

/// A server with these places, whose first pass waits at a gate.
fn gated_places(max_running: u32, max_waiting: u32) -> (Server, OpenAtEnd) {
    gated(|options| (options.max_running, options.max_waiting) = (max_running, max_waiting))
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_sequence() {
    for stream in [false, true] {
        let (server, gate) = gated_places(8, 8);
        let body = completion(json!({"max_tokens": 300, "ignore_eos": true, "stream": stream}));
        let connection = send(server.address().await, &post_text(COMPLETIONS, &body)).await;
        // The gate holds the first pass: the sequence stays in the batch.
        server.until_steps(1).await;
        server.until_in_flight(1).await;
        drop(connection);
        server.state.shutdown().drained().await;
        gate.0.open();
        server.until_idle().await;
        let steps = server.counters.steps();
        assert!(steps <= 2, "the sequence ended at a step boundary");
        let metrics = server.metrics().await;
        assert_eq!(outcomes(&metrics, COMPLETIONS, "cancelled"), 1.0);
    }
}

#[tokio::test]
async fn tokens_that_a_client_did_not_wait_for_count_too() {
    let server = server();
    let body = completion(json!({"max_tokens": 400, "ignore_eos": true, "stream": true,
        "prompt": [9, 8, 7]}));
    let request = request("POST", COMPLETIONS, &[], body.to_string());
    let stream = server.router.clone().oneshot(request).await.unwrap();
    let mut frames = stream.into_body().into_data_stream();
    frames.next().await.unwrap().unwrap();
    drop(frames);
    server.state.shutdown().drained().await;
    let metrics = server.metrics().await;
    assert_eq!(outcomes(&metrics, COMPLETIONS, "cancelled"), 1.0);
    assert_eq!(metric(&metrics, "prompt_tokens_total"), 3.0);
    assert!(metric(&metrics, "generation_tokens_total") > 0.0);
    assert_eq!(metric(&metrics, "request_prompt_tokens_count"), 0.0);
    server.until_idle().await;
}

#[tokio::test]
async fn a_full_queue_refuses_whole_requests() {
    let (server, gate) = gated_places(1, 3);
    let ask = |fields: Value| {
        let (server, body) = (server.clone(), completion(fields).to_string());
        tokio::spawn(async move { server.send("POST", COMPLETIONS, &[], body).await })
    };
    let first = ask(json!({"max_tokens": 4}));
    server.until_steps(1).await;
    let second = ask(json!({"max_tokens": 4, "n": 2}));
    server.until_in_flight(2).await;
    // Submission takes the places of the queue, so no step of the engine is needed.
    let reply = ask(json!({"n": 3})).await.unwrap();
    assert_eq!(reply.fault(429), "overloaded");
    assert_eq!(reply.json()["error"]["type"], "rate_limit_error");
    let seconds: u32 = reply.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=30).contains(&seconds));
    // One that never fits is not worth another try.
    let four = json!({"n": 4});
    let refused = server.refused(COMPLETIONS, &four, "invalid_value", "n");
    let message = refused.await;
    let limit = "at most 3 sequences (engine.max_waiting)";
    assert!(message.contains(limit), "{message}");
    gate.0.open();
    for answer in [first, second] {
        assert_eq!(answer.await.unwrap().status, 200);
    }
    server.until_idle().await;
    server.complete(json!({"n": 3, "max_tokens": 2})).await;
}

/// Lets one pass run; returns when the next one waits at the gate or nothing is left to run. The
/// engine's load is then the load after the pass.
async fn one_pass(server: &Server, gate: &OpenAtEnd) {
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
    let (server, gate) = gated_places(1, 8);
    let order = Arc::new(Mutex::new(Vec::new()));
    let first = {
        let (server, order) = (server.clone(), Arc::clone(&order));
        tokio::spawn(async move {
            server.complete(json!({"max_tokens": 30})).await;
            order.lock().unwrap().push(None);
        })
    };
    let mut answers = vec![first];
    // The first one holds the only place of the batch.
    server.until_steps(1).await;
    for (turn, priority) in (1_u32..).zip([7, 0, -3, 0, i32::MAX]) {
        let fields = json!({"priority": priority, "max_tokens": 4, "stream": true});
        let (path, body) = match turn % 2 {
            0 => (CHAT, chat(fields)),
            _ => (COMPLETIONS, completion(fields)),
        };
        // The headers come once the sequence is with the engine.
        let request = request("POST", path, &[], body.to_string());
        let stream = server.router.clone().oneshot(request).await.unwrap();
        let order = Arc::clone(&order);
        let mut frames = stream.into_body().into_data_stream();
        answers.push(tokio::spawn(async move {
            while frames.next().await.is_some() {}
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
        let seen = || order.lock().unwrap().len();
        server.until(|_| seen() == ended as usize).await;
    }
    for answer in answers {
        answer.await.unwrap();
    }
    let expected = [None, Some(-3), Some(0), Some(0), Some(7), Some(i32::MAX)];
    assert_eq!(*order.lock().unwrap(), expected);
}

type Served = JoinHandle<std::io::Result<()>>;

/// Serves until the test sends its signal.
async fn stoppable(server: &Server) -> (oneshot::Sender<()>, SocketAddr, Served) {
    let (stop, stopped) = oneshot::channel::<()>();
    let (address, served) = server.listen(async { drop(stopped.await) }).await;
    (stop, address, served)
}

async fn assert_closed(served: Served, address: SocketAddr) {
    served.await.unwrap().unwrap();
    let connection = TcpStream::connect(address).await;
    assert!(connection.is_err(), "the port is closed");
}

#[tokio::test]
async fn a_drain_lets_accepted_requests_finish() {
    let (server, gate) = gated_places(8, 8);
    let (stop, address, served) = stoppable(&server).await;
    let body = completion(json!({"stream": true, "max_tokens": 30}));
    let mut accepted = send(address, &post_text(COMPLETIONS, &body)).await;
    server.until_steps(1).await;
    stop.send(()).unwrap();
    server.state.shutdown().reached(Phase::Draining).await;
    for (request, status) in [
        (post_text(COMPLETIONS, &body), "503"),
        (get_text("/ready"), "503"),
        (get_text("/health"), "200"),
    ] {
        let answer = read_until(&mut send(address, &request).await, "}").await;
        let begin = format!("HTTP/1.1 {status}");
        assert!(answer.starts_with(&begin), "{answer}");
        let is_leaving = answer.contains("shutting_down");
        assert_eq!(is_leaving, status == "503", "{answer}");
    }
    gate.0.open();
    let answer = read_until(&mut accepted, "\r\n0\r\n\r\n").await;
    assert!(answer.contains("\"finish_reason\":\"") && answer.contains("data: [DONE]"));
    assert_closed(served, address).await;
}

/// A server with the drain delay `delay` after its shutdown signal.
async fn leaving(delay: Duration) -> (Server, SocketAddr, Served) {
    let server = server_where(|options| options.settings.timeouts.drain_delay = delay);
    let (address, served) = server.listen(std::future::ready(())).await;
    (server, address, served)
}

#[tokio::test]
async fn requests_are_taken_for_the_drain_delay() {
    // Far longer than the test, so that the test sees the delay alone.
    let (server, address, _served) = leaving(Duration::from_secs(3600)).await;
    server.state.shutdown().reached(Phase::Leaving).await;
    let body = completion(json!({"max_tokens": 3}));
    for (request, status, mark) in rows! {
        "GET /ready HTTP/1.1\r\nhost: test\r\n\r\n", "503", "shutting_down";
        "GET /health HTTP/1.1\r\nhost: test\r\n\r\n", "200", "ok";
        &post_text(COMPLETIONS, &body), "200", "finish_reason";
    } {
        // Every answer is the last of its connection.
        let answer = all(address, request).await;
        assert_eq!(statuses(&answer), [status], "{answer}");
        assert!(answer.contains(mark), "{answer}");
        assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    }
    assert_eq!(server.state.shutdown().phase(), Phase::Leaving);
}

#[tokio::test]
async fn the_drain_follows_its_delay() {
    let (server, address, served) = leaving(Duration::from_millis(1)).await;
    assert_closed(served, address).await;
    assert!(server.state.shutdown().phase() > Phase::Leaving);
}

#[tokio::test]
async fn a_drain_aborts_requests_after_its_timeout() {
    let (server, _open) = gated(|options| options.settings.timeouts.drain_timeout = Duration::ZERO);
    let (stop, address, served) = stoppable(&server).await;
    let streamed = post_text(CHAT, &chat(json!({"stream": true})));
    let mut streamed = send(address, &streamed).await;
    let head = read_until(&mut streamed, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let plain = post_text(COMPLETIONS, &completion(json!({})));
    let mut plain = send(address, &plain).await;
    server.until_in_flight(2).await;
    stop.send(()).unwrap();
    let answer = read_until(&mut streamed, "[DONE]").await;
    let (_, body) = answer.split_once("data: ").unwrap();
    let error: Value = serde_json::from_str(body.lines().next().unwrap()).unwrap();
    assert_eq!(error["error"]["code"], "shutting_down");
    let answer = read_until(&mut plain, "}}").await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    served.await.unwrap().unwrap();
}

#[tokio::test]
async fn other_requests_in_the_batch_change_nothing() {
    let server = server();
    let fields = json!({"temperature": 0.8, "seed": 4, "max_tokens": 40});
    let alone = server.complete(fields.clone()).await;
    let others = (0..6).map(|seed| {
        server.complete(json!({"temperature": 1.0, "seed": seed, "n": 2, "prompt": "Ben"}))
    });
    let others = futures_util::future::join_all(others);
    let (_, together) = tokio::join!(others, server.complete(fields));
    assert_eq!(together["choices"], alone["choices"]);
    assert_eq!(together["usage"], alone["usage"]);
}
