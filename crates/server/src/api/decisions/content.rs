//! The content of messages and questions: a text, or parts of text and JSON as one text.

use schemars::{JsonSchema, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::api::fields::schema::{named, schema};
use crate::api::fields::types::{Object, Required, text_or_list};

/// Most levels, values and bytes of a JSON part.
const MAX_LEVELS: usize = 32;
const MAX_VALUES: usize = 10_000;
const MAX_BYTES: usize = 256 << 10;

/// A text, or the texts of parts, one a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content(pub String);

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = |text| Ok(Parts(text));
        let parts = text_or_list(deserializer, "a string or a list of parts", text)?;
        Ok(Self(parts.0))
    }
}

schema!(Content, generator => {
    let part = generator.subschema_for::<PartFields>();
    json_schema!({"anyOf": [
        {"type": "string"},
        {"type": "array", "items": part, "minItems": 1},
    ]})
});

struct Parts(String);

impl<'de> Deserialize<'de> for Parts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let parts = Vec::<Part>::deserialize(deserializer)?;
        let texts: Vec<String> = parts.into_iter().map(|part| part.0).collect();
        match texts.is_empty() {
            true => Err(D::Error::custom("must not be an empty list")),
            false => Ok(Self(texts.join("\n"))),
        }
    }
}

/// One part as a text.
struct Part(String);

/// A part; its type decides which field it needs.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(rename = "DecisionPart")]
struct PartFields {
    #[serde(rename = "type")]
    kind: Required<PartKind>,
    /// The text of a text part.
    text: Option<String>,
    /// The text of a `refusal`.
    refusal: Option<String>,
    /// The object, or list of objects, of an `input_json`.
    data: Option<Value>,
}

#[derive(Clone, Copy, Debug)]
enum PartKind {
    Text,
    Refusal,
    Json,
    Image,
}

named!(PartKind {
    "input_text" => Self::Text,
    "output_text" => Self::Text,
    "text" => Self::Text,
    "refusal" => Self::Refusal,
    "input_json" => Self::Json,
    "input_image" => Self::Image,
});

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Object(part) = Object::<PartFields>::deserialize(deserializer)?;
        let need = |field: &str, text: Option<String>| {
            text.ok_or_else(|| D::Error::custom(format_args!("needs the field {field}")))
        };
        match part.kind.0 {
            PartKind::Text => need("text", part.text).map(Self),
            PartKind::Refusal => need("refusal", part.refusal).map(Self),
            PartKind::Json => {
                let data = part.data.ok_or_else(|| D::Error::custom("needs the field data"))?;
                json_text(&data).map(Self).map_err(D::Error::custom)
            }
            PartKind::Image => {
                Err(D::Error::custom("is an image, and this server's models read text only"))
            }
        }
    }
}

/// The compact text of the data of a JSON part.
fn json_text(data: &Value) -> Result<String, String> {
    let is_container = match data {
        Value::Object(_) => true,
        Value::Array(items) => items.iter().all(Value::is_object),
        _ => false,
    };
    if !is_container {
        return Err("must have an object or a list of objects as data".to_owned());
    }
    let mut values = MAX_VALUES;
    if !is_within(data, MAX_LEVELS, &mut values) {
        let most = format!("{MAX_LEVELS} levels and {MAX_VALUES} values");
        return Err(format!("must have data of at most {most}"));
    }
    let text = data.to_string();
    match text.len() <= MAX_BYTES {
        true => Ok(text),
        false => Err(format!(
            "must have data of at most {MAX_BYTES} bytes of compact JSON, got {}",
            text.len()
        )),
    }
}

/// Returns true if a value has at most `levels` levels of containers and `values` values, which are
/// counted down.
fn is_within(value: &Value, levels: usize, values: &mut usize) -> bool {
    let Some(left) = values.checked_sub(1) else {
        return false;
    };
    *values = left;
    match value {
        Value::Array(items) => {
            levels > 0 && items.iter().all(|item| is_within(item, levels - 1, values))
        }
        Value::Object(members) => {
            levels > 0 && members.values().all(|member| is_within(member, levels - 1, values))
        }
        _ => true,
    }
}
