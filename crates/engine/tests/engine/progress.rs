//! Progress within a pass is a sign of life.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use asynclane_engine::{Event, Observer, StepReport, spawn};
use sim::SimExecutor;
use step::{Batch, BatchOutput, ExecuteError, Executor, ExecutorSpec, Progress};

use crate::common::{config, read, request_of, sim};

/// Makes progress once for every permit, and ends its pass when none can come.
struct Slow {
    sim: SimExecutor,
    progress: Option<Progress>,
    arrive: Sender<()>,
    permit: Receiver<()>,
}

impl Executor for Slow {
    fn spec(&self) -> ExecutorSpec {
        self.sim.spec()
    }

    fn report_to(&mut self, progress: Progress) {
        self.progress = Some(progress);
    }

    fn execute(&mut self, batch: &Batch, output: &mut BatchOutput) -> Result<(), ExecuteError> {
        let _ = self.arrive.send(());
        while self.permit.recv().is_ok() {
            self.progress.as_ref().expect("the engine gave it")();
            let _ = self.arrive.send(());
        }
        self.sim.execute(batch, output)
    }
}

struct Silent;

impl Observer for Silent {
    fn on_step(&mut self, _report: &StepReport) {}
}

#[test]
fn a_pass_that_makes_progress_is_young() {
    let (arrive, arrivals) = channel();
    let (permits, permit) = channel();
    let sim = SimExecutor::new(sim(500, 4)).expect("a valid model");
    let executor = Slow { sim, progress: None, arrive, permit };
    let (handle, _) = spawn(&config(), Box::new(executor), Box::new(Silent)).expect("a thread");
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
