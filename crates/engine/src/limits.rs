//! What a single request may ask of this engine.

use decode::{CommitConfig, ScheduleConfig};
use step::{Attention, Readout};

use crate::decoding::{CacheConfig, Decoding, Need, cache_goes_with, default_preset};
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
    /// Most sequences in the batch.
    pub max_running: u32,
    /// Most sequences that wait for a place in the batch.
    pub max_waiting: u32,
    /// Block length of the network of `learned_filter`, if there is one.
    pub filter: Option<u32>,
    /// The weights were trained to rewrite committed tokens.
    pub edits: bool,
    /// What rows may see.
    pub attention: Attention,
    /// Where predictions are read.
    pub readout: Readout,
}

impl Limits {
    /// Whether `request` can ever be served.
    ///
    /// # Errors
    /// The first reason why not.
    pub fn admit(&self, request: &Request) -> Result<(), Refusal> {
        let prompt = request.prompt.len() + request.suffix.len();
        let prompt = u32::try_from(prompt).unwrap_or(u32::MAX);
        let tokens = prompt.saturating_add(request.max_tokens);
        if tokens > self.max_model_len {
            return Err(Refusal::TooLong {
                tokens,
                limit: self.max_model_len,
            });
        }
        let pages = self.worst_case_pages(prompt, request.max_tokens, &request.decoding);
        if pages > self.pages {
            return Err(Refusal::TooManyPages {
                pages,
                limit: self.pages,
            });
        }
        self.admit_decoder(&request.decoding)?;
        self.admit_fields(request)?;
        self.admit_wishes(request)?;
        let read = request.prompt.iter().chain(&request.suffix);
        let ids = read.chain(&request.stop_tokens);
        let biased = request.biases.iter().map(|bias| &bias.token);
        match ids.chain(biased).find(|id| **id >= self.vocab_size) {
            Some(&token) => Err(Refusal::UnknownToken {
                token,
                vocab_size: self.vocab_size,
            }),
            None => Ok(()),
        }
    }

    /// Whether the model brings what a commit rule needs.
    pub fn has(&self, need: Need) -> bool {
        match need {
            Need::Filter => self.filter.is_some(),
            Need::Edits => self.edits,
        }
    }

    /// How pages depend on tokens; none under full attention, where they depend on all.
    pub(crate) fn grid(&self) -> Option<Grid> {
        let block = match self.attention {
            Attention::Full => return None,
            Attention::Blocks(length) => length,
            Attention::Causal => 1,
        };
        let page_size = self.page_size;
        Some(Grid { page_size, block })
    }

