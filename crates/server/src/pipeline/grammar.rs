//! Compiles grammars of structured requests over the model's tokens.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use decode::Constraint;
use text::{Follow, GrammarSpec, Grammars, TextError, Tool, ToolGrammar};

use crate::backend::Backend;
use crate::error::{ApiError, ErrorCode, clip, clip_words};
use crate::pipeline::generation::Structured;

/// Time after which no further tool is searched for a fault.
const SEARCH_TIME: Duration = Duration::from_secs(1);

/// Data that all grammars of the model share, built for the first one; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct GrammarCache(Arc<OnceLock<Result<Grammars, TextError>>>);

impl GrammarCache {
    /// The grammar that `structured` describes, at its start, and the parts of its tools' schemas that
    /// calls do not follow. A tool that need not be followed wholly and whose grammar is refused may be
    /// called with any arguments. Slow: call it off the async threads.
    ///
    /// # Errors
    /// `invalid_value`, naming the field that gave it; `unsupported_parameter` if the model's
    /// tokens allow no grammar at all.
    pub fn compile(
        &self,
        backend: &Backend,
        structured: &Structured,
    ) -> Result<(Box<dyn Constraint>, Vec<String>), ApiError> {
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
        let compiled = match (grammars.compile(&structured.spec), &structured.spec) {
            (Ok(constraint), spec) => Ok((constraint, left_out(spec))),
            (Err(error), GrammarSpec::Tools(tools)) => {
                let freed = freed(grammars, tools).map(GrammarSpec::Tools);
                let compiled = freed.and_then(|spec| {
                    let constraint = grammars.compile(&spec).ok()?;
                    Some((constraint, left_out(&spec)))
                });
                compiled.ok_or(error)
            }
            (Err(error), _) => Err(error),
        };
        compiled.map_err(|error| {
            let line = error.to_string();
            // Only the reason may quote the request.
            let (lead, reason) = line.split_once(": ").unwrap_or((&line, "no reason is known"));
            let rest = format!("is refused: {}: {}", clip(lead), clip_words(reason));
            let fault = faulty_field(grammars, structured);
            let param = fault.unwrap_or_else(|| field.to_owned());
            ApiError::field(ErrorCode::InvalidValue, param, rest)
        })
    }
}

/// The parts of the schemas of `spec` that calls do not follow.
fn left_out(spec: &GrammarSpec) -> Vec<String> {
    match spec {
        GrammarSpec::Tools(tools) => tools.tools.iter().flat_map(Tool::left_out).collect(),
        _ => Vec::new(),
    }
}

/// `tools`, where those that are refused alone may be called with any arguments, or, if none is, all that
/// need not be followed wholly; `None` if each must be.
fn freed(grammars: &Grammars, tools: &ToolGrammar) -> Option<ToolGrammar> {
    let may = |tool: &&Tool| tool.follow == Follow::AsFarAsPossible;
    let is_refused = |tool: &&Tool| {
        let alone = alone(tools, tool);
        grammars.compile(&GrammarSpec::Tools(alone)).is_err()
    };
    let all: Vec<&Tool> = tools.tools.iter().filter(may).collect();
    let refused: Vec<&Tool> = all.iter().copied().filter(is_refused).collect();
    let chosen = if refused.is_empty() { all } else { refused };
    let names: Vec<String> = chosen.iter().map(|tool| tool.name.clone()).collect();
    let mut freed = tools.clone();
    for tool in &mut freed.tools {
        if names.contains(&tool.name) {
            tool.follow = Follow::Not;
        }
    }
    (!names.is_empty()).then_some(freed)
}

/// The grammar of one tool of `whole`.
fn alone(whole: &ToolGrammar, tool: &Tool) -> ToolGrammar {
    ToolGrammar { tools: vec![tool.clone()], answer: None, ..whole.clone() }
}

/// The request field of the first tool whose schema alone is refused, if that is found soon.
fn faulty_field(grammars: &Grammars, structured: &Structured) -> Option<String> {
    let GrammarSpec::Tools(whole) = &structured.spec else {
        return None;
    };
    let started = Instant::now();
    let mut tools = whole.tools.iter().zip(&structured.parts);
    let faulty = tools.find(|(tool, _)| {
        let alone = alone(whole, tool);
        let is_late = started.elapsed() > SEARCH_TIME;
        !is_late && grammars.compile(&GrammarSpec::Tools(alone)).is_err()
    });
    faulty.map(|(_, field)| field.clone())
}
