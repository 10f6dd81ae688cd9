//! Requests to a server, with and without a socket.

use std::net::SocketAddr;

use asynclane_server::ApiKeys;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
pub use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tower::ServiceExt;

use super::{MODEL, Server, assert_error, assert_has, ids};

pub const COMPLETIONS: &str = "/v1/completions";
pub const CHAT: &str = "/v1/chat/completions";
pub const RESPONSES: &str = "/v1/responses";
pub const MESSAGES: &str = "/v1/messages";
pub const COUNT: &str = "/v1/messages/count_tokens";
pub const INPUT_TOKENS: &str = "/v1/responses/input_tokens";
pub const TRACE: &str = "/v1/diffusion/trace";
/// Never sent by a server: waiting for it reads to the end of the connection.
pub const END: &str = "the end of the connection";

/// A whole answer.
#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub bytes: Vec<u8>,
}

impl Reply {
    pub fn text(&self) -> String {
        String::from_utf8(self.bytes.clone()).unwrap()
    }

    /// The body, or null where it is no JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_default()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        Some(self.headers.get(name)?.to_str().unwrap())
    }

    /// The code of an error of status `status`, whose shape is checked.
    #[track_caller]
    pub fn fault(&self, status: u16) -> String {
        let answer = self.json();
        assert_eq!(self.status, status, "{answer}");
        assert_error(&answer);
        answer["error"]["code"].as_str().unwrap().to_owned()
    }
}

/// The answer of `router` to one request.
pub async fn call(router: &Router, request: Request<Body>) -> Reply {
    let response = router.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    Reply {
        status: parts.status,
        headers: parts.headers,
        bytes: body.collect().await.unwrap().to_bytes().to_vec(),
    }
}

/// A request with `headers`.
pub fn request(
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Body>,
) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(body.into()).unwrap()
}

impl Server {
    pub async fn call(&self, request: Request<Body>) -> Reply {
        call(&self.router, request).await
    }

    pub async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Reply {
        self.call(request(method, path, headers, body)).await
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], "").await
    }

    pub async fn post(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        let headers = [("content-type", "application/json")];
        let reply = self.send("POST", path, &headers, body.to_string()).await;
        (reply.status, reply.json())
    }

    /// The answer to the usual request of `path` with `extra` fields, which must succeed.
    pub async fn ask(&self, path: &str, extra: Value) -> Value {
        let (status, answer) = self.post(path, &body(path, extra.clone())).await;
        assert_eq!(status, 200, "{path} {extra}: {answer}");
        answer
    }

    /// Such an answer, and the ignored fields that its header names.
    pub async fn ask_named(&self, path: &str, extra: Value) -> (Value, Option<String>) {
        let body = body(path, extra.clone()).to_string();
        let reply = self.send("POST", path, &[], body).await;
        assert_eq!(reply.status, 200, "{path} {extra}: {}", reply.text());
        let named = reply.header("x-ignored-fields").map(str::to_owned);
        (reply.json(), named)
    }

    /// The text of an answer's prompt, from its ids.
    pub fn prompt(&self, answer: &Value) -> String {
        let ids = ids(&answer["choices"][0]["prompt_token_ids"]);
        self.tokenizer.decode(&ids, false)
    }

    pub async fn complete(&self, extra: Value) -> Value {
        self.ask(COMPLETIONS, extra).await
    }

    pub async fn chat(&self, extra: Value) -> Value {
        self.ask(CHAT, extra).await
    }

    /// The message of a refused request, whose error is checked. The errors of Messages have a type
    /// for a code, and no parameter but the one that their message begins with.
    pub async fn refused(&self, path: &str, extra: &Value, code: &str, param: &str) -> String {
        let (status, answer) = self.post(path, &body(path, extra.clone())).await;
        let head: String = extra.to_string().chars().take(200).collect();
        assert_eq!(status, 400, "{path} {head}: {answer}");
        let error = &answer["error"];
        let message = error["message"].as_str().unwrap().to_owned();
        if path == MESSAGES || path == COUNT {
            assert_has(&answer, &json!({"type": "error", "error": {"type": code}}));
            assert!(message.starts_with(&format!("{param} ")), "{head}: {error}");
        } else {
            assert_error(&answer);
            assert_eq!(error["type"], "invalid_request_error", "{error}");
            assert_eq!(error["code"], code, "{head}");
            assert_eq!(error["param"], param, "{head}");
        }
        message
    }

    pub async fn refuses(&self, path: &str, cases: &[(Value, &str, &str)]) {
        for (fields, code, param) in cases {
            self.refused(path, fields, code, param).await;
        }
    }

    /// The bytes of the streamed answer to the usual request of `path` with `extra` fields.
    pub async fn stream(&self, path: &str, extra: Value) -> String {
        let body = merge(body(path, extra), json!({"stream": true}));
        let reply = self.send("POST", path, &[], body.to_string()).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.text()
    }

    pub async fn metrics(&self) -> String {
        self.get("/metrics").await.text()
    }

    /// Serves on a free port; ends when `shutdown` does.
    pub async fn listen(
        &self,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> (SocketAddr, JoinHandle<std::io::Result<()>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = asynclane_server::serve(listener, self.state.clone(), shutdown);
        (address, tokio::spawn(served))
    }

    /// Serves on a free port to the end of the test.
    pub async fn address(&self) -> SocketAddr {
        self.listen(std::future::pending()).await.0
    }

    /// Waits until the engine has no running or waiting sequence and no page in use.
    pub async fn until_idle(&self) {
        self.until(|server| {
            let load = server.engine.load();
            load.running == 0 && load.waiting == 0 && load.pages_used == 0
        })
        .await;
    }

    /// Waits until as many requests are in flight.
    pub async fn until_in_flight(&self, count: u32) {
        let shutdown = self.state.shutdown();
        self.until(|_| shutdown.in_flight() == count).await;
    }

    /// Waits until as many forward passes have begun.
    pub async fn until_steps(&self, count: u64) {
        self.until(|server| server.counters.steps() == count).await;
    }

    /// Waits until a state holds. Every turn yields to the engine thread; the bound ends a failed test.
    pub async fn until(&self, holds: impl Fn(&Self) -> bool) {
        for _ in 0..5_000_000 {
            if holds(self) {
                return;
            }
            std::thread::yield_now();
            tokio::task::yield_now().await;
        }
        panic!("the expected state never came");
    }
}

