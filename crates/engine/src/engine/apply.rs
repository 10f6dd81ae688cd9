//! From candidates to effects: commits, lanes, pages and client events of one step.

use std::time::Duration;

use decode::{Effect, Proposal, as_index};
use step::BatchOutput;

use super::Engine;
use crate::event::{Event, Finished, TokenChunk};
use crate::report::StepReport;
use crate::sequence::{Said, Sequence};

/// Hands every planned sequence its candidates and performs the effects.
pub(crate) fn apply(engine: &mut Engine, output: &BatchOutput, now: Duration) {
    let scored = (engine.scored.len(), engine.tops);
    let returned = (output.candidates.len(), output.tops.len());
    if returned != scored {
        let message = format!(
            "the model returned {} candidates and {} tops, expected {} and {}",
            returned.0, returned.1, scored.0, scored.1
        );
        return fail(engine, &message);
    }
    engine.report.executed = true;
    let (mut begin, mut tops) = (0, &output.tops[..]);
    for at in 0..engine.planned.len() {
        let index = engine.planned[at].index;
        let end = as_index(engine.planned[at].scored_end);
        let sequence = &mut engine.running[index];
        engine.proposals.clear();
        for (offset, candidate) in engine.scored[begin..end]
            .iter()
            .zip(&output.candidates[begin..])
        {
            sequence.note_scored(*offset, now);
            engine.proposals.push(Proposal {
                offset: *offset,
                candidate: *candidate,
            });
        }
        begin = end;
        sequence.effects.clear();
        sequence
            .decoder
            .apply(&engine.proposals, &mut sequence.effects);
        sequence.count_effects(now, &mut engine.report);
        let kind = engine.planned[at].kind;
        sequence
            .policy
            .observe(kind, &sequence.decoder, &engine.proposals);
        if let Some(logprobs) = &mut sequence.logprobs {
            let own;
            (own, tops) = tops.split_at(engine.proposals.len() * logprobs.count());
            let said = Said {
                proposals: &engine.proposals,
                tops: own,
            };
            logprobs.observe(&sequence.effects, said);
        }
        sequence
            .tables
            .observe(&sequence.effects, &sequence.decoder, &mut engine.pool);
        if let Some(grid) = engine.shared {
            sequence.remember(grid, &mut engine.pool);
        }
        let id = sequence.id;
        emit(sequence, |event| engine.events.push_back((id, event)));
        if let Some(mut trace) = engine.planned[at].trace.take() {
            trace.effects.clone_from(&sequence.effects);
            trace.frontier = sequence.decoder.canvas().emitted();
            trace.canvas = sequence.decoder.canvas().len();
            engine.events.push_back((id, Event::Step(trace)));
        }
    }
    retire_finished(engine);
}

/// Ends every planned sequence with `message`.
pub(crate) fn fail(engine: &mut Engine, message: &str) {
    engine.report.failed = true;
    let mut failed: Vec<usize> = engine
        .planned
        .drain(..)
        .map(|planned| planned.index)
        .collect();
    // From the back, because retiring moves the last sequence into the gap.
    failed.sort_unstable_by(|a, b| b.cmp(a));
    for index in failed {
        let id = engine.running[index].id;
        engine.retire(index);
        engine.events.push_back((
            id,
            Event::Failed {
                message: message.to_owned(),
            },
        ));
    }
}

fn emit(sequence: &Sequence, mut send: impl FnMut(Event)) {
    let (canvas, logprobs) = (sequence.decoder.canvas(), &sequence.logprobs);
    for effect in &sequence.effects {
        if let Effect::Advance { from, to } = *effect {
            let mut chunk = [0; TokenChunk::CAPACITY];
            let mut next = from;
            while next < to {
                let first = next;
                let count = as_index(to.distance_from(next)).min(TokenChunk::CAPACITY);
                for token in &mut chunk[..count] {
                    *token = canvas.get(next).expect("emitted offsets are committed");
                    next = next.next();
                }
                let chunk = TokenChunk::new(&chunk[..count]);
                send(Event::Tokens {
                    chunk,
                    stats: sequence.stats,
                    logprobs: logprobs.as_ref().map(|known| known.of(first.to(next))),
                });
            }
        }
    }
}

fn retire_finished(engine: &mut Engine) {
    for index in (0..engine.running.len()).rev() {
        let sequence = &engine.running[index];
        // A sequence that has not run in this step has not ended in it either.
        if sequence.last_run != engine.step {
            continue;
        }
        if let Some(end) = sequence.finished() {
            let event = conclude(&mut engine.report, sequence, end);
            engine.events.push_back((sequence.id, event));
            engine.retire(index);
        }
    }
}

/// Books the end of a sequence and gives its last event.
pub(crate) fn conclude(
    report: &mut StepReport,
    sequence: &Sequence,
    end: Result<Finished, String>,
) -> Event {
    match end {
        Ok(finished) => {
            report.finished.push(sequence.summary(finished));
            Event::Finished(finished)
        }
        Err(message) => Event::Failed { message },
    }
}
