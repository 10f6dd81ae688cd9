//! One request's life in tokens: its text, its decoder, its K/V, its statistics.

mod drafts;
mod job;
mod kv;
mod logprobs;
mod lookup;
mod penalties;
mod prefix;
mod shifted_rows;
mod statistics;
mod trace;

use std::sync::Arc;
use std::time::Duration;

use decode::{
    Decoder, DoneReason, Effect, Failure, Filter, ForwardKind, Input, Offset, Pin, Place, Proposal,
    TokenClasses, TokenId, as_count,
};
use step::{Attention, LogitShift};

use crate::cache::{CacheInput, ForwardPlan, View};
use crate::event::{FinishReason, Finished};
use crate::layout::{Layout, TokenIndex};
use crate::limits::Limits;
use crate::pages::PagePool;
use crate::report::{FinishedSequence, StepReport};
use crate::request::Request;

use drafts::DraftState;
pub use job::GrammarJob;
pub(crate) use job::{DecoderCell, ForwardOutput};
use kv::SequenceKv;
use logprobs::Logprobs;
pub(crate) use logprobs::ModelOutput;
use penalties::PenaltyBiases;
use statistics::Statistics;

/// Effects of a step that a sequence has room for from the beginning.
const EFFECTS: usize = 128;

/// A sequence's number, ascending in order of submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceId(pub u64);

/// The end of a sequence.
#[derive(Debug)]
pub(crate) enum End {
    Finished(Finished),
    /// The grammar of its request cannot go on.
    Refused(String),
    /// Something else failed.
    Failed(String),
}

/// The parts that the decoders of all sequences have in common.
#[derive(Debug)]
pub(crate) struct DecoderParts {
    /// Delimiter classes of the vocabulary.
    pub(crate) classes: Arc<TokenClasses>,
    /// The network of `learned_filter`, if the model has one.
    pub(crate) filter: Option<Arc<Filter>>,
}

/// A sequence that waits or runs.
#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) id: SequenceId,
    /// The reason for which its state is unusable, if a job panicked.
    pub(crate) broken: Option<&'static str>,
    /// Drafts for its next step.
    pub(crate) drafts: DraftState,
    /// Its prompt and settings; the grammar has moved into the decoder.
    pub(crate) request: Request,
    pub(crate) layout: Layout,
    logit_shift: LogitShift,
    pub(crate) decoder: DecoderCell,
    /// The changes of the last step; before the first step, the births of the first lanes.
    pub(crate) effects: Vec<Effect>,
    pub(crate) kv: SequenceKv,
    pub(crate) statistics: Statistics,
    /// Biases of the tokens that occur already.
    pub(crate) penalties: PenaltyBiases,
    /// Log-probabilities of the written tokens, if wanted.
    pub(crate) logprobs: Option<Logprobs>,
}

impl Sequence {
    /// A sequence that waits. `request` has passed [`Limits::admit`].
    pub(crate) fn new(
        id: SequenceId,
        mut request: Request,
        parts: &DecoderParts,
        limits: &Limits,
    ) -> Self {
        let mut effects = Vec::with_capacity(EFFECTS);
        let is_noised = matches!(limits.attention, Attention::Canvas(_));
        let standing = |pin: &Pin| !(is_noised && pin.editable);
        let pins: Vec<Pin> = request.given.pins.iter().copied().filter(standing).collect();
        let (prompt, suffix) = (request.prompt.len(), request.given.suffix.len());
        let given = as_count(prompt.saturating_add(suffix));
        let budget = limits.budget(given, request.max_tokens, &request.decoding);
        let layout = Layout::new(prompt, suffix, budget);
        let input = Input {
            limit: request.max_tokens,
            classes: Arc::clone(&parts.classes),
            code_prompt: request.code_prompt,
            first_alone: shifted_rows::reads_the_row_before_once(limits, &request.decoding),
            phase: match limits.attention {
                Attention::Blocks(length) => layout.generation().in_block(length),
                Attention::Full
                | Attention::BlocksAfterPrompt(_)
                | Attention::Causal
                | Attention::OpenBlock(_)
                | Attention::Canvas(_) => 0,
            },
            // A lane covers all offsets that are read.
            lead: match request.extras.labels {
                Some(_) => None,
                None => limits.lead(&request.decoding),
            },
            // Without a token there is nothing to ask the grammar for.
            constraint: request.constraint.take().filter(|_| request.max_tokens > 0),
            filter: parts.filter.clone(),
            seed: request.sampling.seed,
            pins: &pins,
            ..Input::new(budget, &request.stop_tokens)
        };
        let mut decoder = Decoder::closed(&request.decoding.decoder, input);
        // A grammar is asked once the sequence starts, in a job.
        if !decoder.is_constrained() {
            decoder.open(&mut effects);
        }
        let cache = &request.decoding.cache;
        let input = CacheInput {
            attention: limits.attention,
            schedule: &request.decoding.decoder.schedule,
            prefill_chunk: limits.prefill_chunk,
        };
        let policy = (cache.info().build)(cache.settings(), &input);
        let prompt = layout.given();
        let promised = limits.worst_case_pages(prompt, request.max_tokens, &request.decoding);
        Self {
            id,
            broken: None,
            drafts: DraftState::new(limits.kind().drafted_block().is_some()),
            layout,
            logit_shift: limits.logit_shift,
            decoder: DecoderCell::new(decoder),
            effects,
            kv: SequenceKv::new(policy, layout, promised),
            statistics: Statistics::new(prompt, budget),
            penalties: PenaltyBiases::new(&request, budget),
            logprobs: request.extras.logprobs.map(|count| Logprobs::new(count, budget, &pins)),
            request,
        }
    }

