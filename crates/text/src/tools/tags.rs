//! Calls in tags: `<function=f>` around `<parameter=x>`, a value on lines of its own, `</parameter>`.
//!
//! A text stands as it is, every other value as JSON. Which of both a value is depends on the schema
//! of its parameter, as in the parsers that are published for Qwen3-Coder.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};

/// The mark before a parameter's name, which `>` and a line break follow.
pub(crate) const PARAMETER: &str = "<parameter=";
/// The mark at the end of a value.
pub(crate) const VALUE_END: &str = "\n</parameter>\n";
/// The mark at the end of a call's parameters.
pub(crate) const FUNCTION_END: &str = "</function>";
/// Maximum references that lead from a schema to its type.
const MAX_REFERENCES: usize = 16;

/// The types of JSON that a schema allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kinds(u8);

impl Kinds {
    pub(crate) const TEXT: Self = Self(1);
    const NULL: Self = Self(2);
    const BOOLEAN: Self = Self(4);
    const INTEGER: Self = Self(8);
    const FRACTION: Self = Self(16);
    const LIST: Self = Self(32);
    const OBJECT: Self = Self(64);
    const ALL: Self = Self(127);
    const NONE: Self = Self(0);

    /// True if some type is among both.
    pub(crate) fn meet(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// True if lists or objects are among them.
    pub(crate) fn nested(self) -> bool {
        self.meet(Self(Self::LIST.0 | Self::OBJECT.0))
    }

    fn of_name(name: &str) -> Self {
        match name {
            "string" => Self::TEXT,
            "null" => Self::NULL,
            "boolean" => Self::BOOLEAN,
            "integer" => Self::INTEGER,
            "number" => Self(Self::INTEGER.0 | Self::FRACTION.0),
            "array" => Self::LIST,
            "object" => Self::OBJECT,
            _ => Self::NONE,
        }
    }

    fn of_value(value: &Value) -> Self {
        match value {
            Value::Null => Self::NULL,
            Value::Bool(_) => Self::BOOLEAN,
            Value::Number(number) if number.as_f64().is_some_and(|n| n.fract() == 0.0) => {
                Self::INTEGER
            }
            Value::Number(_) => Self::FRACTION,
            Value::String(_) => Self::TEXT,
            Value::Array(_) => Self::LIST,
            Value::Object(_) => Self::OBJECT,
        }
    }

    /// The types of `schema`, whose references point into `root`. Recurses as deeply as the schema.
    pub(crate) fn of_schema(schema: &Value, root: &Value) -> Self {
        let any = |list: &[Value], kinds: &dyn Fn(&Value) -> Self| {
            Self(list.iter().fold(0, |all, one| all | kinds(one).0))
        };
        let Value::Object(members) = resolved(schema, root) else {
            return Self::ALL;
        };
        let mut found = Self::ALL;
        let mut narrow = |kinds: Self| found = Self(found.0 & kinds.0);
        match members.get("type") {
            Some(Value::String(name)) => narrow(Self::of_name(name)),
            Some(Value::Array(names)) => {
                narrow(any(names, &|name| Self::of_name(name.as_str().unwrap_or_default())))
            }
            _ if members.contains_key("properties") => narrow(Self::OBJECT),
            _ => {}
        }
        if let Some(value) = members.get("const") {
            narrow(Self::of_value(value));
        }
        for (key, list) in members {
            let Value::Array(list) = list else { continue };
            match key.as_str() {
                "enum" => narrow(any(list, &Self::of_value)),
                "anyOf" | "oneOf" => narrow(any(list, &|part| Self::of_schema(part, root))),
                "allOf" => list.iter().for_each(|part| narrow(Self::of_schema(part, root))),
                _ => {}
            }
        }
        found
    }

    /// The JSON that `written` stands for.
    pub(crate) fn json(self, written: &str) -> String {
        let as_text = || Value::from(written).to_string();
        if self == Self::TEXT {
            return as_text();
        }
        match serde_json::from_str::<Value>(written) {
            // The digits of a number stay as they were written.
            Ok(value) if !value.is_string() && self.meet(Self::of_value(&value)) => {
                written.trim().to_owned()
            }
            Ok(value) if !self.meet(Self::TEXT) => match value {
                Value::String(_) => as_text(),
                _ => written.trim().to_owned(),
            },
            _ => as_text(),
        }
    }
}

/// The schema that `schema` stands for, after its references into `root`.
pub(crate) fn resolved<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let mut found = schema;
    for _ in 0..MAX_REFERENCES {
        let target = match found.get("$ref").and_then(Value::as_str) {
            Some("#") => Some(root),
            Some(reference) => root.pointer(reference.trim_start_matches('#')),
            None => match found.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
                Some([only]) => Some(only),
                _ => None,
            },
        };
        match target {
            Some(target) => found = target,
            None => break,
        }
    }
    found
}

