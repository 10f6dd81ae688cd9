//! Many connections at once, slow ones, and connections of which the client has closed its side.

use std::net::SocketAddr;
use std::time::Duration;

use crate::common::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Far longer than any of these answers takes.
const SOON: Duration = Duration::from_secs(5);

fn limited(most: usize) -> impl FnOnce(&mut Options) {
    move |options| options.settings.limits.max_connections = most
}

/// The rest of the connection, after the client has closed its side.
async fn rest(mut connection: TcpStream) -> String {
    connection.shutdown().await.unwrap();
    let rest = read_until(&mut connection, END);
    timeout(SOON, rest).await.expect("an answer")
}

async fn answer(address: SocketAddr, request: &str) -> String {
    let answer = timeout(SOON, all(address, request)).await;
    answer.expect("an answer")
}

async fn idle(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let mut idle = Vec::new();
    for _ in 0..count {
        idle.push(TcpStream::connect(address).await.unwrap());
    }
    idle
}

#[tokio::test]
async fn idle_connections_leave_for_new_ones_the_longest_idle_first() {
    let server = server_where(limited(8));
    let address = server.address().await;
    let mut idle = idle(address, 40).await;
    let text = answer(address, &get_text("/health")).await;
    assert_eq!(statuses(&text), ["200"], "{text}");
    // All but the last few have been closed.
    let mut byte = [0];
    for connection in &mut idle[..32] {
        let read = timeout(SOON, connection.read(&mut byte)).await;
        assert!(matches!(read, Ok(Ok(0) | Err(_))), "{read:?}");
    }
    let last = idle.last_mut().unwrap();
    last.write_all(get_text("/health").as_bytes()).await.unwrap();
    let text = timeout(SOON, read_until(last, "}")).await.unwrap();
    assert_eq!(statuses(&text), ["200"], "{text}");
    let metrics = server.metrics().await;
    assert!(metric(&metrics, "connections") <= 8.0);
    assert!(metric(&metrics, "connections_evicted_total") >= 32.0);
    assert_eq!(metric(&metrics, "connections_refused_total"), 0.0);
    assert_eq!(metric(&metrics, "accept_errors_total"), 0.0);
}

#[tokio::test]
async fn probes_are_answered_while_every_connection_is_in_use() {
    let (server, open) = gated(limited(4));
    let address = server.address().await;
    let body = post_text(COMPLETIONS, &completion(json!({"max_tokens": 3})));
    let mut busy = Vec::new();
    for _ in 0..4 {
        busy.push(send(address, &body).await);
    }
    server.until_in_flight(4).await;
    // More than there are reserved connections.
    for _ in 0..20 {
        for path in rows! {
            "/health"; "/ready"; "/metrics"; "/v1/loads"; "/load"; "/ping";
        } {
            let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n");
            let text = answer(address, &request).await;
            assert_eq!(statuses(&text), ["200"], "{path}: {text}");
            assert!(text.contains("connection: close"), "{path}: {text}");
        }
    }
    let text = answer(address, &body).await;
    assert_eq!(statuses(&text), ["429"], "{text}");
    let is_worth_a_retry = text.contains("\"overloaded\"") && text.contains("retry-after: 1");
    assert!(is_worth_a_retry, "{text}");
    // Idle connections do not take the reserved ones either.
    let _idle = idle(address, 40).await;
    let text = answer(address, &get_text("/health")).await;
    assert_eq!(statuses(&text), ["200"], "{text}");
    let metrics = server.metrics().await;
    assert_eq!(metric(&metrics, "connections_refused_total"), 1.0);
    open.0.open();
    for mut connection in busy {
        let text = timeout(SOON, read_until(&mut connection, "\"usage\"")).await;
        assert_eq!(statuses(&text.unwrap()), ["200"]);
    }
}

#[tokio::test]
async fn idle_and_unfinished_connections_block_no_request() {
    let server = server();
    let address = server.address().await;
    let unsent =
        format!("POST {COMPLETIONS} HTTP/1.1\r\nhost: test\r\ncontent-length: 90\r\n\r\n{{");
    let mut idle = Vec::new();
    for begun in ["", "GET /hea", "GET /health HTTP/1.1\r\nhost: te", &unsent] {
        for _ in 0..75 {
            idle.push(send(address, begun).await);
        }
    }
    let body = post_text(COMPLETIONS, &completion(json!({"max_tokens": 3})));
    let answers = all(address, &(body + &get_text("/health"))).await;
    assert_eq!(statuses(&answers), ["200", "200"], "{answers}");
}

#[tokio::test]
async fn incomplete_headers_time_out() {
    let limit = Duration::from_millis(5);
    let server = server_where(|options| options.settings.timeouts.header = limit);
    let address = server.address().await;
    for begun in ["", "GET /health HTTP/1.1\r\nhost: te"] {
        // Ends when the server closes the connection.
        all(address, begun).await;
    }
    assert_eq!(server.get("/health").await.status, 200);
}

#[tokio::test]
async fn header_blocks_have_a_limit() {
    let server = server();
    let padding = "x".repeat(70_000);
    let request = format!("GET /health HTTP/1.1\r\nhost: test\r\nx-padding: {padding}\r\n\r\n");
    let mut connection = send(server.address().await, &request).await;
    let answer = read_until(&mut connection, "\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
}

#[tokio::test]
async fn a_half_closed_client_gets_its_answer() {
    for (stream, end) in [(false, "\"usage\""), (true, "[DONE]")] {
        let (server, open): (Server, _) = gated(limited(4));
        let body = completion(json!({"max_tokens": 5, "stream": stream}));
        let mut connection = send(server.address().await, &post_text(COMPLETIONS, &body)).await;
        server.until_steps(1).await;
        connection.shutdown().await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(server.state.shutdown().in_flight(), 1, "stream: {stream}");
        open.0.open();
        let text = timeout(SOON, read_until(&mut connection, END)).await;
        let text = text.expect("an answer");
        assert_eq!(statuses(&text).last(), Some(&"200"), "{text}");
        assert!(text.contains(end), "{text}");
        // An answer that had not begun is preceded by an interim one, which clients ignore.
        let interim = text.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200");
        assert_eq!(interim, !stream, "{text}");
    }
}

/// The end of the client's side may arrive together with its last request.
#[tokio::test]
async fn a_client_that_closes_its_side_at_once_gets_all_answers() {
    let server = server();
    let address = server.address().await;
    let get = "GET /version HTTP/1.1\r\nhost: test\r\n\r\n";
    let tokenize: &str = &post_text("/tokenize", &json!({"prompt": "a"}));
    let complete: &str = &post_text(COMPLETIONS, &completion(json!({"max_tokens": 3})));
    for requests in [
        vec![get],
        vec![tokenize],
        vec![complete],
        vec![tokenize, get],
        vec![complete, get, complete],
        vec![get, complete, tokenize],
    ] {
        let text = rest(send(address, &requests.concat()).await).await;
        let found = text.matches("HTTP/1.1 200").count();
        assert_eq!(found, requests.len(), "{requests:?}: {text}");
    }
    let text = rest(send(address, "GET /health HTTP/1.0\r\n\r\n").await).await;
    assert!(text.starts_with("HTTP/1.0 200"), "{text}");
    assert!(!text.contains("100 Continue"), "{text}");
}
