//! Translates a specification into the input of the grammar compiler.

use llguidance::api::TopLevelGrammar;
use serde_json::{Value, json};

use super::rules::{followed, json_schema, quoted};
use super::{GrammarError, GrammarSpec, tools};

/// The compiler input for `spec`.
pub(super) fn grammar(spec: &GrammarSpec) -> Result<TopLevelGrammar, GrammarError> {
    match spec {
        GrammarSpec::JsonObject => Ok(json_grammar(json!({"type": "object"}))),
        GrammarSpec::JsonSchema(schema) | GrammarSpec::ClosedJsonSchema(schema) => {
            let closed = matches!(spec, GrammarSpec::ClosedJsonSchema(_));
            match followed(schema, closed).map_err(|reason| spec.error(&reason))? {
                schema @ Value::Object(_) => Ok(json_grammar(schema)),
                Value::Bool(true) => Ok(json_grammar(json!({}))),
                Value::Bool(false) => Err(spec.error("the schema false allows no value")),
                _ => Err(spec.error("expected an object or a boolean")),
            }
        }
        GrammarSpec::Regex(regex) => match without_anchors(regex) {
            None => Err(spec.error("expected a character after the last backslash")),
            // An empty regex would be `//`, which starts a comment.
            Some("") => Ok(TopLevelGrammar::from_lark("start: \"\"".to_owned())),
            Some(regex) => Ok(TopLevelGrammar::from_regex(regex)),
        },
        GrammarSpec::Lark(source) => {
            let source = embedded(source).map_err(|reason| spec.error(&reason))?;
            Ok(TopLevelGrammar::from_lark(source))
        }
        GrammarSpec::Choice(choices) if choices.is_empty() => {
            Err(spec.error("expected at least one text, found none"))
        }
        GrammarSpec::Choice(choices) => {
            let texts: Vec<String> = choices.iter().map(|text| quoted(text)).collect();
            let source = format!("start: TEXT\nTEXT: {}", texts.join(" | "));
            Ok(TopLevelGrammar::from_lark(source))
        }
        GrammarSpec::Tools(grammar) => {
            let source = tools::source(grammar).map_err(|reason| spec.error(&reason))?;
            Ok(TopLevelGrammar::from_lark(source))
        }
    }
}

/// `source` with the schemas after `%json` as the compiler follows them.
fn embedded(source: &str) -> Result<String, String> {
    let (mut made, mut rest) = (String::new(), source);
    while let Some((before, after)) = rest.split_once("%json") {
        made.push_str(before);
        made.push_str("%json");
        let mut schemas = serde_json::Deserializer::from_str(after).into_iter::<Value>();
        rest = after;
        if let Some(Ok(schema)) = schemas.next() {
            made.push(' ');
            made.push_str(&followed(&schema, false)?.to_string());
            rest = &after[schemas.byte_offset()..];
        }
    }
    made.push_str(rest);
    Ok(made)
}

/// The grammar of a schema. Separators are regexes; no other white space is allowed. Compiler
/// settings inside the schema are overwritten.
fn json_grammar(schema: Value) -> TopLevelGrammar {
    TopLevelGrammar::from_json_schema(json_schema(schema))
}

/// `regex` without `^` at the start and `$` at the end, which a full match implies. `None` if it
/// ends in an incomplete escape.
fn without_anchors(regex: &str) -> Option<&str> {
    let backslashes = |text: &str| text.len() - text.trim_end_matches('\\').len();
    let regex = regex.strip_prefix('^').unwrap_or(regex);
    if backslashes(regex) % 2 == 1 {
        return None;
    }
    match regex.strip_suffix('$') {
        Some(rest) if backslashes(rest).is_multiple_of(2) => Some(rest),
        _ => Some(regex),
    }
}
