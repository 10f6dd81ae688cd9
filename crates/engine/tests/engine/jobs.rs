//! Jobs of sequences under a grammar: results do not depend on when they end, and nobody else waits.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use asynclane_engine::{EngineConfig, Event, GrammarJob, PoolLoad, Request, SequenceId};
use decode::{Constraint, ConstraintError, Feature, TokenId};
use sim::SimExecutor;

use crate::common::{
    Automaton, End, Lab, Rig, Rng, ShowSeed, alone, config, random_request, read, request,
    request_of, seeds, sim, text_of,
};

/// The behaviour of a [`Hostile`] grammar.
#[derive(Clone, Debug)]
enum Trick {
    /// Tells that it was asked, and blocks until the sender is gone.
    Blocks(Sender<()>, Arc<Mutex<Receiver<()>>>),
    Panics,
    /// Is too complex from this token on.
    Fails(u32),
}

/// A grammar of everything that misbehaves when it is asked what may come next.
#[derive(Clone, Debug)]
struct Hostile {
    trick: Trick,
    accepted: u32,
}

impl Constraint for Hostile {
    fn allowed(&mut self, set: &mut Vec<u32>) -> Result<(), ConstraintError> {
        match &self.trick {
            Trick::Blocks(asked, gate) => {
                let _ = asked.send(());
                let _ = gate.lock().expect("nobody panics with it").recv();
            }
            Trick::Panics => panic!("this panic is part of the test"),
            Trick::Fails(count) if self.accepted >= *count => {
                return Err(ConstraintError("the grammar is too complex".to_owned()));
            }
            Trick::Fails(_) => {}
        }
        *set = vec![!0 << 10, !0];
        Ok(())
    }

    fn accept(&mut self, _token: TokenId) -> Result<bool, ConstraintError> {
        self.accepted += 1;
        Ok(true)
    }

    fn forced(&mut self, tokens: &mut Vec<TokenId>) {
        tokens.clear();
    }

    fn may_end(&mut self) -> bool {
        false
    }

    fn is_over(&mut self) -> bool {
        false
    }

    fn boxed_clone(&self) -> Box<dyn Constraint> {
        Box::new(self.clone())
    }
}

fn hostile(trick: Trick) -> Request {
    Request {
        constraint: Some(Box::new(Hostile { trick, accepted: 0 })),
        ..request(&[20, 21], 12, "vanilla")
    }
}

fn lab(config: &EngineConfig) -> Lab {
    Lab::new(config, SimExecutor::new(sim(4000, 4)).expect("a valid model"))
}

/// A random request, under a grammar wherever its commit rule allows one.
fn constrained(rng: &mut Rng, number: u64) -> Request {
    let mut request = random_request(rng, number);
    let excludes = request.decoding.decoder.commit.info().requires.excludes;
    if !number.is_multiple_of(3) && !excludes.contains(&Feature::Grammar) {
        request.constraint = Some(Box::new(Automaton::new(number % 7)));
    }
    request
}

/// Runs and settles some of the jobs, in any order.
fn settle_some(lab: &mut Lab, jobs: &mut Vec<GrammarJob>, rng: &mut Rng) {
    while !jobs.is_empty() && rng.chance(60) {
        let index = rng.range(0, jobs.len() as u32);
        let mut job = jobs.swap_remove(index as usize);
        job.run();
        lab.settle(job);
    }
}

