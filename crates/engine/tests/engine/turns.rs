//! The sequences of a step: the row budget, and the share of prefills and refreshes.

use std::collections::BTreeMap;

use asynclane_engine::{EngineConfig, Request, SequenceId};
use decode::ForwardKind;
use sim::SimExecutor;

use crate::common::{
    Lab, Outcome, Rng, ShowSeed, alone, config, random_request, request, seeds, sim,
};

/// One token a step. A prefill computes prompt and budget, a decode forward 16 rows.
const BLOCKS: &str = "schedule=block_wise,commit=top_k,tokens_per_step=1,cache=dual,\
                      block_length=16";

fn lab(row_budget: u32, long_quantum: u32) -> Lab {
    let config = EngineConfig { row_budget, long_quantum, prefix_cache: true, ..config() };
    let executor = SimExecutor::new(sim(2000, 4)).expect("a valid model");
    Lab::new(&config, executor)
}

/// Submits sequences whose prefills have these numbers of rows, 32 of them for the budget.
fn submit(lab: &mut Lab, prefills: &[usize]) {
    for rows in prefills {
        let prompt = vec![20; rows - 32];
        let mut request = request(&prompt, 32, BLOCKS);
        request.stop_tokens.clear();
        request.sampling.seed = lab.logs.len() as u64;
        lab.submit(request).expect("there is room");
    }
}

/// One step, as the rows of the sequences A, B, ... in it.
fn step(lab: &mut Lab) -> String {
    let rows = |lab: &Lab| -> Vec<u64> { lab.logs.values().map(|log| log.positions).collect() };
    let before = rows(lab);
    assert!(lab.step());
    let after = rows(lab);
    let ran_rows = |index: usize| (u64::from(b'A') + index as u64, after[index] - before[index]);
    let ran = (0..after.len()).map(ran_rows).filter(|(_, rows)| *rows > 0);
    let names = ran.map(|(name, rows)| format!("{}{rows}", char::from(name as u8)));
    names.collect::<Vec<_>>().join(" ")
}

/// Prefills of 40 rows at a quantum of 20 rows: every second step has one.
#[test]
fn a_wave_of_prefills_takes_its_quantum_and_no_more() {
    let mut lab = lab(60, 20);
    submit(&mut lab, &[36]);
    assert_eq!(step(&mut lab), "A36");
    submit(&mut lab, &[40, 40, 40]);
    let steps: Vec<String> = (0..8).map(|_| step(&mut lab)).collect();
    let expected = [
        "A16",
        "A16 B40",
        "A16 B16",
        "A16 C40",
        // B had no room and goes first.
        "A16 B16 C16",
        "A16 D40",
        "A16 B16 C16",
        "A16 B16 D16",
    ];
    assert_eq!(steps, expected);
    lab.finish();
}

/// The quantum does not apply while nothing decodes.
#[test]
fn prefills_among_themselves_share_the_row_budget() {
    let mut lab = lab(100, 1);
    submit(&mut lab, &[40, 40, 40, 40]);
    assert_eq!(step(&mut lab), "A40 B40");
    assert_eq!(step(&mut lab), "A16 B16");
    lab.finish();
}

/// A forward longer than the row budget saves up credit and has a step of its own.
#[test]
fn a_forward_beyond_the_row_budget_runs_alone() {
    let mut lab = lab(30, 20);
    submit(&mut lab, &[36]);
    assert_eq!(step(&mut lab), "A36");
    submit(&mut lab, &[50]);
    let steps: Vec<String> = (0..6).map(|_| step(&mut lab)).collect();
    assert_eq!(steps, ["A16", "A16", "B50", "A16", "B16", "A16"]);
    lab.finish();
}

/// Decode forwards that fill the row budget make room for a prefill that is covered.
#[test]
fn decode_forwards_do_not_starve_a_prefill() {
    let mut lab = lab(80, 20);
    submit(&mut lab, &[36, 36, 36, 36, 36]);
    for _ in 0..10 {
        step(&mut lab);
    }
    assert_eq!(step(&mut lab), "A16 B16 C16 D16 E16", "the budget is full");
    submit(&mut lab, &[50]);
    let all = "A16 B16 C16 D16 E16";
    let steps: Vec<String> = (0..5).map(|_| step(&mut lab)).collect();
    assert_eq!(steps, [all, all, "A16 F50", all, "A16 B16 C16 D16 F16"]);
    lab.finish();
}

