//! Many connections at once, and connections of which the client has closed its side.

use std::net::SocketAddr;
use std::time::Duration;

use crate::common::{
    Gate, OpenAtEnd, Options, Server, completion, post_text, read_until, send, series, server,
    server_with,
};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const HEALTH: &str = "GET /health HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
const COMPLETIONS: &str = "/v1/completions";
/// Far longer than any of these answers takes.
const SOON: Duration = Duration::from_secs(5);

async fn few(most: usize, gate: Option<Gate>) -> (Server, SocketAddr) {
    let mut options = Options {
        gate,
        ..Options::default()
    };
    options.settings.limits.max_connections = most;
    let server = server_with(options);
    let (address, _) = server.listen(std::future::pending()).await;
    (server, address)
}

/// Everything that the server sends after `request`.
async fn answer(address: SocketAddr, request: &str) -> String {
    let mut connection = send(address, request).await;
    let text = read_until(&mut connection, "the end of the connection");
    timeout(SOON, text).await.expect("an answer")
}

fn metric(metrics: &str, name: &str) -> f64 {
    series(
        metrics,
        &format!("asynclane_{name}{{model_name=\"org/demo\"}}"),
    )
}

#[tokio::test]
async fn idle_connections_leave_for_new_ones_the_longest_idle_first() {
    let (server, address) = few(8, None).await;
    let mut idle = Vec::new();
    for _ in 0..40 {
        idle.push(TcpStream::connect(address).await.unwrap());
    }
    let text = answer(address, HEALTH).await;
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    // All but the last few have been closed.
    let mut byte = [0];
    for connection in &mut idle[..32] {
        let read = timeout(SOON, connection.read(&mut byte)).await;
        assert!(matches!(read, Ok(Ok(0) | Err(_))), "{read:?}");
    }
    let last = idle.last_mut().unwrap();
    last.write_all(HEALTH.as_bytes()).await.unwrap();
    let text = timeout(SOON, read_until(last, "}")).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    let metrics = server.metrics().await;
    assert!(metric(&metrics, "connections") <= 8.0);
    assert!(metric(&metrics, "connections_evicted_total") >= 32.0);
    assert_eq!(metric(&metrics, "connections_refused_total"), 0.0);
    assert_eq!(metric(&metrics, "accept_errors_total"), 0.0);
}

#[tokio::test]
async fn probes_are_answered_while_every_connection_is_in_use() {
    let gate = Gate::default();
    let open = OpenAtEnd(gate.clone());
    let (server, address) = few(4, Some(gate)).await;
    let body = completion(json!({"max_tokens": 3}));
    let mut busy = Vec::new();
    for _ in 0..4 {
        busy.push(send(address, &post_text(COMPLETIONS, &body)).await);
    }
    server
        .until(|server| server.state.shutdown().in_flight() == 4)
        .await;
    // More than there are reserved connections.
    for _ in 0..20 {
        for path in [
            "/health",
            "/ready",
            "/metrics",
            "/v1/loads",
            "/load",
            "/ping",
        ] {
            let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n");
            let text = answer(address, &request).await;
            assert!(text.starts_with("HTTP/1.1 200"), "{path}: {text}");
            assert!(text.contains("connection: close"), "{path}: {text}");
        }
    }
    let text = answer(address, &post_text(COMPLETIONS, &body)).await;
    assert!(text.starts_with("HTTP/1.1 429"), "{text}");
    assert!(
        text.contains("\"overloaded\"") && text.contains("retry-after: 1"),
        "{text}"
    );
    // Idle connections do not take the reserved ones either.
    let mut idle = Vec::new();
    for _ in 0..40 {
        idle.push(TcpStream::connect(address).await.unwrap());
    }
    assert!(answer(address, HEALTH).await.starts_with("HTTP/1.1 200"));
    assert_eq!(
        metric(&server.metrics().await, "connections_refused_total"),
        1.0
    );
    open.0.open();
    for mut connection in busy {
        let text = timeout(SOON, read_until(&mut connection, "\"usage\"")).await;
        assert!(text.unwrap().starts_with("HTTP/1.1 200"));
    }
}

#[tokio::test]
async fn a_half_closed_client_gets_its_answer() {
    for (stream, end) in [(false, "\"usage\""), (true, "[DONE]")] {
        let gate = Gate::default();
        let open = OpenAtEnd(gate.clone());
        let (server, address) = few(4, Some(gate)).await;
        let body = completion(json!({"max_tokens": 5, "stream": stream}));
        let mut connection = send(address, &post_text(COMPLETIONS, &body)).await;
        server.until(|server| server.counters.steps() == 1).await;
        connection.shutdown().await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(server.state.shutdown().in_flight(), 1, "stream: {stream}");
        open.0.open();
        let rest = read_until(&mut connection, "the end of the connection");
        let text = timeout(SOON, rest).await.expect("an answer");
        assert!(
            text.contains("HTTP/1.1 200") && text.contains(end),
            "{text}"
        );
        // An answer that had not begun is preceded by an interim one, which clients ignore.
        let interim = text.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200");
        assert_eq!(interim, !stream, "{text}");
    }
}

/// The end of the client's side may arrive together with its last request.
#[tokio::test]
async fn a_client_that_closes_its_side_at_once_gets_all_answers() {
    let server = server();
    let (address, _) = server.listen(std::future::pending()).await;
    let get = "GET /version HTTP/1.1\r\nhost: test\r\n\r\n";
    let tokenize = post_text("/tokenize", &json!({"prompt": "a"}));
    let complete = post_text(COMPLETIONS, &completion(json!({"max_tokens": 3})));
    for requests in [
        vec![get],
        vec![&tokenize],
        vec![&complete],
        vec![&tokenize, get],
        vec![&complete, get, &complete],
        vec![get, &complete, &tokenize],
    ] {
        let mut connection = send(address, &requests.concat()).await;
        connection.shutdown().await.unwrap();
        let text = timeout(SOON, read_until(&mut connection, "never sent")).await;
        let text = text.unwrap();
        let found = text.matches("HTTP/1.1 200").count();
        assert_eq!(found, requests.len(), "{requests:?}: {text}");
    }
}

#[tokio::test]
async fn a_half_closed_client_of_http_1_0_gets_its_answer() {
    let server = server();
    let (address, _) = server.listen(std::future::pending()).await;
    let mut connection = send(address, "GET /health HTTP/1.0\r\n\r\n").await;
    connection.shutdown().await.unwrap();
    let text = timeout(SOON, read_until(&mut connection, "never sent")).await;
    let text = text.unwrap();
    assert!(text.starts_with("HTTP/1.0 200"), "{text}");
    assert!(!text.contains("100 Continue"), "{text}");
}
