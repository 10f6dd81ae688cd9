//! Learned filter (Learn2PD, arXiv 2509.25188): a small network decides which masks are correct. The
//! canvas may be cut where the end of the text is likely (EoTP).

use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use super::{
    BLOCKS, CommitHost, CommitInfo, CommitRule, Reads, Requirements, Scene, WHOLE_BLOCK, best_by,
};
use crate::candidate::Proposal;
use crate::canvas::Canvas;
use crate::coordinates::{as_count, as_index};
use crate::describe::{Capability, Fault};
use crate::lane::Lane;
use crate::numbers::to_single;
use crate::settings::SettingInfo;

/// τ_acc.
const FILTER_THRESHOLD: SettingInfo = SettingInfo::number("filter_threshold", 0.0..=1.0, 0.96)
    .says("probability from the filter that a commit needs");

/// The floor of EoTP.
const END_THRESHOLD: SettingInfo = SettingInfo::number("end_threshold", 0.0..=1.0, 1.0)
    .derived("never")
    .says("confidence from which on the likeliest stop token at any mask is committed, which cuts the canvas");

/// The rule's description.
pub static INFO: CommitInfo = CommitInfo {
    name: "learned_filter",
    summary: "every mask that a small trained network accepts",
    paper: "Learn2PD, arXiv 2509.25188",
    differs: "EoTP cuts at any confidence, `end_threshold` 0, and leaves a mask where it cuts; here it commits \
              the stop token, and does not cut unless asked to",
    settings: &[FILTER_THRESHOLD, END_THRESHOLD],
    requires: Requirements {
        schedules: BLOCKS,
        caches: WHOLE_BLOCK,
        needs: |_| Some(Capability::Filter),
        suits: |_, host| suits(host),
        ..Requirements::NONE
    },
    build: |of, input| {
        let filter = input.filter.cloned().unwrap_or_default();
        let rule = LearnedFilter::new(filter, of.number(&FILTER_THRESHOLD));
        let floor = of.value(&END_THRESHOLD).and_then(|of| of.as_number());
        Box::new(rule.with_end_threshold(floor))
    },
};

/// The filter reads blocks of the length that it was trained for.
fn suits(host: &CommitHost<'_>) -> Result<(), Fault> {
    const SETTING: &str = "block_length";
    let length = host.schedule.get(SETTING).and_then(|of| of.as_count());
    match (host.filter, length) {
        (Some(size), Some(length)) if length != size => Err(Fault {
            setting: SETTING,
            message: format!(
                "must be {size}, the block length of the model's filter, got {length}"
            ),
        }),
        _ => Ok(()),
    }
}

/// A network B -> H -> B with biases and ReLU between: the confidences of a block's positions in,
/// one logit per position out. The default accepts nothing and has size 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    size: usize,
    hidden: usize,
    weights: Weights,
}

/// Two linear layers, weights row by row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Weights {
    /// [H, B].
    pub first: Vec<f32>,
    /// [H].
    pub first_bias: Vec<f32>,
    /// [B, H].
    pub second: Vec<f32>,
    /// [B].
    pub second_bias: Vec<f32>,
}

/// Weights that do not form a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterError {
    /// Values that the first and the second layer should have.
    pub expected: usize,
    /// Values that one of them has.
    pub found: usize,
}

impl core::fmt::Display for FilterError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { expected, found } = self;
        write!(
            out,
            "a layer of the filter needs {expected} weights, found {found}"
        )
    }
}

impl core::error::Error for FilterError {}

impl Filter {
    /// A filter of the given weights; B and H are the lengths of the biases.
    ///
    /// # Errors
    /// If a layer has not B x H weights, or there are none.
    pub fn new(weights: Weights) -> Result<Self, FilterError> {
        let (size, hidden) = (weights.second_bias.len(), weights.first_bias.len());
        let expected = size * hidden;
        let layers = [&weights.first, &weights.second];
        match layers
            .iter()
            .find(|layer| layer.len() != expected || expected == 0)
        {
            Some(layer) => Err(FilterError {
                expected,
                found: layer.len(),
            }),
            None => Ok(Self {
                size,
                hidden,
                weights,
            }),
        }
    }