/// Jobs that end late and in any order change no result, and nothing is left of a sequence that is
/// cancelled meanwhile.
#[test]
fn a_result_does_not_depend_on_when_its_jobs_end() {
    let (mut late, mut cancelled, mut finished) = (0, 0, 0);
    for seed in seeds(40) {
        let _show = ShowSeed(seed);
        let mut rng = Rng::new(seed ^ 0x10B5);
        let config = EngineConfig {
            max_running: rng.pick(&[2, 5, 12]),
            row_budget: rng.pick(&[40, 150, 1000]),
            long_quantum: 60,
            ..config()
        };
        let mut lab = lab(&config);
        lab.engine.hand_out_jobs();
        let requests: Vec<Request> = (0..12).map(|number| constrained(&mut rng, number)).collect();
        let mut jobs: Vec<GrammarJob> = Vec::new();
        let mut next = requests.iter();
        while next.len() > 0 || !lab.engine.is_idle() || !jobs.is_empty() {
            if rng.chance(40)
                && let Some(request) = next.next()
            {
                lab.submit(request.clone()).expect("there is room");
            }
            settle_some(&mut lab, &mut jobs, &mut rng);
            if rng.chance(2)
                && let Some(job) = jobs.first()
            {
                cancelled += u32::from(lab.cancel(job.sequence()));
            }
            late += jobs.len();
            lab.step();
            jobs.extend(std::iter::from_fn(|| lab.engine.take_job()));
        }
        lab.finish();
        for (id, request) in lab.logs.keys().zip(&requests) {
            if lab.logs[id].end != Some(End::Cancelled) {
                let outcome = lab.outcome(*id).expect("nothing fails here");
                assert_eq!(outcome, alone(request, &sim(4000, 4)), "{request:?}");
                finished += 1;
            }
        }
    }
    if seeds(40).len() > 1 {
        println!("{late} late jobs, {cancelled} cancelled, {finished} finished");
        assert!(late > 1000 && cancelled > 10 && finished > 300);
    }
}

#[test]
fn a_sequence_is_in_no_step_while_its_job_runs() {
    let mut lab = lab(&config());
    lab.engine.hand_out_jobs();
    let id = lab.submit(hostile(Trick::Fails(99))).expect("room");
    assert!(!lab.step(), "the opening is under way");
    assert!(!lab.step());
    for forwards in 1..4 {
        let mut job = lab.engine.take_job().expect("one job");
        assert!(lab.engine.take_job().is_none());
        job.run();
        lab.settle(job);
        assert!(lab.step());
        assert!(!lab.step(), "its job is under way");
        assert_eq!(lab.logs[&id].forwards, forwards);
    }
    assert!(lab.cancel(id));
    assert!(lab.engine.take_job().is_none(), "the job is dropped");
    lab.finish();
}

/// The fault is the request's; other sequences of the same step go on.
#[test]
fn a_grammar_that_cannot_go_on_refuses_its_sequence_alone() {
    let mut lab = lab(&config());
    let mut submit = |number: u64, request: Request| {
        let mut request = request;
        request.sampling.seed = number;
        lab.submit(request).expect("there is room")
    };
    let refused: Vec<SequenceId> = [(0, 0), (1, 3)]
        .map(|(number, count)| submit(number, hostile(Trick::Fails(count))))
        .to_vec();
    let served = submit(2, request_of(2));
    lab.finish();
    for id in refused {
        let expected = End::Refused("the grammar is too complex".to_owned());
        assert_eq!(lab.logs[&id].end, Some(expected));
    }
    assert_eq!(lab.outcome(served).expect("served").tokens, text_of(2));
    assert_eq!((lab.totals.failed, lab.totals.finished), (0, 1));
}

#[test]
fn a_grammar_that_panics_fails_its_sequence_alone() {
    let rig = Rig::open(&config());
    let requests = vec![hostile(Trick::Panics), request_of(1)];
    let mut streams = rig.handle.submit(requests).expect("there is room");
    let (_, last) = read(&mut streams[0]);
    let Some(Event::Failed { message }) = last else { panic!("{last:?}") };
    assert_eq!(message, "the grammar panicked");
    assert_eq!(read(&mut streams[1]).0, text_of(1));
    rig.end();
}

