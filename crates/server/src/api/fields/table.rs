//! The fields of a body: their names, and their schema.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::body;
use super::promises::{HINTS, NEUTRAL, UNSUPPORTED};

/// The fields that an endpoint reads: the fields of several structs, which each read the
/// same body. Where a body has one of several forms, the fields of each form.
#[derive(Clone, Debug, Default)]
pub struct Fields(Vec<Vec<Group>>);

/// The fields of one struct.
#[derive(Clone, Copy, Debug)]
struct Group {
    names: fn() -> &'static [&'static str],
    schema: fn(&mut SchemaGenerator) -> Schema,
}

impl Group {
    fn new<T: DeserializeOwned + JsonSchema>() -> Self {
        Self { names: body::names::<T>, schema: T::json_schema }
    }
}

impl Fields {
    /// The fields of `T`.
    pub fn new<T: DeserializeOwned + JsonSchema>() -> Self {
        Self(vec![vec![Group::new::<T>()]])
    }

    /// Adds the fields of `T`. The first of two fields of one name is described.
    #[must_use]
    pub fn and<T: DeserializeOwned + JsonSchema>(mut self) -> Self {
        for form in &mut self.0 {
            form.push(Group::new::<T>());
        }
        self
    }

    /// Adds all fields of `other` to every form of this body.
    #[must_use]
    pub fn and_all(mut self, other: &Self) -> Self {
        for form in &mut self.0 {
            form.extend(other.0.iter().flatten());
        }
        self
    }

    /// Adds the forms of `other`.
    #[must_use]
    pub fn or(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// True if the endpoint names no field.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names of all fields.
    pub fn names(&self) -> Vec<&'static str> {
        let groups = self.0.iter().flatten();
        groups.flat_map(|group| (group.names)()).copied().collect()
    }

    /// The schema of the body. If it `is_promised`, with the fields that are accepted without effect.
    pub fn schema(&self, is_promised: bool, generator: &mut SchemaGenerator) -> Value {
        let forms = self.0.iter().map(|form| object(form, generator));
        let mut forms: Vec<_> = forms.collect();
        if is_promised {
            forms.iter_mut().for_each(|(fields, _)| promise(fields));
        }
        let forms = forms.into_iter().map(|(fields, required)| {
            json!({"type": "object", "properties": fields, "required": required})
        });
        let mut forms: Vec<Value> = forms.collect();
        match forms.len() {
            0 => json!({"type": "object"}),
            1 => forms.remove(0),
            _ => json!({"anyOf": forms}),
        }
    }
}

/// The schemas of the fields of one form by name, and the names of the required ones.
fn object(form: &[Group], generator: &mut SchemaGenerator) -> (Map<String, Value>, Vec<Value>) {
    let (mut fields, mut required) = (Map::new(), Vec::new());
    for group in form {
        let mut schema = (group.schema)(generator);
        if let Some(Value::Object(more)) = schema.remove("properties") {
            for (name, field) in more {
                fields.entry(name).or_insert(field);
            }
        }
        if let Some(Value::Array(more)) = schema.remove("required") {
            required.extend(more);
        }
    }
    (fields, required)
}

/// Adds the fields that are accepted without effect.
fn promise(fields: &mut Map<String, Value>) {
    for name in NEUTRAL {
        let neutral = || json!({"description": "Accepted, without effect."});
        fields.entry(name).or_insert_with(neutral);
    }
    for name in HINTS {
        let about = "A hint, without effect here: the answer's header `x-ignored-fields` names it.";
        let hint = || json!({"description": about});
        fields.entry(name).or_insert_with(hint);
    }
    for (name, values) in UNSUPPORTED {
        let values = values.iter().map(|text| serde_json::from_str(text));
        let mut values: Vec<Value> = values.filter_map(Result::ok).collect();
        values.push(Value::Null);
        let about = "Not supported: only neutral values are accepted.";
        let unsupported = || json!({"enum": values, "description": about});
        fields.entry(name).or_insert_with(unsupported);
    }
}
