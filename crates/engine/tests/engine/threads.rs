//! The engine thread: overload, cancelling by dropping, panics, shutdown. A gate in the model lets
//! the test decide when a forward pass goes on, so no test sleeps.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use asynclane_engine::{
    EngineConfig, Event, EventStream, FinishReason, Handle, Observer, Refusal, StepReport,
    SubmitError, spawn,
};
use sim::SimExecutor;
use step::{Batch, BatchOutput, ExecuteError, Executor, ExecutorSpec};

use crate::common::{Rig, config, read, request_of, sim, text_of};

fn assert_served(mut stream: EventStream, number: u64) {
    let (tokens, last) = read(&mut stream);
    assert_eq!(tokens, text_of(number));
    assert!(matches!(last, Some(Event::Finished(_))), "{last:?}");
}

#[test]
fn requests_of_several_threads_are_served() {
    let rig = Rig::open(&config());
    let clients: Vec<JoinHandle<()>> = (0..8)
        .map(|number| {
            let handle = rig.handle.clone();
            std::thread::spawn(move || {
                let mut streams = handle.submit(vec![request_of(number)]).expect("there is room");
                assert_served(streams.remove(0), number);
            })
        })
        .collect();
    for client in clients {
        client.join().expect("served");
    }
    let reports = rig.end();
    let finished: usize = reports.iter().map(|report| report.finished.len()).sum();
    assert_eq!(finished, 8);
    assert_eq!(reports.last().map(|report| report.gauges.pages_used), Some(0));
}

#[test]
fn streams_come_back_in_the_order_of_their_requests() {
    let rig = Rig::open(&config());
    let requests = [3, 1, 2].map(request_of).to_vec();
    let streams = rig.handle.submit(requests).expect("there is room");
    for (stream, number) in streams.into_iter().zip([3, 1, 2]) {
        assert_served(stream, number);
    }
    rig.end();
}

/// A submission is taken as a whole or not at all, and a full queue refuses at once.
#[test]
fn overload_is_all_or_nothing() {
    let mut rig = Rig::new(&EngineConfig { max_waiting: 2, ..config() }, None);
    let several = |numbers: &[u64]| numbers.iter().map(|number| request_of(*number)).collect();
    let overloaded = |result: Result<Vec<EventStream>, SubmitError>| {
        matches!(result, Err(SubmitError::Overloaded { .. }))
    };
    assert!(overloaded(rig.handle.submit(several(&[5, 6, 7]))), "never more than the queue");
    let first = rig.submit(0).expect("the queue is empty");
    rig.gate.arrival();
    rig.gate.let_through();
    // By the second pass the first sequence has left the queue.
    rig.gate.arrival();
    assert!(overloaded(rig.handle.submit(several(&[5, 6, 7]))), "3 of 2 permits");
    let mut two = rig.handle.submit(several(&[1, 2])).expect("2 of 2 permits are free");
    assert!(overloaded(rig.handle.submit(several(&[5]))), "no permit is left");
    rig.gate.open();
    assert_served(first, 0);
    assert_served(two.remove(0), 1);
    assert_served(two.remove(0), 2);
    let finished: usize = rig.end().iter().map(|report| report.finished.len()).sum();
    assert_eq!(finished, 3, "nothing of a refused submission was served");
}

#[test]
fn one_impossible_request_refuses_the_whole_submission() {
    let rig = Rig::open(&config());
    let mut requests = [1, 2].map(request_of).to_vec();
    requests[1].max_tokens = 1000;
    let refused = rig.handle.submit(requests).expect_err("one is too long");
    assert_eq!(refused, SubmitError::Refused(Refusal::TooLong { tokens: 1002, limit: 256 }));
    let counters = Arc::clone(&rig.counters);
    assert!(rig.end().is_empty());
    assert_eq!(counters.steps(), 0);
}

#[test]
fn dropping_a_stream_cancels_its_sequence_and_frees_its_pages() {
    let mut rig = Rig::new(&config(), None);
    let stream = rig.submit(0).expect("there is room");
    rig.gate.arrival();
    rig.gate.let_through();
    rig.gate.arrival();
    // The stream is dropped during the second pass of its sequence; there is no third one.
    assert!(rig.handle.load().pages_used > 0);
    assert_eq!((rig.handle.load().running, rig.handle.load().waiting), (1, 0));
    drop(stream);
    let other = rig.submit(1).expect("there is room");
    rig.gate.open();
    assert_served(other, 1);
    let reports = rig.end();
    let cancelled: u32 = reports.iter().map(|report| report.cancelled).sum();
    assert_eq!(cancelled, 1);
    assert_eq!(reports[0].gauges.running, 1);
    let sequences: Vec<u32> = reports.iter().map(|report| report.work.sequences).collect();
    assert!(sequences.iter().all(|count| *count <= 1), "never two in a pass: {sequences:?}");
    let prefills: Vec<u32> = reports.iter().map(|report| report.work.forwards.prefill).collect();
    assert_eq!(prefills[..3], [1, 0, 1], "two passes of the first, then the other");
    assert_eq!(reports.last().map(|report| report.gauges.pages_used), Some(0));
}

