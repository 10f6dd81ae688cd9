//! HTTP: framing, versions, methods, request ids, CORS.

use std::collections::BTreeSet;

use crate::common::*;
use tokio::io::AsyncWriteExt;

/// A request behind another one, which must not be taken for its body.
const HIDDEN: &str = "GET /version HTTP/1.1\r\nhost: test\r\n\r\n";

fn few_tokens() -> Value {
    completion(json!({"max_tokens": 3}))
}

/// The head of a POST request with these headers.
fn head(path: &str, headers: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: test\r\n{headers}\r\n\r\n")
}

/// RFC 9112 §6.1: a request with both lengths is the last of its connection, whichever comes first
/// and however it is padded.
#[tokio::test]
async fn a_request_with_two_lengths_ends_its_connection() {
    let server = server();
    let address = server.address().await;
    let good = post_text(COMPLETIONS, &few_tokens());
    for lengths in [
        "content-length: 5\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 5",
        "Transfer-Encoding: chunked\r\nContent-Length: 0",
        "Content-Length: 44\r\nTransfer-Encoding:\t chunked \t",
        "Transfer-Encoding: chunked \r\nContent-Length: \t5\t",
        "TRANSFER-ENCODING:chunked\r\nCONTENT-LENGTH:5",
        "content-length: 5\r\nx: y\r\ntransfer-encoding: chunked\r\ncontent-length: 5",
        "transfer-encoding: chunked\r\ncontent-length: +5",
        "transfer-encoding: chunked\r\ncontent-length: x",
    ] {
        for path in [COMPLETIONS, "/nowhere"] {
            let bad = head(path, lengths) + "0\r\n\r\n";
            let answers = all(address, &format!("{good}{bad}{HIDDEN}")).await;
            let found = statuses(&answers);
            assert_eq!(found.len(), 2, "{lengths:?}: {answers}");
            assert_eq!(found[0], "200", "{lengths:?}: {answers}");
            assert!(found[1].starts_with('4'), "{lengths:?}: {answers}");
            assert!(!answers.contains("\"version\""), "{lengths:?}: {answers}");
        }
    }
}

/// The chunks frame the body, not the stated length, and nothing after them is a request.
#[tokio::test]
async fn a_smuggled_request_is_never_answered() {
    let server = server();
    let address = server.address().await;
    let body = few_tokens().to_string();
    for lengths in [
        "content-length: 4\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 4",
    ] {
        let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
        let request = head(COMPLETIONS, lengths) + &chunked + HIDDEN;
        let answers = all(address, &request).await;
        assert_eq!(statuses(&answers), ["200"], "{answers}");
        assert!(answers.contains("connection: close"), "{answers}");
        assert!(!answers.contains("\"version\""), "{answers}");
    }
    assert_eq!(server.get("/health").await.status, 200);
}

#[tokio::test]
async fn broken_framing_is_refused_or_cut() {
    let server = server();
    let address = server.address().await;
    let lengths = rows! {
        "content-length: -1"; "content-length: +5"; "content-length: 1x"; "content-length: 0x5";
        "content-length: 5, 5"; "content-length: 1\r\ncontent-length: 2";
        "content-length: 99999999999999999999"; "content-length: 5\r\n 6"; "content-length : 5";
        "transfer-encoding: gzip"; "transfer-encoding: chunked, gzip";
        "transfer-encoding: chunked\r\ntransfer-encoding: gzip"; "transfer-encoding: xchunked";
        "transfer-encoding:\r\n chunked"; "transfer-encoding: chunked\r\n , gzip";
        "transfer-encoding : chunked"; "transfer-encoding: chunked\r\n\tcontent-length: 5";
        "content-length: 5\r\ntransfer-encoding: chunked, gzip";
        "transfer-encoding: identity\r\ncontent-length: 5";
    };
    let lengths = lengths.map(|lengths| head("/tokenize", lengths) + "0\r\n\r\n");
    let chunked = head("/tokenize", "transfer-encoding: chunked");
    let others = [
        "POST /tokenize HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        &format!("{chunked}zz\r\n"),
        &format!("{chunked}1\r\n{{}}\r\n0\r\n\r\n"),
        "GET /health HTTP/3.7\r\nhost: test\r\n\r\n",
        "GET /health\r\nhost: test\r\n\r\n",
        "GET /health HTTP/1.1\r\nhost test\r\n\r\n",
        "GET /health HTTP/1.1\r\nhost : test\r\n\r\n",
        "GET /he alth HTTP/1.1\r\nhost: test\r\n\r\n",
        "GET /health HTTP/1.1\r\nhost: test\r\nx: a\0b\r\n\r\n",
        "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\u{fc}\u{3}\u{3}\r\n\r\n",
    ];
    for bad in lengths.into_iter().chain(others.map(str::to_owned)) {
        let answer = all(address, &format!("{bad}{HIDDEN}")).await;
        let found = statuses(&answer);
        let is_refusal = found.iter().all(|status| status.starts_with('4'));
        assert!(found.len() <= 1 && is_refusal, "{bad:?}: {answer}");
    }
    assert_eq!(server.get("/health").await.status, 200);
}

