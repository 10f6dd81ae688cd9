//! Limits of a specification: sizes, depths, and compilation work.

use std::collections::HashSet;

use llguidance::api::ParserLimits;
use serde_json::Value;

use super::{Follow, GrammarError, GrammarSpec, ToolGrammar};

/// Maximum bytes of a regex, of a Lark grammar, or of all choices together.
const MAX_SOURCE_BYTES: usize = 64 * 1024;
/// Maximum bytes of a schema as compact JSON.
const MAX_SCHEMA_BYTES: usize = 1024 * 1024;
/// Maximum bytes of a name or value in a schema, except `description` and `$comment`.
const MAX_STRING_BYTES: usize = 16 * 1024;
/// Maximum nesting depth of a schema, and of brackets in a regex or Lark grammar.
const MAX_DEPTH: usize = 128;
/// Maximum number of values in a schema: objects, lists and scalars.
const SCHEMA_VALUES: usize = 20_000;
/// Maximum members of one object and items of one list of a schema, and texts of a choice.
const MAX_CHILDREN: usize = 1_000;
/// Maximum functions of an answer that calls.
const MAX_FUNCTIONS: usize = 128;
/// Maximum number of distinct references in a schema.
const MAX_REFERENCES: usize = 1_000;
/// Maximum common multiple of all `multipleOf` values of a schema, in units of their last
/// decimal; the lexer has one state per unit.
const MAX_MULTIPLE: u64 = 100_000;
/// Maximum characters of an error message.
const MESSAGE_CHARS: usize = 300;
/// Stack size of the compiler thread in bytes; the system allocates only the pages that are used.
pub(super) const STACK_BYTES: usize = 256 * 1024 * 1024;

/// Maximum number of classes by name (`\\w`, `\\pL`) in all regexes of a specification: each becomes
/// hundreds of ranges.
const MAX_CLASSES: usize = 2_000;

/// Limits on the work of the compiler and of each step, in units that the compiler counts. The
/// result of a step never depends on time.
pub(super) fn parser_limits() -> ParserLimits {
    ParserLimits {
        // Each optional member of an object adds four items, additional members a few more.
        max_items_in_row: 4 * MAX_CHILDREN + 100,
        // Expressions of all lexemes.
        initial_lexer_fuel: 1_000_000,
        // About 20 ms at most.
        step_lexer_fuel: 100_000,
        // About 10 ms at most, for the most ambiguous grammars.
        step_max_items: 5_000,
        // Each state takes about 2 kB.
        max_lexer_states: 50_000,
        // Symbols in rules; an optional member of an object takes eight.
        max_grammar_size: 50_000,
        precompute_large_lexemes: true,
        verbose_errors: false,
    }
}

impl GrammarSpec {
    /// An error about this kind of specification, cut to `MESSAGE_CHARS`.
    pub(super) fn error(&self, reason: &str) -> GrammarError {
        let what = match self {
            Self::JsonObject => "JSON objects",
            Self::JsonSchema(_) | Self::ClosedJsonSchema(_) => "the JSON schema",
            Self::Regex(_) => "the regex",
            Self::Lark(_) => "the Lark grammar",
            Self::Choice(_) => "the choice",
            Self::Tools(_) => "the tools",
        };
        let mut line = format!("{what} cannot be followed: {reason}");
        if let Some((cut, _)) = line.char_indices().nth(MESSAGE_CHARS - 3) {
            line.truncate(cut);
            line.push_str("...");
        }
        GrammarError(line)
    }
}

/// Checks that `spec` is small enough to be compared with others.
pub(super) fn check_size(spec: &GrammarSpec) -> Result<(), GrammarError> {
    let checked = match spec {
        GrammarSpec::JsonObject => Ok(()),
        GrammarSpec::JsonSchema(schema) | GrammarSpec::ClosedJsonSchema(schema) => {
            check_shape(schema).map(|_| ())
        }
        GrammarSpec::Regex(source) | GrammarSpec::Lark(source) => check_source(source),
        GrammarSpec::Choice(choices) => check_choices(choices),
        GrammarSpec::Tools(tools) => check_tools(tools),
    };
    checked.map_err(|reason| spec.error(&reason))
}

