//! SIGTERM while slow work is under way.

use std::net::TcpListener;
use std::process::Stdio;
use std::time::Instant;

use asynclane_tests::process::{Server, command, patience};
use serde_json::{Value, json};

use super::{COMPLETIONS, END};

/// Sends `body` to `path` several times, then SIGTERM: the process ends soon and well.
fn ends_in_time(path: &str, body: &Value) {
    let server = Server::start(&[]);
    let asking: Vec<_> = (0..6).map(|_| server.client().begin(path, body)).collect();
    let begin = Instant::now();
    server.stop();
    assert!(begin.elapsed() < END * patience(), "{:?}", begin.elapsed());
    drop(asking);
}

#[test]
fn a_grammar_that_compiles_does_not_hold_up_the_end() {
    let body = json!({"model": "demo", "prompt": "a", "max_tokens": 4,
        "regex": "[a-z]{1,40}( [a-z]{1,40}){1,40}"});
    ends_in_time(COMPLETIONS, &body);
}

#[test]
fn a_prompt_that_is_tokenized_does_not_hold_up_the_end() {
    let body = json!({"model": "demo", "prompt": "a b ".repeat(262_000)});
    ends_in_time("/tokenize", &body);
}

/// The download of the model hangs, so the server is still loading.
#[test]
fn a_model_that_loads_does_not_hold_up_the_end() {
    let hub = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = crate::folder("loading");
    let mut serve = command(&["serve", "--listen", "127.0.0.1:0", "--model", "org/slow"]);
    let address = format!("http://{}", hub.local_addr().unwrap());
    serve.env("HF_ENDPOINT", address).env("HF_HOME", &folder);
    serve.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = serve.spawn().unwrap();
    // The request for the model's files is never answered.
    let _asks = hub.accept().unwrap();
    let begin = Instant::now();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(0));
    assert!(begin.elapsed() < END * patience(), "{:?}", begin.elapsed());
}
