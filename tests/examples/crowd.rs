//! Measures whether clients that disconnect or read slowly delay others: time to the first token of
//! well-behaved clients among five hundred, in wall time.
//!
//! The model is simulated and every pass takes the same time, so that only the server is measured: the
//! same well-behaved clients alone, among other well-behaved ones, and among others that are not. Rounds are interleaved; figures are medians of the rounds' medians.

use std::io::Read;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use asynclane_tests::client::Client;
use asynclane_tests::crowd::{
    CLIENTS, Manner, REQUESTS, Request, allow_sockets, manners, model, requests,
};
use asynclane_tests::served::Served;
use sim::{Fidelity, SimConfig, SimExecutor};

const ROUNDS: usize = 5;
/// Time of a pass.
const PASS: Duration = Duration::from_millis(25);
/// Time between two bytes of a slow reader, and between its checks for the end of the round.
const BYTE: Duration = Duration::from_secs(1);
const LOOKS: u32 = 20;
/// All sequences run together, and all of their first passes fit into one step.
const RUNNING: u32 = 512;
const ROWS: u32 = 1 << 17;

/// The behaviour of the other clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Others {
    Absent,
    Behave,
    Misbehave,
}

fn main() {
    allow_sockets();
    let manners = manners(1);
    let model = SimConfig {
        fidelity: Fidelity::Free,
        ..model()
    };
    let executor = SimExecutor::new(model).expect("the model is possible");
    let executor = executor.with_hook(|_, _| {
        std::thread::sleep(PASS);
        Ok(())
    });
    let served = Served::over(Box::new(executor), RUNNING, ROWS);
    let mut figures =
        [Others::Absent, Others::Behave, Others::Misbehave].map(|others| (others, Vec::new()));
    for _ in 0..ROUNDS {
        for (others, medians) in &mut figures {
            medians.push(round(served.client(), &manners, *others));
        }
    }
    let [alone, behave, misbehave] = figures.map(|(_, mut medians)| median(&mut medians));
    let well = manners
        .iter()
        .filter(|manner| **manner == Manner::Well)
        .count();
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    println!(
        "median TTFT of {well} streams: alone {:.1} ms, among {} that behave {:.1} ms, among {} \
         that leave or read a byte a second {:.1} ms; ratios {:.3} to alone, {:.3} to behaving",
        millis(alone),
        CLIENTS - well,
        millis(behave),
        CLIENTS - well,
        millis(misbehave),
        misbehave.div_duration_f64(alone),
        misbehave.div_duration_f64(behave),
    );
}

/// The median time to the first token of the well-behaved clients.
fn round(client: Client, manners: &[Manner], others: Others) -> Duration {
    let requests = requests();
    let present =
        |(_, manner): &(usize, &Manner)| **manner == Manner::Well || others != Others::Absent;
    let clients: Vec<_> = manners.iter().enumerate().filter(present).collect();
    let (start, over) = (Barrier::new(clients.len()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (mut well, mut rest) = (Vec::new(), Vec::new());
        for (index, manner) in clients {
            let (request, start, over) = (&requests[index % REQUESTS], &start, &over);
            let does = match others {
                Others::Misbehave => *manner,
                Others::Absent | Others::Behave => Manner::Well,
            };
            let visitor = scope.spawn(move || {
                start.wait();
                visit(client, request, does, over)
            });
            match manner {
                Manner::Well => well.push(visitor),
                _ => rest.push(visitor),
            }
        }
        let join = |visitor: std::thread::ScopedJoinHandle<'_, _>| {
            visitor.join().expect("the client ends well")
        };
        let mut times: Vec<Duration> = well.into_iter().filter_map(join).collect();
        over.store(true, Ordering::Relaxed);
        for visitor in rest {
            join(visitor);
        }
        median(&mut times)
    })
}

/// Reads an answer in a manner; returns the time to its first token if it is well-behaved.
fn visit(client: Client, request: &Request, manner: Manner, over: &AtomicBool) -> Option<Duration> {
    let begin = Instant::now();
    match manner {
        Manner::Well => {
            let mut events = client.stream(request.path, &request.body);
            events.next().expect("an answer has a token");
            let time = begin.elapsed();
            events.for_each(drop);
            Some(time)
        }
        Manner::Leaves(0) => {
            client
                .begin(request.path, &request.body)
                .expect("the server listens");
            None
        }
        Manner::Leaves(events) => {
            let stream = client.stream(request.path, &request.body);
            stream.take(events).for_each(drop);
            None
        }
        Manner::Slow => {
            let stream = client.begin(request.path, &request.body);
            let mut stream = stream.expect("the server listens");
            while !over.load(Ordering::Relaxed) {
                stream.read_exact(&mut [0]).expect("the answer goes on");
                let mut looks = (0..LOOKS).map(|_| {
                    std::thread::sleep(BYTE / LOOKS);
                    over.load(Ordering::Relaxed)
                });
                looks.any(|over| over);
            }
            None
        }
    }
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
