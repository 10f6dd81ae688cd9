//! HTTP: framing, versions, methods, request ids, CORS, many connections.

use std::collections::BTreeSet;

use crate::common::{Options, completion, post_text, read_until, send, server, server_with};
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

const COMPLETIONS: &str = "/v1/completions";
/// Never sent: waiting for it reads to the end of the connection.
const END: &str = "the end of the connection";
/// Every path with its methods.
const METHODS: [(&str, &str); 18] = [
    (COMPLETIONS, "POST, OPTIONS"),
    ("/v1/chat/completions", "POST, OPTIONS"),
    ("/v1/diffusion/trace", "POST, OPTIONS"),
    ("/tokenize", "POST, OPTIONS"),
    ("/detokenize", "POST, OPTIONS"),
    ("/tokenizer_info", "GET, HEAD, OPTIONS"),
    ("/v1/models", "GET, HEAD, OPTIONS"),
    ("/v1/models/org/demo", "GET, HEAD, OPTIONS"),
    ("/v1/loads", "GET, HEAD, OPTIONS"),
    ("/health", "GET, HEAD, OPTIONS"),
    ("/ping", "GET, HEAD, OPTIONS"),
    ("/ready", "GET, HEAD, OPTIONS"),
    ("/version", "GET, HEAD, OPTIONS"),
    ("/load", "GET, HEAD, OPTIONS"),
    ("/metrics", "GET, HEAD, OPTIONS"),
    ("/v1/models?limit=1", "GET, HEAD, OPTIONS"),
    ("/", "GET, HEAD, OPTIONS"),
    ("/playground/main.js", "GET, HEAD, OPTIONS"),
];

fn few_tokens() -> Value {
    completion(json!({"max_tokens": 3}))
}

/// The statuses of all answers in `text`.
fn statuses(text: &str) -> Vec<&str> {
    let lines = text.match_indices("HTTP/1.1 ");
    lines
        .map(|(at, found)| &text[at + found.len()..][..3])
        .collect()
}

/// All bytes that the server sends on a connection after `request`.
async fn all(address: std::net::SocketAddr, request: &str) -> String {
    let mut connection = send(address, request).await;
    read_until(&mut connection, END).await
}

/// RFC 9112 §6.1: a request with both lengths is the last of its connection, whichever comes first
/// and however it is padded.
#[tokio::test]
async fn a_request_with_two_lengths_ends_its_connection() {
    let server = server();
    let (address, _) = server.listen(std::future::pending()).await;
    let good = post_text(COMPLETIONS, &few_tokens());
    let hidden = "GET /version HTTP/1.1\r\nhost: test\r\n\r\n";
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
            let bad = format!("POST {path} HTTP/1.1\r\nhost: test\r\n{lengths}\r\n\r\n0\r\n\r\n");
            let answers = all(address, &format!("{good}{bad}{hidden}")).await;
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
    let (address, _) = server.listen(std::future::pending()).await;
    let body = few_tokens().to_string();
    let hidden = "GET /version HTTP/1.1\r\nhost: test\r\n\r\n";
    for (first, second) in [
        ("content-length: 4", "transfer-encoding: chunked"),
        ("transfer-encoding: chunked", "content-length: 4"),
    ] {
        let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
        let request = format!(
            "POST {COMPLETIONS} HTTP/1.1\r\nhost: test\r\n{first}\r\n{second}\r\n\r\n\
             {chunked}{hidden}"
        );
        let answers = all(address, &request).await;
        assert_eq!(statuses(&answers), ["200"], "{answers}");
        assert!(answers.contains("connection: close"), "{answers}");
        assert!(!answers.contains("\"version\""), "{answers}");
    }
    assert_eq!(server.get("/health").await.0, StatusCode::OK);
}