#[tokio::test]
async fn connections_are_kept_and_answers_stay_in_order() {
    let server = server();
    let address = server.address().await;
    let body = few_tokens().to_string();
    let good = post_text(COMPLETIONS, &few_tokens());
    let bad = post_text(COMPLETIONS, &json!({}));
    // Equal lengths stated twice are one length.
    let length = format!("content-length: {}", body.len());
    let lengths = format!("{length}\r\nContent-Length: {}", body.len());
    let twice = head(COMPLETIONS, &lengths) + &body;
    // A body may come in chunks.
    let (first, second) = body.split_at(11);
    let chunks = [first, second].map(|part| format!("{:X};a=b\r\n{part}\r\n", part.len()));
    let chunked = head(COMPLETIONS, "transfer-encoding: chunked") + &chunks.concat();
    let chunked = chunked + "0\r\nx-trailer: 1\r\n\r\n";
    let last = get_text("/version");
    let requests = [bad, good, twice, chunked.clone(), chunked, last].concat();
    let answers = all(address, &requests).await;
    let expected = ["400", "200", "200", "200", "200", "200"];
    assert_eq!(statuses(&answers), expected, "{answers}");
    let plain = server.complete(json!({"max_tokens": 3})).await;
    let text = json!(text(&plain)).to_string();
    assert_eq!(answers.matches(&text).count(), 4, "{answers}");
}

#[tokio::test]
async fn expect_100_continue_is_answered() {
    let server = server();
    let address = server.address().await;
    let body = few_tokens().to_string();
    let expecting = |length: usize| {
        let headers = format!("expect: 100-continue\r\ncontent-length: {length}");
        head(COMPLETIONS, &headers)
    };
    let mut connection = send(address, &expecting(body.len())).await;
    let answer = read_until(&mut connection, "\r\n\r\n").await;
    assert_eq!(answer, "HTTP/1.1 100 Continue\r\n\r\n");
    connection.write_all(body.as_bytes()).await.unwrap();
    let answer = read_until(&mut connection, "\"usage\"").await;
    assert_eq!(statuses(&answer), ["200"], "{answer}");

    // A refusal comes before the body is sent.
    let mut connection = send(address, &expecting(17 << 20)).await;
    let answer = read_until(&mut connection, "}}").await;
    assert_eq!(statuses(&answer), ["413"], "{answer}");
    assert!(answer.contains("request_too_large"), "{answer}");
}

#[tokio::test]
async fn http_1_0_is_kept_on_request_and_not_chunked() {
    let server = server();
    let address = server.address().await;
    let kept = "GET /version HTTP/1.0\r\nconnection: keep-alive\r\n\r\n";
    let last = "GET /version HTTP/1.0\r\n\r\n";
    for (requests, count) in [(format!("{kept}{kept}{last}"), 3), (format!("{last}{kept}"), 1)] {
        let answers = all(address, &requests).await;
        assert_eq!(answers.matches("HTTP/1.0 200").count(), count, "{answers}");
        assert_eq!(answers.matches("{\"version\":").count(), count, "{answers}");
    }
    let stream = completion(json!({"stream": true, "max_tokens": 8}));
    let stream = post_text(COMPLETIONS, &stream);
    let answer = all(address, &stream.replace("HTTP/1.1", "HTTP/1.0")).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.0 200"), "{head}");
    assert!(!head.to_lowercase().contains("transfer-encoding"));
    assert!(!events(body).is_empty());
}

#[tokio::test]
async fn the_answer_to_head_is_the_head_of_the_answer() {
    let server = server();
    let get = HIDDEN;
    let requests = get.replace("GET", "HEAD") + get + &get_text("/version");
    let answers = all(server.address().await, &requests).await;
    let parts: Vec<_> = answers.split("\r\n\r\n").collect();
    // The head of the first answer is followed at once by the second.
    assert_eq!(parts.len(), 4, "{answers}");
    let length = |head: &str| {
        let mut lines = head.lines();
        let length = lines.find_map(|line| line.strip_prefix("content-length: "));
        length.unwrap().to_owned()
    };
    assert_eq!(statuses(&answers), ["200"; 3], "{answers}");
    assert_eq!(length(parts[0]), length(parts[1]));
    assert!(parts[2].starts_with("{\"version\":"), "{answers}");
}

