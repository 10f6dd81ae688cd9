//! Clients share the engine: who starts, who runs, and how long one waits for a flood of another.

use std::collections::BTreeMap;
use std::sync::Arc;

use asynclane_engine::{
    ClientId, EngineConfig, Rank, Request, Sender, SequenceId, SubmitError, WaitOrder,
};
use sim::{Fidelity, SimConfig, SimExecutor};

use crate::common::{
    Lab, Outcome, Rig, Rng, ShowSeed, alone, config, request, request_of, seeds, sim,
};

/// One token a step. A prefill computes prompt and budget, a decode forward 16 rows.
const BLOCKS: &str = "schedule=block_wise,commit=top_k,tokens_per_step=1,cache=dual,\
                      block_length=16";

/// One class, and no sequence ages.
#[derive(Debug)]
struct Forever;

impl WaitOrder for Forever {
    fn rank(&self, _request: &Request) -> Rank {
        Rank(0)
    }

    fn aging_steps(&self) -> u64 {
        u64::MAX
    }
}

fn engine(config: &EngineConfig, pages: u32) -> Lab {
    let model = SimConfig { fidelity: Fidelity::Free, ..sim(pages, 4) };
    Lab::new(config, SimExecutor::new(model).expect("a valid model"))
}

fn ask(lab: &Lab, client: u64, (prompt, budget): (usize, u32), settings: &str) -> Request {
    let mut request = request(&vec![20; prompt], budget, settings);
    request.stop_tokens.clear();
    request.sampling.seed = lab.logs.len() as u64;
    request.sender.client = ClientId(client);
    request
}

fn submit(lab: &mut Lab, client: u64, size: (usize, u32), settings: &str) -> SequenceId {
    let request = ask(lab, client, size, settings);
    lab.submit(request).expect("there is room")
}

/// A sequence that waits: its client, its tokens, those of its client's line up to it, and the
/// tokens of other clients that started before it while its client had room.
#[derive(Debug)]
struct Waiter {
    client: u64,
    tokens: u64,
    line: u64,
    passed: BTreeMap<u64, u64>,
}

/// The engine's load as a test counts it.
struct Watch {
    max_running: usize,
    waiting: BTreeMap<SequenceId, Waiter>,
    running: BTreeMap<SequenceId, u64>,
    longest: u64,
    overtaken: u64,
}

impl Watch {
    /// True if a client may run one more, as the module `scheduler` says.
    fn may_run(&self, client: u64) -> bool {
        let mut clients: Vec<u64> = self.running.values().copied().collect();
        let own = clients.iter().filter(|running| **running == client).count();
        clients.push(client);
        clients.sort_unstable();
        clients.dedup();
        let even = (self.max_running / clients.len()).max(1);
        let running = self.running.len();
        let most = self.max_running + self.max_running.div_ceil(2);
        running < self.max_running || own < even && running < most
    }

    fn submitted(&mut self, id: SequenceId, client: u64, tokens: u64) {
        let own = self.waiting.values().filter(|waiting| waiting.client == client);
        let line = own.map(|waiting| waiting.tokens).sum::<u64>() + tokens;
        self.longest = self.longest.max(tokens);
        let waiter = Waiter { client, tokens, line, passed: BTreeMap::new() };
        self.waiting.insert(id, waiter);
    }

    fn started(&mut self, id: SequenceId) {
        let start = self.waiting.remove(&id).expect("it waited");
        assert!(self.may_run(start.client), "{start:?}");
        for (client, passed) in &start.passed {
            assert!(*passed <= start.line + self.longest, "{client}: {start:?}");
        }
        let admissible: Vec<u64> = (self.waiting.values().map(|waiting| waiting.client))
            .filter(|client| self.may_run(*client))
            .collect();
        for waiter in self.waiting.values_mut() {
            if waiter.client != start.client && admissible.contains(&waiter.client) {
                *waiter.passed.entry(start.client).or_default() += start.tokens;
                self.overtaken += 1;
            }
        }
        self.running.insert(id, start.client);
    }

    /// Nobody waits who may run.
    fn rest(&self) {
        for waiter in self.waiting.values() {
            assert!(!self.may_run(waiter.client), "{waiter:?}");
        }
    }
}

