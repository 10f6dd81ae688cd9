//! Planning a step: sequences start, then their forwards are packed into the batch.

use decode::as_count;

use crate::event::Event;
use crate::pages::OutOfPages;
use crate::scheduler::Waiting;
use crate::sequence::Sequence;
use crate::step::{Planned, StepPlan};

use super::Engine;

impl Engine {
    /// Starts waiting sequences and packs the next step; `None` if there is nothing to run, or
    /// nothing before a job is back. Events
    /// and the report may have changed either way: a sequence with a budget of 0 ends here.
    ///
    /// The step must be handed back with [`Self::apply`] or [`Self::fail`] before the next call.
    pub fn plan(&mut self) -> Option<StepPlan> {
        self.check_between_steps();
        self.start_waiting();
        let mut step = self.buffers.begin();
        self.scheduler.order_by_wait();
        while let Some(index) = self.scheduler.next(&mut self.buffers.forward) {
            if let Err(error) = self.pack(&mut step, index) {
                self.buffers.end(step);
                self.abandon(index, error);
                return self.plan();
            }
        }
        self.report.work.sequences = as_count(step.planned.len());
        if step.planned.is_empty() {
            self.buffers.end(step);
            return None;
        }
        Some(step)
    }

    /// Starts waiting sequences in their order, while there is room.
    fn start_waiting(&mut self) {
        loop {
            let pages = &mut self.pages;
            let fits = |sequence: &Sequence, has_room: bool| {
                let is_empty = sequence.decoder.is_done();
                is_empty || has_room && pages.reserve(sequence.kv.promised)
            };
            let Some(waiting) = self.scheduler.pop_waiting(fits) else {
                return;
            };
            self.start(waiting);
        }
    }

    fn start(&mut self, mut waiting: Waiting) {
        let sequence = &mut waiting.sequence;
        self.outbox.events.push_back((sequence.id, Event::Started));
        if let Some(end) = sequence.finished() {
            return self.conclude(&waiting.sequence, end);
        }
        sequence.start(&mut self.pages, &mut self.report);
        if !sequence.decoder.is_constrained() {
            sequence.opened(&mut self.report);
            self.scheduler.start(waiting);
            let last = self.scheduler.running().len() - 1;
            self.ask_drafts(last);
            return;
        }
        let job = sequence.lend(None);
        self.scheduler.start(waiting);
        self.open(job);
    }

    /// Appends the forward of a running sequence to the batch, and books it.
    fn pack(&mut self, step: &mut StepPlan, index: usize) -> Result<(), OutOfPages> {
        let sequence = self.scheduler.sequence_mut(index);
        self.buffers.pack(step, sequence, &mut self.pages)?;
        let forward = &self.buffers.forward;
        sequence.observe_forward(forward, &mut self.report);
        let traced = sequence.request.extras.trace && !forward.is_chunk;
        step.planned.push(Planned {
            index,
            scored_end: as_count(step.scored.len()),
            kind: forward.kind,
            is_chunk: forward.is_chunk,
            trace: traced.then(|| Box::new(sequence.planned_trace(forward))),
        });
        Ok(())
    }

    /// Fails a sequence that outgrew the pages promised to it, which is a bug. The step is planned
    /// again without it.
    fn abandon(&mut self, index: usize, error: OutOfPages) {
        debug_assert!(false, "{error}");
        let id = self.scheduler.sequence(index).id;
        self.retire(index);
        let message = error.to_string();
        self.outbox.events.push_back((id, Event::Failed { message }));
    }
}