#[test]
fn a_sequence_may_be_dropped_while_it_waits() {
    let mut rig = Rig::new(&EngineConfig { max_running: 1, ..config() }, None);
    let first = rig.submit(0).expect("there is room");
    rig.gate.arrival();
    let second = rig.submit(1).expect("there is room");
    let third = rig.submit(2).expect("there is room");
    drop(second);
    rig.gate.open();
    assert_served(first, 0);
    assert_served(third, 2);
    let reports = rig.end();
    let prefills: u32 = reports.iter().map(|report| report.work.forwards.prefill).sum();
    let cancelled: u32 = reports.iter().map(|report| report.cancelled).sum();
    assert_eq!((prefills, cancelled), (2, 1));
}

#[test]
fn a_reader_that_comes_late_loses_nothing() {
    let rig = Rig::open(&config());
    let mut request = request_of(0);
    request.extras.trace = true;
    let mut streams = rig.handle.submit(vec![request]).expect("there is room");
    let reports = rig.end();
    // The engine has ended; every event is still in the channel.
    let mut steps = 0;
    let (mut tokens, mut last) = (Vec::new(), None);
    while let Some(event) = streams[0].try_next() {
        match &event {
            Event::Tokens { chunk, .. } => tokens.extend_from_slice(chunk.as_slice()),
            Event::Step(_) => steps += 1,
            _ => {}
        }
        last = Some(event);
    }
    assert_eq!(tokens, text_of(0));
    let Some(Event::Finished(finished)) = last else { panic!("{last:?}") };
    let reason = if tokens.len() < 40 { FinishReason::Stop } else { FinishReason::Length };
    assert_eq!(finished.reason, reason);
    assert_eq!(steps, finished.stats.forwards());
    assert_eq!(reports.len() as u32, finished.stats.forwards());
}

#[test]
fn the_thread_ends_with_its_handles_but_not_before_its_sequences() {
    let rig = Rig::new(&config(), None);
    let clone = rig.handle.clone();
    let stream = rig.submit(0).expect("there is room");
    rig.gate.arrival();
    drop(clone);
    // `end` opens the gate, drops the last handle and joins the thread.
    let finished: usize = rig.end().iter().map(|report| report.finished.len()).sum();
    assert_eq!(finished, 1);
    assert_served(stream, 0);
}

#[test]
fn an_idle_thread_ends_with_its_handles() {
    let rig = Rig::open(&config());
    assert!(rig.handle.is_alive());
    assert!(rig.end().is_empty());
}

#[test]
fn a_panicking_model_fails_its_sequences_and_nothing_else() {
    let mut rig = Rig::new(&config(), Some(1));
    let mut streams = rig.handle.submit(vec![request_of(0), request_of(1)]).expect("room");
    rig.gate.arrival();
    rig.gate.let_through();
    // Arrives during the pass that will panic.
    rig.gate.arrival();
    let later = rig.submit(2).expect("there is room");
    rig.gate.open();
    for stream in &mut streams {
        let (_, last) = read(stream);
        let Some(Event::Failed { message }) = last else { panic!("{last:?}") };
        assert_eq!(message, "forward pass failed: the model panicked");
    }
    assert_served(later, 2);
    let reports = rig.end();
    assert_eq!(reports.iter().filter(|report| report.failed).count(), 1);
    assert_eq!(reports.last().map(|report| report.gauges.pages_used), Some(0));
}

/// A device: `begin` launches a pass or refuses it; `execute` waits at a gate.
struct Launches {
    sim: SimExecutor,
    begun: u64,
    refuses: Option<u64>,
    /// True if a refused pass is its last one.
    breaks: bool,
    broken: bool,
    arrive: Sender<u64>,
    permit: Receiver<()>,
}

impl Executor for Launches {
    fn spec(&self) -> ExecutorSpec {
        self.sim.spec()
    }

    fn begin(&mut self, _batch: &Batch) -> Result<(), ExecuteError> {
        let pass = self.begun;
        self.begun += 1;
        match self.refuses == Some(pass) {
            true => {
                self.broken = self.breaks;
                Err(ExecuteError("no room".to_owned()))
            }
            false => Ok(()),
        }
    }

    fn lost(&self) -> Option<String> {
        self.broken.then(|| "it broke".to_owned())
    }

    fn execute(&mut self, batch: &Batch, output: &mut BatchOutput) -> Result<(), ExecuteError> {
        let _ = self.arrive.send(self.begun - 1);
        let _ = self.permit.recv();
        self.sim.execute(batch, output)
    }
}

