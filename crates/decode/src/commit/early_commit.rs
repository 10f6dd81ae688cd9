//! Early commit (Prophet, arXiv 2508.19982, answer-span form): commits everything once the answer is certain.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{BLOCKS, CommitInfo, CommitRule, Reads, Requirements, Scene, by_confidence};
use crate::candidate::Proposal;
use crate::coordinates::{Offset, Span, as_count, as_index};
use crate::describe::{AttentionKind, Company};
use crate::lane::Lane;
use crate::settings::{SettingInfo, UNBOUNDED};

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
        // Every forward scores all masks of the canvas.
        caches: Company::Only(&["none", "prefix"]),
        attention: &[AttentionKind::Full],
        ..Requirements::NONE
    },
    build: |of, _| {
        let answer = AnswerSpan {
            start: Offset::new(of.count(&ANSWER_START)),
            len: of.count(&ANSWER_LENGTH),
        };
        Box::new(EarlyCommit::new(of.count(&TOKENS_PER_STEP), answer))
    },
};

/// Share of the steps up to which the gap of the same row is asked for (Prophet §4.2).
const EARLY: f64 = 0.33;
const MIDDLE: f64 = 0.67;
/// Mean logit gaps θ of the three phases.
const GAPS: [f64; 3] = [7.5, 5.0, 2.5];

/// Offsets at which the answer of a text of known form stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerSpan {
    /// First offset.
    pub start: Offset,
    /// Number of offsets, `>= 1`.
    pub len: u32,
}

impl AnswerSpan {
    fn range(self) -> Span<Offset> {
        Span::at(self.start, self.len)
    }
}

/// The k most confident masks of a lane in every step. As soon as the mean gap between the two
/// largest logits over the positions of the answer reaches θ (7.5 in the first third of the steps,
/// then 5.0, then 2.5), every mask of the canvas is filled with its favourite. Positions of the
/// answer that are committed count with the gap that their row still has, the last one that was
/// computed.
///
/// The progress p is the share of the budget that is committed, which is step / steps of the
/// static order.
#[derive(Clone, Debug, PartialEq)]
pub struct EarlyCommit {
    tokens_per_step: usize,
    answer: AnswerSpan,
    /// The last gap of every position of the answer.
    gaps: Vec<f32>,
    certain: bool,
}

impl EarlyCommit {
    /// `tokens_per_step` k, at least 1; `answer`: where the answer stands.
    pub fn new(tokens_per_step: u32, answer: AnswerSpan) -> Self {
        Self {
            tokens_per_step: as_index(tokens_per_step.max(1)),
            answer,
            gaps: Vec::new(),
            certain: false,
        }
    }

    fn needed(progress: f64) -> f64 {
        match progress {
            early if early < EARLY => GAPS[0],
            middle if middle < MIDDLE => GAPS[1],
            _ => GAPS[2],
        }
    }
}

impl CommitRule for EarlyCommit {
    fn reads(&self) -> Reads {
        Reads::Canvas
    }

    fn watches(&self) -> Span<Offset> {
        self.answer.range()
    }

    fn observe(&mut self, scene: &Scene<'_>) {
        let canvas = scene.canvas;
        let (answer, budget) = (self.answer.range().clip(canvas.end()), canvas.budget());
        self.gaps.resize(as_index(answer.len()), 0.0);
        for said in scene.proposals {
            let at = said.offset.checked_distance_from(answer.start);
            if let Some(gap) = at.and_then(|at| self.gaps.get_mut(as_index(at))) {
                *gap = said.candidate.gap;
            }
        }
        let sum: f64 = self.gaps.iter().map(|gap| f64::from(*gap)).sum();
        let committed = budget - canvas.masks(canvas.span()).min(budget);
        // The step that is being taken counts: step is counted from 1.
        let step = f64::from(committed) + f64::from(as_count(self.tokens_per_step));
        let needed = Self::needed(step / f64::from(budget.max(1)));
        // An answer beyond the canvas is none.
        self.certain = !answer.is_empty() && sum >= needed * f64::from(answer.len());
    }

    fn select(&mut self, _lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        by_confidence(masks, chosen);
        if !self.certain {
            chosen.truncate(self.tokens_per_step);
        }
    }

    fn fills(&self) -> bool {
        self.certain
    }
}
