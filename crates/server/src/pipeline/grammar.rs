//! Compiles grammars of structured requests over the model's tokens.

use std::sync::{Arc, OnceLock};

use decode::Constraint;
use text::{Grammars, TextError};

use crate::backend::Backend;
use crate::error::{ApiError, ErrorCode, clip};
use crate::pipeline::generation::Structured;

/// Data that all grammars of the model share, built for the first one; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct GrammarCache(Arc<OnceLock<Result<Grammars, TextError>>>);

impl GrammarCache {
    /// The grammar that `structured` describes, at its start. Slow: call it off the async threads.
    ///
    /// # Errors
    /// `invalid_value`, naming the field that gave it; `unsupported_parameter` if the model's
    /// tokens allow no grammar at all.
    pub fn compile(
        &self,
        backend: &Backend,
        structured: &Structured,
    ) -> Result<Box<dyn Constraint>, ApiError> {
        let vocab_size = backend.engine.limits().vocab_size;
        let make = || Grammars::new(Arc::clone(&backend.tokenizer), vocab_size);
        let field = structured.field;
        let grammars = self.0.get_or_init(make).as_ref().map_err(|error| {
            tracing::error!(%error, "the tokenizer allows no grammars");
            let rest = "is not supported for this model: its tokens allow no grammars";
            ApiError::field(ErrorCode::UnsupportedParameter, field, rest)
        })?;
        grammars.compile(&structured.spec).map_err(|error| {
            let line = error.to_string();
            // Only the reason may quote the request.
            let (lead, reason) = line
                .split_once(": ")
                .unwrap_or((&line, "no reason is known"));
            let rest = format!("is refused: {}: {}", clip(lead), clip(reason));
            ApiError::field(ErrorCode::InvalidValue, field, rest)
        })
    }
}
