//! Early commit (Prophet, arXiv 2508.19982, answer-span form): commits everything once the answer is certain.

use crate::commit::prelude::*;
use crate::commit::{Reads, Verdict};

/// k.
const TOKENS_PER_STEP: SettingInfo = SettingInfo::integer("tokens_per_step", 1..=UNBOUNDED, 1)
    .says("masks committed in a step until the answer is certain");
const ANSWER_START: SettingInfo = SettingInfo::integer("answer_start", 0..=UNBOUNDED, 0)
    .says("first generated position of the answer");
const ANSWER_LENGTH: SettingInfo =
    SettingInfo::integer("answer_length", 1..=UNBOUNDED, 5).says("positions of the answer");

/// The rule's description.
pub static INFO: CommitInfo = CommitInfo {
    name: "early_commit",
    summary: "the `tokens_per_step` most confident masks; all of them once the answer is certain",
    paper: "Prophet, arXiv 2508.19982",
    differs: "Prophet pins the tokens of a template around the answer before the first forward pass",
    settings: &[TOKENS_PER_STEP, ANSWER_START, ANSWER_LENGTH],
    requires: Requirements {
        schedules: BLOCKS,
        rows: Rows::Canvas,
        attention: &[AttentionKind::Full],
        ..Requirements::NONE
    },
    build: |settings, _| {
        Box::new(EarlyCommit {
            tokens_per_step: as_index(settings.count(&TOKENS_PER_STEP)),
            answer: Span::at(
                Offset::new(settings.count(&ANSWER_START)),
                settings.count(&ANSWER_LENGTH),
            ),
            gaps: Vec::new(),
            certain: false,
        })
    },
};

/// Ends of the first two phases, as fractions of the steps (Prophet §4.2).
const EARLY: f64 = 0.33;
const MIDDLE: f64 = 0.67;
/// Mean logit gaps θ of the three phases.
const GAPS: [f64; 3] = [7.5, 5.0, 2.5];

/// The k most confident masks of a lane in every step. As soon as the mean gap between the two
/// largest logits over the positions of the answer reaches θ (7.5 in the first third of the steps,
/// then 5.0, then 2.5), every mask of the canvas is filled with its favourite. Positions of the
/// answer that are committed count with the gap that their row still has, the last one that was
/// computed.
///
/// The progress p is the fraction of the budget that is committed, which is step / steps of the
/// static order.
#[derive(Debug)]
struct EarlyCommit {
    tokens_per_step: usize,
    /// The offsets of the answer.
    answer: Span<Offset>,
    /// The last gap of every position of the answer.
    gaps: Vec<f32>,
    certain: bool,
}

/// θ at a fraction of the steps.
fn needed(progress: f64) -> f64 {
    match progress {
        early if early < EARLY => GAPS[0],
        middle if middle < MIDDLE => GAPS[1],
        _ => GAPS[2],
    }
}

impl CommitRule for EarlyCommit {
    fn reads(&self) -> Reads {
        Reads { canvas: true, watched: self.answer, ..Reads::default() }
    }

    fn observe(&mut self, scene: &Scene<'_>) {
        let canvas = scene.canvas;
        let (answer, budget) = (self.answer.clip(canvas.end()), canvas.budget());
        self.gaps.resize(as_index(answer.len()), 0.0);
        for said in scene.proposals {
            let distance = said.offset.checked_distance_from(answer.start);
            if let Some(gap) = distance.and_then(|index| self.gaps.get_mut(as_index(index))) {
                *gap = said.candidate.gap;
            }
        }
        let sum: f64 = self.gaps.iter().map(|gap| f64::from(*gap)).sum();
        let committed = budget - canvas.masks(canvas.span()).min(budget);
        // The step that is being taken counts: step is counted from 1.
        let step = f64::from(committed) + f64::from(as_count(self.tokens_per_step));
        let needed = needed(step / f64::from(budget.max(1)));
        // An answer beyond the canvas is none.
        self.certain = !answer.is_empty() && sum >= needed * f64::from(answer.len());
    }

    fn select(&mut self, _lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        by_confidence(masks, chosen);
        if !self.certain {
            chosen.truncate(self.tokens_per_step);
        }
    }

    fn verdict(&self) -> Verdict<'_> {
        Verdict { fills: self.certain, ..Verdict::default() }
    }
}
