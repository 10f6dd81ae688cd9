//! The parameters of calls in tags: a text as it is, every other value as JSON.

use serde_json::{Map, Value, json};

use super::rules::{Format, Rules, inline, quoted};
use crate::tools::{Kinds, PARAMETER, VALUE_END, resolved};

const TAGS: Format = Format {
    name: "qwen3_coder",
    neutral: &[
        "title",
        "description",
        "default",
        "examples",
        "example",
        "$comment",
        "deprecated",
        "readOnly",
        "writeOnly",
    ],
};
/// Formats that restrict a text; other ones are annotations.
const FORMATS: [&str; 12] = [
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
    "uri",
    "json-pointer",
    "regex",
];
/// Keywords of a function's parameters as a whole.
const OBJECT_KEYWORDS: [&str; 8] = [
    "type",
    "properties",
    "required",
    "additionalProperties",
    "$defs",
    "definitions",
    "$schema",
    "strict",
];

/// Adds the rule `name` for the parameters of `schema`, with the rules that it needs.
///
/// # Errors
/// A keyword that these rules cannot follow.
pub(super) fn rules(source: &mut String, name: &str, schema: &Value) -> Result<(), String> {
    let none = Map::new();
    let members = schema.as_object().unwrap_or(&none);
    TAGS.check(members, &OBJECT_KEYWORDS)?;
    if !matches!(members.get("additionalProperties"), None | Some(Value::Bool(false))) {
        return Err(TAGS.unsupported("additionalProperties"));
    }
    let properties = members.get("properties").and_then(Value::as_object);
    let required = members.get("required").and_then(Value::as_array);
    let mut writer = Writer { rules: Rules::new(source, name, &TAGS), root: schema };
    let mut member_rules = Vec::new();
    for (key, value) in properties.unwrap_or(&none) {
        if key.is_empty() || key.contains(['>', '\n']) {
            return Err(TAGS.unsupported("empty names, and names with > or a line break"));
        }
        let value = writer.value(value)?;
        let begin = quoted(&format!("{PARAMETER}{key}>\n"));
        let rule = writer.rules.add(&format!("{begin} ({value})"))?;
        let needed = required.is_some_and(|names| names.iter().any(|known| known == key));
        member_rules.push(if needed { rule } else { format!("{rule}?") });
    }
    let body = match member_rules.is_empty() {
        true => "\"\"".to_owned(),
        false => member_rules.join(" "),
    };
    writer.rules.line(name, &body);
    Ok(())
}

/// Writes the rules of one schema.
struct Writer<'a> {
    rules: Rules<'a>,
    root: &'a Value,
}

impl Writer<'_> {
    /// A value of `schema` with its end.
    fn value(&mut self, schema: &Value) -> Result<String, String> {
        let kinds = Kinds::of_schema(schema, self.root);
        if !kinds.meet(Kinds::TEXT) {
            return self.json(schema.clone());
        }
        let mut subschemas = Vec::new();
        flatten(schema, self.root, &mut subschemas);
        let texts = subschemas.iter().map(|subschema| self.texts(subschema)).max();
        let texts = texts.unwrap_or(Texts::Listed);
        let mut rules = Vec::new();
        for subschema in subschemas {
            rules.extend(self.subschema(&subschema, kinds, texts)?);
        }
        Ok(rules.join(" | "))
    }

    /// The texts that a schema without alternatives allows.
    fn texts(&self, subschema: &Value) -> Texts {
        let members = subschema.as_object();
        let has = |key| members.is_some_and(|members| members.contains_key(key));
        match Kinds::of_schema(subschema, self.root).meet(Kinds::TEXT) {
            true if has("const") || has("enum") => Texts::Listed,
            true if members.is_none_or(|members| TAGS.check(members, &["type"]).is_ok()) => {
                Texts::All
            }
            true => Texts::Limited,
            false => Texts::Listed,
        }
    }

    /// The rules of one of several schemas of a value of the types `all`, which together allow these texts.
    fn subschema(
        &mut self,
        subschema: &Value,
        all: Kinds,
        texts: Texts,
    ) -> Result<Vec<String>, String> {
        let kinds = Kinds::of_schema(subschema, self.root);
        let none = Map::new();
        let members = subschema.as_object().unwrap_or(&none);
        let constant = members.get("const").map(std::slice::from_ref);
        let listed = members.get("enum").and_then(Value::as_array);
        if let Some(values) = constant.or(listed.map(Vec::as_slice)) {
            return values.iter().map(|value| literal(value, all)).collect();
        }
        let mut rules = Vec::new();
        if kinds.meet(Kinds::TEXT) {
            TAGS.check(members, &TEXT_KEYWORDS)?;
            if let Some(format) = members.get("format").and_then(Value::as_str)
                && FORMATS.contains(&format)
            {
                return Err(TAGS.unsupported(&format!("the format {format}")));
            }
            rules.push(self.text(members, all.nested())?);
        }
        if kinds == Kinds::TEXT {
            return Ok(rules);
        }
        match members.get("type") {
            // A list or an object begins as no text does.
            None => rules.push(self.json(json!({"type": ["array", "object"]}))?),
            Some(_) if kinds.nested() => rules.push(self.json(subschema.clone())?),
            // A text that is a number stands for it, whatever the bounds are.
            Some(_) if texts > Texts::Listed && TAGS.check(members, &TEXT_KEYWORDS).is_err() => {
                return Err(TAGS.unsupported("numbers with bounds beside a text"));
            }
            Some(_) if texts == Texts::All => {}
            Some(_) => rules.push(self.json(subschema.clone())?),
        }
        Ok(rules)
    }

    fn json(&mut self, mut schema: Value) -> Result<String, String> {
        if let Value::Object(members) = &mut schema {
            for key in ["$defs", "definitions"] {
                if let Some(named) = self.root.get(key) {
                    members.entry(key).or_insert_with(|| named.clone());
                }
            }
        }
        let rule = self.rules.add(&inline(&schema))?;
        Ok(format!("{rule} {}", quoted(VALUE_END)))
    }

    /// A text with the lengths and the pattern of a schema; one that begins with a bracket stands
    /// for a list or an object where those are allowed.
    fn text(&mut self, members: &Map<String, Value>, nested: bool) -> Result<String, String> {
        let name = self.rules.name()?;
        let length = |key: &str| members.get(key).and_then(Value::as_u64);
        let mut bodies = match (length("minLength"), length("maxLength")) {
            (None, None) => vec!["/(?s:.*)/".to_owned()],
            (least, most) => {
                let most = most.map_or(String::new(), |most| most.to_string());
                vec![format!("/(?s:.{{{},{most}}})/", least.unwrap_or(0))]
            }
        };
        if let Some(pattern) = members.get("pattern") {
            bodies.push(searched(pattern.as_str().unwrap_or_default())?);
        }
        if nested {
            bodies.push("~/[\\[{](?s:.*)/".to_owned());
        }
        let terminal = format!("T_{}", name.to_uppercase());
        self.rules.line(&terminal, &bodies.join(" & "));
        let rule = format!("{name}[suffix={}]", quoted(VALUE_END));
        self.rules.line(&rule, &terminal);
        Ok(name)
    }
}

