//! Which sequences run in the coming step.
//!
//! Nobody starves. Two sequences that wait keep their order, who has run or is new goes behind
//! them, and a sequence without a forward before it always runs. B is the row budget, Q the
//! quantum.
//! - A decode forward of d rows is passed over only where forwards before it leave it no room;
//!   each of those then goes behind it. Every such step takes at least one of the O sequences that
//!   were before it, and more than B - d of their R rows: it waits at most O steps, and at most
//!   R / (B - d + 1) if d <= B.
//! - The first of the long forwards, of r rows, gets Q a step until it is covered: ⌈r / Q⌉ steps.
//!   After these it is passed over only where decode forwards before it leave it no room, and each
//!   of them does so once. With the long forwards before it, one after the other, it waits less
//!   than Σ ⌈r / Q⌉ + O' steps, O' of the O being decode forwards. Where nothing decodes the first
//!   one runs at once.
//! - The counter stays below r + Q, r of the first long forward, and a step that begins with it
//!   covered adds nothing: n steps hold less than n Q long rows and the longest forward.

use decode::{ForwardKind, Offset};

use super::apply::conclude;
use super::{Engine, Planned};
use crate::cache::{ForwardPlan, PlanRow};
use crate::event::{Event, StepTrace};
use crate::pages::OutOfPages;
use crate::sequence::{Sequence, SequenceId};
use crate::step::Packer;

/// Admits waiting sequences, then packs sequences under the row budget: decode forwards as they
/// fit, prefills and refreshes as [`Deficit`](crate::scheduler::Deficit) allows, those first that
/// waited longest. Returns whether there is a batch to run.
pub(crate) fn plan(engine: &mut Engine) -> bool {
    admit(engine);
    engine.batch.clear();
    engine.planned.clear();
    engine.scored.clear();
    engine.tops = 0;
    engine.step += 1;
    line_up(engine);
    for at in 0..engine.order.len() {
        let turn = engine.order[at];
        if runs(engine, turn)
            && let Err(error) = pack(engine, turn.index)
        {
            return abandon(engine, turn.index, error);
        }
    }
    engine.deficit.end();
    engine.report.sequences = engine.planned.len() as u32;
    !engine.planned.is_empty()
}

/// A running sequence's place in the order of a step: those first that waited longest, among
/// these decode forwards first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    /// Step of the last forward, or before admission.
    since: u64,
    /// The next forward is a prefill or a refresh.
    long: bool,
    id: SequenceId,
    /// Index into `running`.
    index: usize,
}

fn line_up(engine: &mut Engine) {
    let running = engine.running.iter().enumerate();
    engine.order.clear();
    engine.order.extend(running.map(|(index, sequence)| Turn {
        since: sequence.last_run,
        long: sequence.kind() != ForwardKind::Decode,
        id: sequence.id,
        index,
    }));
    engine.order.sort_unstable();
    let decoding = engine.order.iter().any(|turn| !turn.long);
    engine.deficit.begin(decoding);
}

/// Whether a sequence runs in this step; its forward is in `engine.forward` then. The first one
/// runs whatever its size, so that every step has a batch.
fn runs(engine: &mut Engine, turn: Turn) -> bool {
    if turn.long && engine.deficit.is_closed() {
        return false;
    }
    let sequence = &mut engine.running[turn.index];
    let known = sequence.next_rows;
    let rows = known.unwrap_or_else(|| {
        sequence.plan(&mut engine.forward);
        engine.forward.rows.len() as u32
    });
    sequence.next_rows = Some(rows);
    let end = engine.batch.rows.len() + rows as usize;
    let fits = end <= engine.row_budget as usize || engine.planned.is_empty();
    if turn.long && !engine.deficit.admit(rows, fits) || !fits {
        return false;
    }
    if known.is_some() {
        sequence.plan(&mut engine.forward);
    }
    true
}

/// Appends the forward in `engine.forward` to the batch.
fn pack(engine: &mut Engine, index: usize) -> Result<(), OutOfPages> {
    let sequence = &mut engine.running[index];
    let mut packer = Packer {
        batch: &mut engine.batch,
        scored: &mut engine.scored,
        wanted: &mut engine.wanted,
        tops: &mut engine.tops,
        pool: &mut engine.pool,
        mask: engine.mask,
        set_words: step::set_words(engine.limits.vocab_size),
    };
    packer.pack(sequence, &engine.forward)?;
    sequence.last_run = engine.step;
    sequence.count_forward(&engine.forward, &mut engine.report);
    let traced = sequence.request.trace;
    let trace = traced.then(|| Box::new(trace(sequence, &engine.forward)));
    engine.planned.push(Planned {
        index,
        scored_end: engine.scored.len() as u32,
        kind: engine.forward.kind,
        trace,
    });
    Ok(())
}

/// A sequence outgrew its promise, which is a bug: it fails alone and the step is planned anew
/// without it.
fn abandon(engine: &mut Engine, index: usize, error: OutOfPages) -> bool {
    debug_assert!(false, "{error}");
    let id = engine.running[index].id;
    engine.retire(index);
    engine.events.push_back((
        id,
        Event::Failed {
            message: error.to_string(),
        },
    ));
    plan(engine)
}

/// Gives waiting sequences a place in the batch, first come first served, while places and
/// pages last.
fn admit(engine: &mut Engine) {
    while let Some(sequence) = engine.waiting.front() {
        let request = &sequence.request;
        let limits = &engine.limits;
        let pages =
            limits.worst_case_pages(sequence.prompt(), request.max_tokens, &request.decoding);
        let empty = sequence.decoder.is_done();
        if !empty
            && (engine.running.len() >= limits.max_running as usize || !engine.pool.reserve(pages))
        {
            return;
        }
        let Some(mut sequence) = engine.waiting.pop_front() else {
            return;
        };
        engine.events.push_back((sequence.id, Event::Started));
        if let Some(end) = sequence.finished() {
            let event = conclude(&mut engine.report, &sequence, end);
            engine.events.push_back((sequence.id, event));
            continue;
        }
        sequence.reserved = pages;
        sequence.last_run = engine.step;
        sequence.tables.reserve(pages);
        if let Some(grid) = engine.shared {
            sequence.recall(grid, &mut engine.pool);
            engine.report.prompt_tokens += u64::from(sequence.stats.prompt_tokens);
            engine.report.cached_tokens += u64::from(sequence.stats.cached_tokens);
        }
        sequence.report_births(&mut engine.report);
        engine.running.push(sequence);
    }
}

fn trace(sequence: &Sequence, plan: &ForwardPlan) -> StepTrace {
    let positions = |rows: &[PlanRow]| {
        let positions = rows.iter().map(|row| sequence.position_of(row.place));
        positions.collect()
    };
    StepTrace {
        step: sequence.decoder.step() + 1,
        kind: plan.kind,
        lanes: sequence.decoder.lanes().map(|lane| lane.id).collect(),
        rows: plan
            .rows_by_segment()
            .map(|(_, rows)| positions(rows))
            .collect(),
        effects: Vec::new(),
        frontier: Offset::ZERO,
        canvas: 0,
    }
}
