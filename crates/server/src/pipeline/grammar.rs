//! Compiles grammars of structured requests over the model's tokens.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use decode::Constraint;
use text::{GrammarSpec, Grammars, TextError, Tool, ToolGrammar};

use crate::backend::Backend;
use crate::error::{ApiError, ErrorCode, clip};
use crate::pipeline::generation::Structured;

/// Time after which no further tool is searched for a fault.
const SEARCH: Duration = Duration::from_secs(1);

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
        let make = || {
            let shown = backend.tool_format().special_tokens(&backend.tokenizer);
            Grammars::with_special_tokens(Arc::clone(&backend.tokenizer), vocab_size, &shown)
        };
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
            let part = faulty_part(grammars, structured);
            let param = part.unwrap_or_else(|| field.to_owned());
            ApiError::field(ErrorCode::InvalidValue, param, rest)
        })
    }
}

/// The request field of the first tool whose schema alone is refused, if that is found soon.
fn faulty_part(grammars: &Grammars, structured: &Structured) -> Option<String> {
    let GrammarSpec::Tools(whole) = &structured.spec else {
        return None;
    };
    let started = Instant::now();
    let mut parts = whole.tools.iter().zip(&structured.parts);
    let faulty = parts.find(|(tool, _)| {
        let alone = ToolGrammar {
            tools: vec![Tool::clone(tool)],
            answer: None,
            ..whole.clone()
        };
        let is_late = started.elapsed() > SEARCH;
        !is_late && grammars.compile(&GrammarSpec::Tools(alone)).is_err()
    });
    faulty.map(|(_, field)| field.clone())
}
