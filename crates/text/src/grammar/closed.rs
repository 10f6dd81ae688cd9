//! Closed objects: members that a schema does not name are not written.

use std::collections::HashSet;

use serde_json::{Map, Value};

/// Keywords whose value is a schema.
pub(super) const ONE: [&str; 8] = [
    "items",
    "additionalProperties",
    "additionalItems",
    "contains",
    "propertyNames",
    "if",
    "then",
    "else",
];
/// Keywords whose value is a list of schemas.
pub(super) const LISTS: [&str; 5] = ["allOf", "anyOf", "oneOf", "prefixItems", "items"];
/// Keywords whose value names schemas.
pub(super) const NAMED: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];
/// Keywords that say themselves which other members an object has.
const MEMBER_KEYWORDS: [&str; 3] =
    ["additionalProperties", "patternProperties", "unevaluatedProperties"];
/// Keywords beside `properties` that join an object with other schemas, whose members it has too.
const JOINING_KEYWORDS: [&str; 5] = ["allOf", "anyOf", "oneOf", "$ref", "if"];

/// Adds `additionalProperties: false` to every object of `schema` that names its members and does
/// not say whether it has others. Objects that are joined with other schemas stay open, because a
/// closed subschema would exclude the members of the others.
pub(super) fn close_objects(schema: &mut Value) {
    let kept = kept_open(schema);
    let mut index = 0;
    let mut open = vec![schema];
    while let Some(value) = open.pop() {
        let Value::Object(members) = value else {
            continue;
        };
        let says = MEMBER_KEYWORDS.iter().any(|key| members.contains_key(*key));
        if !kept.contains(&index) && !says {
            close(members);
        }
        index += 1;
        open.extend(subschemas(members));
    }
}

/// Closes an object that names its members. Those that it only requires are named too, with any value.
fn close(members: &mut Map<String, Value>) {
    let required = members.get("required").and_then(Value::as_array).cloned();
    let Some(Value::Object(named)) = members.get_mut("properties") else {
        return;
    };
    for name in required.iter().flatten().filter_map(Value::as_str) {
        named.entry(name).or_insert(Value::Bool(true));
    }
    members.insert("additionalProperties".to_owned(), Value::Bool(false));
}

/// The schemas in a schema.
fn subschemas(members: &mut Map<String, Value>) -> impl Iterator<Item = &mut Value> {
    members.iter_mut().flat_map(|(key, value)| -> Box<dyn Iterator<Item = &mut Value>> {
        let key = key.as_str();
        match value {
            Value::Object(_) if ONE.contains(&key) => Box::new(std::iter::once(value)),
            Value::Object(named) if NAMED.contains(&key) => Box::new(named.values_mut()),
            Value::Array(list) if LISTS.contains(&key) => Box::new(list.iter_mut()),
            _ => Box::new(std::iter::empty()),
        }
    })
}

/// The objects that stay open, by their numbers in the order of [`close_objects`].
fn kept_open(schema: &Value) -> HashSet<usize> {
    let mut kept = HashSet::new();
    // The schemas that references join with others, by their addresses.
    let mut targets = HashSet::new();
    let mut addresses = Vec::new();
    let mut open = vec![(schema, false)];
    while let Some((value, is_joint)) = open.pop() {
        let Value::Object(members) = value else {
            continue;
        };
        let index = addresses.len();
        addresses.push(std::ptr::from_ref(value));
        let is_joined = is_joint || is_joined(members);
        if is_joined {
            kept.insert(index);
            if let Some(Value::String(reference)) = members.get("$ref") {
                let target = schema.pointer(reference.trim_start_matches('#'));
                targets.extend(target.map(std::ptr::from_ref));
            }
        }
        for (key, value) in members {
            let key = key.as_str();
            match value {
                Value::Object(named) if NAMED.contains(&key) => {
                    open.extend(named.values().map(|subschema| (subschema, false)));
                }
                Value::Array(list) if LISTS.contains(&key) => {
                    let is_joint = key == "allOf" || is_joined && matches!(key, "anyOf" | "oneOf");
                    open.extend(list.iter().map(|subschema| (subschema, is_joint)));
                }
                Value::Object(_) if ONE.contains(&key) => open.push((value, false)),
                _ => {}
            }
        }
    }
    let referred = addresses.iter().enumerate();
    let referred = referred.filter(|(_, address)| targets.contains(*address));
    kept.extend(referred.map(|(index, _)| index));
    kept
}

/// True if an object with own members has further ones from other schemas.
fn is_joined(members: &Map<String, Value>) -> bool {
    members.contains_key("allOf")
        || members.contains_key("properties")
            && JOINING_KEYWORDS.iter().any(|key| members.contains_key(*key))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn closed(mut schema: Value) -> Value {
        close_objects(&mut schema);
        schema
    }

    #[test]
    fn objects_that_name_their_members_are_closed() {
        let schema = json!({"properties": {
            "properties": {"properties": {"x": {}}},
            "any": {"type": "object"},
            "said": {"properties": {}, "additionalProperties": {"type": "string"}},
        }, "$defs": {"inner": {"type": "object", "properties": {"y": {}}}}});
        let schema = closed(schema);
        let is_closed = |path: &str| schema.pointer(path).unwrap()["additionalProperties"] == false;
        assert!(is_closed("") && is_closed("/properties/properties") && is_closed("/$defs/inner"));
        assert!(!is_closed("/properties/any") && !is_closed("/properties/said"));
    }

    #[test]
    fn required_members_are_named() {
        let schema =
            json!({"items": {"properties": {"a": {"type": "null"}}, "required": ["a", "b"]}});
        let items = &closed(schema)["items"];
        assert_eq!(items["properties"], json!({"a": {"type": "null"}, "b": true}));
        assert_eq!(items["additionalProperties"], false);
    }

    #[test]
    fn joined_objects_stay_open() {
        let schema = json!({
            "$defs": {"base": {"properties": {"a": {}}}, "free": {"properties": {"b": {}}}},
            "allOf": [{"$ref": "#/$defs/base"}, {"properties": {"c": {}}}],
            "properties": {"d": {"$ref": "#/$defs/free"}},
        });
        let schema = closed(schema);
        let is_closed = |path: &str| schema.pointer(path).unwrap()["additionalProperties"] == false;
        assert!(!is_closed("") && !is_closed("/$defs/base") && !is_closed("/allOf/1"));
        assert!(is_closed("/$defs/free"));
    }

    #[test]
    fn examples_and_values_are_no_schemas() {
        let schema = json!({"const": {"properties": {}}, "examples": [{"properties": {}}]});
        assert_eq!(closed(schema.clone()), schema);
    }
}
