//! Renoising (DiffusionGemma): a canvas is drawn anew in every step until it is stable.

use super::Denoising;
use super::entropy_bound::within_bound;
use super::prelude::*;
use crate::candidate::{Candidate, TokenId};
use crate::describe::NameFilter;

const ENTROPY_BOUND: SettingInfo = SettingInfo::number("entropy_bound", 0.0..=f64::MAX, 0.1)
    .says("largest sum, in nats, of the entropies of the kept tokens before the last");
const STEPS: SettingInfo = SettingInfo::integer("max_denoising_steps", 1..=1024, 48)
    .says("largest number of forward passes of a canvas");
const T_MIN: SettingInfo =
    SettingInfo::number("t_min", 1e-3..=10.0, 0.4).says("temperature towards which a canvas cools");
const T_MAX: SettingInfo =
    SettingInfo::number("t_max", 1e-3..=10.0, 0.8).says("temperature of a canvas's first step");
const STABILITY: SettingInfo = SettingInfo::integer("stability_threshold", 0..=16, 1).says(
    "number of steps before with the same most probable tokens after which a canvas is stable",
);
const CONFIDENCE: SettingInfo = SettingInfo::number("confidence_threshold", 0.0..=f64::MAX, 0.005)
    .says("mean entropy in nats below which a stable canvas is final");

/// The rule's description.
pub static INFO: CommitInfo = CommitInfo {
    name: "renoise",
    summary: "tokens of low entropy stay for the next step, the others become noise again; the whole canvas once it is stable",
    paper: "DiffusionGemma; EB-sampler, arXiv 2505.24857",
    differs: "",
    settings: &[ENTROPY_BOUND, STEPS, T_MIN, T_MAX, STABILITY, CONFIDENCE],
    requires: Requirements {
        schedules: NameFilter::Only(&["canvas"]),
        attention: AttentionKind::NOISED,
        idle: |settings, _| settings.count(&STEPS),
        ..Requirements::NONE
    },
    build: |settings, _| {
        Box::new(Renoise {
            bound: settings.number(&ENTROPY_BOUND),
            steps: settings.count(&STEPS),
            t_min: settings.number(&T_MIN),
            t_max: settings.number(&T_MAX),
            stability: as_index(settings.count(&STABILITY)),
            confidence: settings.number(&CONFIDENCE),
            step: 0,
            start: Offset::ZERO,
            kept: Vec::new(),
            last: Vec::new(),
            within: Vec::new(),
        })
    },
};

/// In every step of a canvas the tokens of lowest entropy are kept, as many as
/// `entropy_bound` takes, and all others are replaced by noise. The canvas is
/// committed with its most probable tokens when they are those of the last steps and the mean
/// entropy is low, or after the last step.
///
/// Entropies are those of the distributions at the step's temperature, which falls from `t_max`
/// towards `t_min` by equal differences.
///
/// Under a grammar the token at the frontier and those that the grammar forces are committed in every
/// step, and of a stable canvas the tokens up to the first that the grammar refuses.
#[derive(Debug)]
struct Renoise {
    bound: f64,
    steps: u32,
    t_min: f64,
    t_max: f64,
    stability: usize,
    confidence: f64,
    /// Steps since the canvas began, or since it was stable and a grammar refused a part.
    step: u32,
    /// First offset of the canvas.
    start: Offset,
    /// The tokens that stand in the canvas; `None` is noise.
    kept: Vec<Option<TokenId>>,
    /// The most probable tokens of the last steps, the latest last.
    last: Vec<Vec<TokenId>>,
    /// Scratch: indices of the kept tokens.
    within: Vec<usize>,
}

impl Renoise {
    /// Returns true if the most probable tokens were the same in the last steps. Remembers them.
    fn is_stable(&mut self, masks: &[Proposal]) -> bool {
        let best = || masks.iter().map(|mask| most_probable(&mask.candidate).0);
        let is_same = |tokens: &Vec<TokenId>| tokens.iter().copied().eq(best());
        let stable = self.last.len() >= self.stability && self.last.iter().all(is_same);
        if self.stability > 0 {
            if self.last.len() == self.stability {
                self.last.remove(0);
            }
            self.last.push(best().collect());
        }
        stable
    }

    /// Begins with noise.
    fn begin(&mut self) {
        self.step = 0;
        self.kept.clear();
        self.last.clear();
    }

    /// Keeps the tokens of low entropy at their offsets.
    fn keep(&mut self, lane: &Lane, masks: &[Proposal]) {
        self.within.clear();
        within_bound(masks, self.bound, &mut self.within);
        self.start = lane.start;
        self.kept.clear();
        self.kept.resize(as_index(lane.len), None);
        for index in &self.within {
            let mask = masks[*index];
            let index = as_index(mask.offset.distance_from(lane.start));
            if let Some(token) = self.kept.get_mut(index) {
                *token = Some(mask.candidate.token);
            }
        }
    }
}

/// The most probable token of a candidate and its probability, the lower id on ties.
fn most_probable(candidate: &Candidate) -> (TokenId, f64) {
    let drawn = (candidate.token, candidate.probability);
    let other = (candidate.runner_up, candidate.runner_up_probability);
    match drawn.1 > other.1 || (drawn.1 == other.1 && drawn.0 < other.0) {
        true => drawn,
        false => other,
    }
}

impl CommitRule for Renoise {
    fn select(&mut self, lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        if lane.clock == 0 {
            // A grammar may have committed the canvas before without a choice of this rule.
            self.begin();
        }
        self.step += 1;
        let total: f64 = masks.iter().map(|m| f64::from(m.candidate.entropy)).sum();
        let count = f64::from(as_count(masks.len()));
        let is_final = self.is_stable(masks) && total / count < self.confidence;
        if !is_final && self.step < self.steps {
            return self.keep(lane, masks);
        }
        for mask in &mut *masks {
            let (token, probability) = most_probable(&mask.candidate);
            (mask.candidate.token, mask.candidate.probability) = (token, probability);
        }
        chosen.extend(0..masks.len());
        self.begin();
    }

    fn denoising(&self, clock: u32) -> Option<Denoising<'_>> {
        let step = if clock == 0 { 0 } else { self.step };
        let left = f64::from(self.steps - step) / f64::from(self.steps);
        Some(Denoising {
            temperature: self.t_min + (self.t_max - self.t_min) * left,
            conditioned: step > 0,
            start: self.start,
            kept: &self.kept,
        })
    }
}