/// Checks the work of compiling `spec`, whose size was checked. Recurses as deeply as a schema.
pub(super) fn check(spec: &GrammarSpec) -> Result<(), GrammarError> {
    let checked = match spec {
        GrammarSpec::JsonObject => Ok(()),
        GrammarSpec::JsonSchema(schema) | GrammarSpec::ClosedJsonSchema(schema) => {
            check_schema(schema)
        }
        GrammarSpec::Regex(source) => check_classes(source, has_flag(source, "(?")),
        GrammarSpec::Lark(source) => {
            let insensitive = has_flag(source, "(?") || has_flag(source, "/");
            check_classes(source, insensitive).and_then(|()| check_embedded(source))
        }
        GrammarSpec::Choice(_) => Ok(()),
        GrammarSpec::Tools(tools) => schemas(tools).try_for_each(check_schema),
    };
    checked.map_err(|reason| spec.error(&reason))
}

fn check_choices(choices: &[String]) -> Result<(), String> {
    let bytes = choices.iter().map(String::len).sum();
    at_most("bytes", bytes, MAX_SOURCE_BYTES)?;
    at_most("texts", choices.len(), MAX_CHILDREN)
}

/// Checks the sizes of all schemas, each and together.
fn check_tools(tools: &ToolGrammar) -> Result<(), String> {
    at_most("functions", tools.tools.len(), MAX_FUNCTIONS)?;
    let (mut values, mut bytes) = (0, 0);
    for schema in schemas(tools) {
        let (more_values, more_bytes) = check_shape(schema)?;
        values += more_values;
        bytes += more_bytes;
        at_most("values in all schemas", values, SCHEMA_VALUES)?;
        at_most("bytes in all schemas", bytes, MAX_SCHEMA_BYTES)?;
    }
    Ok(())
}

fn schemas(tools: &ToolGrammar) -> impl Iterator<Item = &Value> {
    let followed = tools.tools.iter().filter(|tool| tool.follow != Follow::Not);
    let parameters = followed.map(|tool| &tool.parameters);
    parameters.chain(&tools.answer)
}

fn check_source(source: &str) -> Result<(), String> {
    at_most("bytes", source.len(), MAX_SOURCE_BYTES)?;
    at_most("levels of brackets", depth(source), MAX_DEPTH)
}

/// Checks the schemas after `%json`. `multipleOf` is refused there: an escape may hide its name
/// from the check of a schema, and its cost is not bounded by the source size.
fn check_embedded(source: &str) -> Result<(), String> {
    if source.contains("multipleOf") {
        return Err("multipleOf is not supported in %json".to_owned());
    }
    for (start, name) in source.match_indices("%json") {
        let text = &source[start + name.len()..];
        let mut schemas = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        if let Some(Ok(schema)) = schemas.next() {
            check_shape(&schema)?;
            check_schema(&schema)?;
        }
    }
    Ok(())
}

/// Checks the number of classes by name. Where case is ignored, the compiler looks up every
/// character of a class, so that a class, or a range beyond ASCII, counts as twenty.
fn check_classes(source: &str, insensitive: bool) -> Result<(), String> {
    let bytes = source.as_bytes();
    let named = |pair: &&[u8]| pair[0] == b'\\' && b"wWdDsSpP".contains(&pair[1]);
    let beyond = |pair: &&[u8]| {
        pair[0] == b'-' && (pair[1] >= 0x80 || pair[1] == b'\\')
            || pair[0] >= 0x80 && pair[1] == b'-'
    };
    let mut classes = bytes.windows(2).filter(named).count();
    if insensitive {
        classes = 20 * (classes + bytes.windows(2).filter(beyond).count());
    }
    at_most("classes by name", classes, MAX_CLASSES)
}

/// True if a letter `i` follows `mark` among letters: a flag of a regex.
fn has_flag(source: &str, mark: &str) -> bool {
    source.match_indices(mark).any(|(start, _)| {
        let rest = source[start + mark.len()..].chars();
        rest.take_while(|c| c.is_ascii_alphabetic() || *c == '-').any(|c| c == 'i')
    })
}