#[tokio::test]
async fn accept_headers_are_ignored() {
    let body = completion(json!({"max_tokens": 64, "ignore_eos": true})).to_string();
    let headers = [("accept", "text/html"), ("accept-encoding", "gzip, br, zstd")];
    let reply = server().send("POST", COMPLETIONS, &headers, body).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.headers["content-type"], "application/json");
    assert!(!reply.headers.contains_key("content-encoding"));
    assert!(reply.json().is_object());
}

#[tokio::test]
async fn every_answer_has_an_id_its_own_or_the_clients() {
    let server = server_where(|options| options.settings.limits.max_body_bytes = 1000);
    let streamed = completion(json!({"stream": true}));
    let none = Value::Null;
    let (short, long) = ("x".repeat(128), "x".repeat(129));
    let mut seen = BTreeSet::new();
    for (method, path, body, expected) in rows! {
        "GET", "/health", &none, 200; "GET", "/metrics", &none, 200; "GET", "/nowhere", &none, 404;
        "PUT", COMPLETIONS, &none, 405; "OPTIONS", COMPLETIONS, &none, 204;
        "POST", COMPLETIONS, &json!({}), 400; "POST", COMPLETIONS, &json!("x".repeat(1000)), 413;
        "POST", COMPLETIONS, &few_tokens(), 200; "POST", COMPLETIONS, &streamed, 200;
    } {
        for (given, is_kept) in rows! {
            "A.b_c:d/e-9", true; &*short, true; &*long, false; "a b", false; "é", false; "", false;
        } {
            let headers = [("x-request-id", given)];
            let reply = server.send(method, path, &headers, body.to_string()).await;
            assert_eq!(reply.status, expected, "{method} {path}");
            assert_eq!(reply.headers.get_all("x-request-id").iter().count(), 1);
            let id = reply.header("x-request-id").unwrap().to_owned();
            assert_eq!(id == given, is_kept, "{method} {path} {given}: {id}");
            assert!(is_kept || id.starts_with("req-"), "{id}");
            assert!(is_kept || seen.insert(id), "{method} {path}: an id twice");
        }
        let reply = server.send(method, path, &[], body.to_string()).await;
        let id = reply.header("x-request-id").unwrap().to_owned();
        assert!(seen.insert(id), "{method} {path}: an id comes twice");
    }
}

/// A server with a key; browsers of any origin may read its answers if `cors`.
fn server_of_pages(cors: bool) -> Server {
    server_where(|options| {
        options.settings.cors = cors;
        options.settings.keys = one_key("secret");
    })
}

const ORIGIN: (&str, &str) = ("origin", "https://page.example");

/// The response to a browser's preflight request.
async fn preflight(cors: bool) -> Reply {
    let names = "authorization,content-type,x-request-id";
    let headers = [
        ORIGIN,
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", names),
    ];
    let server = server_of_pages(cors);
    server.send("OPTIONS", COMPLETIONS, &headers, "").await
}

#[tokio::test]
async fn cors_allows_other_origins() {
    let reply = preflight(true).await;
    assert!(reply.status.is_success(), "no key is needed: {reply:?}");
    assert_eq!(reply.headers["access-control-allow-origin"], "*");
    let methods = reply.header("access-control-allow-methods").unwrap();
    assert!(methods == "*" || methods.contains("POST"), "{methods}");
    // A wildcard would not cover authorization.
    let allowed = reply.header("access-control-allow-headers").unwrap();
    let allowed: Vec<_> = allowed.split(',').map(str::trim).collect();
    for name in ["authorization", "content-type", "x-request-id"] {
        assert!(allowed.contains(&name), "{allowed:?}");
    }
    // Answers and errors, with the headers that a page may read.
    let server = server_of_pages(true);
    for (key, status) in [("Bearer secret", 200), ("", 401)] {
        let headers = [ORIGIN, ("authorization", key)];
        let body = few_tokens().to_string();
        let reply = server.send("POST", COMPLETIONS, &headers, body).await;
        assert_eq!(reply.status, status);
        assert_eq!(reply.headers["access-control-allow-origin"], "*");
        let credentials = "access-control-allow-credentials";
        assert!(!reply.headers.contains_key(credentials));
        let exposed = reply.header("access-control-expose-headers").unwrap();
        for name in ["x-request-id", "retry-after"] {
            assert!(exposed == "*" || exposed.contains(name), "{exposed}");
        }
    }
}

#[tokio::test]
async fn without_cors_there_are_no_cors_headers() {
    let server = server_of_pages(false);
    let health = server.send("GET", "/health", &[ORIGIN], "").await;
    assert_eq!(health.status, 200);
    for reply in [preflight(false).await, health] {
        let mut names = reply.headers.keys().map(|name| name.as_str());
        assert!(!names.any(|name| name.starts_with("access-control-")));
    }
}