    /// The input token at a place, on the canvas with `guesses` filled in; `None` is a mask.
    pub(crate) fn token(&self, place: Place, guesses: &[Proposal]) -> Option<TokenId> {
        match self.layout.token_index(place) {
            TokenIndex::Prompt(index) => self.request.prompt.get(index).copied(),
            TokenIndex::Suffix(index) => self.request.given.suffix.get(index).copied(),
            TokenIndex::Generation(offset) => self.decoder.canvas().get(offset).or_else(|| {
                let guess = guesses.iter().find(|guess| guess.offset == offset)?;
                Some(guess.candidate.token)
            }),
        }
    }

    /// The given token that stands at an offset of a canvas of noise in its first step.
    pub(crate) fn seed_at(&self, offset: Offset) -> Option<TokenId> {
        let pins = &self.request.given.pins;
        let found = pins.binary_search_by_key(&offset, |pin| pin.offset);
        found.ok().map(|index| pins[index].token)
    }

    /// Prepares the first forward: room for the page table, cached pages of the prompt.
    pub(crate) fn start(&mut self, pages: &mut PagePool, report: &mut StepReport) {
        self.kv.tables.reserve(self.kv.promised);
        if let Some(grid) = pages.shared_prefixes() {
            let cost = &mut self.statistics.cost;
            cost.cached_tokens = self.kv.recall(&self.request.prompt, grid, pages);
            report.prompts.tokens += u64::from(cost.prompt_tokens);
            report.prompts.cached += u64::from(cost.cached_tokens);
        }
    }

    /// Books the births of the first lanes.
    pub(crate) fn opened(&mut self, report: &mut StepReport) {
        let tree = self.decoder.tree();
        self.statistics.count_lanes(&self.effects, tree, report);
    }

    /// The work of this step as a job, which takes the decoder along; `forward`: what the model
    /// returned, `None` before the first forward.
    pub(crate) fn lend(&mut self, forward: Option<ForwardOutput>) -> GrammarJob {
        let mut effects = std::mem::take(&mut self.effects);
        effects.clear();
        GrammarJob {
            id: self.id,
            client: self.request.sender.client,
            decoder: self.decoder.lend(),
            effects,
            forward,
            panicked: false,
        }
    }

    /// Entries of [`step::BatchOutput::tops`] per candidate.
    pub(crate) fn tops_per_candidate(&self) -> usize {
        match &self.request.extras.labels {
            Some(labels) => labels.tokens.len(),
            None => self.logprobs.as_ref().map_or(0, Logprobs::count),
        }
    }

    /// The kind of the next forward.
    pub(crate) fn kind(&self) -> ForwardKind {
        self.kv.policy.kind(&self.view())
    }

    /// The next forward, into `plan`.
    pub(crate) fn plan(&self, plan: &mut ForwardPlan) {
        let view = self.view();
        self.kv.policy.plan(&view, plan);
        if view.shifted {
            self.add_shifted_rows(plan);
        }
        debug_assert_eq!(plan.kind, self.kind(), "a forward is of the kind announced");
    }