    /// B: positions of a block.
    pub fn size(&self) -> u32 {
        as_count(self.size)
    }

    /// One logit per position of `confidences`, both of length B, into `logits`.
    pub fn logits(&self, confidences: &[f32], logits: &mut Vec<f32>) {
        let Weights {
            first,
            first_bias,
            second,
            second_bias,
        } = &self.weights;
        let mut hidden = vec![0.0; self.hidden];
        for (unit, (row, bias)) in first.chunks(self.size).zip(first_bias).enumerate() {
            hidden[unit] = (dot(row, confidences) + bias).max(0.0);
        }
        let rows = second.chunks(self.hidden.max(1)).zip(second_bias);
        logits.clear();
        logits.extend(rows.map(|(row, bias)| dot(row, &hidden) + bias));
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// S = {masks that the filter accepts: sigmoid(u_i) > τ}, and the most confident mask. The filter
/// sees the confidence of every position of the lane, committed ones included (that of the
/// model's favourite there); positions that a shorter last lane does not have count as certain.
///
/// With a floor (EoTP), the likeliest stop token among the candidates of all scored masks, also those
/// after the block, is committed if its confidence reaches the floor, which cuts the canvas.
#[derive(Clone, Debug, PartialEq)]
pub struct LearnedFilter {
    filter: Arc<Filter>,
    threshold: f64,
    floor: Option<f64>,
    end: Option<Proposal>,
    confidences: Vec<f32>,
    logits: Vec<f32>,
}

impl LearnedFilter {
    /// `threshold` τ_acc in `0.0..=1.0`.
    pub fn new(filter: Arc<Filter>, threshold: f64) -> Self {
        Self {
            confidences: vec![1.0; filter.size],
            logits: Vec::new(),
            filter,
            threshold,
            floor: None,
            end: None,
        }
    }

    /// With the floor of EoTP in `0.0..=1.0`; `None` = the canvas is not cut.
    #[must_use]
    pub fn with_end_threshold(self, floor: Option<f64>) -> Self {
        Self { floor, ..self }
    }

    /// The mask whose candidate is the likeliest stop token, if it reaches the floor.
    fn likely_end(&self, canvas: &Canvas, proposals: &[Proposal]) -> Option<Proposal> {
        let mut best = None;
        let mut most = self.floor?;
        for said in proposals {
            let of = &said.candidate;
            let more = of.probability > most || (best.is_none() && of.probability == most);
            if more && canvas.is_stop(of.token) && canvas.is_mask(said.offset) {
                (best, most) = (Some(*said), of.probability);
            }
        }
        best
    }
}

impl CommitRule for LearnedFilter {
    fn reads(&self) -> Reads {
        match self.floor {
            Some(_) => Reads::LaneAndCanvas,
            None => Reads::Lane,
        }
    }

    fn expects_end(&self) -> Option<Proposal> {
        self.end
    }

    fn observe(&mut self, scene: &Scene<'_>) {
        self.confidences.fill(1.0);
        let lane = scene.lane.range();
        for said in scene.proposals.iter().filter(|of| lane.contains(of.offset)) {
            let at = said.offset.checked_distance_from(scene.lane.start);
            if let Some(slot) = at.and_then(|at| self.confidences.get_mut(as_index(at))) {
                *slot = to_single(said.candidate.probability);
            }
        }
        self.filter.logits(&self.confidences, &mut self.logits);
        self.end = self.likely_end(scene.canvas, scene.proposals);
    }

    fn select(&mut self, lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        let accepts = |mask: &Proposal| {
            let logit = self
                .logits
                .get(as_index(mask.offset.distance_from(lane.start)));
            logit.is_some_and(|logit| sigmoid(f64::from(*logit)) > self.threshold)
        };
        chosen.extend((0..masks.len()).filter(|index| accepts(&masks[*index])));
        let best = best_by(masks, |mask| mask.candidate.probability);
        if !chosen.contains(&best) {
            chosen.push(best);
        }
    }
}

fn sigmoid(logit: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-logit))
}
