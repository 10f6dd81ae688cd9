//! `diffusion`: the decoder of a request.

use decode::Feature;
use engine::decoding::{
    Decoders, Decoding, DecodingSpec, FieldKind, Registry, SettingKind, SpecError, SpecFault, Value,
};
use schemars::json_schema;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value as Json, json};

use super::canvas::PieceFields;
use super::numbers::integer as integer_of;
use super::schema::schema;
use super::types::{List, Members};
use crate::backend::Backend;
use crate::error::{ApiError, ErrorCode, clip};

/// The settings by name.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct Diffusion(Members<Box<RawValue>>);

impl Diffusion {
    /// The value of a member; null counts as absent.
    pub fn raw(&self, name: &str) -> Option<&RawValue> {
        let mut members = self.0.0.iter().filter(|(known, _)| known == name);
        members.next().map(|(_, value)| &**value).filter(|value| value.get() != "null")
    }
}

schema!(Diffusion, generator => {
    let registry = Registry::builtin();
    let settings = registry.fields().iter().map(|field| {
        let mut schema = values(&field.kind);
        if let Some(summary) = summary(&registry, field.name) {
            schema["description"] = json!(summary);
        }
        (field.name.to_owned(), schema)
    });
    let mut settings: Map<_, _> = settings.collect();
    let canvas = generator.subschema_for::<List<PieceFields>>();
    settings.insert("canvas".to_owned(), canvas.to_value());
    json_schema!({"type": "object", "properties": settings})
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

/// The summary of the setting `name` of the first member that reads it.
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
    let settings = given.iter().flat_map(|given| &given.0.0);
    for (name, setting) in settings.filter(|(name, _)| name != "canvas") {
        let known = decoders.registry().field(name);
        let setting = Setting::new(setting);
        let value = match (&setting, known) {
            (Setting::Scalar(Json::String(name)), _) => Value::Name(name),
            (Setting::Scalar(Json::Number(number)), _) => number_value(number),
            (Setting::Scalar(Json::Bool(flag)), _) => Value::Flag(*flag),
            // The name is refused, whatever the value.
            (_, None) => Value::Flag(false),
            (Setting::Other(found), Some(field)) => {
                let param = format!("diffusion.{}", clip(name));
                let rest = format!("must be {}, got {found}", field.kind.describe());
                return Err(ApiError::field(ErrorCode::InvalidType, param, rest));
            }
            (Setting::Scalar(_), Some(_)) => continue,
        };
        spec.set(name, value).map_err(fault)?;
    }
    let names = |name: &str| given.is_some_and(|given| given.raw(name).is_some());
    let is_open = !names("preset") && !names("schedule") && !names("cache");
    if names("max_steps") && is_open && decoders.has_full_attention() {
        // The decoder that reads the whole canvas in every step goes with it.
        for (name, value) in [("schedule", "block_wise"), ("cache", "none")] {
            spec.set(name, Value::Name(value)).map_err(fault)?;
        }
    }
    Ok(spec)
}

/// The value of one setting.
enum Setting {
    /// A string, a number, a boolean or null.
    Scalar(Json),
    /// A list or an object, by its name with an article.
    Other(&'static str),
}

impl Setting {
    fn new(value: &RawValue) -> Self {
        match value.get().as_bytes().first() {
            Some(b'[') => Self::Other("a list"),
            Some(b'{') => Self::Other("an object"),
            _ => Self::Scalar(serde_json::from_str(value.get()).unwrap_or_default()),
        }
    }
}

/// An integer, also one that is written as a fraction, or else a number.
fn number_value(number: &Number) -> Value<'static> {
    let float = number.as_f64().unwrap_or(f64::NAN);
    let integer = number.as_i64().or_else(|| integer_of(float).filter(|_| number.is_f64()));
    integer.map_or(Value::Number(float), Value::Integer)
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
