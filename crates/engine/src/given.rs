//! Checks of the given tokens and the labels of a request.

use decode::{Offset, TokenId, as_index};
use step::Attention;

use crate::limits::Limits;
use crate::request::{Labels, Refusal, Request};

/// Most tokens of [`Labels`] and of [`crate::Extras::listed`].
const MAX_LABELS: usize = 255;

impl Limits {
    /// Returns true if pins and labels go with each other and with the weights.
    ///
    /// # Errors
    /// The first reason why not, a [`Refusal::Field`].
    pub(crate) fn admit_given(&self, request: &Request) -> Result<(), Refusal> {
        let refuse = |field, message: &str| {
            let message = message.to_owned();
            Err(Refusal::Field { field, message })
        };
        if let Some((field, message)) = self.fault_of_named(request) {
            return refuse(field, message);
        }
        let pins = &request.given.pins;
        let is_causal = matches!(self.attention, Attention::Causal | Attention::OpenBlock(_));
        if !pins.is_empty() && is_causal {
            return refuse("canvas", "needs weights that see both sides, this model's are causal");
        }
        let inside = |offset: Offset| offset.get() < request.max_tokens;
        let ascends = pins.windows(2).all(|two| two[0].offset < two[1].offset);
        if !ascends || !pins.iter().all(|pin| inside(pin.offset)) {
            return refuse("canvas", "must have ascending offsets within the budget");
        }
        let generates = request.extras.labels.is_none();
        let is_written = generates && !pins.is_empty();
        if is_written && !matches!(self.attention, Attention::Full | Attention::Canvas(_)) {
            let message =
                "needs full attention or canvases of noise, this model's attention is block-causal";
            return refuse("canvas", message);
        }
        let fixed = pins.iter().filter(|pin| !pin.editable).count();
        if is_written && fixed == as_index(request.max_tokens) {
            return refuse("canvas", "must have an open position");
        }
        if pins.iter().any(|pin| generates && request.stop_tokens.contains(&pin.token)) {
            return refuse("canvas", "must not have a token that ends the text");
        }
        let rewrites = matches!(self.attention, Attention::Canvas(_))
            || request.decoding.decoder.commit.info().name == "edit";
        if pins.iter().any(|pin| pin.editable) && !rewrites {
            return refuse(
                "canvas",
                "has tokens that may be rewritten: that needs the commit rule edit",
            );
        }
        let Some(Labels { offsets, tokens }) = &request.extras.labels else {
            return Ok(());
        };
        let ascends = offsets.windows(2).all(|two| two[0] < two[1]);
        let is_pinned =
            |offset: &Offset| pins.binary_search_by_key(offset, |pin| pin.offset).is_ok();
        let are_open = offsets.iter().all(|offset| inside(*offset) && !is_pinned(offset));
        if offsets.is_empty() || !ascends || !are_open {
            return refuse("labels", "must be at ascending, open offsets within the budget");
        }
        let readable = self.kind().readable().unwrap_or(1);
        if request.max_tokens > readable {
            let message = format!("can be read at {readable} offsets, got {}", request.max_tokens);
            return refuse("labels", &message);
        }
        match (1..=MAX_LABELS).contains(&tokens.len()) && self.are_possible(tokens) {
            true => Ok(()),
            false => refuse("labels", "must be 1 to 255 tokens of the vocabulary"),
        }
    }

    /// The fault of the tokens that a request lists, or writes alone, with the field.
    fn fault_of_named(&self, request: &Request) -> Option<(&'static str, &'static str)> {
        let listed = &request.extras.listed;
        for (field, tokens) in [("listed", listed), ("only", &request.logits.only)] {
            let Some(tokens) = tokens else {
                continue;
            };
            if !(1..=MAX_LABELS).contains(&tokens.len()) || !self.are_possible(tokens) {
                return Some((field, "must be 1 to 255 tokens of the vocabulary"));
            }
            if request.constraint.is_some() {
                return Some((field, "does not go with a grammar"));
            }
        }
        let count = listed.as_ref().map(|tokens| tokens.len());
        let other = count.is_some() && count != request.extras.logprobs.map(usize::from);
        other.then_some(("listed", "must be as many tokens as logprobs says"))
    }

    fn are_possible(&self, tokens: &[TokenId]) -> bool {
        tokens.iter().all(|token| *token < self.vocab_size)
    }
}
