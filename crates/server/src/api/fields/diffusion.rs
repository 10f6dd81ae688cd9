//! `diffusion`: the decoder of a request.

use std::fmt;

use decode::Feature;
use engine::decoding::{
    Decoders, Decoding, DecodingSpec, FieldKind, Registry, SettingKind, SpecError, SpecFault, Value,
};
use schemars::json_schema;
use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value as Json, json};

use super::schema::schema;
use super::types::{Members, integer as integer_of};
use crate::backend::Backend;
use crate::error::{ApiError, ErrorCode, clip};

/// The settings by name.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Diffusion(Members<Setting>);

schema!(Diffusion, _ => {
    let registry = Registry::builtin();
    let settings = registry.fields().iter().map(|field| {
        let mut schema = values(&field.kind);
        if let Some(summary) = summary(&registry, field.name) {
            schema["description"] = json!(summary);
        }
        (field.name.to_owned(), schema)
    });
    json_schema!({"type": "object", "properties": settings.collect::<Map<_, _>>()})
});

/// The schema of the allowed values; null counts as absent.
fn values(kind: &FieldKind) -> Json {
    let name = |names: &[&str]| json!({"type": ["string", "null"], "enum": nullable(names)});
    match kind {
        FieldKind::Member(names) => name(names),
        FieldKind::Setting(SettingKind::Name(names)) => name(names),
        FieldKind::Setting(SettingKind::Flag) => json!({"type": ["boolean", "null"]}),
        FieldKind::Setting(SettingKind::Integer(min, max)) => integer(*min, *max),
        FieldKind::Setting(SettingKind::Number(min, max)) => {
            let mut schema = json!({"type": ["number", "null"], "minimum": min});
            if *max < f64::MAX {
                schema["maximum"] = json!(max);
            }
            schema
        }
        FieldKind::Setting(SettingKind::NameOrInteger(names, min, max)) => {
            json!({"anyOf": [name(names), integer(*min, *max)]})
        }
    }
}

fn nullable(names: &[&str]) -> Vec<Json> {
    let names = names.iter().map(|name| json!(name));
    names.chain([Json::Null]).collect()
}

fn integer(min: i64, max: i64) -> Json {
    json!({"type": ["integer", "null"], "minimum": min, "maximum": max})
}

/// What the setting `name` does, as the first member that reads it says.
fn summary(registry: &Registry, name: &str) -> Option<&'static str> {
    let schedules = registry.schedules().iter().map(|member| member.settings);
    let commits = registry.commits().iter().map(|member| member.settings);
    let caches = registry.caches().iter().map(|member| member.settings);
    let settings = schedules.chain(commits).chain(caches).flatten();
    let mut found = settings.filter(|setting| setting.name == name);
    found.next().map(|setting| setting.summary)
}

/// The settings that a request names.
///
/// # Errors
/// Unknown settings, type and range faults; `param` is `diffusion.<setting>`.
pub fn spec(given: Option<&Diffusion>, decoders: &Decoders) -> Result<DecodingSpec, ApiError> {
    let mut spec = decoders.blank();
    let Some(Diffusion(Members(given))) = given else {
        return Ok(spec);
    };
    for (name, setting) in given {
        let known = decoders.registry().field(name);
        let value = match (setting, known) {
            (Setting::Name(name), _) => Value::Name(name),
            (Setting::Integer(number), _) => Value::Integer(*number),
            (Setting::Number(number), _) => Value::Number(*number),
            (Setting::Flag(flag), _) => Value::Flag(*flag),
            (Setting::Null, Some(_)) => continue,
            (Setting::List | Setting::Object, Some(field)) => {
                let param = format!("diffusion.{}", clip(name));
                let (expected, found) = (field.kind.describe(), setting.kind());
                let rest = format!("must be {expected}, got {found}");
                return Err(ApiError::field(ErrorCode::InvalidType, param, rest));
            }
            // The name is refused, whatever the value.
            (_, None) => Value::Flag(false),
        };
        spec.set(name, value).map_err(fault)?;
    }
    Ok(spec)
}

/// The decoder of a request that names the settings `given` and asks for `features`.
///
/// # Errors
/// Settings that do not go together.
pub fn resolve(
    given: &DecodingSpec,
    backend: &Backend,
    features: &[Feature],
) -> Result<Decoding, ApiError> {
    match given.is_empty() {
        true => backend.default_decoding(features),
        false => backend.model.decoders.resolve(given).map_err(fault),
    }
}

fn fault(error: SpecError) -> ApiError {
    let code = match error.fault {
        SpecFault::Unknown => ErrorCode::UnknownParameter,
        SpecFault::Type => ErrorCode::InvalidType,
        SpecFault::Value | SpecFault::Combination => ErrorCode::InvalidValue,
    };
    ApiError::field(code, format!("diffusion.{}", error.field), error.message)
}

/// The value of one setting. Every type is read; the settings tell which they accept.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    /// `null`: absent.
    Null,
    /// A boolean.
    Flag(bool),
    /// An integer, however it is written.
    Integer(i64),
    /// Another number.
    Number(f64),
    /// A string.
    Name(String),
    /// A list, of whatever.
    List,
    /// An object, of whatever.
    Object,
}

impl Setting {
    /// Its type with an article, for messages.
    fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Flag(_) => "a boolean",
            Self::Integer(_) => "an integer",
            Self::Number(_) => "a number",
            Self::Name(_) => "a string",
            Self::List => "a list",
            Self::Object => "an object",
        }
    }
}

impl<'de> Deserialize<'de> for Setting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SettingVisitor)
    }
}

struct SettingVisitor;

impl<'de> Visitor<'de> for SettingVisitor {
    type Value = Setting;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a setting")
    }

    fn visit_unit<E: Error>(self) -> Result<Setting, E> {
        Ok(Setting::Null)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Setting, E> {
        Ok(Setting::Flag(flag))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Setting, E> {
        Ok(Setting::Integer(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Setting, E> {
        let integer = i64::try_from(number).map(Setting::Integer);
        Ok(integer.unwrap_or(Setting::Number(number as f64)))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Setting, E> {
        Ok(integer_of(number).map_or(Setting::Number(number), Setting::Integer))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Setting, E> {
        Ok(Setting::Name(name.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Setting, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Setting::List)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Setting, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Setting::Object)
    }
}