    /// Whether a decoder goes with the weights.
    ///
    /// # Errors
    /// The first reason why not, a [`Refusal::Rule`].
    pub fn admit_decoder(&self, decoding: &Decoding) -> Result<(), Refusal> {
        let refuse = |field, message: String| Err(Refusal::Rule { field, message });
        let lacks = |name: &str, need: Need| refuse("commit", format!("{name} {}", need.refusal()));
        let name = decoding.cache.name();
        let weights = self.weights();
        if !cache_goes_with(name, self.attention) {
            let instead = default_preset(self.attention);
            let message =
                format!("{name} does not go with this model's {weights}: use preset {instead}");
            return refuse("cache", message);
        }
        let rule = &decoding.decoder.commit;
        let goes = match rule {
            CommitConfig::DraftVerify { .. } | CommitConfig::EarlyCommit { .. } => {
                self.attention == Attention::Full
            }
            CommitConfig::Edit { .. } => self.attention != Attention::Causal,
            _ => true,
        };
        if !goes {
            return refuse("commit", format!("does not go with this model's {weights}"));
        }
        match (rule, &decoding.decoder.schedule) {
            (CommitConfig::Edit { .. }, _) if !self.edits && !decoding.force => {
                lacks("edit", Need::Edits)
            }
            (CommitConfig::LearnedFilter { .. }, schedule) => match (self.filter, schedule) {
                (None, _) => lacks("learned_filter", Need::Filter),
                (Some(size), ScheduleConfig::BlockWise { block_length })
                    if *block_length != size =>
                {
                    let message = format!(
                        "must be {size}, the block length of the model's filter, got {block_length}"
                    );
                    refuse("block_length", message)
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// What rows may see, in words.
    fn weights(&self) -> &'static str {
        match self.attention {
            Attention::Full => "full attention",
            Attention::Blocks(_) => "block-causal attention",
            Attention::Causal => "causal attention",
        }
    }

    /// Whether what the request asks for goes with the weights.
    fn admit_fields(&self, request: &Request) -> Result<(), Refusal> {
        let refuse = |field, message: String| Err(Refusal::Field { field, message });
        let needed = u32::from(self.readout == Readout::Previous);
        if (request.prompt.len() as u32) < needed {
            return refuse("prompt", "must have at least one token".to_owned());
        }
        if self.attention != Attention::Full && !request.suffix.is_empty() {
            let weights = self.weights();
            let message = format!("needs a model with full attention, this one has {weights}");
            return refuse("suffix", message);
        }
        Ok(())
    }

    /// Whether what the request asks for goes with its commit rule.
    fn admit_wishes(&self, request: &Request) -> Result<(), Refusal> {
        let (name, wish) = match (&request.decoding.decoder.commit, Wish::of(request)) {
            (CommitConfig::Edit { .. }, Some(wish @ (Wish::Grammar | Wish::Penalties))) => {
                ("edit", wish)
            }
            (CommitConfig::DraftVerify { .. }, Some(wish)) => ("draft_verify", wish),
            _ => return Ok(()),
        };
        Err(Refusal::Rule {
            field: "commit",
            message: format!("{name} does not go with {}", wish.words()),
        })
    }

    /// Most pages that a sequence can ever hold, reserved at admission so that a running
    /// sequence never waits for a page (waiting would make its result depend on its neighbours).
    ///
    /// Under fork snapshots a slot of the generation lives in at most two versions, the lane's
    /// own and the one its successors read, and every lane may own one more page at its border. A
    /// guessed canvas has a version of everything that its rows write.
    pub fn worst_case_pages(&self, prompt: u32, budget: u32, decoding: &Decoding) -> u32 {
        let all = (prompt + budget).div_ceil(self.page_size);
        match (&decoding.cache, decoding.decoder.max_lanes()) {
            (CacheConfig::Snapshot(_), lanes) => {
                // Every refine lane owns at least one offset, and reads the row before it.
                let readers = u32::from(self.readout == Readout::Previous);
                let borders = 2 + readers;
                all + budget.div_ceil(self.page_size) + borders * (lanes.min(budget) + 1)
            }
            (cache, _) => all + self.branch_pages(all, budget, decoding, cache),
        }
    }

    /// Pages of the guessed canvases of a forward.
    fn branch_pages(&self, all: u32, budget: u32, of: &Decoding, cache: &CacheConfig) -> u32 {
        let CommitConfig::DraftVerify { draft_steps, .. } = of.decoder.commit else {
            return 0;
        };
        let written = match (cache, &of.decoder.schedule) {
            (CacheConfig::None, _) => return (draft_steps - 1) * all,
            (CacheConfig::Dual, ScheduleConfig::BlockWise { block_length }) => {
                budget.min(*block_length)
            }
            _ => budget,
        };
        let written = written + u32::from(self.readout == Readout::Previous);
        (draft_steps - 1) * (written.div_ceil(self.page_size) + 1)
    }
}

/// What of a request not every commit rule goes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Grammar,
    Penalties,
    Noise,
    Logprobs,
}

impl Wish {
    fn of(request: &Request) -> Option<Self> {
        let wishes = [
            (Self::Grammar, request.constraint.is_some()),
            (Self::Penalties, request.penalties != Penalties::default()),
            (Self::Noise, request.sampling.temperature > 0.0),
            (Self::Logprobs, request.logprobs.is_some()),
        ];
        let wish = wishes.into_iter().find(|(_, wanted)| *wanted);
        wish.map(|(wish, _)| wish)
    }

    fn words(self) -> &'static str {
        match self {
            Self::Grammar => "a grammar",
            Self::Penalties => "penalties",
            Self::Noise => "a temperature above 0",
            Self::Logprobs => "log-probabilities",
        }
    }
}
