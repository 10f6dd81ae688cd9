//! Requests that are cheap to send and would be dear to serve. While they run, the process's memory
//! stays near its start, and another client gets its answers.

mod bodies;
mod ends;
mod grammars;
mod lengths;
mod shares;
mod storm;

use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use asynclane_tests::client::Client;
use asynclane_tests::memory::Memory;
use asynclane_tests::process::{Server, patience};
use serde_json::{Value, json};

const COMPLETIONS: &str = "/v1/completions";
/// Allowed growth of resident memory.
const GROWTH_KIB: u64 = 300 << 10;
/// Time for the answer of another client.
const OTHERS: Duration = Duration::from_secs(1);
/// Time until a hostile request is refused.
const REFUSAL: Duration = Duration::from_secs(2);
/// Time until a process that was told to end has ended.
const END: Duration = Duration::from_secs(5);

/// Sets its flag when dropped, so that a failed attack ends the other client too.
struct Sets<'a>(&'a AtomicBool);

impl Drop for Sets<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One short request of another client; returns its time.
fn ask(client: Client) -> Duration {
    let body = json!({"model": "demo", "prompt": "a", "max_tokens": 4, "ignore_eos": true});
    let begin = Instant::now();
    let answer = client.post(COMPLETIONS, &body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    begin.elapsed()
}

/// Runs `attack` beside another client; checks the memory and that client's times.
fn withstands(server: &Server, name: &str, attack: impl FnOnce(Client)) {
    let client = server.client();
    ask(client);
    let memory = Memory::of(&server.proc());
    let start = memory.resident();
    memory.begin_peak();
    let done = AtomicBool::new(false);
    let (answers, slowest) = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut times = vec![ask(client)];
            while !done.load(Ordering::Relaxed) {
                times.push(ask(client));
            }
            (times.len(), times.into_iter().max().unwrap_or_default())
        });
        let sets = Sets(&done);
        attack(client);
        drop(sets);
        other.join().expect("the other client is answered")
    });
    let peak = memory.peak();
    assert!(peak <= start + GROWTH_KIB, "{name}: {start} KiB grew to {peak}");
    let in_time = slowest < OTHERS * patience();
    assert!(in_time, "{name}: the slowest of {answers} took {slowest:?}");
}

/// Sends `body` and checks that it is refused as `code` of `param` in time.
fn refused(client: Client, body: &Value, (code, param): (&str, &str)) {
    let begin = Instant::now();
    let answer = client.post(COMPLETIONS, body);
    let time = begin.elapsed();
    assert_eq!(answer.status, 400, "{}", answer.text());
    let error = answer.error();
    assert_eq!(error["code"], code, "{error:?}");
    assert_eq!(error["param"], param, "{error:?}");
    assert!(time < REFUSAL * patience(), "{error:?} took {time:?}");
}

/// Sends `body`, stays connected for a while and hangs up. A request that is served before, whose
/// sequences outgrow their grammar, or for which the queue has no room yet, is sent again.
fn hold(client: Client, body: &Value, time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        let mut request = client.begin(COMPLETIONS, body).expect("the server accepts");
        let rest = until.saturating_duration_since(Instant::now());
        let rest = rest.max(Duration::from_millis(1));
        request.set_read_timeout(Some(rest)).expect("a timeout");
        let mut status = [0; 12];
        if request.read_exact(&mut status).is_ok() {
            let status = String::from_utf8_lossy(&status);
            let mut codes = ["200", "400", "429"].into_iter();
            assert!(codes.any(|code| status.ends_with(code)), "{status}");
        }
    }
}
