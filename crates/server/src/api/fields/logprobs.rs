//! Fields of vLLM that name the tokens of log-probabilities.

use schemars::JsonSchema;
use serde::Deserialize;

use super::numbers::TokenNumber;
use super::prompt::token_ids;
use super::shared::{Draft, Tops};
use super::types::List;
use crate::backend::Backend;
use crate::error::{ApiError, ErrorCode};
use crate::pipeline::generation::LogprobFields;

const FIELD: &str = "logprob_token_ids";
/// Most tokens that a request lists, as in vLLM.
const MOST_LISTED: usize = 128;

/// The fields, for endpoints whose answers have log-probabilities.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct ListedTokens {
    /// Log-probabilities of these 1 to 128 tokens at each position in place of the most probable ones;
    /// needs `logprobs`.
    logprob_token_ids: Option<List<TokenNumber>>,
    /// Names the tokens of `logprobs` by their ids, as `token_id:42`.
    return_tokens_as_token_ids: Option<bool>,
}

impl ListedTokens {
    /// Sets the log-probabilities of a draft that has `tops` of them, or none.
    ///
    /// # Errors
    /// Tokens without `logprobs`, too many, or outside of the vocabulary.
    pub fn list(
        self,
        tops: Option<Tops>,
        draft: &mut Draft,
        backend: &Backend,
    ) -> Result<(), ApiError> {
        let invalid = |rest: &str| Err(ApiError::field(ErrorCode::InvalidValue, FIELD, rest));
        let by_id = self.return_tokens_as_token_ids.unwrap_or(false);
        let logprobs = tops.map(Tops::byte).map(LogprobFields::of_most_probable);
        let mut logprobs = logprobs.map(|fields| LogprobFields { by_id, ..fields });
        if let Some(List(numbers)) = self.logprob_token_ids {
            let mut tokens = token_ids(&numbers, backend.engine.limits().vocab_size, FIELD)?;
            tokens.sort_unstable();
            tokens.dedup();
            let Some(fields) = &mut logprobs else {
                return invalid("needs logprobs");
            };
            if !(1..=MOST_LISTED).contains(&tokens.len()) {
                return invalid("must list 1 to 128 tokens");
            }
            fields.count = tokens.len() as u8;
            fields.listed = Some(tokens.into());
        }
        draft.generation.logprobs = logprobs;
        Ok(())
    }
}
