//! Thousands of random requests of every kind against the binary: no failure, flat memory, counters
//! that add up, and nothing left.
//!
//! `SOAK_REQUESTS` sets their number, `SOAK_SEED` the seed, `SERVER_BINARY` the program.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use asynclane_tests::client::Client;
use asynclane_tests::memory::Memory;
use asynclane_tests::process::{Server, utf8};
use asynclane_tests::soak::KEYS;
use asynclane_tests::soak::ask::Asks;
use asynclane_tests::soak::tally::{REQUEST_TOKENS, Tally};
use asynclane_tests::soak::visit::visit;

const REQUESTS: u64 = 8_000;
/// Requests for each decoder, enough that every suitable one answers some.
const REQUESTS_PER_DECODER: u64 = 40;
/// Connections at a time.
const CLIENTS: usize = 12;
/// Growth of the most resident memory from the second quarter to the last, in KiB,
/// and a share of it.
const MORE_KIB: u64 = 32 << 10;
const MORE_SHARE: u64 = 8;
/// Time for the server to notice the last clients that left.
const REST: Duration = Duration::from_secs(60);

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("the setting is a number"))
}

/// A server that knows the soak's keys and has a short queue.
fn start() -> (Server, PathBuf) {
    let name = format!("asynclane-soak-{}.keys", std::process::id());
    let keys = std::env::temp_dir().join(name);
    let lines = KEYS.map(|(name, key)| format!("{name}:{key}\n"));
    std::fs::write(&keys, lines.concat()).unwrap();
    let tokens = REQUEST_TOKENS.to_string();
    let limits = ["--max-waiting", "12", "--max-running", "8", "--max-request-tokens", &tokens];
    let server = Server::start(&[&limits[..], &["--api-keys-file", utf8(&keys)]].concat());
    (server, keys)
}

/// The most resident memory of each quarter of the requests, in KiB.
fn watch(memory: &Memory, (next, total): (&AtomicU64, u64), done: &AtomicBool) -> [u64; 4] {
    let mut peaks = [0; 4];
    while !done.load(Ordering::Relaxed) {
        let quarter = next.load(Ordering::Relaxed).min(total - 1) * 4 / total;
        let peak = &mut peaks[quarter as usize];
        *peak = memory.resident().max(*peak);
        std::thread::sleep(Duration::from_millis(10));
    }
    peaks
}

/// Sends requests until all are sent.
fn client(server: Client, asks: &Asks, (next, total): (&AtomicU64, u64)) -> Tally {
    let mut tally = Tally::default();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= total {
            return tally;
        }
        let ask = asks.ask(number);
        let end = visit(server.address(), &ask);
        let end = end.unwrap_or_else(|error| panic!("request {number}: {error}: {ask:?}"));
        tally.add(&ask, &end);
    }
}

/// The server has no work left.
fn rests(client: Client) {
    let begin = Instant::now();
    loop {
        let busy = client.metrics().busy();
        if busy.is_empty() && client.get("/load").json()["server_load"] == 0 {
            return;
        }
        assert!(begin.elapsed() < REST, "still busy: {busy:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn random_requests_leave_the_server_as_it_was() {
    let total = setting("SOAK_REQUESTS").unwrap_or(REQUESTS);
    let asks = Asks::new(setting("SOAK_SEED").unwrap_or(1));
    let (server, keys) = start();
    let memory = Memory::of(&server.proc());
    let first = memory.resident();
    let (next, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let (tally, peaks) = std::thread::scope(|scope| {
        let peaks = scope.spawn(|| watch(&memory, (&next, total), &done));
        let client = || client(server.client(), &asks, (&next, total));
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        let mut tally = Tally::default();
        let mut failed = false;
        for client in clients {
            match client.join() {
                Ok(counts) => tally.merge(counts),
                Err(_) => failed = true,
            }
        }
        done.store(true, Ordering::Relaxed);
        assert!(!failed, "a client failed");
        (tally, peaks.join().unwrap())
    });
    println!("{first} KiB resident at the start, at most {peaks:?} KiB by quarter");
    assert_eq!(tally.total, total);
    rests(server.client());
    tally.check(&server.client().metrics());
    check_variety(&tally, &asks, total);
    let allowed = peaks[1] + peaks[1] / MORE_SHARE + MORE_KIB;
    let flat = first == 0 || peaks[3] <= allowed;
    assert!(flat, "{peaks:?} KiB, {allowed} are allowed");

    server.stop();
    std::fs::remove_file(keys).unwrap();
}

/// Most valid requests are answered, by every decoder that suits the model.
fn check_variety(tally: &Tally, asks: &Asks, total: u64) {
    let (answered, valid) = tally.valid;
    let suitable: Vec<_> = asks.suitable().collect();
    let missing = suitable.iter().filter(|decoder| !tally.decoders.contains(**decoder));
    let missing: Vec<_> = missing.collect();
    assert!(answered * 2 > valid, "{answered} of {valid} answered");
    // Some requests for a decoder are refused for another reason, or their clients leave.
    if total >= REQUESTS_PER_DECODER * suitable.len() as u64 {
        assert!(missing.is_empty(), "no answer by {missing:?}");
    }
}
