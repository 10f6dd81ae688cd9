//! Weights, and the presets that suit them.

use decode::{Capability, CommitHost, CommitInfo, Fault};
use step::{Attention, LogitShift};

use super::presets::DEFAULT;
use super::resolved::Decoding;

/// The reason to refuse a rule whose guesses are checked; it continues the rule's name.
pub const NEEDS_OWN_ROWS: &str = "needs weights that predict a mask at its own row, and this model's predict it at the row before";

/// The properties of weights that decide which decoders go with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightKind {
    /// The rows that a row may attend to.
    pub attention: Attention,
    /// The row that predicts a position.
    pub logit_shift: LogitShift,
    /// True if they rewrite committed tokens (LLaDA2.1, arXiv 2602.08676).
    pub edits: bool,
    /// True if a draft model runs beside them, or, with an open block, behind their layers.
    pub drafts: bool,
    /// True if causal weights that predict the next token read masks too (I-DLM, arXiv 2604.11035).
    pub masks: bool,
}

impl WeightKind {
    /// The preset of a request that names none.
    pub fn default_preset(self) -> &'static str {
        match (self.attention, self.logit_shift) {
            (Attention::Causal, _) if self.drafts => "speculative",
            (Attention::OpenBlock(_), _) if self.drafts => "self_speculation",
            (Attention::Full, _) => DEFAULT,
            (Attention::Causal, LogitShift::None) => "wedlm_next",
            (Attention::Causal, LogitShift::One) if self.masks => "introspective",
            (Attention::Causal, LogitShift::One) => "autoregressive",
            (Attention::BlocksAfterPrompt(_), _) => "d2f",
            (Attention::Blocks(_), _) if self.edits => "editing",
            (Attention::Blocks(_) | Attention::OpenBlock(_), _) => "block_causal",
            (Attention::Canvas(_), _) => "canvas",
        }
    }

    /// The preset that replaces [`Self::default_preset`] in a request that names no decoder and asks for
    /// something that the default's commit rule excludes, such as a grammar or penalties.
    pub fn plain_preset(self) -> &'static str {
        match (self.attention, self.logit_shift) {
            (Attention::Causal, LogitShift::None) => "wedlm",
            (Attention::Causal, LogitShift::One) => "autoregressive",
            (Attention::OpenBlock(_), _) if self.drafts => "autoregressive",
            (Attention::Blocks(_), _) => "block_causal",
            _ => Self { drafts: false, ..self }.default_preset(),
        }
    }

    /// The preset under which a predicted text can be verified, if there is one.
    pub fn expecting_preset(self) -> Option<&'static str> {
        match self.attention {
            Attention::Full => Some("fast_dllm_dual"),
            Attention::Blocks(_) | Attention::BlocksAfterPrompt(_) => Some("block_causal"),
            Attention::Causal if self.logit_shift == LogitShift::None => Some("wedlm_next"),
            Attention::Causal | Attention::OpenBlock(_) => Some("autoregressive"),
            Attention::Canvas(_) => None,
        }
    }

    /// Returns true if a rule can read the predictions: guesses are checked at rows of their own masks, or,
    /// under causal attention, at the row before each.
    pub fn suits(self, rule: &CommitInfo) -> bool {
        let checks = self.logit_shift == LogitShift::None || self.attention == Attention::Causal;
        !rule.requires.checks || checks
    }

    /// Returns true if the weights can fill the schedule's window. Autoregressive weights know no masks,
    /// and those with an open block know none that see only what is before them.
    pub fn fills(self, decoding: &Decoding) -> bool {
        let window = decoding.window();
        match self.attention {
            Attention::OpenBlock(_) => {
                let checks = decoding.decoder.commit.info().requires.checks;
                let is_whole = window.is_none() && self.drafted_block().is_none();
                checks || is_whole || window == Some(1)
            }
            _ if self.is_autoregressive() => window == Some(1),
            // A mask of a window is guessed, and only checks know whether it is right.
            Attention::Causal if self.logit_shift == LogitShift::One => {
                decoding.decoder.commit.info().requires.checks || window == Some(1)
            }
            _ => true,
        }
    }

    /// Returns true if a decoder goes with the weights, beside which the network of `learned_filter` has blocks of
    /// `filter` tokens, if there is one.
    ///
    /// # Errors
    /// The first reason why not.
    pub fn admits(self, decoding: &Decoding, filter: Option<u32>) -> Result<(), Fault> {
        let refuse = |setting, message: String| Err(Fault { setting, message });
        let (kind, weights) = (self.attention.kind(), self.words());
        let (commit, cache) = (&decoding.decoder.commit, &decoding.cache);
        let schedule = &decoding.decoder.schedule;
        let requires = &commit.info().requires;
        if !requires.attention.contains(&kind) {
            let name = commit.name();
            let message = format!("{name} does not go with this model's {weights}");
            return refuse("commit", message);
        }
        if !self.suits(commit.info()) {
            let name = commit.name();
            return refuse("commit", format!("{name} {NEEDS_OWN_ROWS}"));
        }
        if !cache.info().attention.contains(&kind) {
            let (name, instead) = (cache.name(), self.default_preset());
            let message =
                format!("{name} does not go with this model's {weights}: use preset {instead}");
            return refuse("cache", message);
        }
        if !schedule.info().attention.contains(&kind) {
            let (name, instead) = (schedule.name(), self.default_preset());
            let message =
                format!("{name} does not go with this model's {weights}: use preset {instead}");
            return refuse("schedule", message);
        }
        if schedule.needs_draft_model() && !self.drafts {
            let message = format!("{} {}", schedule.name(), Capability::Drafts.refusal());
            return refuse("schedule", message);
        }
        if !self.fills(decoding) {
            let next = match self.is_autoregressive() {
                true => "this model predicts the next token only",
                false if self.drafted_block().is_some() => "this model's masks only draft",
                false => "this model reads masks in whole blocks only",
            };
            return match decoding.window() {
                Some(_) => refuse("window", format!("must be 1: {next}")),
                None => {
                    let name = schedule.name();
                    let instead = self.default_preset();
                    let message = format!("{name} does not apply, {next}: use preset {instead}");
                    refuse("schedule", message)
                }
            };
        }
        if let (Some(block), Some(window)) = (self.drafted_block(), decoding.window())
            && window > block
        {
            let message = format!("must be at most {block}, the drafter's block, got {window}");
            return refuse("window", message);
        }
        let needs = (requires.needs)(commit.settings());
        if let Some(needs) = needs.filter(|needs| !self.has(*needs, filter)) {
            return refuse("commit", format!("{} {}", commit.name(), needs.refusal()));
        }
        let host = CommitHost { filter, schedule: schedule.settings() };
        (requires.suits)(commit.settings(), &host)
    }

    /// Returns true if the model has a capability that some commit rules require; `filter` as in [`Self::admits`].
    pub fn has(self, capability: Capability, filter: Option<u32>) -> bool {
        match capability {
            Capability::Filter => filter.is_some(),
            Capability::Edits => self.edits,
            Capability::Drafts => self.drafts,
        }
    }

    /// The attention in words.
    pub fn words(self) -> &'static str {
        match self.attention {
            Attention::Full => "full attention",
            Attention::Blocks(_) | Attention::BlocksAfterPrompt(_) => "block-causal attention",
            Attention::Causal => "causal attention",
            Attention::OpenBlock(_) => "causal attention with one open block",
            Attention::Canvas(_) => "canvases of noise",
        }
    }

    /// Length of the open blocks that only draft: the weights that read them are those of a DFlash drafter.
    pub fn drafted_block(self) -> Option<u32> {
        match self.attention {
            Attention::OpenBlock(length) if self.drafts => Some(length),
            _ => None,
        }
    }

    /// Returns true if the weights predict the next token only: they were not trained on masks.
    pub fn is_autoregressive(self) -> bool {
        (self.attention, self.logit_shift) == (Attention::Causal, LogitShift::One) && !self.masks
    }
}
