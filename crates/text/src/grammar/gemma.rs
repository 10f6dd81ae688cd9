//! The arguments of calls of Gemma 4: `{key:value}` with bare keys, and texts in `<|"|>`.

use serde_json::{Map, Value};

use super::source::{other_keyword, quoted};
use super::tools::line;
use crate::tools::QUOTE;

/// Maximum rules of one schema.
const MAX_RULES: usize = 5_000;
/// Keywords that say nothing about values.
const NEUTRAL: [&str; 9] = [
    "title",
    "description",
    "default",
    "examples",
    "$comment",
    "$schema",
    "$defs",
    "definitions",
    "required",
];

/// Adds the rule `name` for an object of `schema`, with the rules that it needs.
///
/// # Errors
/// A keyword that these rules cannot follow.
pub(super) fn rules(source: &mut String, name: &str, schema: &Value) -> Result<(), String> {
    let mut writer = Writer {
        source,
        prefix: name.to_owned(),
        count: 0,
    };
    let body = match schema {
        Value::Object(members) => writer.object(members)?,
        _ => quoted("{}"),
    };
    line(source, name, &body);
    Ok(())
}

/// Writes the rules of one schema.
struct Writer<'a> {
    source: &'a mut String,
    prefix: String,
    count: usize,
}

impl Writer<'_> {
    /// Adds a rule; returns its name.
    fn rule(&mut self, body: &str) -> Result<String, String> {
        self.count += 1;
        if self.count > MAX_RULES {
            return Err(format!(
                "expected at most {MAX_RULES} rules in gemma's format, found more"
            ));
        }
        let name = format!("{}_{}", self.prefix, self.count);
        line(self.source, &name, body);
        Ok(name)
    }

    /// The rule of a value. Recurses as deeply as the schema.
    fn value(&mut self, schema: &Value) -> Result<String, String> {
        let Value::Object(members) = schema else {
            return Err(unsupported("true and false"));
        };
        if let Some(Value::Array(values)) = members.get("enum") {
            let texts: Vec<String> = values.iter().map(|value| quoted(&written(value))).collect();
            return self.rule(&texts.join(" | "));
        }
        if let Some(value) = members.get("const") {
            return self.rule(&quoted(&written(value)));
        }
        if let Some(Value::Array(parts)) = members.get("anyOf") {
            let mut rules = Vec::new();
            for part in parts {
                rules.push(self.value(part)?);
            }
            return self.rule(&rules.join(" | "));
        }
        let kinds: Vec<&str> = match members.get("type") {
            Some(Value::String(kind)) => vec![kind],
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
            _ if members.contains_key("properties") => vec!["object"],
            _ => return Err(unsupported("values without a type")),
        };
        let mut rules = Vec::new();
        for kind in kinds {
            rules.push(self.kind(kind, members)?);
        }
        self.rule(&rules.join(" | "))
    }

    /// The rule of a value of one type.
    fn kind(&mut self, kind: &str, members: &Map<String, Value>) -> Result<String, String> {
        let body = match kind {
            "string" => {
                known(members, &["type"])?;
                let text = format!("text[suffix={}]", quoted(QUOTE));
                let name = format!("{}_{}", self.prefix, text);
                self.count += 1;
                let index = self.count;
                let name = name.replace("text[", &format!("text{index}["));
                line(self.source, &name, "/(?s:.*)/");
                format!("{} {}_text{index}", quoted(QUOTE), self.prefix)
            }
            "integer" => {
                known(members, &["type"])?;
                "/-?(0|[1-9][0-9]{0,17})/".to_owned()
            }
            "number" => {
                known(members, &["type"])?;
                "/-?(0|[1-9][0-9]{0,17})(\\.[0-9]{1,18})?/".to_owned()
            }
            "boolean" => "\"true\" | \"false\"".to_owned(),
            "null" => "\"null\"".to_owned(),
            "array" => {
                known(members, &["type", "items"])?;
                let Some(items) = members.get("items") else {
                    return Err(unsupported("lists without items"));
                };
                let item = self.value(items)?;
                format!("\"[\" ({item} (\",\" {item})*)? \"]\"")
            }
            "object" => return self.object(members),
            _ => return Err(unsupported("types of this name")),
        };
        self.rule(&body)
    }

    /// The rule of an object: its members in their order, required or not.
    fn object(&mut self, members: &Map<String, Value>) -> Result<String, String> {
        known(members, &["type", "properties", "additionalProperties"])?;
        let closed = [None, Some(&Value::Bool(false))];
        if !closed.contains(&members.get("additionalProperties")) {
            return Err(unsupported("additionalProperties"));
        }
        let none = Map::new();
        let properties = match members.get("properties") {
            Some(Value::Object(properties)) => properties,
            _ => &none,
        };
        let required = members.get("required").and_then(Value::as_array);
        let is_required =
            |name: &str| required.is_some_and(|names| names.iter().any(|known| known == name));
        // From the last member to the first: what follows if none was written, and if one was.
        let (mut first, mut next) = ("\"\"".to_owned(), "\"\"".to_owned());
        for (name, schema) in properties.iter().rev() {
            let plain = |c: char| c.is_alphanumeric() || "_-.$".contains(c);
            if name.is_empty() || !name.chars().all(plain) {
                return Err(unsupported(
                    "names with other characters than letters and digits",
                ));
            }
            let value = self.value(schema)?;
            let pair = |lead: &str| format!("{} {value} {next}", quoted(&format!("{lead}{name}:")));
            let (mut begin, mut go_on) = (pair(""), pair(","));
            if !is_required(name) {
                begin = format!("{begin} | {first}");
                go_on = format!("{go_on} | {next}");
            }
            first = self.rule(&begin)?;
            next = self.rule(&go_on)?;
        }
        self.rule(&format!("\"{{\" {first} \"}}\""))
    }
}

/// Checks that all keywords are among `names` or say nothing about values.
fn known(members: &Map<String, Value>, names: &[&str]) -> Result<(), String> {
    match other_keyword(members, [names, &NEUTRAL]) {
        None => Ok(()),
        Some(key) => Err(unsupported(&key)),
    }
}

fn unsupported(what: &str) -> String {
    format!("{what}: not supported in gemma's format of calls")
}

/// A constant as the format writes it.
fn written(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{QUOTE}{text}{QUOTE}"),
        other => other.to_string(),
    }
}
