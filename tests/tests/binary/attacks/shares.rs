//! Two keys share the machine: the flood of one costs the other at most as much as an even share.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use asynclane_tests::client::{Answer, Client};
use asynclane_tests::process::{Server, patience};
use serde_json::{Value, json};

use super::COMPLETIONS;

/// Requests of the measured key, and how many of them are open at a time.
const REQUESTS: usize = 40;
const TOGETHER: usize = 8;
/// Times that the measurement is repeated if other work on the machine disturbs it.
const REPEATS: usize = 5;
/// Sequences of the flood, which are all that the server takes of one client.
const FLOOD: usize = 1024;
/// The least number that runs during the measurement.
const RUNNING: f64 = 40.0;

fn post(client: Client, key: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", bearer.as_str())];
    client.ask(("POST", COMPLETIONS), &headers, body.to_string().as_bytes())
}

/// Sends the modest load of a key; the 95th percentile of its times.
fn modest(client: Client, key: &str) -> Duration {
    let body = json!({"model": "demo", "prompt": "a", "max_tokens": 16, "ignore_eos": true});
    let (next, times) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..TOGETHER {
            scope.spawn(|| {
                while next.fetch_add(1, Ordering::Relaxed) < REQUESTS {
                    let begin = Instant::now();
                    let answer = post(client, key, &body);
                    assert_eq!(answer.status, 200, "{}", answer.text());
                    times.lock().unwrap().push(begin.elapsed());
                }
            });
        }
    });
    let mut times = times.into_inner().unwrap();
    times.sort_unstable();
    times[times.len() * 95 / 100]
}

/// The p95 of one key beside another one with the same load.
fn even(client: Client) -> Duration {
    std::thread::scope(|scope| {
        let other = scope.spawn(|| modest(client, "one"));
        let own = modest(client, "two");
        other.join().expect("the other key is served");
        own
    })
}

/// The p95 of one key beside one that floods.
fn flooded(client: Client) -> Duration {
    let body = json!({"model": "demo", "prompt": vec!["a"; 8], "n": FLOOD / 8,
        "max_tokens": 900, "ignore_eos": true});
    let body = body.to_string();
    let head = format!(
        "POST {COMPLETIONS} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer one\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        client.address(),
        body.len()
    );
    let mut flood = std::net::TcpStream::connect(client.address()).unwrap();
    std::io::Write::write_all(&mut flood, head.as_bytes()).unwrap();
    let running = || client.metrics().sum("asynclane_num_requests_running", &[]);
    let begin = Instant::now();
    while running() < RUNNING {
        assert!(begin.elapsed() < Duration::from_secs(10) * patience());
        std::thread::sleep(Duration::from_millis(20));
    }
    let own = modest(client, "two");
    assert!(running() >= RUNNING, "the flood goes on");
    drop(flood);
    while running() > 0.0 {
        assert!(begin.elapsed() < Duration::from_secs(60) * patience());
        std::thread::sleep(Duration::from_millis(20));
    }
    own
}

#[test]
fn a_flood_costs_another_key_at_most_twice_an_even_share() {
    let file = crate::folder("two-keys").join("keys");
    std::fs::write(&file, "one:one\ntwo:two\n").unwrap();
    let server = Server::start(&["--api-keys-file", file.to_str().unwrap()]);
    let client = server.client();
    let mut found = Vec::new();
    for _ in 0..REPEATS {
        let (even, flooded) = (even(client), flooded(client));
        println!("p95 of one of two equal keys {even:?}, beside a flood {flooded:?}");
        found.push((even, flooded));
        if flooded <= even * 2 {
            return;
        }
    }
    panic!("more than twice an even share: {found:?}");
}