fn at_most(what: &str, found: usize, limit: usize) -> Result<(), String> {
    if found <= limit {
        return Ok(());
    }
    Err(format!("expected at most {limit} {what}, found {found}"))
}

/// Nesting depth of brackets in `source`, including brackets in quotes.
fn depth(source: &str) -> usize {
    let mut open = 0_usize;
    source.bytes().fold(0, |deepest, byte| {
        match byte {
            b'(' | b'[' | b'{' => open += 1,
            b')' | b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        deepest.max(open)
    })
}

/// Checks the size of a schema without recursion, because it may be nested to any depth. Returns its
/// values and its bytes.
fn check_shape(schema: &Value) -> Result<(usize, usize), String> {
    let mut values = 0;
    let mut references = HashSet::new();
    let mut multiples = Vec::new();
    let mut open = vec![(schema, 1)];
    while let Some((value, level)) = open.pop() {
        values += 1;
        at_most("values", values, SCHEMA_VALUES)?;
        at_most("levels", level, MAX_DEPTH)?;
        match value {
            Value::String(text) => at_most("bytes in one string", text.len(), MAX_STRING_BYTES)?,
            Value::Array(items) => {
                at_most("items in one list", items.len(), MAX_CHILDREN)?;
                open.extend(items.iter().map(|item| (item, level + 1)));
            }
            Value::Object(members) => {
                at_most("members of one object", members.len(), MAX_CHILDREN)?;
                if let Some(Value::String(reference)) = members.get("$ref") {
                    check_local(reference)?;
                    references.insert(reference);
                    at_most("references", references.len(), MAX_REFERENCES)?;
                }
                multiples.extend(members.get("multipleOf").and_then(Value::as_f64));
                for (name, member) in members {
                    at_most("bytes in one name", name.len(), MAX_STRING_BYTES)?;
                    let is_comment = matches!(name.as_str(), "description" | "$comment");
                    if !(is_comment && member.is_string()) {
                        open.push((member, level + 1));
                    }
                }
            }
            _ => {}
        }
    }
    check_multiples(&multiples)?;
    let bytes = schema.to_string().len();
    at_most("bytes", bytes, MAX_SCHEMA_BYTES)?;
    Ok((values, bytes))
}

/// Checks the work of a schema within the limits of [`check_shape`].
fn check_schema(schema: &Value) -> Result<(), String> {
    let text = schema.to_string();
    check_classes(&text, has_flag(&text, "(?"))?;
    super::schema::check(schema)
}

fn check_local(reference: &str) -> Result<(), String> {
    if reference.starts_with('#') {
        return Ok(());
    }
    let shown: String = reference.chars().take(80).collect();
    Err(format!(
        "expected $ref only into the schema itself (#/$defs/...), found {shown:?}; external \
         schemas are not fetched"
    ))
}

/// Checks that the common multiple of all `multipleOf` values is at most `MAX_MULTIPLE`: one number
/// may have to satisfy all of them.
fn check_multiples(multiples: &[f64]) -> Result<(), String> {
    let texts = multiples.iter().map(|multiple| multiple.abs().to_string());
    let texts: Vec<String> = texts.collect();
    let decimals = |text: &String| text.split_once('.').map_or(0, |(_, digits)| digits.len());
    let most = texts.iter().map(decimals).max().unwrap_or(0);
    let units = |text: &String| {
        let zeros = "0".repeat(most - decimals(text));
        format!("{}{zeros}", text.replace('.', "")).parse::<u64>().ok()
    };
    let common = texts.iter().try_fold(1, |common: u64, text| {
        let units = units(text).filter(|units| (1..=MAX_MULTIPLE).contains(units))?;
        let multiple = common / divisor(common, units) * units;
        (multiple <= MAX_MULTIPLE).then_some(multiple)
    });
    match common {
        Some(_) => Ok(()),
        None => Err(format!(
            "expected multipleOf above 0 with a common multiple of at most {MAX_MULTIPLE} (in units \
             of the last decimal)"
        )),
    }
}

/// Greatest common divisor.
fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}