/// Under any load: a client has its share of running sequences, and the tokens of others that start
/// before a sequence are bounded.
#[test]
fn clients_take_turns_by_tokens_and_have_their_shares() {
    let mut overtaken = 0;
    let all = seeds(60);
    for seed in &all {
        let _show = ShowSeed(*seed);
        let mut rng = Rng::new(seed ^ 0xC11E);
        let max_running = rng.pick(&[1, 2, 5, 8]);
        let config = EngineConfig { max_running, wait_order: Arc::new(Forever), ..config() };
        let mut lab = engine(&config, 20_000);
        let mut watch = Watch {
            max_running: max_running as usize,
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            longest: 0,
            overtaken: 0,
        };
        let clients = rng.range(2, 5);
        let mut left = 60;
        while left > 0 || !lab.engine.is_idle() {
            while left > 0 && rng.chance(60) {
                left -= 1;
                // Client 0 floods.
                let client = u64::from(rng.range(0, clients) * u32::from(rng.chance(50)));
                let size = (rng.range(1, 30) as usize, rng.range(1, 12));
                let id = submit(&mut lab, client, size, "vanilla");
                watch.submitted(id, client, size.0 as u64 + u64::from(size.1));
            }
            let before = lab.starts.len();
            lab.step();
            for index in before..lab.starts.len() {
                watch.started(lab.starts[index]);
            }
            watch.rest();
            watch.running.retain(|id, _| lab.logs[id].end.is_none());
        }
        lab.finish();
        overtaken += watch.overtaken;
    }
    if all.len() > 1 {
        println!("{overtaken} starts before others");
        assert!(overtaken > 1000);
    }
}

/// A machine: sequences and rows of a step.
fn machine(max_running: u32, rows: u32) -> EngineConfig {
    EngineConfig { max_running, row_budget: rows, long_quantum: rows / 4, ..config() }
}

/// The steps that each sequence of client 2 takes. It has `together` sequences at a time, `count` in
/// all; client 1 has submitted `flood` sequences before.
fn latencies(
    config: &EngineConfig,
    flood: usize,
    load: (usize, usize),
    settings: &str,
) -> Vec<u64> {
    let (together, count) = load;
    let mut lab = engine(config, 40_000);
    let mut rng = Rng::new(0xF100D);
    for _ in 0..flood {
        submit(&mut lab, 1, (20, 60), settings);
    }
    for _ in 0..10 {
        lab.step();
    }
    let mut open: BTreeMap<SequenceId, u64> = BTreeMap::new();
    let mut taken = Vec::new();
    let mut asked = 0;
    for now in 0.. {
        while open.len() < together && asked < count {
            asked += 1;
            let size = (rng.range(4, 40) as usize, rng.range(4, 20));
            open.insert(submit(&mut lab, 2, size, settings), now);
        }
        if open.is_empty() {
            break;
        }
        lab.step();
        open.retain(|id, since| {
            let ended = lab.logs[id].end.is_some();
            if ended {
                taken.push(now + 1 - *since);
            }
            !ended
        });
        assert!(now < 100_000, "the engine never ends");
    }
    taken.sort_unstable();
    taken
}

/// A client beside one that floods the engine with 1,024 sequences waits at most twice as long as
/// with half of the machine for itself.
#[test]
fn a_flood_costs_another_client_at_most_twice_an_even_share() {
    for settings in ["vanilla", BLOCKS] {
        for (rows, load) in [(4000, (1, 40)), (640, (1, 40)), (640, (8, 120)), (200, (2, 40))] {
            let even = latencies(&machine(8, rows / 2), 0, load, settings);
            let shared = latencies(&machine(16, rows), 1024, load, settings);
            let p95 = |values: &[u64]| values[values.len() * 95 / 100];
            let found = (p95(&even), p95(&shared));
            println!("{settings}, {rows} rows, {load:?}: even {}, shared {}", found.0, found.1);
            assert!(found.1 <= 2 * found.0, "{settings}, {rows} rows, {load:?}: {found:?}");
        }
    }
}

/// One forward of each of the others goes before it, whatever their number.
#[test]
fn a_single_sequence_of_a_client_is_in_every_step_that_has_room_for_two_forwards() {
    for flood in [16, 300] {
        let mut lab = engine(&machine(16, 200), 40_000);
        for _ in 0..flood {
            submit(&mut lab, 1, (20, 60), "vanilla");
        }
        // Every prefill has run.
        for _ in 0..40 {
            lab.step();
        }
        let id = submit(&mut lab, 2, (20, 12), "vanilla");
        for forwards in 1..=12 {
            lab.step();
            assert_eq!(lab.logs[&id].forwards, forwards);
        }
        assert!(lab.logs[&id].end.is_some());
    }
}

/// A flood that came first leaves an eighth of the pages: another client starts in the next step.
#[test]
fn a_flood_leaves_pages_to_the_next_client() {
    // A sequence needs 10 of 80 pages.
    let mut lab = engine(&config(), 80);
    for _ in 0..20 {
        submit(&mut lab, 1, (20, 20), "vanilla");
    }
    lab.step();
    assert_eq!(lab.starts.len(), 7);
    let id = submit(&mut lab, 2, (20, 20), "vanilla");
    lab.step();
    assert!(lab.logs[&id].started);
    // A single sequence may have all pages.
    let mut lab = engine(&config(), 10);
    let id = submit(&mut lab, 1, (20, 20), "vanilla");
    lab.step();
    assert!(lab.logs[&id].started);
}

