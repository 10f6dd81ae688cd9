//! Structured output: compiles a specification into a constraint on tokens.

mod cache;
mod closed;
mod constraint;
mod formats;
mod gemma;
mod lark;
mod limits;
mod names;
mod normal;
mod rules;
mod schema;
mod source;
mod table;
mod tags;
mod tools;
mod unused;
mod work;

use std::sync::Arc;

use llguidance::api::{GrammarInit, TopLevelGrammar};
use llguidance::toktrie::InferenceCapabilities;
use llguidance::toktrie::TokEnv;
use llguidance::{Matcher, ParserFactory, TokenParser};
use serde_json::Value;

use crate::{TextError, TokenId, Tokenizer};
use cache::Cache;
use constraint::GrammarConstraint;
use limits::{STACK_BYTES, check, parser_limits};
use table::TokenTable;
pub use tools::{Follow, Tool, ToolGrammar, ToolUse};

/// The specification of a structured output.
#[derive(Clone, Debug, PartialEq)]
pub enum GrammarSpec {
    /// Any JSON object.
    JsonObject,
    /// JSON that conforms to this schema, at most 1 MiB. `$ref` must point into the schema
    /// itself. A keyword that cannot be followed is an error with its path, and so is a whole number
    /// beyond 2^53 in `const`, `enum` or a bound that no double holds. Unknown keywords and formats are
    /// annotations.
    JsonSchema(Value),
    /// [`Self::JsonSchema`], where objects that name their members have no others, unless the
    /// schema says so or joins them with other schemas.
    ClosedJsonSchema(Value),
    /// A text that this regex matches completely; syntax of the crate `regex`, at most 64 KiB.
    /// `^` at the start and `$` at the end have no effect.
    Regex(String),
    /// A text of this grammar in llguidance's dialect of Lark, at most 64 KiB.
    Lark(String),
    /// One of these texts, at most 64 KiB in total.
    Choice(Vec<String>),
    /// Free text, calls of functions, or both.
    Tools(ToolGrammar),
}

/// A refused specification: one line of at most 300 characters for the client that sent it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GrammarError(pub(crate) String);

/// Compiles specifications for one tokenizer. The token table is built once and shared by all
/// clones and constraints.
///
/// JSON is generated on one line: at most one blank after each `:` and `,` and no other white
/// space, so that a model cannot emit white space without end. The members of an object follow
/// the order of `properties`; additional members come after them. The model may choose any
/// tokenization of a valid text. Special tokens and tokens that end a text are never allowed.
#[derive(Clone)]
pub struct Grammars {
    factory: Arc<ParserFactory>,
    table: Arc<TokenTable>,
    cache: Arc<Cache>,
}

impl std::fmt::Debug for Grammars {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grammars")
            .field("vocab_size", &self.table.vocab_size())
            .finish_non_exhaustive()
    }
}

impl Grammars {
    /// Prepares the vocabulary of `tokenizer` for a model with `vocab_size` logits. Ids that
    /// exist only in the tokenizer or only in the model are never allowed.
    ///
    /// A grammar is defined on bytes, so every token must stand for the same bytes at every
    /// place of a text. Byte-level vocabularies satisfy this, and metaspace vocabularies with or
    /// without byte-fallback tokens. If the decoder changes the start of a text (it strips a
    /// blank), a token that it would change is not allowed as the first one.
    ///
    /// # Errors
    /// If the bytes of a token depend on its neighbours (WordPiece, stages after byte-fallback,
    /// blanks stripped at the end, no decoder), or the vocabulary has 2^24 ids or 4 MB or more.
    pub fn new(tokenizer: Arc<Tokenizer>, vocab_size: u32) -> Result<Self, TextError> {
        Self::with_special_tokens(tokenizer, vocab_size, &[])
    }

