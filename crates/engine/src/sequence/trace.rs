//! The report of a traced sequence on a step.

use decode::{Offset, Proposal};

use super::Sequence;
use crate::cache::{ForwardPlan, PlanRow};
use crate::event::{Draw, StepTrace};

impl Sequence {
    /// The report of the next step, as far as its plan goes.
    pub(crate) fn planned_trace(&self, plan: &ForwardPlan) -> StepTrace {
        let positions = |rows: &[PlanRow]| {
            let positions = rows.iter().map(|row| self.layout.position_of(row.place));
            positions.collect()
        };
        StepTrace {
            step: self.decoder.step() + 1,
            kind: plan.kind,
            lanes: self.decoder.lanes().map(|lane| lane.id).collect(),
            rows: plan.rows_by_segment().map(|(_, rows)| positions(rows)).collect(),
            effects: Vec::new(),
            draws: Vec::new(),
            frontier: Offset::ZERO,
            canvas: 0,
        }
    }

    /// The report of the step that the decoder has taken from `proposals`.
    pub(crate) fn taken_trace(
        &self,
        mut trace: Box<StepTrace>,
        proposals: &[Proposal],
    ) -> Box<StepTrace> {
        trace.effects.clone_from(&self.effects);
        trace.draws.extend(self.draws(proposals));
        trace.frontier = self.decoder.canvas().emitted();
        trace.canvas = self.decoder.canvas().len();
        trace
    }

    /// The tokens of `proposals` at offsets of a canvas of noise that are open after the step.
    fn draws(&self, proposals: &[Proposal]) -> impl Iterator<Item = Draw> {
        let canvas = self.decoder.canvas();
        let denoising = self.decoder.denoising();
        let drawn = proposals.iter().filter_map(move |proposal| Some((proposal, denoising?)));
        let open = drawn.filter(|(proposal, _)| {
            proposal.offset < canvas.end() && canvas.is_mask(proposal.offset)
        });
        open.map(|(proposal, denoising)| Draw {
            offset: proposal.offset,
            token: proposal.candidate.token,
            probability: proposal.candidate.probability,
            kept: denoising.token(proposal.offset) == Some(proposal.candidate.token),
        })
    }
}