/// Rows of each step in which a sequence of client 2 is, beside a flood of client 1.
fn rows_beside_a_flood(config: &EngineConfig, size: (usize, u32), settings: &str) -> Vec<usize> {
    let mut lab = engine(config, 40_000);
    for _ in 0..200 {
        submit(&mut lab, 1, (20, 60), settings);
    }
    for _ in 0..5 {
        lab.step();
    }
    let id = submit(&mut lab, 2, size, settings);
    let (mut rows, mut before) = (Vec::new(), lab.totals.positions.iter().sum::<u64>());
    while lab.logs[&id].end.is_none() {
        let forwards = lab.logs[&id].forwards;
        lab.step();
        let now = lab.totals.positions.iter().sum::<u64>();
        if lab.logs[&id].forwards > forwards {
            rows.push((now - before) as usize);
        }
        before = now;
    }
    rows
}

/// Beside a client that has all it wants, a flood has at most a thirty-second of the rows on average,
/// and the rows of one forward. Before, it has at most a quarter.
#[test]
fn a_flood_has_few_rows_beside_a_client_that_is_served() {
    for settings in ["vanilla", BLOCKS] {
        // A forward of the flood has at most 80 rows, one of the other client at most 16.
        let (budget, of_flood, own) = (1600, 80, 16);
        let rows = rows_beside_a_flood(&machine(64, budget), (4, 8), settings);
        println!("{settings}: {rows:?}");
        assert!(rows.len() >= 8);
        let (first, rest) = rows.split_first().expect("some steps");
        assert!(*first <= own + budget as usize / 4 + of_flood, "{first} rows");
        let least = budget as usize / 32;
        let sum = rest.iter().sum::<usize>();
        assert!(sum <= rest.len() * (own + least) + of_flood, "{rest:?}");
        assert!(rest.iter().all(|rows| *rows <= own + of_flood.max(least)));
        // The flood goes on meanwhile.
        assert!(sum + of_flood >= rest.len() * least, "{rest:?}");
    }
}

/// Two clients that both want more than there is have a quarter of the rows each.
#[test]
fn two_floods_have_a_quarter_of_the_rows_each() {
    let budget = 1600;
    let mut lab = engine(&machine(64, budget), 40_000);
    for client in [1, 2] {
        for _ in 0..100 {
            submit(&mut lab, client, (20, 60), "vanilla");
        }
    }
    for _ in 0..10 {
        lab.step();
    }
    for _ in 0..20 {
        let before = lab.totals.positions.iter().sum::<u64>();
        lab.step();
        let rows = lab.totals.positions.iter().sum::<u64>() - before;
        let quarter = u64::from(budget) / 4;
        assert!((quarter..=2 * quarter).contains(&rows), "{rows} rows");
    }
}

/// A client that fills the queue does not shut others out.
#[test]
fn a_full_queue_has_room_for_another_client() {
    let config = EngineConfig { max_running: 1, max_waiting: 16, ..config() };
    let rig = Rig::new(&config, None);
    let submit = |client, count: u64| {
        let request = |number| {
            let mut request = request_of(number);
            request.sender.client = ClientId(client);
            request
        };
        rig.handle.submit((0..count).map(request).collect())
    };
    let first = submit(1, 1).expect("the queue is empty");
    rig.gate.arrival();
    let flood = submit(1, 16).expect("the whole queue");
    assert!(matches!(submit(1, 1), Err(SubmitError::Overloaded { .. })));
    assert!(matches!(submit(2, 3), Err(SubmitError::Overloaded { .. })));
    let other = submit(2, 2).expect("an eighth of the queue");
    assert!(matches!(submit(2, 1), Err(SubmitError::Overloaded { .. })));
    drop((first, flood, other));
    rig.end();
}

/// Clients change who runs when, and no result.
#[test]
fn a_result_does_not_depend_on_the_clients() {
    for seed in seeds(20) {
        let _show = ShowSeed(seed);
        let mut rng = Rng::new(seed ^ 0xC0DE);
        let config = EngineConfig {
            max_running: rng.pick(&[1, 3, 8]),
            row_budget: rng.pick(&[40, 150, 400]),
            long_quantum: rng.pick(&[10, 40]),
            ..config()
        };
        let model = sim(4000, 4);
        let executor = SimExecutor::new(model.clone()).expect("a valid model");
        let mut lab = Lab::new(&config, executor);
        let mut requests: Vec<Request> = Vec::new();
        for number in 0..14 {
            let sender = Sender {
                client: ClientId(u64::from(rng.range(0, 3))),
                priority: rng.pick(&[0, 0, 2]),
            };
            let request = Request { sender, ..crate::common::random_request(&mut rng, number) };
            requests.push(request.clone());
            lab.submit(request).expect("there is room");
            for _ in 0..rng.range(0, 4) {
                lab.step();
            }
        }
        lab.finish();
        for (id, request) in lab.logs.keys().zip(&requests) {
            let outcome: Outcome = lab.outcome(*id).expect("nothing fails here");
            assert_eq!(outcome, alone(request, &model), "{request:?}");
        }
    }
}
