//! Learned filter (Learn2PD, arXiv 2509.25188): a small network decides which masks are correct. The
//! canvas may be cut where the end of the text is likely (EoTP).

use alloc::sync::Arc;
use alloc::{format, vec};

use crate::canvas::Canvas;
use crate::commit::prelude::*;
use crate::commit::{CommitHost, Reads, Verdict};
use crate::describe::Capability;
use crate::filter::Filter;
use crate::numbers::to_single;

/// τ_acc.
const FILTER_THRESHOLD: SettingInfo = SettingInfo::number("filter_threshold", 0.0..=1.0, 0.96)
    .says("probability from the filter that a commit needs");

/// The floor of EoTP.
const END_THRESHOLD: SettingInfo = SettingInfo::number("end_threshold", 0.0..=1.0, 1.0)
    .derived("never")
    .says("smallest confidence at which the likeliest stop token at any mask is committed, which cuts the canvas");

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
        rows: Rows::Lane,
        attention: &[AttentionKind::Full],
        needs: |_| Some(Capability::Filter),
        suits: |_, host| suits(host),
        ..Requirements::NONE
    },
    build: |settings, input| {
        let filter = input.filter.cloned().unwrap_or_default();
        Box::new(LearnedFilter {
            confidences: vec![1.0; as_index(filter.size())],
            logits: Vec::new(),
            filter,
            threshold: settings.number(&FILTER_THRESHOLD),
            floor: settings.value(&END_THRESHOLD).and_then(|value| value.as_number()),
            end: None,
        })
    },
};

/// The filter reads blocks of the length that it was trained for.
fn suits(host: &CommitHost<'_>) -> Result<(), Fault> {
    const SETTING: &str = "block_length";
    let length = host.schedule.get(SETTING).and_then(|value| value.as_count());
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

/// S = {masks that the filter accepts: sigmoid(u_i) > τ}, and the most confident mask. The filter
/// sees the confidence of every position of the lane, committed ones included (that of the
/// model's favourite there); positions that a shorter last lane does not have count as certain.
///
/// With a floor (EoTP), the likeliest stop token among the candidates of all scored masks, also those
/// after the block, is committed if its confidence reaches the floor, which cuts the canvas.
#[derive(Debug)]
struct LearnedFilter {
    filter: Arc<Filter>,
    threshold: f64,
    floor: Option<f64>,
    end: Option<Proposal>,
    confidences: Vec<f32>,
    logits: Vec<f32>,
}

impl LearnedFilter {
    /// The mask whose candidate is the likeliest stop token, if it reaches the floor.
    fn likely_end(&self, canvas: &Canvas, proposals: &[Proposal]) -> Option<Proposal> {
        let mut best = None;
        let mut most = self.floor?;
        for said in proposals {
            let candidate = &said.candidate;
            let more =
                candidate.probability > most || (best.is_none() && candidate.probability == most);
            if more && canvas.is_stop(candidate.token) && canvas.is_mask(said.offset) {
                (best, most) = (Some(*said), candidate.probability);
            }
        }
        best
    }
}

impl CommitRule for LearnedFilter {
    fn reads(&self) -> Reads {
        Reads { lane: true, canvas: self.floor.is_some(), ..Reads::default() }
    }

    fn verdict(&self) -> Verdict<'_> {
        Verdict { end: self.end, ..Verdict::default() }
    }

    fn observe(&mut self, scene: &Scene<'_>) {
        self.confidences.fill(1.0);
        let lane = scene.lane.range();
        for said in scene.proposals.iter().filter(|proposal| lane.contains(proposal.offset)) {
            let distance = said.offset.checked_distance_from(scene.lane.start);
            if let Some(known) =
                distance.and_then(|index| self.confidences.get_mut(as_index(index)))
            {
                *known = to_single(said.candidate.probability);
            }
        }
        self.filter.logits(&self.confidences, &mut self.logits);
        self.end = self.likely_end(scene.canvas, scene.proposals);
    }

    fn select(&mut self, lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        let accepts = |mask: &Proposal| {
            let index = as_index(mask.offset.distance_from(lane.start));
            let logit = self.logits.get(index);
            logit.is_some_and(|logit| sigmoid(f64::from(*logit)) > self.threshold)
        };
        select_where(masks, accepts, chosen);
        let best = best_by(masks, |mask| mask.candidate.probability);
        if !chosen.contains(&best) {
            chosen.push(best);
        }
    }
}

fn sigmoid(logit: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-logit))
}