#[tokio::test]
async fn broken_framing_is_refused_or_cut() {
    let server = server();
    let (address, _) = server.listen(std::future::pending()).await;
    let hidden = "GET /version HTTP/1.1\r\nhost: test\r\n\r\n";
    let framed = |lengths: &str| {
        format!("POST /tokenize HTTP/1.1\r\nhost: test\r\n{lengths}\r\n\r\n0\r\n\r\n")
    };
    let lengths = [
        "content-length: -1",
        "content-length: +5",
        "content-length: 1x",
        "content-length: 0x5",
        "content-length: 5, 5",
        "content-length: 1\r\ncontent-length: 2",
        "content-length: 99999999999999999999",
        "content-length: 5\r\n 6",
        "content-length : 5",
        "transfer-encoding: gzip",
        "transfer-encoding: chunked, gzip",
        "transfer-encoding: chunked\r\ntransfer-encoding: gzip",
        "transfer-encoding: xchunked",
        "transfer-encoding:\r\n chunked",
        "transfer-encoding: chunked\r\n , gzip",
        "transfer-encoding : chunked",
        "transfer-encoding: chunked\r\n\tcontent-length: 5",
        "content-length: 5\r\ntransfer-encoding: chunked, gzip",
        "transfer-encoding: identity\r\ncontent-length: 5",
    ];
    let lengths = lengths.map(framed);
    let others = [
        "POST /tokenize HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /tokenize HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        "POST /tokenize HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n\
         1\r\n{}\r\n0\r\n\r\n",
        "GET /health HTTP/3.7\r\nhost: test\r\n\r\n",
        "GET /health\r\nhost: test\r\n\r\n",
        "GET /health HTTP/1.1\r\nhost test\r\n\r\n",
        "GET /health HTTP/1.1\r\nhost : test\r\n\r\n",
        "GET /he alth HTTP/1.1\r\nhost: test\r\n\r\n",
        "GET /health HTTP/1.1\r\nhost: test\r\nx: a\0b\r\n\r\n",
        "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\u{fc}\u{3}\u{3}\r\n\r\n",
    ];
    let others = others.map(str::to_owned);
    for bad in lengths.into_iter().chain(others) {
        let answer = all(address, &format!("{bad}{hidden}")).await;
        let found = statuses(&answer);
        assert!(found.len() <= 1, "{bad:?}: {answer}");
        assert!(
            found.iter().all(|status| status.starts_with('4')),
            "{bad:?}: {answer}"
        );
    }
    assert_eq!(server.get("/health").await.0, StatusCode::OK);
}

/// Equal lengths stated twice are one length.
#[tokio::test]
async fn the_same_length_twice_is_one() {
    let server = server();
    let (address, _) = server.listen(std::future::pending()).await;
    let body = few_tokens().to_string();
    let length = body.len();
    let last = "GET /version HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
    let request = format!(
        "POST {COMPLETIONS} HTTP/1.1\r\nhost: test\r\ncontent-length: {length}\r\n\
         Content-Length: {length}\r\n\r\n{body}{last}"
    );
    let answers = all(address, &request).await;
    assert_eq!(statuses(&answers), ["200", "200"], "{answers}");
}

#[tokio::test]
async fn bodies_may_come_in_chunks() {
    let server = server();
    let (address, _) = server.listen(std::future::pending()).await;
    let plain = server.complete(json!({"max_tokens": 3})).await;
    let body = few_tokens().to_string();
    let (first, second) = body.split_at(11);
    let chunks = [first, second].map(|part| format!("{:X};a=b\r\n{part}\r\n", part.len()));
    let request = format!(
        "POST {COMPLETIONS} HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n\
         {}0\r\nx-trailer: 1\r\n\r\n",
        chunks.concat()
    );
    let last = "GET /version HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
    let answers = all(address, &format!("{request}{request}{last}")).await;
    assert_eq!(statuses(&answers), ["200", "200", "200"], "{answers}");
    let text = plain["choices"][0]["text"].to_string();
    assert_eq!(answers.matches(&text).count(), 2, "{answers}");
}

#[tokio::test]
async fn expect_100_continue_is_answered() {
    let server = server();
    let (address, _) = server.listen(std::future::pending()).await;
    let body = few_tokens().to_string();
    let head = |length: usize| {
        format!(
            "POST {COMPLETIONS} HTTP/1.1\r\nhost: test\r\nexpect: 100-continue\r\n\
             content-length: {length}\r\n\r\n"
        )
    };
    let mut connection = send(address, &head(body.len())).await;
    let answer = read_until(&mut connection, "\r\n\r\n").await;
    assert_eq!(answer, "HTTP/1.1 100 Continue\r\n\r\n");
    connection.write_all(body.as_bytes()).await.unwrap();
    let answer = read_until(&mut connection, "\"usage\"").await;
    assert_eq!(statuses(&answer), ["200"], "{answer}");

    // A refusal comes before the body is sent.
    let mut connection = send(address, &head(17 << 20)).await;
    let answer = read_until(&mut connection, "}}").await;
    assert_eq!(statuses(&answer), ["413"], "{answer}");
    assert!(answer.contains("request_too_large"), "{answer}");
}

#[tokio::test]
async fn http_1_0_connections_are_kept_on_request() {
    let server = server();
    let (address, _) = server.listen(std::future::pending()).await;
    let kept = "GET /version HTTP/1.0\r\nconnection: keep-alive\r\n\r\n";
    let last = "GET /version HTTP/1.0\r\n\r\n";
    for (requests, count) in [
        (format!("{kept}{kept}{last}"), 3),
        (format!("{last}{kept}"), 1),
    ] {
        let answers = all(address, &requests).await;
        assert_eq!(answers.matches("HTTP/1.0 200").count(), count, "{answers}");
        assert_eq!(answers.matches("{\"version\":").count(), count, "{answers}");
    }
}

