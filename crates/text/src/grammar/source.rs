//! A specification in the language of the grammar compiler.

use llguidance::JsonCompileOptions;
use llguidance::api::TopLevelGrammar;
use serde_json::{Value, json};

use super::{GrammarError, GrammarSpec};

/// `spec` for the compiler.
pub(super) fn grammar(spec: &GrammarSpec) -> Result<TopLevelGrammar, GrammarError> {
    match spec {
        GrammarSpec::JsonObject => Ok(json_grammar(json!({"type": "object"}))),
        GrammarSpec::JsonSchema(schema) => match schema {
            Value::Object(_) => Ok(json_grammar(schema.clone())),
            Value::Bool(true) => Ok(json_grammar(json!({}))),
            Value::Bool(false) => Err(spec.error("the schema false allows no value")),
            _ => Err(spec.error("expected an object or a boolean")),
        },
        GrammarSpec::Regex(regex) => match whole(regex) {
            None => Err(spec.error("expected a character behind the last backslash")),
            // Two slashes begin a comment.
            Some("") => Ok(TopLevelGrammar::from_lark("start: \"\"".to_owned())),
            Some(regex) => Ok(TopLevelGrammar::from_regex(regex)),
        },
        GrammarSpec::Lark(source) => Ok(TopLevelGrammar::from_lark(source.clone())),
        GrammarSpec::Choice(choices) if choices.is_empty() => {
            Err(spec.error("expected at least one text, found none"))
        }
        GrammarSpec::Choice(choices) => {
            let texts: Vec<String> = choices.iter().map(|text| quoted(text)).collect();
            let source = format!("start: TEXT\nTEXT: {}", texts.join(" | "));
            Ok(TopLevelGrammar::from_lark(source))
        }
    }
}

/// The grammar of a schema. Separators are regexes, and there is no other white space; a
/// schema's own settings of the compiler are overruled.
fn json_grammar(mut schema: Value) -> TopLevelGrammar {
    let options = JsonCompileOptions {
        item_separator: ", ?".to_owned(),
        key_separator: ": ?".to_owned(),
        whitespace_flexible: false,
        ..JsonCompileOptions::default()
    };
    options.apply_to(&mut schema);
    TopLevelGrammar::from_json_schema(schema)
}

/// `regex` without anchors at its ends, which a match of the whole text has anyway; `None` if
/// it ends in half an escape.
fn whole(regex: &str) -> Option<&str> {
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

/// `text` as a string of a Lark grammar: JSON, and without the control character that JSON
/// leaves as it is.
fn quoted(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}
