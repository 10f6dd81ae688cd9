//! The jobs of sequences under a grammar: out to the caller, or run here, and back.

use std::time::Duration;

use crate::sequence::{ForwardOutput, GrammarJob, ModelOutput};

use super::Engine;

impl Engine {
    /// Hands out the opening of a sequence that has just started, or runs it here.
    pub(super) fn open(&mut self, job: GrammarJob) {
        match &mut self.outbox.jobs {
            Some(jobs) => jobs.push_back(job),
            // Nothing is committed before the first forward, so no time is read.
            None => self.settle_job(ran(job), Duration::ZERO),
        }
    }

    /// Hands out the job of a sequence of the step that is being applied, or runs it here. The
    /// sequence does not end before the step is applied.
    pub(super) fn hand_out(&mut self, index: usize, job: GrammarJob, now: Duration) {
        match &mut self.outbox.jobs {
            Some(jobs) => jobs.push_back(job),
            None => self.take_back(index, ran(job), now),
        }
    }

    /// Takes back a job that has run; `now` as for [`Self::apply`]. That of a sequence that has
    /// ended meanwhile is dropped. Not callable between [`Self::plan`] and [`Self::apply`] or
    /// [`Self::fail`].
    pub fn settle(&mut self, job: GrammarJob, now: Duration) {
        self.check_between_steps();
        self.settle_job(job, now);
    }

    fn settle_job(&mut self, job: GrammarJob, now: Duration) {
        if let Some(index) = self.scheduler.index_of(job.id) {
            self.scheduler.wait_anew(index);
            self.take_back(index, job, now);
            self.end_finished(index);
        }
    }

    /// Gives the sequence its decoder and books what the job has changed.
    fn take_back(&mut self, index: usize, job: GrammarJob, now: Duration) {
        let sequence = self.scheduler.sequence_mut(index);
        sequence.decoder.put(job.decoder);
        sequence.effects = job.effects;
        if job.panicked {
            sequence.effects.clear();
            sequence.broken = Some("the grammar panicked");
            return;
        }
        let Some(ForwardOutput { kind, proposals, tops, trace }) = job.forward else {
            return sequence.opened(&mut self.report);
        };
        let returned = ModelOutput { proposals: &proposals, tops: &tops };
        sequence.book(kind, returned, now, &mut self.report);
        let trace = trace.map(|trace| sequence.taken_trace(trace, &proposals));
        self.tell(index, trace);
    }
}

fn ran(mut job: GrammarJob) -> GrammarJob {
    job.run();
    job
}