#[tokio::test]
async fn heads_are_those_of_the_answer() {
    let server = server();
    let (address, _) = server.listen(std::future::pending()).await;
    let ask = |method: &str| format!("{method} /version HTTP/1.1\r\nhost: test\r\n\r\n");
    let last = "GET /version HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
    let answers = all(address, &format!("{}{}{last}", ask("HEAD"), ask("GET"))).await;
    let parts: Vec<_> = answers.split("\r\n\r\n").collect();
    // The head of the first answer is followed at once by the second.
    assert_eq!(parts.len(), 4, "{answers}");
    let length = |head: &str| {
        let lines = head.lines();
        let mut lengths = lines.filter_map(|line| line.strip_prefix("content-length: "));
        lengths.next().unwrap().to_owned()
    };
    assert!(parts[1].starts_with("HTTP/1.1 200"), "{answers}");
    assert_eq!(length(parts[0]), length(parts[1]));
    assert!(parts[2].starts_with("{\"version\":"), "{answers}");
}

#[tokio::test]
async fn every_path_tells_its_methods() {
    let server = server();
    let with = async |method: Method, path: &str| {
        let request = Request::builder().method(method).uri(path);
        server.call(request.body(Body::empty()).unwrap()).await
    };
    for (path, methods) in METHODS {
        let (status, headers, body) = with(Method::OPTIONS, path).await;
        assert_eq!(status, StatusCode::NO_CONTENT, "{path}");
        assert_eq!(headers["allow"], methods, "{path}");
        assert!(body.is_empty(), "{path}");
        for method in [Method::PUT, Method::DELETE, Method::PATCH] {
            let (status, headers, body) = with(method, path).await;
            assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
            assert_eq!(headers["allow"], methods, "{path}");
            let error: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(error["error"]["code"], "method_not_allowed", "{path}");
        }
        let reads = methods.contains("GET");
        for (method, allowed) in [(Method::HEAD, reads), (Method::GET, reads)] {
            let status = with(method, path).await.0;
            assert_eq!(status == StatusCode::METHOD_NOT_ALLOWED, !allowed, "{path}");
        }
    }
    // No path redirects.
    for path in ["/v1/models/", "/health/", "//health", "/v1"] {
        assert_eq!(
            with(Method::GET, path).await.0,
            StatusCode::NOT_FOUND,
            "{path}"
        );
    }
}

#[tokio::test]
async fn accept_headers_are_ignored() {
    let server = server();
    let request = Request::post(COMPLETIONS)
        .header("accept", "text/html")
        .header("accept-encoding", "gzip, br, zstd");
    let body = completion(json!({"max_tokens": 64, "ignore_eos": true})).to_string();
    let (status, headers, body) = server.call(request.body(Body::from(body)).unwrap()).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(headers["content-type"], "application/json");
    assert!(!headers.contains_key("content-encoding"));
    assert!(serde_json::from_slice::<Value>(&body).is_ok());
}

#[tokio::test]
async fn every_answer_has_an_id_of_its_own() {
    let mut options = Options::default();
    options.settings.limits.max_body_bytes = 1000;
    let server = server_with(options);
    let long = json!("x".repeat(1000));
    let requests = [
        (Method::GET, "/health", Value::Null, 200),
        (Method::GET, "/metrics", Value::Null, 200),
        (Method::GET, "/nowhere", Value::Null, 404),
        (Method::PUT, COMPLETIONS, Value::Null, 405),
        (Method::OPTIONS, COMPLETIONS, Value::Null, 204),
        (Method::POST, COMPLETIONS, json!({}), 400),
        (Method::POST, COMPLETIONS, long, 413),
        (Method::POST, COMPLETIONS, few_tokens(), 200),
        (
            Method::POST,
            COMPLETIONS,
            completion(json!({"stream": true})),
            200,
        ),
    ];
    let mut seen = BTreeSet::new();
    for (method, path, body, expected) in requests {
        for given in [None, Some("a:b/c"), Some("a b"), Some("é")] {
            let mut request = Request::builder().method(method.clone()).uri(path);
            if let Some(given) = given {
                request = request.header("x-request-id", given);
            }
            let body = Body::from(body.to_string());
            let (status, headers, _) = server.call(request.body(body).unwrap()).await;
            assert_eq!(status, expected, "{method} {path}");
            assert_eq!(headers.get_all("x-request-id").iter().count(), 1);
            let id = headers["x-request-id"].to_str().unwrap().to_owned();
            if given == Some("a:b/c") {
                assert_eq!(id, "a:b/c", "{method} {path}");
            } else {
                assert!(seen.insert(id), "{method} {path}: an id comes twice");
            }
        }
    }
}

