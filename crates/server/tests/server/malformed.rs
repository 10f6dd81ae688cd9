//! Ten thousand malformed bodies: every one is refused with a complete error, and leaves nothing.

use crate::common::{Server, server};
use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

/// Bodies to start from, one a line.
const CORPUS: &str = include_str!("../corpus/bodies.txt");
const BODIES: u64 = 10_000;
const PATHS: [&str; 5] = [
    "/v1/completions",
    "/v1/chat/completions",
    "/v1/diffusion/trace",
    "/tokenize",
    "/detokenize",
];
/// Values that are hardly ever right.
const VALUES: [&str; 16] = [
    "null",
    "true",
    "-1",
    "0",
    "1.5",
    "1e400",
    "9223372036854775808",
    "-1e-320",
    "\"\"",
    "\"\\u0000\"",
    "[]",
    "{}",
    "[[[[[[]]]]]]",
    "[1,\"a\",null]",
    "{\"a\":{}}",
    "NaN",
];
/// Pieces that break a text in the middle.
const PIECES: [&[u8]; 14] = [
    b"\"",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\0",
    b"\xff",
    b"\xed\xa0\x80",
    b"\\ud800",
    b"/**/",
    b"\xef\xbb\xbf",
];

/// The splitmix64 generator.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((value ^ (value >> 31)) % bound as u64) as usize
    }

    fn pick<'a, T: ?Sized>(&mut self, items: &[&'a T]) -> &'a T {
        items[self.below(items.len())]
    }
}

/// A malformed body: a seed of the corpus with a few faults. What is still an object afterwards
/// asks for a model that is not served.
fn malformed(random: &mut Random) -> Vec<u8> {
    let seeds: Vec<&str> = CORPUS.lines().collect();
    let mut body = random.pick(&seeds).as_bytes().to_vec();
    for _ in 0..=random.below(4) {
        damage(&mut body, random);
    }
    match serde_json::from_slice::<Value>(&body) {
        Ok(Value::Object(mut object)) => {
            let model = random.pick(&["other", "", "org/demo ", "ORG/DEMO"]);
            object.insert("model".to_owned(), json!(model));
            Value::Object(object).to_string().into_bytes()
        }
        _ => body,
    }
}

fn damage(body: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(body.len() + 1);
    match random.below(6) {
        0 => body.truncate(at),
        1 => drop(body.splice(at..at, random.pick(&PIECES).iter().copied())),
        2 if at < body.len() => body[at] ^= 1 << random.below(8),
        3 => {
            let end = (at + 1 + random.below(8)).min(body.len());
            body.drain(at..end);
        }
        4 => replace_value(body, random),
        _ => {
            let end = (at + random.below(40)).min(body.len());
            let part = body[at..end].to_vec();
            body.splice(at..at, part);
        }
    }
}

/// Puts an unlikely value where one stands, which keeps most bodies well-formed.
fn replace_value(body: &mut Vec<u8>, random: &mut Random) {
    let colons: Vec<usize> = (0..body.len()).filter(|at| body[*at] == b':').collect();
    if colons.is_empty() {
        return;
    }
    let start = colons[random.below(colons.len())] + 1;
    let ends = |byte: &u8| b",}]".contains(byte);
    let length = body[start..].iter().position(ends);
    let end = length.map_or(body.len(), |length| start + length);
    body.splice(start..end, random.pick(&VALUES).bytes());
}

fn assert_complete(body: &[u8], answer: &[u8]) {
    let shown = String::from_utf8_lossy(body);
    let answer: Value = serde_json::from_slice(answer).expect("JSON on every path");
    let error = answer["error"].as_object().expect("an error object");
    let mut keys: Vec<_> = error.keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["code", "message", "param", "type"], "{shown}");
    assert_eq!(error["type"], "invalid_request_error", "{shown}");
    assert!(error["code"].is_string(), "{shown}");
    let message = error["message"].as_str().unwrap();
    assert!((1..=500).contains(&message.chars().count()), "{shown}");
    if let Some(param) = error["param"].as_str() {
        assert!(message.contains(param), "{shown}: {message}");
    }
}

async fn refuse(server: &Server, path: &str, body: Vec<u8>) {
    let request = Request::post(path).body(Body::from(body.clone())).unwrap();
    let (status, _, answer) = server.call(request).await;
    let shown = String::from_utf8_lossy(&body);
    assert!(status.is_client_error(), "{path} {status}: {shown}");
    assert_complete(&body, &answer);
}

#[tokio::test]
async fn ten_thousand_malformed_bodies_are_refused_and_leave_nothing() {
    let server = server();
    let before = server.complete(json!({"max_tokens": 20})).await;
    let steps = server.counters.steps();
    for seed in 0..BODIES {
        let mut random = Random(seed);
        let path = random.pick(&PATHS);
        refuse(&server, path, malformed(&mut random)).await;
    }
    server.until_idle().await;
    assert_eq!(server.counters.steps(), steps, "a malformed body was run");
    assert_eq!(server.state.shutdown().in_flight(), 0);
    let after = server.complete(json!({"max_tokens": 20})).await;
    assert_eq!(after["choices"], before["choices"]);
}
