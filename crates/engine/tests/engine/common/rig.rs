//! An engine on its own thread, over a model with a gate.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use asynclane_engine::{
    EngineConfig, Event, EventStream, Handle, Observer, Request, StepReport, SubmitError, spawn,
};
use sim::{SimCounters, SimExecutor};
use step::{Batch, ExecuteError};

use super::{STOP, request, sim};

/// A running engine and everything that a test inspects.
pub struct Rig {
    pub handle: Handle,
    pub thread: JoinHandle<()>,
    pub reports: Receiver<StepReport>,
    pub gate: Gate,
    pub counters: Arc<SimCounters>,
}

/// Passes stop at the gate until they are let through, or it is open.
pub struct Gate {
    arrivals: Receiver<u64>,
    permits: Option<Sender<()>>,
}

impl Gate {
    /// Waits until a pass is at the gate.
    pub fn arrival(&self) -> u64 {
        self.arrivals.recv().expect("the engine lives")
    }

    /// Lets the pass at the gate through.
    pub fn let_through(&self) {
        self.permits.as_ref().expect("still shut").send(()).expect("the engine lives");
    }

    /// Lets everything through from now on.
    pub fn open(&mut self) {
        self.permits = None;
    }
}

struct Reports(Sender<StepReport>);

impl Observer for Reports {
    fn on_step(&mut self, report: &StepReport) {
        // A test that reads no reports has dropped the receiver.
        let _ = self.0.send(report.clone());
    }
}

impl Rig {
    /// An engine whose gate is shut; the model panics in the pass with the given number.
    pub fn new(config: &EngineConfig, panics_at: Option<u64>) -> Self {
        let (arrive, arrivals) = channel();
        let (permits, permit) = channel::<()>();
        let executor = SimExecutor::new(sim(500, 4)).expect("a valid model");
        let executor = executor.with_hook(move |pass, _: &Batch| -> Result<(), ExecuteError> {
            let _ = arrive.send(pass);
            // An error means that the gate is open.
            let _ = permit.recv();
            assert_ne!(Some(pass), panics_at, "this panic is part of the test");
            Ok(())
        });
        let counters = executor.counters();
        let (report, reports) = channel();
        let (handle, thread) = spawn(config, Box::new(executor), Box::new(Reports(report)))
            .expect("the system gives a thread");
        let gate = Gate { arrivals, permits: Some(permits) };
        Self { handle, thread, reports, gate, counters }
    }

    pub fn open(config: &EngineConfig) -> Self {
        let mut rig = Self::new(config, None);
        rig.gate.open();
        rig
    }

    pub fn submit(&self, number: u64) -> Result<EventStream, SubmitError> {
        self.handle.submit(vec![request_of(number)]).map(|mut streams| streams.remove(0))
    }

    /// Drops the last handle, waits for the thread and returns all reports.
    pub fn end(self) -> Vec<StepReport> {
        drop(self.gate);
        drop(self.handle);
        self.thread.join().expect("the engine thread ends well");
        self.reports.iter().collect()
    }
}

pub fn request_of(number: u64) -> Request {
    let mut request = request(&[20 + number as u32, 30], 40, "balanced");
    request.sampling.seed = number;
    request
}

pub fn text_of(number: u64) -> Vec<u32> {
    let executor = SimExecutor::new(sim(500, 4)).expect("a valid model");
    let mut text = executor.hidden_text(&request_of(number).prompt, 40);
    text.retain(|token| *token != STOP);
    text
}

/// All events to the end: the tokens and the last event.
pub fn read(stream: &mut EventStream) -> (Vec<u32>, Option<Event>) {
    let (mut tokens, mut last) = (Vec::new(), None);
    while let Some(event) = stream.blocking_next() {
        if let Event::Tokens { chunk, .. } = &event {
            tokens.extend(chunk.as_slice());
        }
        last = Some(event);
    }
    (tokens, last)
}