    fn view(&self) -> View<'_> {
        View {
            layout: self.layout,
            decoder: &self.decoder,
            first: self.statistics.cost.forwards() == 0,
            since_refresh: self.kv.since_refresh,
            lane_started: self.kv.lane_started,
            written: self.kv.written,
            fresh: self.kv.fresh,
            sealed: self.kv.sealed,
            shifted: self.logit_shift == LogitShift::One,
        }
    }

    /// Follows a forward that is in the batch.
    pub(crate) fn observe_forward(&mut self, plan: &ForwardPlan, report: &mut StepReport) {
        let rows = u64::from(as_count(plan.rows.len()));
        match plan.is_chunk {
            true => self.statistics.count_chunk(rows, report),
            false if self.drafts.in_layers && plan.is_open() => {
                self.statistics.count_drafting(rows)
            }
            false => self.statistics.count_forward(plan.kind, rows, report),
        }
        self.kv.observe_forward(plan);
    }

    /// Takes the decoder's step.
    pub(crate) fn decide(&mut self, proposals: &[Proposal]) {
        self.effects.clear();
        self.decoder.own().apply(proposals, &mut self.effects);
    }

    /// Books the effects of the decoder's step, to which a forward of `kind` had returned `output`.
    pub(crate) fn book(
        &mut self,
        kind: ForwardKind,
        output: ModelOutput<'_>,
        now: Duration,
        report: &mut StepReport,
    ) {
        let proposals = output.proposals;
        self.statistics.note_scored(proposals, now);
        let (effects, tree) = (&self.effects, self.decoder.tree());
        self.statistics.count_effects(effects, tree, now, report);
        if self.decoder.checked() > 0 && !self.drafts.in_layers {
            self.statistics.count_check(effects);
        }
        self.penalties.observe(effects);
        let end = Offset::new(self.decoder.canvas().budget());
        self.kv.observe_effects(effects, end);
        self.kv.observe_output(kind, &self.decoder, proposals);
        if let Some(logprobs) = &mut self.logprobs {
            logprobs.observe(effects, output);
        }
        self.settle_drafts(report);
    }

    /// Performs the last step's effects on the page tables, and leaves sealed pages to others.
    pub(crate) fn settle_pages(&mut self, pages: &mut PagePool) {
        self.kv.tables.observe(&self.effects, &self.decoder, pages);
        self.leave_pages(pages);
    }

    /// Leaves sealed pages to others.
    pub(crate) fn leave_pages(&mut self, pages: &mut PagePool) {
        if let Some(grid) = pages.shared_prefixes() {
            self.remember(grid, pages);
        }
    }

    /// The end of this sequence, if it has come.
    pub(crate) fn finished(&self) -> Option<End> {
        if self.decoder.is_lent() {
            return None;
        }
        if let Some(broken) = self.broken {
            return Some(End::Failed(broken.to_owned()));
        }
        match self.decoder.failure() {
            Some(Failure::Grammar(error)) => return Some(End::Refused(error.to_string())),
            Some(failure @ Failure::Candidate) => return Some(End::Failed(failure.to_string())),
            None => {}
        }
        let stats = self.statistics.cost;
        let limit = self.request.decoding.max_forwards;
        let is_read = self.request.extras.labels.is_some() && stats.forwards() > 0;
        let is_exhausted = is_read || limit.is_some_and(|most| stats.forwards() >= most);
        if !self.decoder.is_done() && !is_exhausted {
            return None;
        }
        let canvas = self.decoder.canvas();
        let is_complete = self.decoder.done() == Some(DoneReason::Complete);
        let stop_token = canvas.get(canvas.emitted()).filter(|token| canvas.is_stop(*token));
        let reason = match is_complete || stop_token.is_some() {
            true => FinishReason::Stop,
            false => FinishReason::Length,
        };
        Some(End::Finished(Finished { reason, stop_token, stats }))
    }

    /// The facts of this sequence for the report.
    pub(crate) fn summary(&self, finished: Finished) -> FinishedSequence {
        let canvas = self.decoder.canvas();
        let emitted = Offset::ZERO.to(canvas.emitted()).iter();
        let accepted = emitted.filter(|offset| canvas.is_draft(*offset)).count();
        let Finished { reason, stats, .. } = finished;
        FinishedSequence { reason, stats, accepted_drafts: as_count(accepted) }
    }
}
