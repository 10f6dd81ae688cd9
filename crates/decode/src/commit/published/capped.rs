//! Capped rule (CD4LM, arXiv 2601.02236, confidence-adaptive decoding): a threshold with a limit, which
//! may hold back ends of the text.

use crate::candidate::TokenId;
use crate::commit::prelude::*;

/// τ.
const THRESHOLD: SettingInfo =
    SettingInfo::number("threshold", 0.0..=1.0, 0.95).says("confidence that a commit needs");
/// k.
const TOKENS_PER_STEP: SettingInfo = SettingInfo::integer("tokens_per_step", 1..=UNBOUNDED, 32)
    .says("largest number of masks committed in a step");
/// r.
const STOP_AFTER: SettingInfo = SettingInfo::number("stop_after", 0.0..=1.0, 0.0)
    .says("fraction of the budget that is committed before the first stop token may be");

/// The rule's description.
pub static INFO: CommitInfo = CommitInfo {
    name: "capped",
    summary: "every mask whose confidence reaches the threshold, at most `tokens_per_step` of them",
    paper: "CD4LM, arXiv 2601.02236",
    differs: "CD4LM sets `stop_after` to 0.3 or 0.5, so that no answer is shorter, and fills a block \
              after 32 steps",
    settings: &[THRESHOLD, TOKENS_PER_STEP, STOP_AFTER],
    requires: Requirements::NONE,
    build: |settings, _| {
        Box::new(Capped {
            threshold: settings.number(&THRESHOLD),
            most: as_index(settings.count(&TOKENS_PER_STEP)),
            stop_after: settings.number(&STOP_AFTER),
            held_back: Vec::new(),
        })
    },
};

/// The n most confident masks, n = clamp(|{i : c_i >= τ}|, 1, k). While less than r of the budget is
/// committed, masks whose candidate is a stop token are left out, unless there are no others.
#[derive(Debug)]
struct Capped {
    threshold: f64,
    most: usize,
    stop_after: f64,
    /// Tokens that are held back in this step.
    held_back: Vec<TokenId>,
}

impl CommitRule for Capped {
    fn observe(&mut self, scene: &Scene<'_>) {
        self.held_back.clear();
        if self.stop_after == 0.0 {
            return;
        }
        let canvas = scene.canvas;
        let masks = canvas.masks(canvas.span());
        let committed = f64::from(canvas.len().saturating_sub(masks));
        if committed < self.stop_after * f64::from(canvas.budget()) {
            self.held_back.extend_from_slice(canvas.stops());
        }
    }

    fn select(&mut self, _lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        let free = |mask: &&Proposal| !self.held_back.contains(&mask.candidate.token);
        let passes = |mask: &&Proposal| mask.candidate.probability >= self.threshold;
        let frees = masks.iter().filter(free).count();
        let count = masks.iter().filter(free).filter(passes).count();
        by_worth(masks, |mask| self.worth(mask), chosen);
        // Without a free mask the surest one is committed all the same.
        chosen.truncate(count.clamp(1, self.most).min(frees.max(1)));
    }

    fn worth(&self, mask: &Proposal) -> f64 {
        let waits = self.held_back.contains(&mask.candidate.token);
        mask.candidate.probability - f64::from(u8::from(waits))
    }
}