    /// [`Self::new`], where the special tokens `shown` stand for their texts: marks of calls.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_special_tokens(
        tokenizer: Arc<Tokenizer>,
        vocab_size: u32,
        shown: &[TokenId],
    ) -> Result<Self, TextError> {
        let table = Arc::new(TokenTable::new(tokenizer, vocab_size, shown)?);
        let env: TokEnv = Arc::new(table::Env(Arc::clone(&table)));
        let slices = llguidance::earley::SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices)
            .map_err(|error| TextError::malformed("tokenizer.json", error))?;
        factory.quiet();
        *factory.limits_mut() = parser_limits();
        Ok(Self { factory: Arc::new(factory), table, cache: Arc::default() })
    }

    /// Compiles `spec` into a constraint that starts at the first token of a text. The last
    /// specifications, refused ones included, are kept by their content and not compiled again.
    ///
    /// Takes milliseconds, or seconds for the largest specifications. Work and memory are bounded
    /// before they are spent.
    ///
    /// # Errors
    /// If the specification is malformed, too large, nested too deeply, too expensive, uses
    /// unsupported keywords, or cannot be satisfied.
    pub fn compile(&self, spec: &GrammarSpec) -> Result<Box<dyn decode::Constraint>, GrammarError> {
        limits::check_size(spec)?;
        let key = cache::key(spec);
        let start = match self.cache.get(&key) {
            Some(known) => known,
            None => {
                let compiled = self.compile_anew(spec);
                let kept = match &compiled {
                    Ok((start, _)) => Ok(start.duplicate()),
                    Err(error) => Err(error.clone()),
                };
                let size = compiled.as_ref().map_or(0, |(_, size)| *size);
                self.cache.put(key, kept, size);
                compiled.map(|(start, _)| start)
            }
        };
        Ok(Box::new(start?))
    }

    /// The start state of `spec` and an estimate of its bytes.
    fn compile_anew(&self, spec: &GrammarSpec) -> Result<(GrammarConstraint, usize), GrammarError> {
        let failed = |reason: &dyn std::fmt::Display| spec.error(&one_line(reason));
        let compiled = std::thread::scope(|scope| {
            // The compiler recurses; specifications within the limits fit this stack.
            let worker = std::thread::Builder::new()
                .name("grammar".to_owned())
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, || {
                    check(spec)?;
                    parser(&self.factory, source::grammar(spec)?)
                        .map_err(|error| spec.error(&error))
                });
            let worker = worker.map_err(|error| failed(&error))?;
            let parser = worker.join();
            parser.unwrap_or_else(|_| Err(failed(&"the grammar compiler failed")))
        });
        let (parser, size) = compiled?;
        let mut start = GrammarConstraint::new(
            Matcher::new(Ok(parser)),
            Arc::clone(&self.table),
            names::Names::new(spec),
        );
        start.check_start().map_err(|error| failed(&error.0))?;
        Ok((start, size))
    }
}

/// Compiles `source`, whose dialect is checked before; between the two stages of the compiler, checks the work of one transition of
/// its lexer. Also returns an estimate of the bytes of the result.
fn parser(
    factory: &ParserFactory,
    source: TopLevelGrammar,
) -> Result<(TokenParser, usize), String> {
    let sources = source.grammars.iter();
    sources.filter_map(|grammar| grammar.lark_grammar.as_deref()).try_for_each(lark::check)?;
    let limits = factory.limits().clone();
    let (grammar, lexer) = GrammarInit::Serialized(source)
        .to_internal(Some(factory.tok_env().clone()), limits)
        .map_err(|error| one_line(&error))?;
    let expressions = lexer.regex_builder.exprset();
    let (work, _) = work::transition(expressions);
    work::check(work)?;
    let size = expressions.num_bytes() + 256 * grammar.num_symbols();
    let parser = factory
        .create_parser_from_init_default(GrammarInit::Internal(grammar, lexer))
        .map_err(|error| one_line(&error))?;
    Ok((parser, size))
}

/// The relevant line of `error`: the `error: ` line of a regex parser, otherwise the first line.
fn one_line(error: &dyn std::fmt::Display) -> String {
    let text = error.to_string();
    let regex_error = text.lines().find_map(|line| line.strip_prefix("error: "));
    let first = text.lines().find(|line| !line.trim().is_empty());
    let line = regex_error.or(first).unwrap_or("unknown reason");
    if line.starts_with("panic: ") {
        return "the grammar compiler failed".to_owned();
    }
    // The library's hint names an option that no request has.
    if line.starts_with("oneOf constraints") {
        let rest = "whose branches can both match is not supported; use anyOf";
        return format!("oneOf {rest}");
    }
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}