/// As many grammars that never answer as there are threads: others are served, and a client that
/// leaves leaves nothing behind.
#[test]
fn others_are_served_while_a_grammar_works() {
    let rig = Rig::open(&config());
    let (asked, arrivals) = channel();
    let (gate, closed) = channel::<()>();
    let trick = Trick::Blocks(asked, Arc::new(Mutex::new(closed)));
    let requests = (0..8).map(|_| hostile(trick.clone())).collect();
    drop(trick);
    let mut slow = rig.handle.submit(requests).expect("there is room");
    arrivals.recv().expect("a grammar is asked");
    for number in 0..4 {
        let mut stream = rig.submit(number).expect("there is room");
        assert_eq!(read(&mut stream).0, text_of(number));
    }
    let kept = slow.remove(0);
    drop(slow);
    let mut stream = rig.submit(4).expect("there is room");
    assert_eq!(read(&mut stream).0, text_of(4));
    assert_eq!(rig.handle.load().running, 1, "only the kept one is left");
    drop(gate);
    let (tokens, last) = read(&mut { kept });
    assert!(matches!(last, Some(Event::Finished(_))), "{last:?}");
    assert_eq!(tokens.len(), 12);
    let reports = rig.end();
    let last = reports.last().expect("there were steps");
    assert_eq!((last.gauges.running, last.gauges.pages_used), (0, 0));
}

/// A limit that no honest job of a test comes near.
const LIMIT: Duration = Duration::from_secs(1);

fn limited() -> Rig {
    Rig::open(&EngineConfig { grammar_timeout: LIMIT, ..config() })
}

/// Waits until `holds` of the threads that ask grammars.
fn wait_until(rig: &Rig, holds: impl Fn(PoolLoad) -> bool) {
    let begin = Instant::now();
    while !holds(rig.handle.grammar_threads()) {
        let load = rig.handle.grammar_threads();
        assert!(begin.elapsed() < 60 * LIMIT, "{load:?}");
        std::thread::sleep(LIMIT / 100);
    }
}

#[test]
fn a_grammar_that_never_answers_is_given_up_and_its_thread_replaced() {
    let rig = limited();
    let (asked, arrivals) = channel();
    let (gate, closed) = channel::<()>();
    let trick = Trick::Blocks(asked, Arc::new(Mutex::new(closed)));
    // The first client leaves, the second one waits for its answer.
    let left = rig.handle.submit(vec![hostile(trick.clone())]);
    arrivals.recv().expect("a grammar is asked");
    drop(left.expect("there is room"));
    let mut waits = rig.handle.submit(vec![hostile(trick)]).expect("room");
    let (tokens, last) = read(&mut waits[0]);
    let Some(Event::Refused { message }) = last else { panic!("{last:?}") };
    assert_eq!((message.as_str(), tokens.len()), ("the grammar takes too long", 0));
    wait_until(&rig, |load| (load.stuck, load.running) == (2, 0));
    let mut next = rig.handle.submit(vec![hostile(Trick::Fails(99))]).expect("room");
    let (tokens, last) = read(&mut next[0]);
    assert!(matches!(last, Some(Event::Finished(_))), "{last:?}");
    assert_eq!(tokens.len(), 12);
    drop(gate);
    wait_until(&rig, |load| load.stuck == 0);
    let reports = rig.end();
    let last = reports.last().expect("there were steps");
    assert_eq!((last.gauges.running, last.gauges.pages_used), (0, 0));
}

#[test]
fn when_too_many_threads_are_stuck_no_sequence_waits_for_one() {
    let rig = limited();
    let most = rig.handle.grammar_threads().most_stuck;
    let (asked, _arrivals) = channel();
    let (gate, closed) = channel::<()>();
    let trick = Trick::Blocks(asked, Arc::new(Mutex::new(closed)));
    let requests = (0..3 * most).map(|_| hostile(trick.clone())).collect();
    drop(trick);
    let mut refused = 0;
    for stream in &mut rig.handle.submit(requests).expect("there is room") {
        match read(stream).1 {
            Some(Event::Refused { .. }) => refused += 1,
            Some(Event::Failed { message }) => assert!(message.contains("no thread is left")),
            other => panic!("{other:?}"),
        }
    }
    let load = rig.handle.grammar_threads();
    assert!(load.is_exhausted() && load.stuck == refused, "{load:?}");
    assert!(refused <= 2 * most, "{refused} threads");
    let mut plain = rig.submit(1).expect("there is room");
    assert_eq!(read(&mut plain).0, text_of(1));
    drop(gate);
    wait_until(&rig, |load| load.stuck == 0);
    let mut next = rig.handle.submit(vec![hostile(Trick::Fails(99))]).expect("room");
    assert!(matches!(read(&mut next[0]).1, Some(Event::Finished(_))));
    rig.end();
}
