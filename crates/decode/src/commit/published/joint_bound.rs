//! One entropy bound per step for all lanes of a sequence and their lookahead.

use alloc::format;

use crate::commit::entropy_bound::{ENTROPY_THRESHOLD, within_bound};
use crate::commit::prelude::*;
use crate::commit::{Reads, Scope};
use crate::settings::Value;

/// The rule's description.
pub static INFO: CommitInfo = CommitInfo {
    name: "joint_bound",
    summary: "as `entropy_bound`, with one threshold for all lanes and their drafts together",
    paper: "EB-sampler, arXiv 2505.24857, over AsyncLane's lanes",
    differs: "",
    settings: &[ENTROPY_THRESHOLD],
    requires: Requirements {
        suits: |_, host| forbid_lane_budget("joint_bound", host.schedule),
        ..Requirements::NONE
    },
    build: |settings, _| Box::new(JointBound(settings.number(&ENTROPY_THRESHOLD))),
};

const LANE_BUDGET: &str = "lane_budget";

/// Refuses the schedule's `lane_budget`: a lane may wait for others, and its budget counts steps.
pub(super) fn forbid_lane_budget(rule: &str, schedule: &Settings) -> Result<(), Fault> {
    match schedule.get(LANE_BUDGET) {
        Some(Value::Flag(true)) => Err(Fault {
            setting: LANE_BUDGET,
            message: format!(
                "must be false with commit {rule}, which lets lanes wait for others, got true"
            ),
        }),
        _ => Ok(()),
    }
}

/// In order of entropy the longest run of masks of all lanes and their lookahead whose entropies,
/// without the last one's own, sum to at most γ. A lane whose masks are all less certain than what
/// fits waits for the others, and a draft counts as much as any other token.
#[derive(Debug)]
struct JointBound(f64);

impl CommitRule for JointBound {
    fn select(&mut self, _lane: &Lane, masks: &mut [Proposal], chosen: &mut Vec<usize>) {
        within_bound(masks, self.0, chosen);
    }

    fn worth(&self, mask: &Proposal) -> f64 {
        -f64::from(mask.candidate.entropy)
    }

    fn reads(&self) -> Reads {
        Reads { scope: Scope::Sequence, ..Reads::default() }
    }
}
