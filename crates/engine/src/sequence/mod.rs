//! One request's life in tokens: prompt, decoding state, pages, cost.

mod layout;
mod logprobs;
mod penalties;
mod prefix;
mod shifted_rows;

use std::sync::Arc;
use std::time::Duration;

use decode::{
    CommitKind, Decoder, DoneReason, Effect, Filter, ForwardKind, Input, Offset, Place, Position,
    Proposal, Role, Span, TokenClasses, TokenId, as_count, as_index,
};
use step::{Attention, Readout};

use crate::cache::{self, CachePolicy, ForwardPlan, View};
use crate::event::{FinishReason, Finished, SequenceStats};
use crate::limits::Limits;
use crate::pages::{Node, Tables};
use crate::report::{ByRole, FinishedSequence, StepReport};
use crate::request::Request;

use layout::Part;
pub(crate) use layout::{Layout, slot_of};
use logprobs::Logprobs;
pub(crate) use logprobs::ModelOutput;
use penalties::PenaltyBiases;

/// Effects of a step that a sequence has room for from the beginning.
const EFFECTS: usize = 128;

/// A sequence's number, ascending in order of submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceId(pub u64);

/// What the decoders of all sequences share.
#[derive(Debug)]
pub(crate) struct DecoderParts {
    /// Delimiter classes of the vocabulary.
    pub(crate) classes: Arc<TokenClasses>,
    /// The network of `learned_filter`, if the model has one.
    pub(crate) filter: Option<Arc<Filter>>,
}

#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) id: SequenceId,
    pub(crate) request: Request,
    layout: Layout,
    pub(crate) decoder: Decoder,
    pub(crate) policy: Box<dyn CachePolicy>,
    pub(crate) tables: Tables,
    pub(crate) stats: SequenceStats,
    /// Most pages that it can ever hold, promised when it starts.
    pub(crate) reserved: u32,
    since_refresh: u32,
    lane_started: bool,
    /// End of the last refresh, or of the rightmost row that was forwarded since.
    written: Place,
    /// Holds every offset that the last step wrote; start right of the end if it wrote none.
    fresh: Span<Offset>,
    /// Places `[0, sealed)` have their final K/V.
    sealed: Place,
    /// Whole pages of them that the prefix cache knows, and the text that they hold.
    known: (u32, Node),
    readout: Readout,
    /// Lanes that were born and have neither forked nor finished.
    pub(crate) open_lanes: ByRole,
    /// Per offset: when it was first scored, when it was committed.
    times: Vec<(Option<Duration>, Duration)>,
    /// Biases of the tokens that occur already.
    pub(crate) penalties: PenaltyBiases,
    /// Probabilities of the tokens that stand, if wanted.
    pub(crate) logprobs: Option<Logprobs>,
    /// What the last step changed; also the births before the first step.
    pub(crate) effects: Vec<Effect>,
}

impl Sequence {
    pub(crate) fn new(
        id: SequenceId,
        mut request: Request,
        parts: &DecoderParts,
        limits: &Limits,
    ) -> Self {
        let mut effects = Vec::with_capacity(EFFECTS);
        let layout = Layout::of(&request);
        let input = Input {
            budget: request.max_tokens,
            stops: &request.stop_tokens,
            classes: Arc::clone(&parts.classes),
            code_prompt: request.code_prompt,
            phase: match limits.attention {
                Attention::Blocks(length) => layout.generation().in_block(length),
                Attention::Full | Attention::Causal => 0,
            },
            lead: match (limits.attention, limits.readout) {
                (Attention::Blocks(length), Readout::Previous) => Some(length),
                _ => None,
            },
            constraint: request.constraint.take(),
            filter: parts.filter.clone(),
        };
        let decoder = Decoder::new(&request.decoding.decoder, input, &mut effects);
        let policy = cache::build(&request.decoding.cache, limits.attention);
        Self {
            id,
            layout,
            decoder,
            tables: Tables::new(policy.private_tables(), layout),
            policy,
            stats: SequenceStats {
                prompt_tokens: layout.given(),
                ..SequenceStats::default()
            },
            reserved: limits.worst_case_pages(
                layout.given(),
                request.max_tokens,
                &request.decoding,
            ),
            since_refresh: 0,
            lane_started: true,
            written: Place::ZERO,
            fresh: Span::default(),
            sealed: Place::ZERO,
            known: (0, Node::default()),
            readout: limits.readout,
            open_lanes: ByRole::default(),
            times: vec![(None, Duration::ZERO); as_index(request.max_tokens)],
            penalties: PenaltyBiases::new(&request),
            logprobs: request
                .logprobs
                .map(|count| Logprobs::new(count, request.max_tokens)),
            effects,
            request,
        }
    }

