//! The limits of a single request.

use decode::{Fault, Feature};
use step::{Attention, LogitShift};

use crate::cache::Footprint;
use crate::decoding::{Decoding, WeightKind};
use crate::pages::Grid;
use crate::request::{Penalties, Refusal, Request};

/// Bounds that follow from the executor and the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most positions of a sequence, prompt plus budget.
    pub max_model_len: u32,
    /// Tokens with a logit.
    pub vocab_size: u32,
    /// Slots per KV page.
    pub page_size: u32,
    /// KV pages of the pool.
    pub pages: u32,
    /// Most sequences of a step.
    pub max_running: u32,
    /// Most sequences of one client that wait to start.
    pub max_waiting: u32,
    /// Block length of the network of `learned_filter`, if there is one.
    pub filter: Option<u32>,
    /// The weights were trained to rewrite committed tokens.
    pub edits: bool,
    /// A draft model runs beside the model, or behind its layers.
    pub drafts: bool,
    /// Causal weights that predict the next token read masks too.
    pub masks: bool,
    /// The rows that a row may attend to.
    pub attention: Attention,
    /// The row that predicts a position.
    pub logit_shift: LogitShift,
    /// Most rows of a forward over a part of a prompt; 0 = a prompt is not split.
    pub prefill_chunk: u32,
}

impl Limits {
    /// Returns true if `request` can ever be served.
    ///
    /// # Errors
    /// The first reason why not.
    pub fn admit(&self, request: &Request) -> Result<(), Refusal> {
        let prompt = request.prompt.len() + request.given.suffix.len();
        let prompt = u32::try_from(prompt).unwrap_or(u32::MAX);
        let tokens = prompt.saturating_add(request.max_tokens);
        if tokens > self.max_model_len {
            return Err(Refusal::TooLong { tokens, limit: self.max_model_len });
        }
        let pages = self.worst_case_pages(prompt, request.max_tokens, &request.decoding);
        if pages > self.pages {
            return Err(Refusal::TooManyPages { pages, limit: self.pages });
        }
        self.admit_decoder(&request.decoding)?;
        self.admit_fields(request)?;
        self.admit_features(request)?;
        self.admit_given(request)?;
        let pinned = request.given.pins.iter().map(|pin| &pin.token);
        let read = request
            .prompt
            .iter()
            .chain(&request.given.suffix)
            .chain(&request.given.prediction)
            .chain(pinned);
        let ids = read.chain(&request.stop_tokens);
        let biased = request.logits.biases.iter().map(|bias| &bias.token);
        match ids.chain(biased).find(|id| **id >= self.vocab_size) {
            Some(&token) => Err(Refusal::UnknownToken { token, vocab_size: self.vocab_size }),
            None => Ok(()),
        }
    }

    /// Offsets that are decoded for `max_tokens` after a prompt: whole canvases, whole blocks or the whole
    /// window behind the last token, as far as the model's positions go. So a text that ends at
    /// `max_tokens` is the beginning of every longer one. Under full attention every row sees the end of the canvas,
    /// which is the request's.
    pub fn budget(&self, prompt: u32, max_tokens: u32, decoding: &Decoding) -> u32 {
        if max_tokens == 0 {
            return 0;
        }
        let up = |total: u32, length: u32| total.div_ceil(length.max(1)).saturating_mul(length);
        let whole = match self.attention {
            Attention::Full => return max_tokens,
            Attention::Canvas(length) => up(max_tokens, length),
            Attention::BlocksAfterPrompt(length) => up(max_tokens, decoding.lane_within(length)),
            // Drafts of the last tokens come from a whole block.
            Attention::OpenBlock(_) => {
                let window = decoding.window().unwrap_or(1);
                up(max_tokens, decoding.lane_within(1)).saturating_add(window.saturating_sub(1))
            }
            Attention::Blocks(length) => {
                let total = prompt.saturating_add(max_tokens);
                let first = prompt - prompt % length.max(1);
                let lanes = up(total - first, decoding.lane_within(length));
                lanes - (prompt - first)
            }
            Attention::Causal => max_tokens.saturating_add(decoding.behind()),
        };
        let room = self.max_model_len.saturating_sub(prompt);
        whole.min(room.max(max_tokens))
    }