/// The keywords of a text that are followed. They demand nothing of other values.
const TEXT_KEYWORDS: [&str; 5] = ["type", "format", "minLength", "maxLength", "pattern"];

/// Texts among the values that schemas allow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Texts {
    /// The texts of a list, or none.
    Listed,
    /// The texts of a pattern or of some lengths.
    Limited,
    All,
}

/// The schemas of which a value has one, each with one type if it names several. Recurses as deeply
/// as the schema.
fn flatten(schema: &Value, root: &Value, subschemas: &mut Vec<Value>) {
    let schema = resolved(schema, root);
    for key in ["anyOf", "oneOf"] {
        if let Some(list) = schema.get(key).and_then(Value::as_array) {
            return list.iter().for_each(|subschema| flatten(subschema, root, subschemas));
        }
    }
    match schema.get("type").and_then(Value::as_array) {
        Some(names) if schema.get("enum").is_none() => {
            subschemas.extend(names.iter().map(|name| {
                let mut subschema = schema.clone();
                subschema["type"] = name.clone();
                subschema
            }))
        }
        _ => subschemas.push(schema.clone()),
    }
}

/// A constant with its end.
fn literal(value: &Value, kinds: Kinds) -> Result<String, String> {
    let written = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let json = value.to_string();
    if kinds.json(&written) != json || written.contains(VALUE_END) {
        let value: String = json.chars().take(40).collect();
        return Err(TAGS.unsupported(&format!("the text {value} beside other types")));
    }
    Ok(quoted(&format!("{written}{VALUE_END}")))
}

/// The texts in which `pattern` is found.
fn searched(pattern: &str) -> Result<String, String> {
    // An anchor may belong to one of several patterns.
    if has_alternatives(pattern) || pattern.ends_with("\\$") {
        return Err(TAGS.unsupported("patterns with | or \\$ at the end"));
    }
    let (start, rest) = match pattern.strip_prefix('^') {
        Some(rest) => ("", rest),
        None => ("(?s:.*)", pattern),
    };
    let (rest, end) = match rest.strip_suffix('$') {
        Some(rest) => (rest, ""),
        None => (rest, "(?s:.*)"),
    };
    let mut escaped = String::new();
    let mut after_backslash = false;
    for c in rest.chars() {
        if c == '/' && !after_backslash {
            escaped.push('\\');
        }
        after_backslash = c == '\\' && !after_backslash;
        escaped.push(c);
    }
    Ok(format!("/{start}({escaped}){end}/"))
}

/// True if `pattern` has a `|` outside of brackets.
fn has_alternatives(pattern: &str) -> bool {
    let (mut open, mut class, mut escaped) = (0, false, false);
    for c in pattern.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ']' => class = false,
            '[' => class = true,
            '(' if !class => open += 1,
            ')' if !class => open -= 1,
            '|' if !class && open == 0 => return true,
            _ => {}
        }
    }
    false
}
