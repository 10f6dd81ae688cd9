//! Structured output: what a text must look like, as a constraint on its tokens.

mod constraint;
mod limits;
mod source;
mod table;

use std::sync::Arc;

use llguidance::toktrie::InferenceCapabilities;
use llguidance::toktrie::TokEnv;
use llguidance::{Matcher, ParserFactory};
use serde_json::Value;

use crate::{TextError, Tokenizer};
use constraint::GrammarConstraint;
use limits::{STACK_BYTES, check, one_line, parser_limits};
use table::TokenTable;

/// What a text must look like.
#[derive(Clone, Debug, PartialEq)]
pub enum GrammarSpec {
    /// Any JSON object.
    JsonObject,
    /// JSON that conforms to this schema, of at most 1 MiB: `$ref` only into the schema
    /// itself; a keyword that cannot be held is an error, an unknown one is not.
    JsonSchema(Value),
    /// A text that this regex (of the syntax of the crate `regex`, at most 64 KiB) matches
    /// from beginning to end; `^` at its beginning and `$` at its end add nothing.
    Regex(String),
    /// A text of this grammar, in llguidance's dialect of Lark, at most 64 KiB.
    Lark(String),
    /// One of these texts; at most 64 KiB in all.
    Choice(Vec<String>),
}

/// A specification that cannot be followed: one line of at most 300 characters for the
/// client who sent it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GrammarError(pub(crate) String);

/// Compiles specifications for one tokenizer; what it knows of the tokens is built once and
/// shared by its clones and by all constraints.
///
/// JSON comes on one line: at most one blank behind each `:` and `,`, none anywhere else,
/// so no text can run off into white space. The members of an object come in the order of
/// `properties`, other members behind them. The rest of the text is the model's choice, in
/// any tokenization; special tokens, and tokens that end a text, are never allowed.
#[derive(Clone)]
pub struct Grammars {
    factory: Arc<ParserFactory>,
    table: Arc<TokenTable>,
}

impl std::fmt::Debug for Grammars {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grammars")
            .field("vocab_size", &self.table.vocab_size())
            .finish_non_exhaustive()
    }
}

impl Grammars {
    /// Prepares the vocabulary of `tokenizer` for a model with `vocab_size` logits; ids that
    /// only one of the two has are never allowed.
    ///
    /// A grammar speaks of bytes, so every token must stand for the same bytes wherever it
    /// is. That holds for byte-level vocabularies, and for metaspace ones with or without
    /// byte-fallback tokens; where the decoder changes the beginning of a text (it strips a
    /// blank there), tokens that would be changed are not allowed as the first one.
    ///
    /// # Errors
    /// A decoder under which the bytes of a token depend on its neighbours (WordPiece, stages
    /// behind byte-fallback, blanks stripped at the end, no decoder), or a vocabulary of 2^24
    /// ids or 4 MB and more.
    pub fn new(tokenizer: Arc<Tokenizer>, vocab_size: u32) -> Result<Self, TextError> {
        let table = Arc::new(TokenTable::new(tokenizer, vocab_size)?);
        let env: TokEnv = Arc::new(table::Env(Arc::clone(&table)));
        let slices = llguidance::earley::SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices)
            .map_err(|error| TextError::malformed("tokenizer.json", error))?;
        factory.quiet();
        *factory.limits_mut() = parser_limits();
        Ok(Self {
            factory: Arc::new(factory),
            table,
        })
    }

    /// The constraint that `spec` puts on a text from its first token on.
    ///
    /// Takes milliseconds, for the largest specifications seconds; the work and the memory
    /// are bounded.
    ///
    /// # Errors
    /// Why the specification cannot be followed: malformed, too large, nested too deeply, of
    /// unsupported keywords, or impossible to fulfil.
    pub fn compile(&self, spec: &GrammarSpec) -> Result<Box<dyn decode::Constraint>, GrammarError> {
        check(spec)?;
        let (factory, source) = (Arc::clone(&self.factory), source::grammar(spec)?);
        // The compiler is recursive in places; the bounds of `check` fit this stack.
        let worker = std::thread::Builder::new()
            .name("grammar".to_owned())
            .stack_size(STACK_BYTES);
        let worker = worker.spawn(move || factory.create_parser(source));
        let failed = |reason: &dyn std::fmt::Display| spec.error(&one_line(reason));
        let parser = worker.map_err(|error| failed(&error))?.join();
        let parser = parser.map_err(|_| failed(&"the grammar compiler failed"))?;
        let parser = parser.map_err(|error| failed(&error))?;
        let mut constraint =
            GrammarConstraint::new(Matcher::new(Ok(parser)), Arc::clone(&self.table));
        constraint.check_start().map_err(|error| failed(&error.0))?;
        Ok(Box::new(constraint))
    }
}
