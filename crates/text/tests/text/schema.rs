//! Checks that a JSON value conforms to a schema, for the keywords that the grammar tests use.

use serde_json::{Map, Value};

/// Returns the first rule of `schema` that `value` violates; references are resolved in `root`.
pub fn conforms(value: &Value, schema: &Value, root: &Value) -> Result<(), String> {
    let Value::Object(rules) = schema else {
        return held(schema == &Value::Bool(true), "false", value);
    };
    for (rule, argument) in rules {
        let sub = |schema: &Value| conforms(value, schema, root);
        match rule.as_str() {
            "$ref" => {
                let pointer = argument.as_str().unwrap().strip_prefix('#').unwrap();
                sub(root.pointer(pointer).unwrap())?;
            }
            "anyOf" => {
                let any = list(argument).iter().any(|schema| sub(schema).is_ok());
                held(any, rule, value)?;
            }
            "allOf" => list(argument).iter().try_for_each(sub)?,
            "type" => held(is_type(value, argument.as_str().unwrap()), rule, value)?,
            "enum" => held(list(argument).contains(value), rule, value)?,
            "const" => held(argument == value, rule, value)?,
            "$defs" => {}
            _ => match value {
                Value::Object(members) => object(members, rule, rules, root)?,
                Value::Array(items) => array(items, rule, argument, root)?,
                Value::String(text) => held(string(text, rule, argument), rule, value)?,
                Value::Number(number) => {
                    let number = number.as_f64().unwrap();
                    held(in_range(number, rule, argument), rule, value)?;
                }
                _ => {}
            },
        }
    }
    Ok(())
}

fn held(held: bool, rule: &str, value: &Value) -> Result<(), String> {
    if held {
        return Ok(());
    }
    Err(format!("{rule} does not hold of {value}"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn is_type(value: &Value, name: &str) -> bool {
    match name {
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("unknown type {other}"),
    }
}

fn object(
    members: &Map<String, Value>,
    rule: &str,
    rules: &Map<String, Value>,
    root: &Value,
) -> Result<(), String> {
    let argument = &rules[rule];
    match rule {
        "properties" => {
            for (name, schema) in argument.as_object().unwrap() {
                if let Some(member) = members.get(name) {
                    conforms(member, schema, root)?;
                }
            }
        }
        "required" => {
            for name in list(argument) {
                let there = members.contains_key(name.as_str().unwrap());
                held(there, rule, name)?;
            }
        }
        "additionalProperties" => {
            let known = rules.get("properties").and_then(Value::as_object);
            let is_known = |name: &String| known.is_some_and(|known| known.contains_key(name));
            for (_, member) in members.iter().filter(|(name, _)| !is_known(name)) {
                conforms(member, argument, root)?;
            }
        }
        other => panic!("unknown rule {other}"),
    }
    Ok(())
}

fn array(items: &[Value], rule: &str, argument: &Value, root: &Value) -> Result<(), String> {
    match rule {
        "items" => items
            .iter()
            .try_for_each(|item| conforms(item, argument, root)),
        "minItems" => at_least(items.len(), argument),
        "maxItems" => at_most(items.len(), argument),
        other => panic!("unknown rule {other}"),
    }
}

fn at_least(found: usize, argument: &Value) -> Result<(), String> {
    let enough = found as u64 >= argument.as_u64().unwrap();
    held(enough, "at least", &Value::from(found))
}

fn at_most(found: usize, argument: &Value) -> Result<(), String> {
    let few = found as u64 <= argument.as_u64().unwrap();
    held(few, "at most", &Value::from(found))
}

/// Checks a string; each pattern of the tests has a hand-written check.
fn string(text: &str, rule: &str, argument: &Value) -> bool {
    let chars = text.chars().count();
    match rule {
        "minLength" => at_least(chars, argument).is_ok(),
        "maxLength" => at_most(chars, argument).is_ok(),
        "pattern" => match argument.as_str().unwrap() {
            "^[A-Z]{2}-[0-9]{3,5}$" => {
                let digits = text.get(3..).unwrap_or_default();
                let is_digit = |digit: char| digit.is_ascii_digit();
                text.bytes().take(2).all(|byte| byte.is_ascii_uppercase())
                    && text.get(2..3) == Some("-")
                    && (3..=5).contains(&digits.len())
                    && digits.chars().all(is_digit)
            }
            other => panic!("unknown pattern {other}"),
        },
        other => panic!("unknown rule {other}"),
    }
}

fn in_range(number: f64, rule: &str, argument: &Value) -> bool {
    let bound = argument.as_f64().unwrap();
    match rule {
        "minimum" => number >= bound,
        "maximum" => number <= bound,
        "exclusiveMinimum" => number > bound,
        "exclusiveMaximum" => number < bound,
        other => panic!("unknown rule {other}"),
    }
}
