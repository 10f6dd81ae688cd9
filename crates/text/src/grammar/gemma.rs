//! The arguments of calls of Gemma 4: `{key:value}` with bare keys, and texts in `<|"|>`.

use serde_json::{Map, Value};

use super::rules::{Format, Rules, quoted};
use crate::tools::QUOTE;

const GEMMA: Format = Format {
    name: "gemma",
    neutral: &[
        "title",
        "description",
        "default",
        "examples",
        "$comment",
        "$schema",
        "$defs",
        "definitions",
        "required",
    ],
};

/// Adds the rule `name` for an object of `schema`, with the rules that it needs.
///
/// # Errors
/// A keyword that these rules cannot follow.
pub(super) fn rules(source: &mut String, name: &str, schema: &Value) -> Result<(), String> {
    let mut writer = Writer(Rules::new(source, name, &GEMMA));
    let body = match schema {
        Value::Object(members) => writer.object(members)?,
        _ => quoted("{}"),
    };
    writer.0.line(name, &body);
    Ok(())
}

/// Writes the rules of one schema.
struct Writer<'a>(Rules<'a>);

impl Writer<'_> {
    /// The rule of a value. Recurses as deeply as the schema.
    fn value(&mut self, schema: &Value) -> Result<String, String> {
        let Value::Object(members) = schema else {
            return Err(GEMMA.unsupported("true and false"));
        };
        if let Some(Value::Array(values)) = members.get("enum") {
            let texts: Vec<String> = values.iter().map(|value| quoted(&written(value))).collect();
            return self.0.add(&texts.join(" | "));
        }
        if let Some(value) = members.get("const") {
            return self.0.add(&quoted(&written(value)));
        }
        if let Some(Value::Array(subschemas)) = members.get("anyOf") {
            let mut rules = Vec::new();
            for subschema in subschemas {
                rules.push(self.value(subschema)?);
            }
            return self.0.add(&rules.join(" | "));
        }
        let kinds: Vec<&str> = match members.get("type") {
            Some(Value::String(kind)) => vec![kind],
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
            _ if members.contains_key("properties") => vec!["object"],
            _ => return Err(GEMMA.unsupported("values without a type")),
        };
        let mut rules = Vec::new();
        for kind in kinds {
            rules.push(self.kind(kind, members)?);
        }
        self.0.add(&rules.join(" | "))
    }

    /// The rule of a value of one type.
    fn kind(&mut self, kind: &str, members: &Map<String, Value>) -> Result<String, String> {
        let body = match kind {
            "string" => {
                GEMMA.check(members, &["type"])?;
                let name = self.0.name()?;
                let text = format!("{name}[suffix={}]", quoted(QUOTE));
                self.0.line(&text, "/(?s:.*)/");
                format!("{} {name}", quoted(QUOTE))
            }
            "integer" => {
                GEMMA.check(members, &["type"])?;
                "/-?(0|[1-9][0-9]{0,17})/".to_owned()
            }
            "number" => {
                GEMMA.check(members, &["type"])?;
                "/-?(0|[1-9][0-9]{0,17})(\\.[0-9]{1,18})?/".to_owned()
            }
            "boolean" => "\"true\" | \"false\"".to_owned(),
            "null" => "\"null\"".to_owned(),
            "array" => {
                GEMMA.check(members, &["type", "items"])?;
                let Some(items) = members.get("items") else {
                    return Err(GEMMA.unsupported("lists without items"));
                };
                let item = self.value(items)?;
                format!("\"[\" ({item} (\",\" {item})*)? \"]\"")
            }
            "object" => return self.object(members),
            _ => return Err(GEMMA.unsupported("types of this name")),
        };
        self.0.add(&body)
    }

    /// The rule of an object: its members in their order, required or not.
    fn object(&mut self, members: &Map<String, Value>) -> Result<String, String> {
        GEMMA.check(members, &["type", "properties", "additionalProperties"])?;
        let closed = [None, Some(&Value::Bool(false))];
        if !closed.contains(&members.get("additionalProperties")) {
            return Err(GEMMA.unsupported("additionalProperties"));
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
                return Err(
                    GEMMA.unsupported("names with other characters than letters and digits")
                );
            }
            let value = self.value(schema)?;
            let pair = |lead: &str| format!("{} {value} {next}", quoted(&format!("{lead}{name}:")));
            let (mut begin, mut go_on) = (pair(""), pair(","));
            if !is_required(name) {
                begin = format!("{begin} | {first}");
                go_on = format!("{go_on} | {next}");
            }
            first = self.0.add(&begin)?;
            next = self.0.add(&go_on)?;
        }
        self.0.add(&format!("\"{{\" {first} \"}}\""))
    }
}

/// A constant as the format writes it.
fn written(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{QUOTE}{text}{QUOTE}"),
        other => other.to_string(),
    }
}
