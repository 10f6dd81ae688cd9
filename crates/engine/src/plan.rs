//! Which sequences run in the coming step, and how their rows are packed.

use std::ops::Range;

use decode::{Proposal, Role};
use step::{Batch, Bias, PageId, Row, Score, Segment};

use crate::apply::conclude;
use crate::cache::{ForwardPlan, PlanSegment};
use crate::engine::{Engine, Planned};
use crate::event::{Event, StepTrace};
use crate::pages::{OutOfPages, PagePool};
use crate::sequence::Sequence;

/// Admits waiting sequences, then packs sequences under the row budget, those first that waited
/// longest. Returns whether there is a batch to run.
pub(crate) fn plan(engine: &mut Engine) -> bool {
    admit(engine);
    engine.batch.clear();
    engine.planned.clear();
    engine.scored.clear();
    engine.tops = 0;
    engine.step += 1;
    engine.order.clear();
    engine.order.extend(0..engine.running.len());
    let running = &engine.running;
    engine
        .order
        .sort_unstable_by_key(|index| (running[*index].last_run, running[*index].id));
    let mut broken = None;
    for at in 0..engine.order.len() {
        let index = engine.order[at];
        let sequence = &mut engine.running[index];
        sequence.plan(&mut engine.forward);
        let rows = engine.batch.rows.len() + engine.forward.rows.len();
        if rows > engine.row_budget as usize && !engine.planned.is_empty() {
            continue;
        }
        let mut packer = Packer {
            batch: &mut engine.batch,
            scored: &mut engine.scored,
            tops: &mut engine.tops,
            pool: &mut engine.pool,
            mask: engine.mask,
            set_words: step::set_words(engine.limits.vocab_size),
        };
        if let Err(error) = packer.pack(sequence, &engine.forward) {
            broken = Some((index, error));
            break;
        }
        sequence.last_run = engine.step;
        sequence.count_forward(&engine.forward, &mut engine.report);
        let trace = sequence
            .request
            .trace
            .then(|| Box::new(trace(sequence, &engine.forward)));
        let scored_end = engine.scored.len() as u32;
        engine.planned.push(Planned {
            index,
            scored_end,
            kind: engine.forward.kind,
            trace,
        });
    }
    if let Some((index, error)) = broken {
        return abandon(engine, index, error);
    }
    engine.report.sequences = engine.planned.len() as u32;
    !engine.planned.is_empty()
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
        sequence.tables.reserve(pages);
        sequence.report_births(&mut engine.report);
        engine.running.push(sequence);
    }
}

struct Packer<'a> {
    batch: &'a mut Batch,
    scored: &'a mut Vec<u32>,
    tops: &'a mut usize,
    pool: &'a mut PagePool,
    mask: step::TokenId,
    /// Words of a set of allowed tokens.
    set_words: usize,
}

/// What a sequence's rows are scored with.
#[derive(Clone)]
struct Scoring<'a> {
    score: Score,
    /// Biases in the batch.
    plain: Range<u32>,
    /// With the stop set banned.
    unstopped: Range<u32>,
    /// The offset that a grammar speaks of, and its set in the batch.
    allowed: Option<(u32, u32)>,
    /// What the segment's canvas has more than the sequence's.
    guesses: &'a [Proposal],
    /// Committed offsets that are scored for the cache policy.
    tracked: &'a [u32],
}