/// A short body that `path` accepts, with `extra` fields.
pub fn body(path: &str, extra: Value) -> Value {
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let usual = match path {
        CHAT => json!({"model": MODEL, "messages": messages}),
        RESPONSES => json!({"model": MODEL, "input": "Hi", "max_output_tokens": 60}),
        MESSAGES => json!({"model": MODEL, "messages": messages, "max_tokens": 60}),
        COUNT => json!({"model": MODEL, "messages": messages}),
        COMPLETIONS => json!({"model": MODEL, "prompt": "Mia has 12 eggs."}),
        // A trace of a chat has messages and no prompt.
        TRACE if extra.get("messages").is_none() => body(COMPLETIONS, json!({})),
        _ => json!({}),
    };
    merge(usual, extra)
}

pub fn completion(extra: Value) -> Value {
    body(COMPLETIONS, extra)
}

pub fn chat(extra: Value) -> Value {
    body(CHAT, extra)
}

/// `base` with the members of `extra`.
pub fn merge(mut base: Value, extra: Value) -> Value {
    if let Value::Object(extra) = extra {
        for (name, value) in extra {
            base[name] = value;
        }
    }
    base
}

/// Writes `request` to a new connection.
pub async fn send(address: SocketAddr, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// All bytes that the server sends on a connection after `request`.
pub async fn all(address: SocketAddr, request: &str) -> String {
    read_until(&mut send(address, request).await, END).await
}

/// A GET request as HTTP/1.1 text, the last of its connection.
pub fn get_text(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")
}

/// A POST request with a JSON body, as HTTP/1.1 text.
pub fn post_text(path: &str, body: &Value) -> String {
    let body = body.to_string();
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nhost: test\r\ncontent-length: {length}\r\n\r\n{body}")
}

/// Reads until `mark` has been seen, or to the end.
pub async fn read_until(stream: &mut TcpStream, mark: &str) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&bytes).contains(mark) {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// One key with the text `key`.
pub fn one_key(key: &str) -> ApiKeys {
    ApiKeys::default().with_key("test", key)
}
