//! From candidates to effects: commits, lanes, pages and events of one step.

use std::time::Duration;

use decode::{Effect, Proposal, as_count, as_index};
use step::BatchOutput;

use crate::event::{Event, StepTrace, TokenChunk};
use crate::sequence::{End, ForwardOutput, ModelOutput, Sequence, SequenceId};
use crate::step::StepPlan;

use super::Engine;

impl Engine {
    /// Applies what the executor returned for the step that [`Self::plan`] returned last. `now` is
    /// the time since any fixed moment. An output of the wrong size fails the step.
    pub fn apply(&mut self, mut step: StepPlan, output: &BatchOutput, now: Duration) {
        if let Err(message) = step.check(output) {
            return self.fail(step, &message);
        }
        self.report.executed = true;
        let (mut begin, mut tops) = (0, &output.tops[..]);
        for planned in &mut step.planned {
            let sequence = self.scheduler.sequence_mut(planned.index);
            if planned.is_chunk {
                sequence.leave_pages(&mut self.pages);
                continue;
            }
            let end = as_index(planned.scored_end);
            let proposals = &mut self.buffers.proposals;
            proposals.clear();
            let candidates = output.candidates[begin..end].iter();
            let scored = step.scored[begin..end].iter().zip(candidates);
            proposals.extend(
                scored
                    .map(|(offset, candidate)| Proposal { offset: *offset, candidate: *candidate }),
            );
            begin = end;
            let (own, others) = tops.split_at(proposals.len() * sequence.tops_per_candidate());
            tops = others;
            if sequence.request.extras.labels.is_some() {
                sequence.leave_pages(&mut self.pages);
                self.outbox.events.push_back((sequence.id, Event::Labels(own.into())));
                continue;
            }
            if sequence.decoder.is_constrained() {
                let job = sequence.lend(Some(ForwardOutput {
                    kind: planned.kind,
                    proposals: proposals.clone(),
                    tops: own.to_vec(),
                    trace: planned.trace.take(),
                }));
                self.hand_out(planned.index, job, now);
                continue;
            }
            sequence.decide(proposals);
            let returned = ModelOutput { proposals, tops: own };
            sequence.book(planned.kind, returned, now, &mut self.report);
            let trace = planned.trace.take();
            let trace = trace.map(|trace| sequence.taken_trace(trace, proposals));
            self.tell(planned.index, trace);
            self.ask_drafts(planned.index);
        }
        self.retire_finished(&mut step);
        self.buffers.end(step);
    }

    /// Settles the pages of a sequence that has taken a step, and queues the step's events.
    pub(super) fn tell(&mut self, index: usize, trace: Option<Box<StepTrace>>) {
        let sequence = self.scheduler.sequence_mut(index);
        sequence.settle_pages(&mut self.pages);
        let id = sequence.id;
        emit(sequence, |event| self.outbox.events.push_back((id, event)));
        if let Some(trace) = trace {
            self.outbox.events.push_back((id, Event::Step(trace)));
        }
    }

    /// Ends the sequences of the step that [`Self::plan`] returned last, which was not executed.
    /// Each gets [`Event::Failed`] with `message`; other sequences go on.
    pub fn fail(&mut self, step: StepPlan, message: &str) {
        self.report.failed = true;
        let failed = self.members(&step).map(|id| {
            let message = message.to_owned();
            (id, Event::Failed { message })
        });
        let failed: Vec<_> = failed.collect();
        self.outbox.events.extend(failed);
        self.retire_all(step);
    }

    /// Ends the sequences of the step that [`Self::plan`] returned last, which was not executed, because
    /// all are cancelled.
    pub fn give_up(&mut self, step: StepPlan) {
        self.report.cancelled += as_count(step.planned.len());
        self.retire_all(step);
    }

    fn retire_all(&mut self, mut step: StepPlan) {
        last_first(&mut step);
        for planned in &step.planned {
            self.retire(planned.index);
        }
        self.buffers.end(step);
    }

    /// The sequences of a step.
    pub(crate) fn members(&self, step: &StepPlan) -> impl Iterator<Item = SequenceId> {
        step.planned.iter().map(|planned| self.scheduler.sequence(planned.index).id)
    }

    fn retire_finished(&mut self, step: &mut StepPlan) {
        last_first(step);
        for planned in &step.planned {
            self.end_finished(planned.index);
        }
    }

    /// Ends a running sequence if its end has come.
    pub(super) fn end_finished(&mut self, index: usize) {
        if let Some(end) = self.scheduler.sequence(index).finished() {
            let sequence = self.retire(index);
            self.conclude(&sequence, end);
        }
    }

    /// Takes a sequence out of the batch, with its pages and its lanes that are still open.
    pub(super) fn retire(&mut self, index: usize) -> Sequence {
        let mut sequence = self.scheduler.retire(index);
        sequence.statistics.drop_lanes(&mut self.report);
        sequence.kv.release(&mut self.pages);
        sequence
    }

    /// Books the end of a sequence and queues its last event.
    pub(super) fn conclude(&mut self, sequence: &Sequence, end: End) {
        let event = match end {
            End::Finished(finished) => {
                self.report.finished.push(sequence.summary(finished));
                Event::Finished(finished)
            }
            End::Refused(message) => Event::Refused { message },
            End::Failed(message) => Event::Failed { message },
        };
        self.outbox.events.push_back((sequence.id, event));
    }
}

/// Orders a step's sequences from the last index to the first: retiring one moves the last running
/// sequence to its index.
fn last_first(step: &mut StepPlan) {
    let planned = &mut step.planned;
    planned.sort_unstable_by_key(|planned| std::cmp::Reverse(planned.index));
}

fn emit(sequence: &Sequence, mut send: impl FnMut(Event)) {
    let (canvas, logprobs) = (sequence.decoder.canvas(), &sequence.logprobs);
    for effect in &sequence.effects {
        if let Effect::Advance(span) = *effect {
            let mut next = span.start;
            while next < span.end {
                let end = next.plus(TokenChunk::CAPACITY).min(span.end);
                let tokens = next.to(end).iter().filter_map(|offset| canvas.get(offset));
                send(Event::Tokens {
                    chunk: tokens.collect(),
                    stats: sequence.statistics.cost,
                    logprobs: logprobs.as_ref().map(|known| known.of(next.to(end))),
                });
                next = end;
            }
        }
    }
}