/// An engine over a device, the receiver of waiting passes, and the sender that lets them go on.
fn device(refuses: Option<u64>) -> (Handle, Receiver<u64>, Sender<()>) {
    let (handle, arrivals, permits, _) = device_with((refuses, false), &config());
    (handle, arrivals, permits)
}

/// As [`device`]; a refused pass may be the last one.
fn device_with(
    (refuses, breaks): (Option<u64>, bool),
    config: &EngineConfig,
) -> (Handle, Receiver<u64>, Sender<()>, JoinHandle<()>) {
    struct Silent;
    impl Observer for Silent {
        fn on_step(&mut self, _report: &StepReport) {}
    }
    let (arrive, arrivals) = channel();
    let (permits, permit) = channel();
    let executor = Launches {
        sim: SimExecutor::new(sim(500, 4)).expect("a valid model"),
        begun: 0,
        refuses,
        breaks,
        broken: false,
        arrive,
        permit,
    };
    let (handle, thread) = spawn(config, Box::new(executor), Box::new(Silent)).expect("a thread");
    (handle, arrivals, permits, thread)
}

/// The engine hands out the events of a pass before it waits for the next pass.
#[test]
fn clients_hear_of_a_pass_while_the_device_runs_the_next_one() {
    let (handle, arrivals, permits) = device(None);
    let mut streams = handle.submit(vec![request_of(0)]).expect("there is room");
    assert_eq!(arrivals.recv(), Ok(0));
    permits.send(()).expect("the engine lives");
    assert_eq!(arrivals.recv(), Ok(1));
    let mut heard = 0;
    while let Some(event) = streams[0].try_next() {
        heard += usize::from(matches!(event, Event::Tokens { .. }));
    }
    assert!(heard > 0, "the first pass committed something");
    drop(permits);
    let (_, last) = read(&mut streams[0]);
    assert!(matches!(last, Some(Event::Finished(_))), "{last:?}");
}

#[test]
fn a_pass_that_cannot_be_launched_fails_its_sequences_and_nothing_else() {
    let (handle, _arrivals, permits) = device(Some(0));
    drop(permits);
    let mut streams = handle.submit(vec![request_of(0)]).expect("there is room");
    let (_, last) = read(&mut streams[0]);
    let Some(Event::Failed { message }) = last else { panic!("{last:?}") };
    assert_eq!(message, "forward pass failed: no room");
    let mut later = handle.submit(vec![request_of(1)]).expect("there is room");
    assert_served(later.remove(0), 1);
}

/// Every stream ends with an error: of the sequence in the pass, and of those that wait.
#[test]
fn a_lost_device_fails_every_sequence_and_ends_the_engine() {
    let one = EngineConfig { max_running: 1, ..config() };
    let (handle, arrivals, permits, thread) = device_with((Some(1), true), &one);
    let requests = [0, 1].map(request_of).to_vec();
    let mut streams = handle.submit(requests).expect("there is room");
    assert_eq!(arrivals.recv(), Ok(0));
    // Arrives during the last pass that works.
    let late = handle.submit(vec![request_of(2)]).expect("there is room");
    streams.extend(late);
    let monitor = handle.monitor();
    assert_eq!(monitor.lost(), None);
    permits.send(()).expect("the engine lives");
    thread.join().expect("it ends without a panic");
    let lasts = streams.iter_mut().map(|stream| match read(stream).1 {
        Some(Event::Failed { message }) => message,
        other => panic!("{other:?}"),
    });
    let lost = "the device failed: it broke";
    let want = ["forward pass failed: no room", lost, lost];
    assert_eq!(lasts.collect::<Vec<_>>(), want);
    assert_eq!(monitor.lost(), Some(lost));
    assert!(!monitor.pulse().alive);
    let later = handle.submit(vec![request_of(3)]);
    assert!(matches!(later, Err(SubmitError::Stopped)));
}

/// Observers must not panic. If one does, no stream waits forever.
#[test]
fn streams_and_handles_notice_a_dead_engine() {
    struct Panics;
    impl Observer for Panics {
        fn on_step(&mut self, _report: &StepReport) {
            panic!("this panic is part of the test");
        }
    }
    let executor = SimExecutor::new(sim(500, 4)).expect("a valid model");
    let (handle, thread) =
        spawn(&config(), Box::new(executor), Box::new(Panics)).expect("a thread");
    let mut streams = handle.submit(vec![request_of(0)]).expect("there is room");
    assert!(thread.join().is_err(), "it died");
    let (_, last) = read(&mut streams[0]);
    assert!(!matches!(last, Some(Event::Finished(_) | Event::Failed { .. })), "{last:?}");
    assert!(!handle.is_alive());
    let refused = handle.submit(vec![request_of(1)]).expect_err("nobody is there");
    assert_eq!(refused, SubmitError::Stopped);
}