/// The types of the parameters of functions, by the names of both.
#[derive(Clone, Debug, Default)]
pub(super) struct Signatures(Arc<HashMap<String, HashMap<String, Kinds>>>);

impl Signatures {
    /// The signatures of functions with their schemas.
    pub(super) fn new<'a>(functions: impl Iterator<Item = (&'a str, &'a Value)>) -> Self {
        let of_function = |(name, schema): (&str, &'a Value)| {
            let properties = schema.get("properties").and_then(Value::as_object);
            let members = properties.into_iter().flatten();
            let kinds = members.map(|(key, value)| (key.clone(), Kinds::of_schema(value, schema)));
            (name.to_owned(), kinds.collect())
        };
        Self(Arc::new(functions.map(of_function).collect()))
    }

    fn kinds(&self, function: &str, parameter: &str) -> Kinds {
        let kinds = self.0.get(function).and_then(|known| known.get(parameter));
        kinds.copied().unwrap_or(Kinds::ALL)
    }
}

/// Converts the parameters of one call to a JSON object as they arrive.
#[derive(Clone, Debug)]
pub(super) struct ToJson {
    function: String,
    signatures: Signatures,
    /// True if a member was written.
    filled: bool,
    /// The types of the value that is being read.
    value: Option<Kinds>,
    /// True if the beginning of a text was delivered.
    delivered: bool,
}

impl ToJson {
    pub(super) fn new(function: &str, signatures: &Signatures) -> Self {
        Self {
            function: function.to_owned(),
            signatures: signatures.clone(),
            filled: false,
            value: None,
            delivered: false,
        }
    }

    /// Reads from `text`: the bytes taken, the JSON made, whether the parameters end. What may be
    /// the beginning of a tag is left for the next call, and a value that is no plain text until it
    /// is complete.
    pub(super) fn read(&mut self, text: &str) -> (usize, String, bool) {
        let (mut offset, mut made) = (0, String::new());
        loop {
            let rest = &text[offset..];
            let taken = match self.value {
                Some(kinds) => self.value(kinds, rest, &mut made),
                None => {
                    let tag = rest.trim_start();
                    if tag.starts_with(FUNCTION_END) {
                        let blanks = rest.len() - tag.len();
                        made += if self.filled { "}" } else { "{}" };
                        return (offset + blanks + FUNCTION_END.len(), made, true);
                    }
                    self.parameter(rest, &mut made)
                }
            };
            match taken {
                0 => return (offset, made, false),
                taken => offset += taken,
            }
        }
    }

    /// Takes the tag that begins a parameter, or a character that belongs to no tag.
    fn parameter(&mut self, text: &str, made: &mut String) -> usize {
        let tag = text.trim_start();
        let blanks = text.len() - tag.len();
        if let Some(name) = tag.strip_prefix(PARAMETER) {
            let Some((name, _)) = name.split_once(">\n") else {
                return 0;
            };
            *made += if self.filled { ", " } else { "{" };
            *made += &format!("{}: ", Value::from(name));
            self.filled = true;
            self.value = Some(self.signatures.kinds(&self.function, name));
            self.delivered = false;
            return blanks + PARAMETER.len() + name.len() + 2;
        }
        let is_partial = PARAMETER.starts_with(tag) || FUNCTION_END.starts_with(tag);
        match tag.chars().next() {
            Some(c) if !is_partial => blanks + c.len_utf8(),
            _ => 0,
        }
    }

    /// Takes of a value what can be delivered.
    fn value(&mut self, kinds: Kinds, text: &str, made: &mut String) -> usize {
        let end = text.find(VALUE_END);
        if kinds != Kinds::TEXT {
            let Some(end) = end else { return 0 };
            *made += &kinds.json(&text[..end]);
            self.value = None;
            return end + VALUE_END.len();
        }
        let kept = || {
            let partial = |length: &usize| text.ends_with(&VALUE_END[..*length]);
            text.len() - (1..VALUE_END.len()).rev().find(partial).unwrap_or(0)
        };
        let part = &text[..end.unwrap_or_else(kept)];
        let quoted = Value::from(part).to_string();
        if !std::mem::replace(&mut self.delivered, true) {
            made.push('"');
        }
        *made += &quoted[1..quoted.len() - 1];
        match end {
            Some(end) => {
                made.push('"');
                self.value = None;
                end + VALUE_END.len()
            }
            None => part.len(),
        }
    }
}

/// `arguments` in tags, for a call of `function`.
pub(super) fn written(function: &str, arguments: &Map<String, Value>) -> String {
    let value = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let members = arguments.iter();
    let members = members.map(|(name, given)| {
        let given = value(given);
        format!("{PARAMETER}{name}>\n{given}{VALUE_END}")
    });
    let members: String = members.collect();
    format!("<function={function}>\n{members}{FUNCTION_END}")
}
