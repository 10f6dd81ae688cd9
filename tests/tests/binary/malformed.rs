//! Ten thousand malformed bodies: every one is refused with a complete error, and the process's memory
//! and open files stay the same.

use std::collections::BTreeMap;
use std::path::Path;

use asynclane_tests::client::{Answer, Client, Connection};
use asynclane_tests::fuzz::request::PATHS;
use asynclane_tests::memory::Memory;
use asynclane_tests::process::Server;
use asynclane_tests::random::Random;
use serde_json::{Value, json};

/// Seeds of the bodies, one per line.
const CORPUS: &str = include_str!("../../corpus/bodies.txt");
const BODIES: u64 = 10_000;
/// Bodies after which the process's memory no longer grows.
const WARM_UP: u64 = 1_000;
/// Allowed growth of resident memory: less than half a KiB per body.
const GROWTH_KIB: u64 = 4 << 10;
/// Polls of the process until a waiting test fails.
const MOST_LOOKS: usize = 1_000_000;
/// Values that are rarely valid.
const VALUES: &str = r#"null true -1 0 1.5 1e400 9223372036854775808 -1e-320 "" "\u0000" [] {} [[[[[[]]]]]] [1,"a",null] {"a":{}} NaN"#;
/// Fragments that make a text invalid.
const PIECES: [&[u8]; 14] = {
    let (surrogate, mark) = (b"\xed\xa0\x80", b"\xef\xbb\xbf");
    let (zero, wrong) = (b"\0", b"\xff");
    [
        b"\"", b"\\", b"{", b"}", b"[", b"]", b",", b":", zero, wrong, surrogate, b"\\ud800",
        b"/**/", mark,
    ]
};

/// A malformed body: a seed of the corpus with a few faults. If it is still an object, it names a model
/// that is not served.
fn malformed(random: &mut Random) -> Vec<u8> {
    let seeds: Vec<&str> = CORPUS.lines().collect();
    let mut body = random.pick(&seeds).as_bytes().to_vec();
    for _ in 0..=random.below(3) {
        damage(&mut body, random);
    }
    match serde_json::from_slice::<Value>(&body) {
        Ok(Value::Object(mut object)) => {
            let model = random.pick(&["other", "", "org/demo ", "DEMO"]);
            object.insert("model".to_owned(), json!(model));
            Value::Object(object).to_string().into_bytes()
        }
        _ => body,
    }
}

fn damage(body: &mut Vec<u8>, random: &mut Random) {
    let start = random.below(body.len() + 1);
    match random.below(10) {
        0 => body.truncate(start),
        1 => drop(body.splice(start..start, random.pick(&PIECES).iter().copied())),
        2 if start < body.len() => body[start] ^= 1 << random.below(8),
        3 => {
            let end = (start + 1 + random.below(8)).min(body.len());
            body.drain(start..end);
        }
        4..=8 => replace_value(body, random),
        _ => {
            let end = (start + random.below(40)).min(body.len());
            let part = body[start..end].to_vec();
            body.splice(start..start, part);
        }
    }
}

/// Replaces a value by an unlikely one, which keeps most bodies well-formed.
fn replace_value(body: &mut Vec<u8>, random: &mut Random) {
    let colons: Vec<usize> = (0..body.len()).filter(|index| body[*index] == b':').collect();
    if colons.is_empty() {
        return;
    }
    let start = colons[random.below(colons.len())] + 1;
    let ends = |byte: &u8| b",}]".contains(byte);
    let length = body[start..].iter().position(ends);
    let end = length.map_or(body.len(), |length| start + length);
    let values: Vec<&str> = VALUES.split(' ').collect();
    body.splice(start..end, random.pick(&values).bytes());
}

/// Checks the refusal of `body` and returns its code.
fn check(body: &[u8], answer: &Answer) -> String {
    let shown = String::from_utf8_lossy(body);
    let error = answer.error();
    assert_eq!(error["type"], "invalid_request_error", "{shown}");
    let message = error["message"].as_str().unwrap();
    assert!((1..=500).contains(&message.chars().count()), "{shown}");
    assert!(!message.contains(".rs"), "{shown}: {message}");
    let code = error["code"].as_str().unwrap();
    let param = error["param"].as_str();
    let status = if code == "model_not_found" { 404 } else { 400 };
    assert_eq!(answer.status, status, "{shown}: {error:?}");
    match param {
        None => assert_eq!(code, "invalid_json", "{shown}: {error:?}"),
        Some("model") if code == "model_not_found" => {}
        Some(param) => assert!(message.contains(param), "{shown}: {error:?}"),
    }
    code.to_owned()
}

/// Sends the bodies of `seeds` on one connection; returns the number of answers by code.
fn refuse(connection: &mut Connection, seeds: std::ops::Range<u64>) -> BTreeMap<String, u64> {
    let mut codes = BTreeMap::new();
    for seed in seeds {
        let mut random = Random::new(seed);
        let path = random.pick(&PATHS);
        let body = malformed(&mut random);
        let answer = connection.post_bytes(path, &body);
        let answer = answer.unwrap_or_else(|error| panic!("{path} {body:?}: {error}"));
        *codes.entry(check(&body, &answer)).or_default() += 1;
    }
    codes
}

fn open_files(proc: &Path) -> usize {
    std::fs::read_dir(proc.join("fd")).unwrap().count()
}

/// Waits until this many files are open, because connections close after their last answer.
fn until_open(proc: &Path, files: usize) {
    let mut looks = (0..MOST_LOOKS).map(|_| open_files(proc));
    let seen = looks.any(|open| open == files);
    assert!(seen, "{} files are open", open_files(proc));
}

fn answer(client: Client) -> Value {
    let body = json!({"model": "demo", "prompt": "Mia has 12 eggs.", "max_tokens": 20});
    client.json("/v1/completions", &body)["choices"].clone()
}

#[test]
fn ten_thousand_malformed_bodies_are_refused_and_leave_nothing() {
    let server = Server::start(&[]);
    let (client, proc) = (server.client(), server.proc());
    let process = Memory::of(&proc);
    let files = open_files(&proc);
    let before = answer(client);
    let steps = || client.metrics().sum("asynclane_engine_steps_total", &[]);
    let steps_before = steps();
    refuse(&mut client.connect().unwrap(), BODIES..BODIES + WARM_UP);
    until_open(&proc, files);
    let memory = process.resident();

    let codes = refuse(&mut client.connect().unwrap(), 0..BODIES);
    assert_eq!(codes.values().sum::<u64>(), BODIES);
    assert!(codes.len() >= 6, "the faults are of few kinds: {codes:?}");
    until_open(&proc, files);
    let grown = process.resident().saturating_sub(memory);
    assert!(grown <= GROWTH_KIB, "{memory} KiB grew by {grown}");

    assert_eq!(steps(), steps_before, "a malformed body was run");
    let metrics = client.metrics();
    assert!(metrics.busy().is_empty(), "{:?}", metrics.busy());
    assert_eq!(client.get("/load").json()["server_load"], 0);
    assert_eq!(answer(client), before);
}
