//! API keys: which paths need one, how keys are compared, that none is ever shown.

use std::io::Write;
use std::sync::{Arc, Mutex};

use crate::common::{MODEL, Options, Server, chat, completion, series, server, server_with};
use asynclane_server::{ApiKeys, KeysError, Settings};
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use serde_json::Value;

/// A key that no response and no log may contain.
const CANARY: &str = "canary-4f1d7c";
const OTHER: &str = "second-key";
/// SHA-256 of [`OTHER`].
const OTHER_DIGEST: &str = "F397F260A275CC4D42E7965C556167BF3F068AED491D35A8F5B38C8C2DB96BB0";

/// Method, path and whether a key is needed.
const PATHS: &[(&str, &str, bool)] = &[
    ("POST", "/v1/completions", true),
    ("POST", "/v1/chat/completions", true),
    ("POST", "/v1/diffusion/trace", true),
    ("GET", "/v1/models", true),
    ("GET", "/v1/models/org/demo", true),
    ("POST", "/tokenize", true),
    ("POST", "/detokenize", true),
    ("GET", "/tokenizer_info", true),
    ("GET", "/health", false),
    ("GET", "/ping", false),
    ("GET", "/ready", false),
    ("GET", "/version", false),
    ("GET", "/load", false),
    ("GET", "/metrics", false),
    ("GET", "/v1/loads", false),
];

fn guarded() -> Server {
    let text = format!("# who may\n\nalice:{CANARY}\n  bob : sha256:{OTHER_DIGEST}\n");
    server_with(Options {
        settings: Settings {
            keys: ApiKeys::parse(&text).unwrap(),
            ..Settings::default()
        },
        ..Options::default()
    })
}

async fn with_header(
    server: &Server,
    (method, path): (&str, &str),
    header: Option<&str>,
    body: &str,
) -> (StatusCode, HeaderMap, String) {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(header) = header {
        request = request.header("Authorization", header);
    }
    let (status, headers, bytes) = server
        .call(request.body(Body::from(body.to_owned())).unwrap())
        .await;
    (status, headers, String::from_utf8(bytes).unwrap())
}

#[tokio::test]
async fn only_paths_that_use_the_model_need_a_key() {
    let server = guarded();
    for &(method, path, needed) in PATHS {
        let (status, headers, body) = with_header(&server, (method, path), None, "{}").await;
        assert_eq!(status == StatusCode::UNAUTHORIZED, needed, "{path}");
        if needed {
            let error = serde_json::from_str::<Value>(&body).unwrap()["error"].clone();
            assert_eq!(error["code"], "invalid_api_key", "{path}");
            assert_eq!(error["type"], "invalid_request_error");
            assert_eq!(error["param"], Value::Null);
            assert_eq!(headers["www-authenticate"], "Bearer");
            assert!(headers.contains_key("x-request-id"));
        }
        let key = format!("Bearer {CANARY}");
        let (status, _, _) = with_header(&server, (method, path), Some(&key), "{}").await;
        assert_ne!(status, StatusCode::UNAUTHORIZED, "{path}");
        let (status, _, _) = with_header(&server, ("OPTIONS", path), None, "").await;
        assert_eq!(status, StatusCode::NO_CONTENT, "{path}");
    }
    let metrics = server.metrics().await;
    let name = format!(
        "asynclane_requests_total{{endpoint=\"/v1/completions\",model_name=\"{MODEL}\",\
         outcome=\"invalid\"}}"
    );
    assert_eq!(series(&metrics, &name), 2.0);
}

