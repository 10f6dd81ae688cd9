//! The cost of a sequence, and the times of its tokens.

use std::time::Duration;

use decode::{
    Birth, CommitKind, Effect, ForwardKind, LaneId, LaneTree, Offset, Proposal, Role, as_count,
    as_index,
};

use crate::counts::ByRole;
use crate::event::SequenceStats;
use crate::report::StepReport;

/// Counts of one sequence. Every method that counts adds to the step's report too.
#[derive(Debug)]
pub(crate) struct Statistics {
    /// The present cost, as events report it.
    pub(crate) cost: SequenceStats,
    /// Lanes that were born and have neither forked nor finished.
    open_lanes: ByRole,
    /// By offset.
    times: Vec<Times>,
}

/// When an offset reached a state, since the moment that the driver counts from.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    first_scored: Option<Duration>,
    /// None at a given token.
    committed: Option<Duration>,
}

impl Statistics {
    /// Nothing but the prompt yet; `prompt_tokens` counts the suffix too. `budget` offsets are decoded.
    pub(super) fn new(prompt_tokens: u32, budget: u32) -> Self {
        Self {
            cost: SequenceStats { prompt_tokens, ..SequenceStats::default() },
            open_lanes: ByRole::default(),
            times: vec![Times::default(); as_index(budget)],
        }
    }

    /// Counts a planned forward of `rows` rows.
    pub(super) fn count_forward(&mut self, kind: ForwardKind, rows: u64, report: &mut StepReport) {
        *self.cost.passes.of(kind) += 1;
        *report.work.forwards.of(kind) += 1;
        *report.work.positions.of(kind) += rows;
        self.cost.positions += rows;
    }

    /// Counts a planned forward over `rows` rows of a prompt that is split. It gives no candidates, so
    /// it is not among the NFE.
    pub(super) fn count_chunk(&mut self, rows: u64, report: &mut StepReport) {
        self.cost.chunks += 1;
        self.cost.positions += rows;
        report.work.chunks += 1;
        report.work.positions.prefill += rows;
    }

    /// Counts a planned pass of `rows` rows of a drafter behind the model's layers.
    pub(super) fn count_drafting(&mut self, rows: u64) {
        self.cost.draft_model.forwards += 1;
        self.cost.draft_model.positions += rows;
    }

    /// Counts the drafts of a draft model that a step confirmed.
    pub(super) fn count_verified(&mut self, drafts: u32, report: &mut StepReport) {
        self.cost.draft_model.verified += drafts;
        report.drafts.verified += u64::from(drafts);
    }

    /// Counts a forward that checked guesses, and its commits.
    pub(super) fn count_check(&mut self, effects: &[Effect]) {
        let commits = effects.iter().filter(|effect| matches!(effect, Effect::Commit(_)));
        self.cost.checks.forwards += 1;
        self.cost.checks.tokens += as_count(commits.count());
    }

    /// Notes that offsets were scored.
    pub(super) fn note_scored(&mut self, proposals: &[Proposal], now: Duration) {
        for proposal in proposals {
            let times = &mut self.times[proposal.offset.index()];
            times.first_scored.get_or_insert(now);
        }
    }

    /// Counts what a step changed.
    pub(super) fn count_effects(
        &mut self,
        effects: &[Effect],
        tree: &LaneTree,
        now: Duration,
        report: &mut StepReport,
    ) {
        for effect in effects {
            match *effect {
                Effect::Commit(commit) => {
                    self.count_commit(commit.offset, commit.kind, now, report)
                }
                Effect::Advance(span) => {
                    self.cost.emitted_tokens = span.end.get();
                    let waited = |offset: Offset| Some(now - self.times[offset.index()].committed?);
                    report.delays.emit.extend(span.iter().filter_map(waited));
                }
                _ => {}
            }
        }
        self.count_lanes(effects, tree, report);
    }

    fn count_commit(
        &mut self,
        offset: Offset,
        kind: CommitKind,
        now: Duration,
        report: &mut StepReport,
    ) {
        *self.cost.commits.of(kind) += 1;
        *report.commits.of(kind) += 1;
        let times = &mut self.times[offset.index()];
        times.committed = Some(now);
        let scored = times.first_scored.unwrap_or(now);
        report.delays.commit.push(now - scored);
    }

    /// Counts births, forks and ends of lanes.
    pub(super) fn count_lanes(
        &mut self,
        effects: &[Effect],
        tree: &LaneTree,
        report: &mut StepReport,
    ) {
        for effect in effects {
            match *effect {
                Effect::Start { role, parent, birth, .. } => {
                    self.cost.lanes += 1;
                    *report.lanes.started.of(role) += 1;
                    *self.open_lanes.of(role) += 1;
                    if birth == Birth::Finished {
                        *report.lanes.finished.of(role) += 1;
                        *self.open_lanes.of(role) -= 1;
                        if role == Role::Refine && has_continuation(parent, tree) {
                            report.lanes.fork_leads.push(0);
                        }
                    }
                }
                Effect::Fork { .. } => {
                    self.cost.forks += 1;
                    self.open_lanes.generate -= 1;
                    report.lanes.forked += 1;
                }
                Effect::Finish { lane, .. } => {
                    let lane = tree.get(lane);
                    *report.lanes.finished.of(lane.role) += 1;
                    *self.open_lanes.of(lane.role) -= 1;
                    if lane.role == Role::Refine && has_continuation(lane.parent, tree) {
                        // The continuation ran in all steps of the refine lane, or waited and
                        // starts in the step after its last one.
                        let waited = wakes_continuation(effects, lane.parent, tree);
                        let lead = match waited {
                            true => -1,
                            false => i32::try_from(lane.clock).map_or(i32::MAX, |steps| steps - 1),
                        };
                        report.lanes.fork_leads.push(lead);
                    }
                }
                _ => {}
            }
        }
    }

    /// Counts open lanes as finished, because their sequence ends.
    pub(crate) fn drop_lanes(&mut self, report: &mut StepReport) {
        report.lanes.finished.generate += self.open_lanes.generate;
        report.lanes.finished.refine += self.open_lanes.refine;
        self.open_lanes = ByRole::default();
    }
}

/// Returns true if `effects` wake the continuation that the fork of `parent` left.
fn wakes_continuation(effects: &[Effect], parent: Option<LaneId>, tree: &LaneTree) -> bool {
    let continuation = parent.and_then(|parent| tree.get(parent).children[1]);
    let wakes = |effect: &Effect| match effect {
        Effect::Wake { lane } => continuation == Some(*lane),
        _ => false,
    };
    effects.iter().any(wakes)
}

/// Returns true if the fork of `parent` left a continuation.
fn has_continuation(parent: Option<LaneId>, tree: &LaneTree) -> bool {
    parent.is_some_and(|parent| tree.get(parent).children[1].is_some())
}
