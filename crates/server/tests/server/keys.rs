//! API keys: which paths need one, how keys are compared, that none is ever shown.

use std::fmt::Write as _;
use std::io::Write;
use std::sync::{Arc, Mutex};

use crate::common::*;
use asynclane_server::{ApiKeys, KeysError};
use axum::body::Body;

/// A key that no response and no log may contain.
const CANARY: &str = "canary-4f1d7c";
const OTHER: &str = "second-key";
/// SHA-256 of [`OTHER`].
const OTHER_DIGEST: &str = "F397F260A275CC4D42E7965C556167BF3F068AED491D35A8F5B38C8C2DB96BB0";

/// Method, path and whether a key is needed.
const PATHS: &[(&str, &str, bool)] = &rows! {
    "POST", COMPLETIONS, true; "POST", CHAT, true; "POST", TRACE, true; "GET", "/v1/models", true;
    "GET", "/v1/models/org/demo", true; "POST", "/tokenize", true; "POST", "/detokenize", true;
    "GET", "/tokenizer_info", true; "GET", "/health", false; "GET", "/ping", false;
    "GET", "/ready", false; "GET", "/version", false; "GET", "/load", false;
    "GET", "/metrics", false; "GET", "/v1/loads", false; "GET", "/", false;
    "GET", "/openapi.json", false;
};

fn guarded() -> Server {
    let text = format!("# who may\n\nalice:{CANARY}\n  bob : sha256:{OTHER_DIGEST}\n");
    server_where(|options| options.settings.keys = ApiKeys::parse(&text).unwrap())
}

async fn ask_with(server: &Server, method: &str, path: &str, header: &str, body: &str) -> Reply {
    let headers = [("Authorization", header)];
    server.send(method, path, &headers, body.to_owned()).await
}

#[tokio::test]
async fn only_paths_that_use_the_model_need_a_key() {
    let guarded = guarded();
    for &(method, path, needed) in PATHS {
        let reply = guarded.send(method, path, &[], "{}").await;
        assert_eq!(reply.status == 401, needed, "{path}");
        if needed {
            assert_eq!(reply.fault(401), "invalid_api_key", "{path}");
            let error = &reply.json()["error"];
            assert_eq!(error["type"], "invalid_request_error");
            assert_eq!(error["param"], Value::Null);
            assert_eq!(reply.headers["www-authenticate"], "Bearer");
            assert!(reply.headers.contains_key("x-request-id"));
        }
        let key = format!("Bearer {CANARY}");
        let reply = ask_with(&guarded, method, path, &key, "{}").await;
        assert_ne!(reply.status, 401, "{path}");
        let reply = guarded.send("OPTIONS", path, &[], "").await;
        assert_eq!(reply.status, 204, "{path}");
    }
    let metrics = guarded.metrics().await;
    assert_eq!(outcomes(&metrics, COMPLETIONS, "invalid"), 2.0);
    // A key is asked for before the body is read.
    let stuck = futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>();
    let stuck = request("POST", COMPLETIONS, &[], Body::from_stream(stuck));
    assert_eq!(guarded.call(stuck).await.status, 401);
    assert_eq!(server().get("/v1/models").await.status, 200);
}

#[tokio::test]
async fn the_scheme_has_no_case_and_the_key_does() {
    let server = guarded();
    for (header, status) in rows! {
        format!("Bearer {CANARY}"), 200; format!("bearer {CANARY}"), 200;
        format!("BEARER  {CANARY}"), 200; format!("Bearer {OTHER}"), 200; CANARY.to_owned(), 401;
        "Bearer".to_owned(), 401; "Bearer ".to_owned(), 401;
        format!("Bearer {}", CANARY.to_uppercase()), 401; format!("Bearer {CANARY}x"), 401;
        format!("Bearer {}", &CANARY[1..]), 401; format!("Basic {CANARY}"), 401;
        format!("Bearer{CANARY}"), 401; format!("Bearer {OTHER_DIGEST}"), 401;
        format!("Bearer sha256:{OTHER_DIGEST}"), 401; "Bearer alice".to_owned(), 401;
    } {
        let reply = ask_with(&server, "GET", "/v1/models", &header, "").await;
        assert_eq!(reply.status, status, "{header}");
        let message = reply.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
        let has_key =
            header.to_lowercase().strip_prefix("bearer ").is_some_and(|key| !key.is_empty());
        if status == 401 {
            assert_eq!(message.starts_with("the API key is wrong"), has_key, "{header}: {message}");
        }
    }
    let key = format!("Bearer {CANARY}");
    let twice = [("authorization", &*key), ("authorization", "Bearer other")];
    let reply = server.send("GET", "/v1/models", &twice, "").await;
    assert_eq!(reply.status, 401);
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
    // Set for all threads: other threads may log first.
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let server = guarded();
    let mut answers = String::new();
    let bodies = [COMPLETIONS, CHAT].map(|path| body(path, json!({})).to_string());
    let (right, near) = (format!("Bearer {CANARY}"), format!("Bearer {CANARY}x"));
    for header in [&right, &near, CANARY] {
        for &(method, path, _) in PATHS {
            for body in [&*bodies[0], &*bodies[1], "{", ""] {
                let reply = ask_with(&server, method, path, header, body).await;
                writeln!(answers, "{reply:?} {}", reply.text()).unwrap();
            }
        }
    }
    server.until_idle().await;
    assert!(!answers.contains(CANARY));
    let lines = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(!lines.contains(CANARY), "a key is in the log");
    for words in ["key=\"alice\"", "finished", "no valid API key"] {
        assert!(lines.contains(words), "{lines}");
    }
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
    for (text, line) in rows! {
        "alice", 1; "# x\n:key", 2; "alice:", 1; "\n\nalice:sha256:abc", 3;
        &format!("alice:sha256:{}", "g".repeat(64)), 1;
    } {
        let error = ApiKeys::parse(text).unwrap_err();
        let is_line = matches!(error, KeysError::Line { line: found, .. } if found == line);
        let start = format!("line {line}: expected ");
        assert!(is_line && error.to_string().starts_with(&start), "{error}");
    }
    for text in ["", "# only\n\n# comments"] {
        assert_eq!(ApiKeys::parse(text), Err(KeysError::Empty));
    }
}