#[tokio::test]
async fn the_scheme_has_no_case_and_the_key_does() {
    let server = guarded();
    let status = async |header: &str| {
        with_header(&server, ("GET", "/v1/models"), Some(header), "")
            .await
            .0
    };
    for header in [
        format!("Bearer {CANARY}"),
        format!("bearer {CANARY}"),
        format!("BEARER  {CANARY}"),
        format!("Bearer {OTHER}"),
    ] {
        assert_eq!(status(&header).await, StatusCode::OK, "{header}");
    }
    for header in [
        CANARY.to_owned(),
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        format!("Bearer {}", CANARY.to_uppercase()),
        format!("Bearer {CANARY}x"),
        format!("Bearer {}", &CANARY[1..]),
        format!("Basic {CANARY}"),
        format!("Bearer{CANARY}"),
        format!("Bearer {OTHER_DIGEST}"),
        format!("Bearer sha256:{OTHER_DIGEST}"),
        "Bearer alice".to_owned(),
    ] {
        assert_eq!(status(&header).await, StatusCode::UNAUTHORIZED, "{header}");
    }
    let twice = Request::get("/v1/models")
        .header("authorization", format!("Bearer {CANARY}"))
        .header("authorization", "Bearer other");
    let (code, _, _) = server.call(twice.body(Body::empty()).unwrap()).await;
    assert_eq!(code, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_key_is_asked_for_before_the_body_is_read() {
    let server = guarded();
    let stuck = Body::from_stream(futures_util::stream::pending::<
        Result<Vec<u8>, std::io::Error>,
    >());
    let request = Request::post("/v1/completions").body(stuck).unwrap();
    let (status, _, _) = server.call(request).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn without_keys_no_key_is_needed() {
    let server = server();
    let (status, _, _) = with_header(&server, ("GET", "/v1/models"), None, "").await;
    assert_eq!(status, StatusCode::OK);
}

/// Collects log lines.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn keys_are_never_shown_and_names_are_logged() {
    let log = Log::default();
    let sink = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(move || sink.clone())
        .finish();
    let server = guarded();
    let mut answers = String::new();
    {
        // Set for all threads: other threads may log first.
        tracing::subscriber::set_global_default(subscriber).unwrap();
        let good = completion(Value::Null).to_string();
        let chat = chat(Value::Null).to_string();
        let right = format!("Bearer {CANARY}");
        let near = format!("Bearer {CANARY}x");
        let bare = CANARY.to_owned();
        for header in [&right, &near, &bare] {
            for &(method, path, _) in PATHS {
                for body in [good.as_str(), chat.as_str(), "{", ""] {
                    let request = (method, path);
                    let (status, headers, body) =
                        with_header(&server, request, Some(header), body).await;
                    answers.push_str(&format!("{status} {headers:?} {body}\n"));
                }
            }
        }
        server.until_idle().await;
    }
    assert!(!answers.contains(CANARY));
    let lines = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(!lines.contains(CANARY), "a key is in the log");
    assert!(
        lines.contains("key=\"alice\"") && lines.contains("finished"),
        "{lines}"
    );
    assert!(lines.contains("no valid API key"), "{lines}");
    let shown = format!("{:?} {:?}", server.state.settings(), server.state);
    assert!(shown.contains("alice") && !shown.contains(CANARY));
    assert!(!shown.contains(&OTHER_DIGEST.to_lowercase()));
}

#[test]
fn key_files_are_strict() {
    let keys = ApiKeys::parse(&format!("a:b:c\nx:sha256:{OTHER_DIGEST}\r\n")).unwrap();
    assert_eq!(keys.len(), 2);
    assert_eq!(keys.name_of(b"b:c"), Some("a"));
    assert_eq!(keys.name_of(OTHER.as_bytes()), Some("x"));
    assert_eq!(keys.name_of(b"b"), None);
    assert_eq!(keys.name_of(b""), None);
    let keys = ApiKeys::default().with_key("argument", "k");
    assert_eq!(keys.name_of(b"k"), Some("argument"));
    for (text, line) in [
        ("alice", 1),
        ("# x\n:key", 2),
        ("alice:", 1),
        ("\n\nalice:sha256:abc", 3),
        (&format!("alice:sha256:{}", "g".repeat(64)), 1),
    ] {
        let error = ApiKeys::parse(text).unwrap_err();
        assert!(
            matches!(error, KeysError::Line { line: found, .. } if found == line),
            "{error}"
        );
        assert!(
            error
                .to_string()
                .starts_with(&format!("line {line}: expected "))
        );
    }
    for text in ["", "# only\n\n# comments"] {
        assert_eq!(ApiKeys::parse(text), Err(KeysError::Empty));
    }
}
