//! Step events: merges the steps that the client did not read in time.

use std::collections::BTreeMap;

use decode::{CommitKind, Effect, ForwardKind};
use engine::StepTrace;
use serde::Serialize;
use step::TokenId;
use text::Tokenizer;

use crate::pipeline::lanes::{Lane, Lanes};

/// A changed position: offset, token, its text, its probability, its new state.
pub type Cell = (u32, TokenId, String, f64, &'static str);

/// The data of a `step` event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepEvent {
    /// Number of the last step in it, from 1.
    pub step: u32,
    /// The kind of that step's forward.
    pub kind: &'static str,
    /// First offset that is not committed.
    pub frontier: u32,
    /// Length of the canvas; a stop token shortens it.
    pub canvas: u32,
    /// Steps before the last one that are merged into it.
    pub skipped: u32,
    /// Changed positions by offset; a position that is a mask again has no text. Of a canvas of noise,
    /// every open position: what was drawn for it, and whether that is kept.
    pub cells: Vec<Cell>,
    /// Changed lanes by number.
    pub lanes: Vec<Lane>,
}

/// The change of a position.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    /// It has a token, with its probability and state.
    Token(TokenId, f64, &'static str),
    /// It is a mask again.
    Masked,
}

/// Collects steps until they are written.
#[derive(Clone, Debug)]
pub struct Steps {
    lanes: Lanes,
    /// The last change of every offset.
    cells: BTreeMap<u32, Change>,
    last: Option<(u32, ForwardKind, u32, u32)>,
    count: u32,
}

impl Steps {
    /// No step yet.
    pub fn new(lanes: Lanes) -> Self {
        Self { lanes, cells: BTreeMap::new(), last: None, count: 0 }
    }

    /// Adds a step.
    pub fn push(&mut self, step: &StepTrace) {
        self.lanes.step(step);
        for effect in &step.effects {
            match *effect {
                Effect::Commit(commit) => {
                    let change =
                        Change::Token(commit.token, commit.probability, commit_name(commit.kind));
                    self.cells.insert(commit.offset.get(), change);
                }
                Effect::Place(place) => {
                    let change = Change::Token(place.token, place.probability, "provisional");
                    self.cells.insert(place.offset.get(), change);
                }
                Effect::Revoke { offset } => {
                    self.cells.insert(offset.get(), Change::Masked);
                }
                // Positions after a stop token no longer exist.
                Effect::Shorten { len } => {
                    self.cells.split_off(&len);
                }
                _ => {}
            }
        }
        for draw in &step.draws {
            let state = if draw.kept { "kept" } else { "renoised" };
            let change = Change::Token(draw.token, draw.probability, state);
            self.cells.insert(draw.offset.get(), change);
        }
        self.last = Some((step.step, step.kind, step.frontier.get(), step.canvas));
        self.count += 1;
    }

    /// Everything since the last call as one event, if there was a step.
    pub fn take(&mut self, tokenizer: &Tokenizer) -> Option<StepEvent> {
        let (step, kind, frontier, canvas) = self.last.take()?;
        let mask = tokenizer.mask_id().unwrap_or_default();
        let cell = |(offset, change)| match change {
            Change::Token(token, probability, kind) => {
                let text = tokenizer.token_text(token);
                (offset, token, text, probability, kind)
            }
            Change::Masked => (offset, mask, String::new(), 0.0, "masked"),
        };
        let skipped = std::mem::take(&mut self.count).saturating_sub(1);
        Some(StepEvent {
            step,
            kind: forward_name(kind),
            frontier,
            canvas,
            skipped,
            cells: std::mem::take(&mut self.cells).into_iter().map(cell).collect(),
            lanes: self.lanes.take_changed(),
        })
    }
}

fn commit_name(kind: CommitKind) -> &'static str {
    match kind {
        CommitKind::Masked => "committed",
        CommitKind::Draft => "draft",
        CommitKind::Edit => "edited",
    }
}

fn forward_name(kind: ForwardKind) -> &'static str {
    match kind {
        ForwardKind::Prefill => "prefill",
        ForwardKind::Decode => "decode",
        ForwardKind::Refresh => "refresh",
    }
}

#[cfg(test)]
mod tests;
