//! A loopback server without API keys checks `Host` and `Origin`.

use crate::common::{MODEL, Options, Server, read_until, send, series, server, server_with};
use axum::body::Body;
use axum::http::{Method, Request, StatusCode, Version};
use serde_json::Value;

const COMPLETIONS: &str = "/v1/completions";

fn local() -> Server {
    let mut options = Options::default();
    options.settings.local_only = true;
    server_with(options)
}

/// The status and the error of a request with `headers`.
async fn ask(server: &Server, path: &str, headers: &[(&str, &str)]) -> (StatusCode, Value) {
    let mut request = Request::builder().uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (status, _, body) = server.call(request.body(Body::empty()).unwrap()).await;
    let answer = serde_json::from_slice::<Value>(&body).unwrap_or_default();
    (status, answer["error"].clone())
}

#[tokio::test]
async fn only_hosts_of_this_machine_are_answered() {
    let server = local();
    for host in [
        "localhost:8000",
        "LOCALHOST",
        "127.0.0.1",
        "127.9.9.9:80",
        "[::1]:8000",
    ] {
        let (status, error) = ask(&server, "/version", &[("host", host)]).await;
        assert_eq!(status, StatusCode::OK, "{host}: {error}");
    }
    for host in [
        "",
        "example.com",
        "localhost.example.com:8000",
        "0.0.0.0",
        "[::2]",
    ] {
        for path in ["/", "/version", "/v1/models", "/metrics", "/nowhere"] {
            let (status, error) = ask(&server, path, &[("host", host)]).await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{host} {path}");
            assert_eq!(error["type"], "invalid_request_error");
            assert_eq!(error["code"], "forbidden");
            assert_eq!(error["param"], Value::Null);
            let message = error["message"].as_str().unwrap();
            assert!(
                message.contains("Host") && message.contains(host),
                "{message}"
            );
        }
    }
    // Every header counts, not only the first or the last one.
    for hosts in [["localhost", "example.com"], ["example.com", "localhost"]] {
        let headers = hosts.map(|host| ("host", host));
        let (status, _) = ask(&server, "/version", &headers).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{hosts:?}");
    }
    let named = ask(
        &server,
        "http://example.com/version",
        &[("host", "localhost")],
    )
    .await;
    assert_eq!(named.0, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn only_pages_of_this_server_are_answered() {
    let server = local();
    let host = ("host", "127.0.0.1:8000");
    for origin in ["http://127.0.0.1:8000", "https://127.0.0.1:8000"] {
        let (status, error) = ask(&server, "/version", &[host, ("origin", origin)]).await;
        assert_eq!(status, StatusCode::OK, "{origin}: {error}");
    }
    for origin in [
        "https://page.example",
        "null",
        "",
        "http://127.0.0.1",
        "http://127.0.0.1:8001",
        "http://localhost:8000",
        "http://127.0.0.1:8000.page.example",
        "file://",
    ] {
        for path in ["/version", "/v1/models", "/"] {
            let (status, error) = ask(&server, path, &[host, ("origin", origin)]).await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{origin} {path}");
            let message = error["message"].as_str().unwrap();
            assert!(
                message.contains("Origin") && message.contains(origin),
                "{message}"
            );
        }
    }
}

#[tokio::test]
async fn a_post_without_a_content_type_reaches_no_engine() {
    let server = local();
    let body = serde_json::json!({"model": MODEL, "prompt": "Hi", "max_tokens": 3}).to_string();
    for (origin, expected) in [
        ("https://page.example", StatusCode::FORBIDDEN),
        ("http://localhost", StatusCode::OK),
    ] {
        let request = Request::post(COMPLETIONS)
            .header("host", "localhost")
            .header("origin", origin);
        let request = request.body(Body::from(body.clone())).unwrap();
        assert_eq!(server.call(request).await.0, expected, "{origin}");
    }
    let count = |outcome| {
        format!(
            "asynclane_requests_total{{endpoint=\"{COMPLETIONS}\",model_name=\"{MODEL}\",\
             outcome=\"{outcome}\"}}"
        )
    };
    let headers = Request::get("/metrics").header("host", "localhost");
    let (_, _, metrics) = server.call(headers.body(Body::empty()).unwrap()).await;
    let metrics = String::from_utf8(metrics).unwrap();
    assert_eq!(series(&metrics, &count("invalid")), 1.0);
    assert_eq!(series(&metrics, &count("ok")), 1.0);
}

#[tokio::test]
async fn http_1_0_needs_no_host() {
    let server = local();
    let (address, _) = server.listen(std::future::pending()).await;
    for (request, expected) in [
        ("GET /version HTTP/1.0\r\n\r\n", "HTTP/1.0 200"),
        (
            "GET /version HTTP/1.0\r\nhost: example.com\r\n\r\n",
            "HTTP/1.0 403",
        ),
        (
            "GET /version HTTP/1.0\r\norigin: http://localhost\r\n\r\n",
            "HTTP/1.0 403",
        ),
        (
            "GET /version HTTP/1.1\r\nconnection: close\r\n\r\n",
            "HTTP/1.1 403",
        ),
        (
            "GET /version HTTP/1.1\r\nhost:\r\nconnection: close\r\n\r\n",
            "HTTP/1.1 403",
        ),
        (
            "GET /version HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
            "HTTP/1.1 200",
        ),
    ] {
        let mut connection = send(address, request).await;
        let answer = read_until(&mut connection, "the end of the connection").await;
        assert!(answer.starts_with(expected), "{request:?}: {answer}");
        assert!(answer.contains("x-request-id: "), "{answer}");
    }
    let request = Request::get("/version").version(Version::HTTP_10);
    let (status, _, _) = server.call(request.body(Body::empty()).unwrap()).await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn cors_keeps_the_host_check() {
    let mut options = Options::default();
    options.settings.local_only = true;
    options.settings.cors = true;
    let server = server_with(options);
    let origin = ("origin", "https://page.example");
    let (status, _) = ask(&server, "/version", &[("host", "localhost"), origin]).await;
    assert_eq!(status, StatusCode::OK);
    let (status, _) = ask(&server, "/version", &[("host", "page.example"), origin]).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    let request = Request::builder()
        .method(Method::OPTIONS)
        .uri(COMPLETIONS)
        .header("host", "localhost")
        .header("origin", "https://page.example")
        .header("access-control-request-method", "POST");
    let (status, _, _) = server.call(request.body(Body::empty()).unwrap()).await;
    assert!(status.is_success(), "{status}");
}

#[tokio::test]
async fn without_the_setting_any_host_is_accepted() {
    let server = server();
    let headers = [
        ("host", "api.example.com"),
        ("origin", "https://page.example"),
    ];
    let (status, error) = ask(&server, "/version", &headers).await;
    assert_eq!(status, StatusCode::OK, "{error}");
}

/// A page of any site may send a body without a type, and no browser asks first.
#[tokio::test]
async fn a_body_without_a_type_comes_from_no_page() {
    let server = server();
    let send = async |headers: &[(&str, &str)]| {
        let mut request = Request::post(COMPLETIONS).header("host", "10.0.0.1:8000");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = format!("{{\"model\": \"{MODEL}\", \"prompt\": \"a\", \"max_tokens\": 2}}");
        server.call(request.body(Body::from(body)).unwrap()).await.0
    };
    let (origin, json) = (("origin", "http://foreign.example"), "application/json");
    assert_eq!(send(&[]).await, StatusCode::OK);
    assert_eq!(
        send(&[origin, ("content-type", json)]).await,
        StatusCode::OK
    );
    assert_eq!(
        send(&[("origin", "http://10.0.0.1:8000")]).await,
        StatusCode::OK
    );
    assert_eq!(send(&[origin]).await, StatusCode::FORBIDDEN);
    assert_eq!(send(&[("origin", "null")]).await, StatusCode::FORBIDDEN);
    assert_eq!(
        send(&[origin, ("content-type", "text/plain")]).await,
        StatusCode::UNSUPPORTED_MEDIA_TYPE
    );
}
