//! Progress within a pass is a sign of life, and the moment to give up a pass that nobody waits for.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use asynclane_engine::{Event, Handle, Observer, StepReport, spawn};
use sim::SimExecutor;
use step::{Batch, BatchOutput, ExecuteError, Executor, ExecutorSpec};

use crate::common::{config, read, request_of, sim};

/// Makes progress once for every permit, and ends its pass when none can come.
struct Slow {
    sim: SimExecutor,
    arrive: Sender<()>,
    permit: Receiver<()>,
}

impl Executor for Slow {
    fn spec(&self) -> ExecutorSpec {
        self.sim.spec()
    }

    fn execute(&mut self, batch: &Batch, output: &mut BatchOutput) -> Result<(), ExecuteError> {
        self.sim.execute(batch, output)
    }

    fn execute_while(
        &mut self,
        batch: &Batch,
        output: &mut BatchOutput,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), ExecuteError> {
        let _ = self.arrive.send(());
        while self.permit.recv().is_ok() {
            if !goes_on() {
                return Err(ExecuteError("given up".to_owned()));
            }
            let _ = self.arrive.send(());
        }
        self.execute(batch, output)
    }
}

/// Hands on whether a step failed, its cancelled sequences and the pages in use after it.
struct Reports(Sender<(bool, u32, u32)>);

impl Observer for Reports {
    fn on_step(&mut self, report: &StepReport) {
        let _ = self.0.send((report.failed, report.cancelled, report.gauges.pages_used));
    }
}

/// An engine over a slow executor.
struct Rig {
    handle: Handle,
    arrivals: Receiver<()>,
    permits: Sender<()>,
    reports: Receiver<(bool, u32, u32)>,
}

impl Rig {
    fn new() -> Self {
        let (arrive, arrivals) = channel();
        let (permits, permit) = channel();
        let (report, reports) = channel();
        let sim = SimExecutor::new(sim(500, 4)).expect("a valid model");
        let executor = Box::new(Slow { sim, arrive, permit });
        let (handle, _) = spawn(&config(), executor, Box::new(Reports(report))).expect("a thread");
        Self { handle, arrivals, permits, reports }
    }
}

#[test]
fn a_pass_that_makes_progress_is_young() {
    let Rig { handle, arrivals, permits, .. } = Rig::new();
    let mut streams = handle.submit(vec![request_of(0)]).expect("there is room");
    arrivals.recv().expect("a pass");
    let long = Duration::from_millis(20);
    std::thread::sleep(long);
    let millisecond = Duration::from_millis(1);
    assert!(handle.pulse().age >= long - millisecond, "{:?}", handle.pulse());
    let before = Instant::now();
    permits.send(()).expect("the engine lives");
    arrivals.recv().expect("progress");
    let age = handle.pulse().age;
    assert!(age <= before.elapsed() + millisecond, "{age:?}");
    drop(permits);
    let (_, last) = read(&mut streams[0]);
    assert!(matches!(last, Some(Event::Finished(_))), "{last:?}");
}

#[test]
fn a_pass_that_nobody_waits_for_is_given_up() {
    let Rig { handle, arrivals, permits, reports } = Rig::new();
    let mut streams = handle.submit(vec![request_of(0), request_of(1)]).expect("there is room");
    arrivals.recv().expect("a pass of both");
    drop(streams.pop());
    permits.send(()).expect("the engine lives");
    arrivals.recv().expect("progress, as one is awaited");
    drop(streams);
    permits.send(()).expect("the engine lives");
    assert_eq!(reports.recv(), Ok((false, 2, 0)));

    let mut streams = handle.submit(vec![request_of(2)]).expect("there is room");
    arrivals.recv().expect("a pass");
    drop(permits);
    let (_, last) = read(&mut streams[0]);
    assert!(matches!(last, Some(Event::Finished(_))), "{last:?}");
    drop(handle);
    assert!(reports.iter().all(|(failed, cancelled, _)| !failed && cancelled == 0));
}