/// A server with a key; browsers of any origin may read its answers if `cors`.
fn for_origins(cors: bool) -> crate::common::Server {
    let mut options = Options::default();
    options.settings.cors = cors;
    options.settings.keys = asynclane_server::ApiKeys::default().with_key("page", "secret");
    server_with(options)
}

/// The response to a browser's preflight request.
async fn preflight(cors: bool) -> (StatusCode, HeaderMap) {
    let request = Request::options(COMPLETIONS)
        .header("origin", "https://page.example")
        .header("access-control-request-method", "POST")
        .header(
            "access-control-request-headers",
            "authorization,content-type,x-request-id",
        )
        .body(Body::empty())
        .unwrap();
    let (status, headers, _) = for_origins(cors).call(request).await;
    (status, headers)
}

#[tokio::test]
async fn cors_allows_other_origins() {
    let (status, headers) = preflight(true).await;
    assert!(status.is_success(), "a key is not asked for: {status}");
    assert_eq!(headers["access-control-allow-origin"], "*");
    let methods = headers["access-control-allow-methods"].to_str().unwrap();
    assert!(methods == "*" || methods.contains("POST"), "{methods}");
    // A wildcard would not cover authorization.
    let allowed = headers["access-control-allow-headers"].to_str().unwrap();
    for name in ["authorization", "content-type", "x-request-id"] {
        assert!(
            allowed.split(',').any(|given| given.trim() == name),
            "{allowed}"
        );
    }
    // Answers and errors, with the headers that a page may read.
    let server = for_origins(true);
    for (key, status) in [
        ("Bearer secret", StatusCode::OK),
        ("", StatusCode::UNAUTHORIZED),
    ] {
        let request = Request::post(COMPLETIONS)
            .header("origin", "https://page.example")
            .header("authorization", key);
        let body = Body::from(few_tokens().to_string());
        let (found, headers, _) = server.call(request.body(body).unwrap()).await;
        assert_eq!(found, status);
        assert_eq!(headers["access-control-allow-origin"], "*");
        assert!(!headers.contains_key("access-control-allow-credentials"));
        let exposed = headers["access-control-expose-headers"].to_str().unwrap();
        let is_exposed = |name| exposed == "*" || exposed.contains(name);
        assert!(
            is_exposed("x-request-id") && is_exposed("retry-after"),
            "{exposed}"
        );
    }
}

#[tokio::test]
async fn without_cors_there_are_no_cors_headers() {
    let (_, headers) = preflight(false).await;
    let is_cors = |name: &axum::http::HeaderName| name.as_str().starts_with("access-control-");
    assert!(!headers.keys().any(is_cors), "{headers:?}");
    let request = Request::get("/health").header("origin", "https://page.example");
    let (status, headers, _) = for_origins(false)
        .call(request.body(Body::empty()).unwrap())
        .await;
    assert_eq!(status, StatusCode::OK);
    assert!(!headers.keys().any(is_cors), "{headers:?}");
}

#[tokio::test]
async fn idle_connections_block_no_request() {
    let server = server();
    let (address, _) = server.listen(std::future::pending()).await;
    let mut idle = Vec::new();
    let unsent =
        format!("POST {COMPLETIONS} HTTP/1.1\r\nhost: test\r\ncontent-length: 90\r\n\r\n{{");
    for begun in [
        "",
        "GET /hea",
        "GET /health HTTP/1.1\r\nhost: te",
        unsent.as_str(),
    ] {
        for _ in 0..75 {
            idle.push(send(address, begun).await);
        }
    }
    let last = "GET /health HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
    let answers = all(
        address,
        &format!("{}{last}", post_text(COMPLETIONS, &few_tokens())),
    )
    .await;
    assert_eq!(statuses(&answers), ["200", "200"], "{answers}");
}

#[tokio::test]
async fn a_dead_engine_fails_probes_and_requests() {
    let server = server_with(Options {
        engine_dies: true,
        ..Options::default()
    });
    for path in ["/health", "/ping", "/ready"] {
        assert_eq!(server.get(path).await.0, StatusCode::OK, "{path}");
    }
    // The request that kills the engine gets no more events; a later one finds no engine.
    let ask = async || server.post(COMPLETIONS, &few_tokens()).await;
    let (status, answer) = ask().await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{answer}");
    assert_eq!(answer["error"]["code"], "internal_error");
    server.until(|server| !server.engine.is_alive()).await;
    let (status, answer) = ask().await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{answer}");
    assert_eq!(answer["error"]["type"], "server_error");
    for path in ["/health", "/ping", "/ready"] {
        let (status, _, body) = server.get(path).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{path}");
        let error: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(error["error"]["type"], "server_error", "{path}");
    }
    for path in ["/version", "/metrics", "/load", "/v1/models"] {
        assert_eq!(server.get(path).await.0, StatusCode::OK, "{path}");
    }
}
