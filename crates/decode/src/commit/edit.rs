//! Editing (LLaDA2.1, arXiv 2602.08676, joint threshold decoding): committed tokens of a block may
//! change until it is settled.

use super::prelude::*;
use super::{Reads, Verdict};
use crate::describe::Capability;
use crate::effect::LaneId;

/// τ_mask.
const THRESHOLD: SettingInfo =
    SettingInfo::number("threshold", 0.0..=1.0, 0.7).says("confidence that a commit must exceed");
/// τ_edit.
const EDIT_THRESHOLD: SettingInfo = SettingInfo::number("edit_threshold", 0.0..=1.0, 0.5)
    .says("confidence that rewriting a committed token must exceed");
const EDIT_PASSES: SettingInfo = SettingInfo::integer("edit_passes", 1..=64, 16)
    .says("largest number of forward passes of a block after its last mask");
const FORCE: SettingInfo = SettingInfo::flag("force", false)
    .says("runs on weights that were not trained to rewrite tokens");

/// The rule's description.
pub static INFO: CommitInfo = CommitInfo {
    name: "edit",
    summary: "every mask above a threshold; tokens of the block are rewritten until none changes",
    paper: "LLaDA2.1, arXiv 2602.08676",
    differs: "",
    settings: &[THRESHOLD, EDIT_THRESHOLD, EDIT_PASSES, FORCE],
    requires: Requirements {
        schedules: BLOCKS,
        // The K/V of a block are not final before it is settled.
        rows: Rows::Lane,
        attention: &[AttentionKind::Full, AttentionKind::BlockCausal],
        excludes: &[Feature::Grammar, Feature::Penalties],
        needs: |settings| (!settings.flag(&FORCE)).then_some(Capability::Edits),
        idle: |settings, _| settings.count(&EDIT_PASSES),
        ..Requirements::NONE
    },
    build: |settings, _| {
        Box::new(Edit {
            threshold: settings.number(&THRESHOLD),
            edit_threshold: settings.number(&EDIT_THRESHOLD),
            most_passes: settings.count(&EDIT_PASSES),
            lane: None,
            passes: 0,
            edits: Vec::new(),
            settled: false,
        })
    },
};

/// In every step Γ = {masks with p > τ_mask} are committed (at least the best) and Δ = {committed
/// tokens of the block whose favourite is another token, with p > τ_edit} rewritten, from the same
/// logits. A block is settled after a step without masks that edits nothing, or after
/// `most_passes` steps without masks. Only settled tokens are emitted.
#[derive(Debug)]
struct Edit {
    threshold: f64,
    edit_threshold: f64,
    most_passes: u32,
    lane: Option<LaneId>,
    /// Steps of the lane without masks.
    passes: u32,
    edits: Vec<Proposal>,
    settled: bool,
}

impl CommitRule for Edit {
    fn reads(&self) -> Reads {
        Reads { lane: true, ..Reads::default() }
    }

    fn observe(&mut self, scene: &Scene<'_>) {
        let (lane, canvas) = (scene.lane, scene.canvas);
        if self.lane != Some(lane.id) {
            self.lane = Some(lane.id);
            self.passes = 0;
        }
        let differs = |said: &&Proposal| {
            let standing = canvas.get(said.offset);
            lane.range().contains(said.offset)
                && !canvas.is_pinned(said.offset)
                && standing.is_some_and(|token| token != said.candidate.token)
                && said.candidate.probability > self.edit_threshold
        };
        self.edits.clear();
        self.edits.extend(scene.proposals.iter().filter(differs));
        let full = canvas.masks(lane.range()) == 0;
        self.passes += u32::from(full);
        self.settled = full && (self.edits.is_empty() || self.passes >= self.most_passes);
    }

    fn select(&mut self, _lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        select_where(masks, |mask| mask.candidate.probability > self.threshold, chosen);
    }

    fn verdict(&self) -> Verdict<'_> {
        Verdict { edits: &self.edits, settled: self.settled, ..Verdict::default() }
    }
}