    /// The place of a generated offset.
    pub(crate) fn place_of(&self, offset: Offset) -> Place {
        self.layout.place_of(offset)
    }

    /// The logical position of a place. The suffix has the places behind the prompt's, so that
    /// every row of a lane sees it, and the positions behind the whole budget.
    pub(crate) fn position_of(&self, place: Place) -> Position {
        self.layout.position_of(place)
    }

    /// What the next forward is.
    pub(crate) fn kind(&self) -> ForwardKind {
        self.policy.kind(&self.view())
    }

    /// The next forward, into `plan`.
    pub(crate) fn plan(&self, plan: &mut ForwardPlan) {
        let view = self.view();
        self.policy.plan(&view, plan);
        if view.shifted {
            self.add_shifted_rows(plan);
        }
        debug_assert_eq!(plan.kind, self.kind(), "a forward is of the kind announced");
    }

    fn view(&self) -> View<'_> {
        View {
            layout: self.layout,
            decoder: &self.decoder,
            first: self.stats.forwards() == 0,
            since_refresh: self.since_refresh,
            lane_started: self.lane_started,
            written: self.written,
            fresh: self.fresh,
            sealed: self.sealed,
            shifted: self.readout == Readout::Previous,
        }
    }

    /// The input token at a place, on the canvas with `guesses` filled in; `None` is a mask.
    pub(crate) fn token(&self, place: Place, guesses: &[Proposal]) -> Option<TokenId> {
        match self.layout.part(place) {
            Part::Prompt(index) => self.request.prompt.get(index).copied(),
            Part::Suffix(index) => self.request.suffix.get(index).copied(),
            Part::Generation(offset) => self.decoder.canvas().get(offset).or_else(|| {
                let guess = guesses.iter().find(|guess| guess.offset == offset)?;
                Some(guess.candidate.token)
            }),
        }
    }

    /// Counts the births before the first step.
    pub(crate) fn report_births(&mut self, report: &mut StepReport) {
        self.count_lanes(report);
    }

    /// Books a planned forward.
    pub(crate) fn count_forward(&mut self, plan: &ForwardPlan, report: &mut StepReport) {
        let rows = plan.rows.len() as u64;
        let (own, forwards, positions) = match plan.kind {
            ForwardKind::Prefill => (
                &mut self.stats.prefill_forwards,
                &mut report.forwards.prefill,
                &mut report.positions.prefill,
            ),
            ForwardKind::Decode => (
                &mut self.stats.decode_forwards,
                &mut report.forwards.decode,
                &mut report.positions.decode,
            ),
            ForwardKind::Refresh => (
                &mut self.stats.refresh_forwards,
                &mut report.forwards.refresh,
                &mut report.positions.refresh,
            ),
        };
        *own += 1;
        *forwards += 1;
        *positions += rows;
        self.stats.positions += rows;
        self.sealed = self.sealed.max(plan.sealed);
        let last = plan.rows.last();
        let end = last.map_or(Place::ZERO, |row| row.place.next());
        if plan.kind == ForwardKind::Decode {
            self.since_refresh += 1;
            self.written = self.written.max(end);
        } else {
            self.since_refresh = 0;
            self.written = end;
        }
        self.lane_started = false;
    }

    /// Notes when the scored offsets were first scored.
    pub(crate) fn note_scored(&mut self, offset: Offset, now: Duration) {
        self.times[offset.index()].0.get_or_insert(now);
    }

    /// Books what a step changed.
    pub(crate) fn count_effects(&mut self, now: Duration, report: &mut StepReport) {
        self.fresh = Offset::new(self.request.max_tokens).to(Offset::ZERO);
        for effect in &self.effects {
            if let Effect::Commit { offset, .. } | Effect::Place { offset, .. } = *effect {
                let Span { start, end } = self.fresh;
                self.fresh = start.min(offset).to(end.max(offset.next()));
            }
            match *effect {
                Effect::Commit {
                    offset,
                    token,
                    kind,
                    ..
                } => {
                    self.penalties.count(token);
                    let (own, all) = match kind {
                        CommitKind::Masked => (None, &mut report.masked_commits),
                        CommitKind::Draft => {
                            (Some(&mut self.stats.drafts), &mut report.draft_commits)
                        }
                        CommitKind::Edit => (Some(&mut self.stats.edits), &mut report.edit_commits),
                    };
                    *all += 1;
                    if let Some(own) = own {
                        *own += 1;
                    }
                    self.stats.committed_tokens += 1;
                    let (scored, committed) = &mut self.times[offset.index()];
                    *committed = now;
                    report.commit_latency.push(now - scored.unwrap_or(now));
                }
                Effect::Advance { from, to } => {
                    self.stats.emitted_tokens = to.get();
                    let waited = |offset: Offset| now - self.times[offset.index()].1;
                    report.emit_lag.extend(from.to(to).iter().map(waited));
                }
                _ => {}
            }
        }
        self.count_lanes(report);
        self.lane_started |= cache::starts_generate_lane(&self.effects);
    }

    fn count_lanes(&mut self, report: &mut StepReport) {
        use decode::Birth;
        for effect in &self.effects {
            match *effect {
                Effect::Start {
                    role,
                    parent,
                    birth,
                    ..
                } => {
                    self.stats.lanes += 1;
                    *report.lanes_started.of(role) += 1;
                    *self.open_lanes.of(role) += 1;
                    if birth == Birth::Finished {
                        *report.lanes_finished.of(role) += 1;
                        *self.open_lanes.of(role) -= 1;
                        if role == Role::Refine && self.continues(parent) {
                            report.fork_leads.push(0);
                        }
                    }
                }
                Effect::Fork { .. } => {
                    self.stats.forks += 1;
                    self.open_lanes.generate -= 1;
                    report.lanes_forked += 1;
                }
                Effect::Finish { lane, .. } => {
                    let lane = self.decoder.tree().get(lane);
                    *report.lanes_finished.of(lane.role) += 1;
                    *self.open_lanes.of(lane.role) -= 1;
                    if lane.role == Role::Refine && self.continues(lane.parent) {
                        // The continuation ran in all of the refine lane's steps, or (coupled)
                        // begins in the step behind its last one.
                        let coupled = self.request.decoding.decoder.is_coupled();
                        report
                            .fork_leads
                            .push(if coupled { -1 } else { lane.clock as i32 - 1 });
                    }
                }
                _ => {}
            }
        }
    }

    /// Whether a fork of `parent` left a continuation.
    fn continues(&self, parent: Option<decode::LaneId>) -> bool {
        let tree = self.decoder.tree();
        parent.is_some_and(|parent| tree.get(parent).children[1].is_some())
    }

    /// The end of this sequence, if it has come; an error if its grammar failed.
    pub(crate) fn finished(&self) -> Option<Result<Finished, String>> {
        if let Some(failure) = self.decoder.failure() {
            return Some(Err(failure.to_string()));
        }
        let exhausted = self
            .request
            .decoding
            .max_forwards
            .is_some_and(|most| self.stats.forwards() >= most);
        if !self.decoder.is_done() && !exhausted {
            return None;
        }
        let canvas = self.decoder.canvas();
        let complete = self.decoder.done() == Some(DoneReason::Complete);
        let stopped = complete || canvas.is_stop_at(canvas.emitted());
        let reason = if stopped {
            FinishReason::Stop
        } else {
            FinishReason::Length
        };
        Some(Ok(Finished {
            reason,
            stats: self.stats,
        }))
    }

    /// The facts of this sequence for the report.
    pub(crate) fn summary(&self, finished: Finished) -> FinishedSequence {
        let canvas = self.decoder.canvas();
        let emitted = Offset::ZERO.to(canvas.emitted()).iter();
        let accepted = emitted.filter(|offset| canvas.is_draft(*offset)).count();
        let Finished { reason, stats } = finished;
        FinishedSequence {
            reason,
            stats,
            accepted_drafts: as_count(accepted),
        }
    }
}
