//! The samplers of Dream (arXiv 2508.15487) and RND1: a timetable gives the number of commits per step, a rank gives
//! their order.

use super::prelude::*;
use crate::effect::LaneId;
use crate::noise::uniform;
use crate::numbers::{to_single, whole};

/// T.
const DENOISING_STEPS: SettingInfo = SettingInfo::integer("denoising_steps", 1..=1024, 1)
    .derived("one per position of the lane")
    .says("forward passes of a lane");
const RANK: SettingInfo =
    SettingInfo::name("rank", &["confidence", "margin", "entropy", "origin"], "confidence").says(
        "order of the masks: probability, lead over the second token, low entropy, or chance",
    );
const TIMETABLE: SettingInfo = SettingInfo::name("timetable", &["left", "whole"], "left").says(
    "commits of a step: a share of the masks that are left (Dream), or of all masks of the lane (RND1); by chance always \
     of those left",
);

/// The rule's description.
pub static INFO: CommitInfo = CommitInfo {
    name: "scheduled",
    summary: "the most certain masks, as many as a timetable of `denoising_steps` forward passes asks for; or each by the timetable's chance",
    paper: "Dream, arXiv 2508.15487",
    differs: "at temperatures above 0 Dream ranks by the probabilities after temperature and filters; the numbers behind its order by chance (`origin`) are other ones",
    settings: &[DENOISING_STEPS, RANK, TIMETABLE],
    requires: Requirements { schedules: BLOCKS, ..Requirements::NONE },
    build: |settings, input| {
        let steps = settings.value(&DENOISING_STEPS).and_then(|steps| steps.as_count());
        let rank = match settings.name(&RANK) {
            "margin" => Rank::Margin,
            "entropy" => Rank::Entropy,
            "origin" => Rank::Origin(input.seed),
            _ => Rank::Confidence,
        };
        let is_whole = settings.name(&TIMETABLE) == "whole";
        Box::new(Scheduled { steps, rank, is_whole, lane: None, masks: 0, passed: 0 })
    },
};

/// The end of the timetable: t runs from 1 to this.
const EPS: f32 = 1e-3;

/// The order of certainty.
#[derive(Clone, Copy, Debug)]
enum Rank {
    /// The highest probability of the best token (`maskgit_plus`).
    Confidence,
    /// The largest lead over the second token (`topk_margin`).
    Margin,
    /// The lowest entropy (`entropy`).
    Entropy,
    /// None: each mask is committed by chance, drawn from this seed (`origin`).
    Origin(u64),
}

/// Step i of T commits the ⌊m (1 - t_(i+1) / t_i)⌋ surest of m masks, lower offsets first on ties,
/// the last step all of them; t falls evenly from 1 to 0.001. A step of the timetable that would
/// commit nothing costs no forward.
///
/// [`Rank::Origin`]: step i commits each mask with probability 1 - t_(i+1) / t_i, the last step all of
/// them. Whether one is committed depends on the seed, the step and its offset alone.
///
/// [`TIMETABLE`] `whole`: step i leaves ⌊M (T - i) / T⌋ of the M masks that the lane began with.
#[derive(Debug)]
struct Scheduled {
    /// T of a lane; `None` = one for each of its offsets.
    steps: Option<u32>,
    rank: Rank,
    is_whole: bool,
    lane: Option<LaneId>,
    /// M of the lane.
    masks: usize,
    /// Steps of the timetable that are over.
    passed: u32,
}

impl Scheduled {
    /// The number of `masks` that the next step commits among those that commit any.
    fn due(&mut self, steps: u32, masks: usize) -> usize {
        while self.passed + 1 < steps {
            let (t, s) = (time(self.passed, steps), time(self.passed + 1, steps));
            self.passed += 1;
            // The single precision of the published samplers: their products are cut off.
            let share = |masks, share| as_index(whole(f64::from(single(as_count(masks)) * share)));
            let count = match self.is_whole {
                true => {
                    let left = f64::from(steps - self.passed) / f64::from(steps);
                    masks.saturating_sub(share(self.masks, to_single(left)))
                }
                false => share(masks, 1.0 - s / t),
            };
            if count > 0 {
                return count;
            }
        }
        masks
    }

    /// The masks that chance picks in the next step that picks any.
    fn draw(&mut self, seed: u64, steps: u32, masks: &[Proposal], chosen: &mut Vec<usize>) {
        while self.passed + 1 < steps && chosen.is_empty() {
            let (t, s) = (time(self.passed, steps), time(self.passed + 1, steps));
            let passed = self.passed;
            let picked = |mask: &Proposal| uniform(seed, passed, mask.offset.get()) < 1.0 - s / t;
            select_where(masks, picked, chosen);
            self.passed += 1;
        }
        if chosen.is_empty() {
            chosen.extend(0..masks.len());
        }
    }
}

/// t_i of the `steps + 1` times, counted from the nearer end as PyTorch's `linspace` does.
fn time(i: u32, steps: u32) -> f32 {
    let width = (EPS - 1.0) / single(steps);
    match i < steps.div_ceil(2) {
        true => 1.0 + width * single(i),
        false => EPS - width * single(steps - i),
    }
}

/// A count in single precision.
fn single(count: u32) -> f32 {
    to_single(f64::from(count))
}

impl CommitRule for Scheduled {
    fn select(&mut self, lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        if self.lane != Some(lane.id) {
            self.lane = Some(lane.id);
            (self.masks, self.passed) = (masks.len(), 0);
        }
        let steps = self.steps.unwrap_or(lane.len).max(1);
        if let Rank::Origin(seed) = self.rank {
            return self.draw(seed, steps, masks, chosen);
        }
        let due = self.due(steps, masks.len());
        by_worth(masks, |mask| self.worth(mask), chosen);
        chosen.truncate(due);
    }

    fn worth(&self, mask: &Proposal) -> f64 {
        let candidate = &mask.candidate;
        match self.rank {
            Rank::Confidence | Rank::Origin(_) => candidate.probability,
            Rank::Margin => candidate.probability - candidate.runner_up_probability,
            Rank::Entropy => -f64::from(candidate.entropy),
        }
    }
}