impl Packer<'_> {
    /// Appends one sequence's forward to the batch; on an error the batch must not run.
    fn pack(&mut self, sequence: &mut Sequence, plan: &ForwardPlan) -> Result<(), OutOfPages> {
        let biases = self.push_biases(sequence);
        let mut begin = 0;
        for segment in &plan.segments {
            let rows = &plan.rows[begin as usize..segment.end as usize];
            let pages = if plan.rewrites && segment.branch == 0 {
                self.rewrite(sequence, rows)?
            } else {
                self.write(sequence, segment, rows)?
            };
            let guesses = sequence.decoder.guesses();
            let scoring = Scoring {
                guesses: &guesses.proposals[..guesses.filled(segment.branch as usize)],
                tracked: &plan.tracked,
                ..biases.clone()
            };
            let first_row = self.batch.rows.len() as u32;
            for (slot, visible) in rows {
                self.push_row(sequence, *slot, *visible, &scoring);
            }
            let sampling = step::Sampling {
                clock: sequence.decoder.step(),
                ..sequence.request.sampling
            };
            let rows = first_row..self.batch.rows.len() as u32;
            self.batch.segments.push(Segment {
                rows,
                pages,
                sampling,
            });
            begin = segment.end;
        }
        Ok(())
    }

    fn push_biases(&mut self, sequence: &Sequence) -> Scoring<'static> {
        let biases = &mut self.batch.biases;
        let start = biases.len() as u32;
        biases.extend_from_slice(sequence.penalties.as_slice());
        biases.extend_from_slice(&sequence.request.biases);
        let plain = start..biases.len() as u32;
        let ban = |token: &u32| Bias::ban(*token);
        biases.extend(sequence.decoder.canvas().stops().iter().map(ban));
        let unstopped = start..biases.len() as u32;
        let frontier = sequence.decoder.canvas().frontier();
        let allowed = sequence.decoder.allowed();
        Scoring {
            score: match sequence.request.logprobs {
                None | Some(0) => Score::Candidate,
                Some(count) => Score::Top(count),
            },
            plain,
            unstopped,
            allowed: allowed.map(|set| (frontier, self.push_set(set))),
            guesses: &[],
            tracked: &[],
        }
    }

    /// Appends a set of allowed tokens; returns its number.
    fn push_set(&mut self, set: &[u32]) -> u32 {
        let sets = &mut self.batch.allowed;
        let number = sets.len() / self.set_words;
        sets.extend_from_slice(&set[..set.len().min(self.set_words)]);
        sets.resize((number + 1) * self.set_words, 0);
        number as u32
    }

    fn rewrite(
        &mut self,
        sequence: &mut Sequence,
        rows: &[(u32, u32)],
    ) -> Result<Range<u32>, OutOfPages> {
        let end = rows.last().map_or(0, |row| row.0 + 1);
        let pages = sequence.tables.rewrite(end, &sequence.decoder, self.pool)?;
        Ok(push_table(self.batch, pages))
    }

    fn write(
        &mut self,
        sequence: &mut Sequence,
        segment: &PlanSegment,
        rows: &[(u32, u32)],
    ) -> Result<Range<u32>, OutOfPages> {
        let slots = rows.first().map_or(0, |row| row.0)..rows.last().map_or(0, |row| row.0 + 1);
        let copies = &mut self.batch.copies;
        let tables = &mut sequence.tables;
        let pages = match segment.branch {
            0 => tables.write(segment.table, slots, self.pool, copies)?,
            _ => tables.branch(slots, self.pool, copies)?,
        };
        Ok(push_table(self.batch, pages))
    }

    fn push_row(&mut self, sequence: &Sequence, slot: u32, visible: u32, scoring: &Scoring<'_>) {
        let offset = slot.checked_sub(sequence.prompt());
        let token = sequence.token(slot, scoring.guesses);
        let scorer = offset.and_then(|offset| match token {
            None => mask_scorer(sequence, offset),
            Some(_) => token_scorer(sequence, offset, scoring.tracked),
        });
        let mut row = Row {
            token: token.unwrap_or(self.mask),
            position: sequence.position(slot),
            slot,
            visible,
            score: Score::None,
            biases: scoring.plain.clone(),
            allowed: None,
        };
        if let (Some(role), Some(offset)) = (scorer, offset) {
            let allowed = scoring.allowed.filter(|(frontier, _)| *frontier == offset);
            row.allowed = allowed.map(|(_, set)| set);
            row.score = scoring.score;
            // A grammar says itself where a text may end.
            let early = offset < sequence.request.min_tokens && allowed.is_none();
            if role == Role::Refine || early {
                row.biases = scoring.unstopped.clone();
            }
            self.scored.push(offset);
            *self.tops += row.score.tops();
        }
        self.batch.rows.push(row);
    }
}

fn push_table(batch: &mut Batch, pages: &[PageId]) -> Range<u32> {
    let begin = batch.pages.len() as u32;
    batch.pages.extend_from_slice(pages);
    begin..batch.pages.len() as u32
}

/// The role of the lane that wants a candidate for the mask at `offset`, if one does.
fn mask_scorer(sequence: &Sequence, offset: u32) -> Option<Role> {
    let mut lanes = sequence.decoder.lanes();
    lanes.find_map(|lane| {
        let wanted =
            lane.range.contains(&offset) || (lane.drafts && lane.lookahead.contains(&offset));
        wanted.then_some(lane.role)
    })
}

/// The role under which the token at `offset` is scored, if the commit rule or the cache policy
/// wants to know what the model thinks of it.
fn token_scorer(sequence: &Sequence, offset: u32, tracked: &[u32]) -> Option<Role> {
    if tracked.contains(&offset) {
        return Some(Role::Generate);
    }
    let canvas = sequence.decoder.canvas();
    let mut lanes = sequence.decoder.lanes();
    lanes.find_map(|lane| {
        let wanted = lane.committed && lane.range.contains(&offset) && canvas.is_committed(offset);
        wanted.then_some(lane.role)
    })
}

fn trace(sequence: &Sequence, plan: &ForwardPlan) -> StepTrace {
    let mut begin = 0;
    let mut rows = Vec::with_capacity(plan.segments.len());
    for segment in &plan.segments {
        let part = &plan.rows[begin as usize..segment.end as usize];
        rows.push(part.iter().map(|row| sequence.position(row.0)).collect());
        begin = segment.end;
    }
    StepTrace {
        step: sequence.decoder.step() + 1,
        kind: plan.kind,
        lanes: sequence.decoder.lanes().map(|lane| lane.id).collect(),
        rows,
        effects: Vec::new(),
        frontier: 0,
        canvas: 0,
    }
}
