//! Prepares a schema for the compiler: removes neutral keywords, rewrites those that the
//! compiler would misread, and leaves out those that it cannot follow, with their paths.

use llguidance::derivre::{RegexAst, RegexBuilder};
use llguidance::regex_to_lark;
use serde_json::{Map, Number, Value, json};

use super::closed::{LISTS, NAMED, ONE};
use super::formats::format;

/// Maximum units of work to find out whether names match a pattern.
const NAMES_FUEL: u64 = 100_000;
/// Keywords whose value may be null.
const VALUES: [&str; 4] = ["const", "default", "example", "examples"];
/// Keywords that count.
const COUNTS: [&str; 8] = [
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "minContains",
    "maxContains",
];
/// Keywords with their neutral values, as JSON.
const NEUTRAL: [(&str, &[&str]); 10] = [
    ("uniqueItems", &["false"]),
    ("not", &["false"]),
    ("propertyNames", &["true", "{}", r#"{"type":"string"}"#]),
    ("dependencies", &["{}"]),
    ("dependentRequired", &["{}"]),
    ("dependentSchemas", &["{}"]),
    ("unevaluatedItems", &["true", "{}"]),
    ("unevaluatedProperties", &["true", "{}"]),
    ("$recursiveAnchor", &["false"]),
    ("if", &["true", "false", "{}"]),
];
/// Keywords that the compiler knows and cannot follow.
const UNFOLLOWED: [&str; 16] = [
    "$dynamicRef",
    "$recursiveRef",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "maxContains",
    "minContains",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
];
/// Keywords that join an object with others, whose members `unevaluatedProperties` counts.
const JOINING_KEYWORDS: [&str; 6] = ["allOf", "anyOf", "oneOf", "$ref", "if", "patternProperties"];
/// A keyword that is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Omission {
    /// Its path: names and indices with dots between them.
    pub(super) path: String,
    /// The reason why it cannot be followed.
    pub(super) reason: String,
}

/// Rewrites `schema`, whose nesting is bounded; returns the keywords that it leaves out. If there are none,
/// every value of the new schema is one of the old schema.
pub(super) fn normalize(schema: &mut Value) -> Vec<Omission> {
    let mut normal = Normal { root: schema.clone(), path: Vec::new(), left_out: Vec::new() };
    normal.schema(schema);
    normal.left_out
}

struct Normal {
    /// The whole schema as it was given, for references.
    root: Value,
    path: Vec<String>,
    left_out: Vec<Omission>,
}

impl Normal {
    /// Recurses as deeply as the schema.
    fn schema(&mut self, schema: &mut Value) {
        let Value::Object(members) = schema else {
            return;
        };
        neutral(members);
        if matches!(members.get("not"), Some(Value::Bool(true)))
            || members.get("not") == Some(&json!({}))
        {
            *schema = Value::Bool(false);
            return;
        }
        names(members, &self.root);
        format(members);
        one_unit(members);
        if let Some(closed) = members.get("unevaluatedProperties").cloned()
            && !JOINING_KEYWORDS.iter().any(|key| members.contains_key(*key))
        {
            members.remove("unevaluatedProperties");
            members.entry("additionalProperties").or_insert(closed);
        }
        self.numbers(members);
        self.patterns(members);
        for key in UNFOLLOWED {
            if members.contains_key(key) {
                self.leave_out(members, key, "is not supported");
            }
        }
        self.subschemas(members);
    }

    /// Follows the schemas within a schema.
    fn subschemas(&mut self, members: &mut Map<String, Value>) {
        for (key, value) in members.iter_mut() {
            let key = key.as_str();
            self.path.push(key.to_owned());
            match value {
                Value::Object(named) if NAMED.contains(&key) => {
                    for (name, subschema) in named.iter_mut() {
                        self.path.push(name.clone());
                        self.schema(subschema);
                        self.path.pop();
                    }
                }
                Value::Array(list) if LISTS.contains(&key) => {
                    for (index, subschema) in list.iter_mut().enumerate() {
                        self.path.push(index.to_string());
                        self.schema(subschema);
                        self.path.pop();
                    }
                }
                Value::Object(_) if ONE.contains(&key) => self.schema(value),
                _ => {}
            }
            self.path.pop();
        }
    }

    fn leave_out(&mut self, members: &mut Map<String, Value>, key: &str, reason: &str) {
        members.remove(key);
        self.path.push(key.to_owned());
        let path = self.path.join(".");
        self.path.pop();
        let reason = reason.to_owned();
        self.left_out.push(Omission { path, reason });
    }

    /// Leaves out whole numbers that the compiler would round: it reads doubles and makes 64-bit integers of them.
    fn numbers(&mut self, members: &mut Map<String, Value>) {
        let keys = [
            "const",
            "enum",
            "minimum",
            "maximum",
            "exclusiveMinimum",
            "exclusiveMaximum",
            "multipleOf",
        ];
        for key in keys {
            if members.get(key).is_some_and(|value| !is_exact(value)) {
                let reason =
                    "has a whole number beyond 2^53 that no double holds, and would be rounded";
                self.leave_out(members, key, reason);
            }
        }
    }

    /// Patterns that the compiler does not read; patterns of names that named members alone match, for
    /// which it would find no name while it writes.
    fn patterns(&mut self, members: &mut Map<String, Value>) {
        if let Some(Value::String(pattern)) = members.get("pattern")
            && let Err(reason) = search(&mut RegexBuilder::new(), pattern)
        {
            self.leave_out(members, "pattern", &reason);
        }
        let named: Vec<String> = match members.get("properties") {
            Some(Value::Object(named)) => named.keys().cloned().collect(),
            _ => Vec::new(),
        };
        let Some(Value::Object(patterns)) = members.get_mut("patternProperties") else {
            return;
        };
        let mut refused = Vec::new();
        patterns.retain(|pattern, _| match others(pattern, &named) {
            Ok(others) => others,
            Err(reason) => {
                refused.push(reason);
                false
            }
        });
        for reason in refused {
            let path = [&self.path.join("."), "patternProperties"];
            let path = path.join(".").trim_start_matches('.').to_owned();
            self.left_out.push(Omission { path, reason });
        }
    }
}

/// Removes neutral keywords.
fn neutral(members: &mut Map<String, Value>) {
    members.retain(|key, value| {
        let key = key.as_str();
        let empty = value.is_null() && !VALUES.contains(&key) && key != "enum";
        let known = NEUTRAL.iter().find(|(name, _)| *name == key);
        let asks = known.is_none_or(|(_, values)| !values.contains(&&*value.to_string()));
        !empty && asks && key != "$dynamicAnchor"
    });
    for key in COUNTS {
        let whole = members.get(key).and_then(Value::as_f64);
        let whole = whole.filter(|count| count.fract() == 0.0 && (0.0..1e15).contains(count));
        if let Some(whole) = whole {
            members.insert(key.to_owned(), json!(whole as u64));
        }
    }
    let has = |members: &Map<String, Value>, key: &str| members.contains_key(key);
    if !has(members, "if") || !has(members, "then") && !has(members, "else") {
        for key in ["if", "then", "else"] {
            members.remove(key);
        }
    }
    if !has(members, "contains") {
        for key in ["minContains", "maxContains"] {
            members.remove(key);
        }
    }
    if members.get("maxItems").and_then(Value::as_u64).is_some_and(|most| most <= 1) {
        members.remove("uniqueItems");
    }
}

/// `propertyNames` of objects without named members, as a list of names or one pattern.
fn names(members: &mut Map<String, Value>, root: &Value) {
    let named = ["properties", "patternProperties"];
    if named.iter().any(|key| members.contains_key(*key)) {
        return;
    }
    let mut names = members.get("propertyNames");
    if let Some(Value::String(reference)) = names.and_then(|names| names.get("$ref")) {
        names = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
    }
    let Some(Value::Object(names)) = names else {
        return;
    };
    let others = members.get("additionalProperties").cloned();
    let others = others.unwrap_or(Value::Bool(true));
    let only = |key: &str| {
        let mut keys = names.keys();
        keys.all(|name| [key, "type", "title", "description"].contains(&name.as_str()))
            && names.get("type").is_none_or(|kind| kind == "string")
    };
    let list = match (names.get("enum"), names.get("const")) {
        (Some(Value::Array(list)), None) if only("enum") => Some(list.clone()),
        (None, Some(name)) if only("const") => Some(vec![name.clone()]),
        _ => None,
    };
    let (key, value) = match (list, names.get("pattern")) {
        (Some(list), _) => {
            let texts = list.iter().filter_map(Value::as_str);
            let named: Map<_, _> = texts.map(|name| (name.to_owned(), others.clone())).collect();
            ("properties", named)
        }
        (None, Some(Value::String(pattern))) if only("pattern") => {
            let pattern = pattern.clone();
            ("patternProperties", Map::from_iter([(pattern, others)]))
        }
        _ => return,
    };
    members.remove("propertyNames");
    members.insert(key.to_owned(), Value::Object(value));
    members.insert("additionalProperties".to_owned(), Value::Bool(false));
}

/// Replaces an exclusive whole bound by the next number inside it (from 0: 1e-15) where the other bound
/// lies within one unit. The compiler would allow the whole number itself there.
fn one_unit(members: &mut Map<String, Value>) {
    let bound = |members: &Map<String, Value>, key: &str| members.get(key).and_then(Value::as_f64);
    let (least, most) = (bound(members, "minimum"), bound(members, "maximum"));
    let above = bound(members, "exclusiveMinimum");
    let below = bound(members, "exclusiveMaximum");
    let low = least.into_iter().chain(above).reduce(f64::max);
    let high = most.into_iter().chain(below).reduce(f64::min);
    let next = |bound: f64| {
        if bound == 0.0 { 1e-15 } else { bound.abs().next_up() }
    };
    if let (Some(low), Some(high)) = (above.filter(|bound| Some(*bound) == low), high)
        && low >= 0.0
        && low.fract() == 0.0
        && high < low + 1.0
        && high > next(low)
    {
        members.remove("exclusiveMinimum");
        members.insert("minimum".to_owned(), json!(next(low)));
    }
    if let (Some(high), Some(low)) = (below.filter(|bound| Some(*bound) == high), low)
        && high <= 0.0
        && high.fract() == 0.0
        && low > high - 1.0
        && low < -next(high)
    {
        members.remove("exclusiveMaximum");
        members.insert("maximum".to_owned(), json!(-next(high)));
    }
}

/// True if the compiler keeps every number of a value.
fn is_exact(value: &Value) -> bool {
    match value {
        Value::Number(number) => is_kept(number),
        Value::Array(items) => items.iter().all(is_exact),
        Value::Object(members) => members.values().all(is_exact),
        _ => true,
    }
}

fn is_kept(number: &Number) -> bool {
    match (number.as_i64(), number.as_f64()) {
        (Some(whole), Some(double)) => {
            whole.unsigned_abs() <= 1 << 53 || {
                let near = double.abs() < 9e18;
                near && double as i64 == whole
            }
        }
        // A number above 2^64 is a double already.
        (None, Some(double)) => double.fract() != 0.0 || double.abs() <= 9_007_199_254_740_992.0,
        (_, None) => false,
    }
}

/// The expression of a pattern, which matches anywhere in a text.
fn search(builder: &mut RegexBuilder, pattern: &str) -> Result<RegexAst, String> {
    let found = builder.mk_regex_for_serach(&regex_to_lark(pattern, "dw"));
    found.map(RegexAst::ExprRef).map_err(|error| super::one_line(&error))
}

/// True if a name that is not `named` matches `pattern`.
fn others(pattern: &str, named: &[String]) -> Result<bool, String> {
    let mut builder = RegexBuilder::new();
    let pattern = search(&mut builder, pattern)?;
    let names = named.iter().cloned().map(RegexAst::Literal).collect();
    let rest = RegexAst::And(vec![pattern, RegexAst::Not(Box::new(RegexAst::Or(names)))]);
    let rest = builder.mk(&rest).map_err(|error| super::one_line(&error))?;
    let rest = builder.to_regex_limited(rest, NAMES_FUEL);
    Ok(rest.map_or(true, |mut rest| !rest.always_empty()))
}