/// A sequence that is being answered refreshes before prompts that came after it.
#[test]
fn a_refresh_goes_before_later_prompts() {
    let mut lab = lab(40, 20);
    submit(&mut lab, &[36]);
    for _ in 0..15 {
        step(&mut lab);
    }
    submit(&mut lab, &[40, 40, 40]);
    let steps: Vec<String> = (0..6).map(|_| step(&mut lab)).collect();
    assert_eq!(steps, ["A16", "A36", "B40", "A16 B16", "C40", "A16 B16"]);
    lab.finish();
}

/// A forward: the step since which its sequence waited for it, and the step that it ran in.
#[derive(Clone, Copy, Debug)]
struct Forward {
    since: u64,
    /// The step of its sequence's last forward of this class.
    line_since: u64,
    long: bool,
    priority: i32,
    id: SequenceId,
    ran: u64,
    rows: u64,
}

impl Forward {
    fn waited(&self) -> u64 {
        self.ran - self.since - 1
    }

    /// True if `self` waited already when `other` began to, and goes before it.
    fn goes_before(&self, other: &Self) -> bool {
        let key = |forward: &Self| {
            let since = match self.long == other.long {
                true => forward.line_since,
                false => forward.since,
            };
            (since, forward.long, forward.priority, forward.id)
        };
        key(self) < key(other) && self.ran > other.since
    }
}

/// Submits requests between steps. Returns every forward, in order of steps.
fn live(lab: &mut Lab, requests: &[Request], rng: &mut Rng) -> Vec<Forward> {
    let mut forwards = Vec::new();
    // Steps since a sequence's last forward of any kind, and since its last long one.
    let mut since: BTreeMap<SequenceId, [u64; 2]> = BTreeMap::new();
    let mut next = requests.iter();
    for ran in 1.. {
        while rng.chance(if ran == 1 { 80 } else { 35 }) {
            let Some(request) = next.next() else { break };
            lab.submit(request.clone()).expect("there is room");
        }
        if next.len() > 0 && lab.engine.is_idle() {
            let request = next.next().expect("there is one");
            lab.submit(request.clone()).expect("there is room");
        }
        if lab.engine.is_idle() {
            return forwards;
        }
        let before: BTreeMap<_, _> =
            lab.logs.iter().map(|(id, log)| (*id, log.steps.len())).collect();
        lab.step();
        for (id, log) in &lab.logs {
            if log.started {
                since.entry(*id).or_insert([ran - 1; 2]);
            }
            for trace in &log.steps[before[id]..] {
                let lines = since.get_mut(id).expect("it has started");
                let long = trace.kind != ForwardKind::Decode;
                let [since, line_since] = [lines[0], lines[usize::from(long)]];
                lines[..=usize::from(long)].fill(ran);
                forwards.push(Forward {
                    since,
                    line_since,
                    long,
                    priority: requests[id.0 as usize].sender.priority,
                    id: *id,
                    ran,
                    rows: trace.rows.iter().map(|rows| rows.len() as u64).sum(),
                });
            }
        }
        assert!(ran < 100_000, "the engine never ends");
    }
    unreachable!("the steps do not end")
}

/// Numbers of cases that the property test met.
#[derive(Debug, Default)]
struct Seen {
    long_waits: u64,
    decode_waits: u64,
    beyond: u64,
}