    /// Length of the blocks whose first token the row before the block predicts, so that it is
    /// committed before the others: [`decode::Input::lead`].
    pub fn lead(&self, decoding: &Decoding) -> Option<u32> {
        match (self.attention, self.logit_shift) {
            (Attention::Blocks(length), LogitShift::One) => Some(length),
            (Attention::OpenBlock(_), _) => {
                let settings = decoding.decoder.schedule.settings();
                settings.get("block_length").and_then(|length| length.as_count())
            }
            _ => None,
        }
    }

    /// The kind of the model's weights.
    pub fn kind(&self) -> WeightKind {
        WeightKind {
            attention: self.attention,
            logit_shift: self.logit_shift,
            edits: self.edits,
            drafts: self.drafts,
            masks: self.masks,
        }
    }

    /// The division of a sequence into pages and blocks; none where the pages of a prompt depend on all of it.
    pub(crate) fn grid(&self) -> Option<Grid> {
        let block = match self.attention {
            Attention::Full | Attention::BlocksAfterPrompt(_) => return None,
            Attention::Blocks(length) => length,
            Attention::Causal | Attention::OpenBlock(_) | Attention::Canvas(_) => 1,
        };
        let page_size = self.page_size;
        Some(Grid { page_size, block })
    }

    /// Returns true if a decoder goes with the model.
    ///
    /// # Errors
    /// The first reason why not, a [`Refusal::Rule`].
    pub fn admit_decoder(&self, decoding: &Decoding) -> Result<(), Refusal> {
        let admitted = self.kind().admits(decoding, self.filter);
        admitted.map_err(|Fault { setting, message }| Refusal::Rule { field: setting, message })
    }

    /// Returns true if what the request asks for goes with the weights.
    fn admit_fields(&self, request: &Request) -> Result<(), Refusal> {
        let refuse = |field, message: String| Err(Refusal::Field { field, message });
        let reads_before = self.logit_shift == LogitShift::One
            || matches!(self.attention, Attention::OpenBlock(_));
        if reads_before && request.prompt.is_empty() {
            return refuse("prompt", "must have at least one token".to_owned());
        }
        if self.attention != Attention::Full && !request.given.suffix.is_empty() {
            let weights = self.kind().words();
            let message = format!("needs a model with full attention, this one has {weights}");
            return refuse("suffix", message);
        }
        Ok(())
    }

    /// Returns true if the commit rule supports what the request asks for.
    fn admit_features(&self, request: &Request) -> Result<(), Refusal> {
        let decoder = &request.decoding.decoder;
        let mut features = Feature::ALL.iter();
        if decoder.expected > 0
            && !decoder.commit.info().requires.checks
            && let Some(feature) = features.find(|feature| asks(request, **feature))
        {
            let message = format!("does not go with {}", feature.words());
            return Err(Refusal::Field { field: "prediction", message });
        }
        let commit = &decoder.commit;
        let excludes = commit.info().requires.excludes.iter();
        match excludes.copied().find(|feature| asks(request, *feature)) {
            Some(feature) => Err(Refusal::Rule {
                field: "commit",
                message: format!("{} does not go with {}", commit.name(), feature.words()),
            }),
            None => Ok(()),
        }
    }

    /// Most pages that a sequence can ever hold that asks for `budget` tokens. They are reserved at admission, so that a running
    /// sequence never waits for a page: waiting would make its result depend on its neighbours.
    pub fn worst_case_pages(&self, prompt: u32, budget: u32, decoding: &Decoding) -> u32 {
        (decoding.cache.info().pages)(&Footprint {
            page_size: self.page_size,
            prompt,
            budget: self.budget(prompt, budget, decoding),
            attention: self.attention,
            logit_shift: self.logit_shift,
            schedule: &decoding.decoder.schedule,
            branches: decoding.decoder.commit.branches().max(decoding.decoder.expected),
            checked: decoding.decoder.commit.checked(),
        })
    }
}

/// Returns true if `request` uses a feature that some commit rules do not support.
fn asks(request: &Request, feature: Feature) -> bool {
    match feature {
        Feature::Grammar => request.constraint.is_some(),
        Feature::Penalties => request.logits.penalties != Penalties::default(),
        Feature::Temperature => request.sampling.temperature > 0.0,
        Feature::Logprobs => request.extras.logprobs.is_some(),
    }
}
