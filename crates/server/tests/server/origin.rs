//! A loopback server without API keys checks `Host` and `Origin`.

use crate::common::*;
use axum::http::Version;

fn local() -> Server {
    server_where(|options| options.settings.local_only = true)
}

async fn ask(server: &Server, path: &str, headers: &[(&str, &str)]) -> Reply {
    server.send("GET", path, headers, "").await
}

/// Checks that a request is refused for a header's value.
async fn assert_forbidden(server: &Server, path: &str, headers: &[(&str, &str)], words: [&str; 2]) {
    let reply = ask(server, path, headers).await;
    assert_eq!(reply.fault(403), "forbidden", "{words:?} {path}");
    let error = &reply.json()["error"];
    assert_eq!(error["type"], "invalid_request_error");
    assert!(error["param"].is_null());
    let message = error["message"].as_str().unwrap();
    assert!(words.iter().all(|word| message.contains(word)), "{message}");
}

#[tokio::test]
async fn only_hosts_of_this_machine_are_answered() {
    let server = local();
    for host in rows! {
        "localhost:8000"; "LOCALHOST"; "127.0.0.1"; "127.9.9.9:80"; "[::1]:8000";
    } {
        let reply = ask(&server, "/version", &[("host", host)]).await;
        assert_eq!(reply.status, 200, "{host}");
    }
    // Without the setting any host is accepted.
    let headers = [("host", "api.example.com"), ("origin", "https://page.example")];
    let open = crate::common::server();
    assert_eq!(ask(&open, "/version", &headers).await.status, 200);
    for host in rows! {
        ""; "example.com"; "localhost.example.com:8000"; "0.0.0.0"; "[::2]";
    } {
        for path in ["/", "/version", "/v1/models", "/metrics", "/nowhere"] {
            assert_forbidden(&server, path, &[("host", host)], ["Host", host]).await;
        }
    }
    // Every header counts, not only the first or the last one.
    for hosts in [["localhost", "example.com"], ["example.com", "localhost"]] {
        let headers = hosts.map(|host| ("host", host));
        let reply = ask(&server, "/version", &headers).await;
        assert_eq!(reply.status, 403, "{hosts:?}");
    }
    let (target, headers) = ("http://example.com/version", [("host", "localhost")]);
    assert_eq!(ask(&server, target, &headers).await.status, 403);
}

#[tokio::test]
async fn only_pages_of_this_server_are_answered() {
    let server = local();
    let host = ("host", "127.0.0.1:8000");
    for origin in ["http://127.0.0.1:8000", "https://127.0.0.1:8000"] {
        let reply = ask(&server, "/version", &[host, ("origin", origin)]).await;
        assert_eq!(reply.status, 200, "{origin}");
    }
    for origin in rows! {
        "https://page.example"; "null"; ""; "http://127.0.0.1"; "http://127.0.0.1:8001";
        "http://localhost:8000"; "http://127.0.0.1:8000.page.example"; "file://";
    } {
        for path in ["/version", "/v1/models", "/"] {
            let headers = [host, ("origin", origin)];
            assert_forbidden(&server, path, &headers, ["Origin", origin]).await;
        }
    }
}

#[tokio::test]
async fn a_post_without_a_content_type_reaches_no_engine() {
    let server = local();
    let host = ("host", "localhost");
    for (origin, expected) in [("https://page.example", 403), ("http://localhost", 200)] {
        let body = completion(json!({"max_tokens": 3})).to_string();
        let headers = [host, ("origin", origin)];
        let reply = server.send("POST", COMPLETIONS, &headers, body).await;
        assert_eq!(reply.status, expected, "{origin}");
    }
    let metrics = ask(&server, "/metrics", &[host]).await.text();
    assert_eq!(outcomes(&metrics, COMPLETIONS, "invalid"), 1.0);
    assert_eq!(outcomes(&metrics, COMPLETIONS, "ok"), 1.0);
}

#[tokio::test]
async fn http_1_0_needs_no_host() {
    let server = local();
    let address = server.address().await;
    let close = "connection: close\r\n";
    for (version, headers, status) in rows! {
        "1.0", "", 200; "1.0", "host: example.com\r\n", 403;
        "1.0", "origin: http://localhost\r\n", 403; "1.1", close, 403;
        "1.1", &format!("host:\r\n{close}"), 403;
        "1.1", &format!("host: localhost\r\n{close}"), 200;
    } {
        let request = format!("GET /version HTTP/{version}\r\n{headers}\r\n");
        let answer = all(address, &request).await;
        let start = format!("HTTP/{version} {status}");
        assert!(answer.starts_with(&start), "{request:?}: {answer}");
        assert!(answer.contains("x-request-id: "), "{answer}");
    }
    let mut old = request("GET", "/version", &[], "");
    *old.version_mut() = Version::HTTP_10;
    assert_eq!(server.call(old).await.status, 200);
}

#[tokio::test]
async fn cors_keeps_the_host_check() {
    let server = server_where(|options| {
        options.settings.local_only = true;
        options.settings.cors = true;
    });
    let origin = ("origin", "https://page.example");
    for (host, status) in [("localhost", 200), ("page.example", 403)] {
        let reply = ask(&server, "/version", &[("host", host), origin]).await;
        assert_eq!(reply.status, status, "{host}");
    }
    let method = ("access-control-request-method", "POST");
    let headers = [("host", "localhost"), origin, method];
    let reply = server.send("OPTIONS", COMPLETIONS, &headers, "").await;
    assert!(reply.status.is_success(), "{}", reply.status);
}

/// A page of any site may send a body without a type, and no browser asks first.
#[tokio::test]
async fn a_body_without_a_type_comes_from_no_page() {
    let server = server();
    let (host, json) = (("host", "10.0.0.1:8000"), ("content-type", "application/json"));
    let foreign = ("origin", "http://foreign.example");
    let plain = ("content-type", "text/plain");
    let cases: [(&[(&str, &str)], u16); 6] = rows! {
        &[host], 200; &[host, foreign, json], 200; &[host, ("origin", "http://10.0.0.1:8000")], 200;
        &[host, foreign], 403; &[host, ("origin", "null")], 403; &[host, foreign, plain], 415;
    };
    for (headers, status) in cases {
        let body = completion(json!({"max_tokens": 2})).to_string();
        let reply = server.send("POST", COMPLETIONS, headers, body).await;
        assert_eq!(reply.status, status, "{headers:?}");
    }
}