impl Seen {
    /// Checks the bounds on waiting.
    fn check_waits(&mut self, forwards: &[Forward], config: &EngineConfig) {
        let (budget, quantum) = (u64::from(config.row_budget), u64::from(config.long_quantum));
        for forward in forwards.iter().filter(|forward| forward.waited() > 0) {
            let before = || forwards.iter().filter(|other| other.goes_before(forward));
            for long in [false, true] {
                let of_class = before().filter(|other| other.long == long);
                assert!(of_class.count() < config.max_running as usize, "{forward:?}");
            }
            if forward.long {
                self.long_waits += 1;
                let line: Vec<_> = before().filter(|other| other.long).chain([forward]).collect();
                let quanta: u64 = line.iter().map(|other| other.rows.div_ceil(quantum)).sum();
                let delays = |other: &&Forward| {
                    !other.long
                        && other.ran > forward.since
                        && line.iter().any(|long| other.goes_before(long))
                };
                let decodes = forwards.iter().filter(delays).count() as u64;
                assert!(forward.waited() < quanta + decodes, "{forward:?}");
            } else {
                self.decode_waits += 1;
                assert!(forward.waited() <= before().count() as u64, "{forward:?}");
                let rows: u64 = before().map(|other| other.rows).sum();
                let room = budget.saturating_sub(forward.rows) + 1;
                assert!(forward.waited() <= rows / room, "{forward:?}");
            }
        }
    }

    /// Checks the bounds on the rows of a step, and on long rows in consecutive steps.
    fn check_rows(&mut self, forwards: &[Forward], config: &EngineConfig) {
        let longest = forwards.iter().filter(|forward| forward.long);
        let longest = longest.map(|forward| forward.rows).max().unwrap_or(0);
        let mut above = 0;
        for step in forwards.chunk_by(|a, b| a.ran == b.ran) {
            let rows: u64 = step.iter().map(|forward| forward.rows).sum();
            let fits = rows <= u64::from(config.row_budget);
            assert!(fits || step.len() == 1, "{step:?}");
            self.beyond += u64::from(!fits);
            let ran = step[0].ran;
            let decodes = |other: &Forward| !other.long && other.since < ran && ran <= other.ran;
            if !forwards.iter().any(decodes) {
                above = 0;
                continue;
            }
            let long = step.iter().filter(|forward| forward.long);
            let long: u64 = long.map(|forward| forward.rows).sum();
            above = (above + long).saturating_sub(u64::from(config.long_quantum));
            assert!(above < longest, "{step:?}");
        }
    }
}

/// Under any load, row budget, quantum and priorities: a step beyond the budget holds one forward, no
/// wait exceeds its bound (see the module `scheduler`), and every sequence has the outcome that it
/// has alone.
#[test]
fn nobody_waits_longer_than_promised() {
    let mut seen = Seen::default();
    let all = seeds(60);
    for seed in &all {
        let _show = ShowSeed(*seed);
        let mut rng = Rng::new(seed ^ 0x7042);
        let row_budget = rng.pick(&[8, 40, 90, 150, 400]);
        let config = EngineConfig {
            max_running: rng.pick(&[2, 5, 12]),
            row_budget,
            long_quantum: rng.range(1, row_budget + 1),
            prefix_cache: true,
            ..config()
        };
        let model = sim(4000, 4);
        let executor = SimExecutor::new(model.clone()).expect("a valid model");
        let mut lab = Lab::new(&config, executor);
        let count = u64::from(rng.range(4, 14));
        // Every other load has priorities.
        let priorities: &[i32] = if seed.is_multiple_of(2) { &[0] } else { &[0, -3, 5] };
        let mut any = Rng::new(seed ^ 0x9810);
        let requests: Vec<Request> = (0..count)
            .map(|number| {
                let mut request = random_request(&mut rng, number);
                request.extras.trace = true;
                request.sender.priority = any.pick(priorities);
                request
            })
            .collect();
        let forwards = live(&mut lab, &requests, &mut rng);
        lab.finish();
        seen.check_waits(&forwards, &config);
        seen.check_rows(&forwards, &config);
        for (id, request) in lab.logs.keys().zip(&requests) {
            let outcome: Outcome = lab.outcome(*id).expect("nothing fails here");
            assert_eq!(outcome, alone(request, &model), "{request:?}");
        }
    }
    if all.len() > 1 {
        println!("{seen:?}");
        assert!(seen.long_waits > 100 && seen.decode_waits > 100 && seen.beyond > 100);
    }
}
