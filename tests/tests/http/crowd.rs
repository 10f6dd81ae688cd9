//! Five hundred simultaneous streams, many of them cancelled or read slowly: all others have the same
//! content as alone, and no resources remain.

use std::io::{self, Read};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex};

use asynclane_tests::client::Client;
use asynclane_tests::crowd::{
    CLIENTS, Manner, REQUESTS, Request, allow_sockets, manners, model, requests,
};
use asynclane_tests::reply::Reply;
use asynclane_tests::scrape::Scrape;
use asynclane_tests::served::{Served, in_parallel};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use sim::SimExecutor;

/// Polls until a waiting test fails.
const MOST_PROBES: usize = 100_000;
/// Receive buffer of a slow reader in bytes; the system doubles it.
const NARROW: usize = 2048;

/// A counter that threads can wait for.
#[derive(Debug, Default)]
struct Count {
    value: Mutex<u64>,
    raised: Condvar,
}

impl Count {
    fn set(&self, change: impl FnOnce(&mut u64)) {
        change(&mut self.value.lock().unwrap());
        self.raised.notify_all();
    }

    /// Waits until it is at least `least`, and returns it.
    fn reach(&self, least: u64) -> u64 {
        let value = self.value.lock().unwrap();
        let raised = self.raised.wait_while(value, |value| *value < least);
        *raised.unwrap()
    }
}

/// Signals between the clients and the model.
#[derive(Debug, Default)]
struct Signals {
    /// Forward passes wait while it is 0.
    gate: Count,
    /// Clients that leave without an answer wait while it is 0.
    leave: Count,
    /// Events that the others got; `u64::MAX` once they have ended.
    progress: Count,
}

/// Ends all waiting, also if the test fails.
#[derive(Debug)]
struct Release<'a>(&'a Signals);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        for count in [&self.0.gate, &self.0.leave, &self.0.progress] {
            count.set(|value| *value = u64::MAX);
        }
    }
}

/// Counts a client when it ends, also if it fails.
#[derive(Debug)]
struct Ended<'a>(&'a Count);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.set(|count| *count += 1);
    }
}

/// Reads one byte per event of the others, and all remaining bytes after they have ended.
#[derive(Debug)]
struct Slowly {
    stream: TcpStream,
    signals: Arc<Signals>,
    seen: u64,
}

impl Read for Slowly {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.seen = self.signals.progress.reach(self.seen.saturating_add(1));
        let end = buffer.len().min(1);
        self.stream.read(&mut buffer[..end])
    }
}

/// One client of the crowd; its reply if it waits for all of it.
fn visit(
    client: Client,
    request: &Request,
    manner: Manner,
    signals: &Arc<Signals>,
) -> Option<Reply> {
    let Request { path, body } = request;
    match manner {
        Manner::Leaves(0) => {
            let stream = client.begin(path, body).unwrap();
            signals.leave.reach(1);
            drop(stream);
            None
        }
        Manner::Leaves(events) => {
            let stream = client.stream(path, body).take(events);
            stream.for_each(|event| assert!(event["error"].is_null(), "{event}"));
            None
        }
        Manner::Slow => {
            let slowly = |stream: TcpStream| {
                set_socket_recv_buffer_size(&stream, NARROW).unwrap();
                let signals = Arc::clone(signals);
                Box::new(Slowly { stream, signals, seen: 0 }) as Box<_>
            };
            Some(Reply::of_events(client.stream_through(path, body, slowly)))
        }
        Manner::Well => {
            let events = client.stream(path, body);
            let more = |count: &mut u64| *count = count.saturating_add(1);
            Some(Reply::of_events(events.inspect(|_| signals.progress.set(more))))
        }
    }
}

/// The metrics, once they satisfy a condition.
fn scrape_until(client: Client, holds: impl Fn(&Scrape) -> bool) -> Scrape {
    let mut scrapes = (0..MOST_PROBES).map(|_| client.metrics());
    scrapes.find(holds).expect("the awaited state comes")
}

fn outcome(metrics: &Scrape, outcome: &str) -> usize {
    metrics.sum("asynclane_requests_total", &[("outcome", outcome)]) as usize
}

/// Runs a client per manner; returns the replies in the same order.
fn crowd(client: Client, manners: &[Manner], signals: &Arc<Signals>) -> Vec<Option<Reply>> {
    let requests = requests();
    let count = |manner: fn(&Manner) -> bool| manners.iter().filter(|each| manner(each)).count();
    let silent = count(|manner| *manner == Manner::Leaves(0));
    let well = Count::default();
    // The model is held until all are accepted, so that all are open at the same time.
    signals.gate.set(|gate| *gate = 0);
    std::thread::scope(|scope| {
        let (well, requests) = (&well, &requests);
        let visitors = manners.iter().enumerate().map(|(index, manner)| {
            scope.spawn(move || {
                let _ended = (*manner == Manner::Well).then(|| Ended(well));
                visit(client, &requests[index % REQUESTS], *manner, signals)
            })
        });
        let visitors: Vec<_> = visitors.collect();
        let release = Release(signals);
        let mut loads = (0..MOST_PROBES).map(|_| client.get("/load").json());
        let all = loads.any(|load| load["server_load"] == CLIENTS);
        assert!(all, "all are accepted");
        signals.leave.set(|leave| *leave = 1);
        scrape_until(client, |metrics| outcome(metrics, "cancelled") == silent);
        signals.gate.set(|gate| *gate = 1);
        well.reach(count(|manner| *manner == Manner::Well) as u64);
        drop(release);
        let replies = visitors.into_iter().map(|visitor| visitor.join());
        let replies = replies.map(|reply| reply.expect("the client ends well"));
        replies.collect()
    })
}

#[test]
fn five_hundred_streams_disturb_nobody_and_leave_nothing() {
    allow_sockets();
    let signals = Arc::new(Signals::default());
    signals.gate.set(|gate| *gate = 1);
    let held = Arc::clone(&signals);
    let executor = SimExecutor::new(model()).unwrap().with_hook(move |_, _| {
        held.gate.reach(1);
        Ok(())
    });
    let served = Served::over(Box::new(executor), 64, 2048);
    let client = served.client();
    let alone = in_parallel(1, &requests(), |request| {
        Reply::of_events(client.stream(request.path, &request.body))
    });

    let manners = manners(1);
    let replies = crowd(client, &manners, &signals);
    let mut finished = 0;
    for (index, reply) in replies.iter().enumerate() {
        if let Some(reply) = reply {
            let request = &requests()[index % REQUESTS].body;
            let (manner, expected) = (manners[index], &alone[index % REQUESTS]);
            assert_eq!(reply, expected, "{manner:?} {request}");
            finished += 1;
        }
    }
    assert_eq!(finished, CLIENTS - CLIENTS / 3);

    let metrics = scrape_until(client, |metrics| metrics.busy().is_empty());
    let (ok, cancelled) = (outcome(&metrics, "ok"), outcome(&metrics, "cancelled"));
    assert_eq!(ok + cancelled, REQUESTS + CLIENTS);
    assert!(cancelled >= CLIENTS / 6, "{cancelled}");
    for fault in ["invalid", "rejected", "failed"] {
        assert_eq!(outcome(&metrics, fault), 0, "{fault}");
    }
    assert_eq!(client.get("/load").json()["server_load"], 0);
    let after = in_parallel(1, &requests()[..2], |request| {
        Reply::of_events(client.stream(request.path, &request.body))
    });
    assert_eq!(after, alone[..2]);
}
