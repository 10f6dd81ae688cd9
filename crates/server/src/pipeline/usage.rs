//! `usage`: tokens and forward passes of a request, summed over its sequences.

use engine::{DraftStats, SequenceStats};
use schemars::JsonSchema;
use serde::Serialize;

/// The sums of one request.
#[derive(Clone, Debug)]
pub struct UsageSum {
    prompt_tokens: u64,
    completion_tokens: u64,
    reasoning_tokens: u64,
    cached_tokens: u64,
    /// True if the request predicts its answer.
    predicts: bool,
    diffusion: DiffusionUsage,
}

/// `usage` of an answer or a chunk.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Usage {
    /// Prompt tokens; each prompt counts once.
    pub prompt_tokens: u64,
    /// Delivered tokens of all choices.
    pub completion_tokens: u64,
    /// Their sum.
    pub total_tokens: u64,
    /// Only in a final usage, if the prefix cache had K/V of the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens_details: Option<PromptDetails>,
    /// Only in a final usage, if the request has a `prediction` or the answer has reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_tokens_details: Option<CompletionDetails>,
    /// Only in a final usage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diffusion: Option<DiffusionUsage>,
}

/// `usage.prompt_tokens_details`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PromptDetails {
    /// Prompt tokens with cached K/V, summed over the sequences.
    pub cached_tokens: u64,
}

/// `usage.completion_tokens_details`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CompletionDetails {
    /// Predicted tokens that the model confirmed.
    pub accepted_prediction_tokens: u64,
    /// Predicted tokens that were verified and were not the model's.
    pub rejected_prediction_tokens: u64,
    /// Tokens up to the end of the reasoning, its marks included.
    pub reasoning_tokens: u64,
}

/// `usage.diffusion`: the cost in forward passes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct DiffusionUsage {
    /// Schedule, commit rule and cache policy.
    pub decoder: String,
    /// Steps of the longest sequence.
    pub steps: u32,
    /// The forward passes.
    #[serde(flatten)]
    pub forwards: ForwardUsage,
    /// Committed tokens, including those after the end of the text.
    pub committed_tokens: u64,
    /// Tokens committed in the lookahead beyond their lane.
    pub drafts: u64,
    /// Rewritten tokens.
    pub edits: u64,
    /// Lanes.
    pub lanes: u64,
    /// Forks.
    pub forks: u64,
    /// The draft model's part, if it drafted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draft_model: Option<DraftModelUsage>,
    /// The seed of the choices.
    pub seed: i64,
}

/// The forward passes of a request, summed over its sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ForwardUsage {
    /// NFE: all forward passes.
    pub forwards: u64,
    /// Prefill forwards.
    pub prefill_forwards: u64,
    /// Forwards over the first parts of long prompts, if there were any; not among `forwards`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill_chunks: Option<u64>,
    /// Decode forwards.
    pub decode_forwards: u64,
    /// Refresh forwards.
    pub refresh_forwards: u64,
    /// TPF: delivered tokens per forward; 0 without forwards.
    pub tokens_per_forward: f64,
    /// Computed query positions.
    pub positions: u64,
}

/// `usage.diffusion.draft_model`: the drafts of the draft model, or copied from the text. The other counts
/// do not include them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct DraftModelUsage {
    /// Its forward passes, summed over the sequences.
    pub forwards: u64,
    /// Query positions that they computed.
    pub positions: u64,
    /// Tokens that it proposed, or that were copied from the text (`prompt_lookup`).
    pub drafted_tokens: u64,
    /// Tokens among them that the model confirmed.
    pub accepted_tokens: u64,
}

impl DraftModelUsage {
    fn add(&mut self, stats: DraftStats) {
        self.forwards += u64::from(stats.forwards);
        self.positions += stats.positions;
        self.drafted_tokens += u64::from(stats.drafted);
        self.accepted_tokens += u64::from(stats.verified);
    }
}

impl UsageSum {
    /// Nothing generated yet.
    pub fn new(decoder: String, seed: i64, prompt_tokens: u64) -> Self {
        Self {
            prompt_tokens,
            completion_tokens: 0,
            reasoning_tokens: 0,
            cached_tokens: 0,
            predicts: false,
            diffusion: DiffusionUsage { decoder, seed, ..DiffusionUsage::default() },
        }
    }

    /// Tells accepted and rejected tokens if the request predicts its answer.
    #[must_use]
    pub fn predicting(self, predicts: bool) -> Self {
        Self { predicts, ..self }
    }

    /// Adds delivered tokens.
    pub fn add_tokens(&mut self, tokens: usize) {
        self.completion_tokens += tokens as u64;
    }

    /// Adds tokens of the reasoning, which are among the delivered ones.
    pub fn add_reasoning(&mut self, tokens: usize) {
        self.reasoning_tokens += tokens as u64;
    }

    /// Sets the number of delivered tokens.
    pub fn replace_tokens(&mut self, tokens: usize) {
        self.completion_tokens = tokens as u64;
    }

    /// Adds the cached tokens of a finished sequence, the first of a prompt. The others may have read what it
    /// computed.
    pub fn add_cached(&mut self, stats: &SequenceStats) {
        self.cached_tokens += u64::from(stats.cached_tokens);
    }

    /// Adds the cost of a finished sequence.
    pub fn add_sequence(&mut self, stats: &SequenceStats) {
        let total = &mut self.diffusion;
        total.steps = total.steps.max(stats.forwards());
        let forwards = &mut total.forwards;
        forwards.forwards += u64::from(stats.forwards());
        forwards.prefill_forwards += u64::from(stats.passes.prefill);
        if stats.chunks > 0 {
            *forwards.prefill_chunks.get_or_insert_default() += u64::from(stats.chunks);
        }
        forwards.decode_forwards += u64::from(stats.passes.decode);
        forwards.refresh_forwards += u64::from(stats.passes.refresh);
        forwards.positions += stats.positions;
        total.committed_tokens += u64::from(stats.commits.total());
        total.drafts += u64::from(stats.commits.drafts);
        total.edits += u64::from(stats.commits.edits);
        total.lanes += u64::from(stats.lanes);
        total.forks += u64::from(stats.forks);
        if stats.draft_model != DraftStats::default() {
            let draft_model = total.draft_model.get_or_insert_default();
            draft_model.add(stats.draft_model);
        }
    }

    /// The totals up to now, without the cost.
    pub fn running(&self) -> Usage {
        Usage {
            prompt_tokens: self.prompt_tokens,
            completion_tokens: self.completion_tokens,
            total_tokens: self.prompt_tokens + self.completion_tokens,
            prompt_tokens_details: None,
            completion_tokens_details: None,
            diffusion: None,
        }
    }

    /// The totals with the cost.
    pub fn last(&self) -> Usage {
        let mut diffusion = self.diffusion.clone();
        let forwards = diffusion.forwards.forwards.max(1);
        diffusion.forwards.tokens_per_forward = self.completion_tokens as f64 / forwards as f64;
        let cached_tokens = self.cached_tokens;
        let drafts = diffusion.draft_model.unwrap_or_default();
        let details = CompletionDetails {
            accepted_prediction_tokens: drafts.accepted_tokens,
            rejected_prediction_tokens: drafts.drafted_tokens - drafts.accepted_tokens,
            reasoning_tokens: self.reasoning_tokens,
        };
        let has_details = self.predicts || self.reasoning_tokens > 0;
        Usage {
            completion_tokens_details: has_details.then_some(details),
            prompt_tokens_details: (cached_tokens > 0).then_some(PromptDetails { cached_tokens }),
            diffusion: Some(diffusion),
            ..self.running()
        }
    }
}
