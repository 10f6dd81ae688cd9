//! What a single request may ask of this engine.

use crate::decoding::{CacheConfig, Decoding};
use crate::request::{Refusal, Request};

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

    /// Most pages that a sequence can ever hold, reserved at admission so that a running
    /// sequence never waits for a page (waiting would make its result depend on its neighbours).
    ///
    /// Under fork snapshots a slot of the generation lives in at most two versions, the lane's
    /// own and the one its successors read, and every lane may own one more page at its border.
    pub fn worst_case_pages(&self, prompt: u32, budget: u32, decoding: &Decoding) -> u32 {
        let all = (prompt + budget).div_ceil(self.page_size);
        match (&decoding.cache, decoding.decoder.max_lanes()) {
            (CacheConfig::Snapshot(_), lanes) => {
                // Every refine lane owns at least one offset.
                all + budget.div_ceil(self.page_size) + 2 * lanes.min(budget) + 2
            }
            _ => all,
        }
    }
}
