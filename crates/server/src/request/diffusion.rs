//! The `diffusion` object: from JSON to a resolved decoder.

use engine::decoding::{Decoding, DecodingSpec, FIELDS, SpecError, SpecFault, Value};

use crate::error::{ApiError, ErrorCode};
use crate::fields::{Fields, wrong_type};
use crate::json::Json;

/// The settings of the request: its own over `default`, or its own alone if it names a preset,
/// since a preset is a full setting.
///
/// # Errors
/// Unknown fields, type and range faults, param `diffusion.<field>`.
pub fn read(fields: Fields<'_>, default: &DecodingSpec) -> Result<DecodingSpec, ApiError> {
    let mut spec = DecodingSpec::default();
    let Some(object) = fields.object("diffusion")? else {
        return Ok(default.clone());
    };
    let inner = Fields::new(object, "diffusion.");
    for (name, value) in object {
        let known = FIELDS.iter().find(|field| field.name == name.as_str());
        let value = match (value, known) {
            (Json::Text(text), _) => Value::Name(text),
            (Json::Integer(number), _) => Value::Integer(*number),
            (Json::Number(number), _) => Value::Number(*number),
            (Json::Bool(flag), _) => Value::Flag(*flag),
            (Json::Null, Some(_)) => continue,
            (other, Some(field)) => {
                return Err(wrong_type(inner.param(name), &field.kind.describe(), other));
            }
            // The value does not matter: the name is refused.
            (_, None) => Value::Flag(false),
        };
        spec.set(name, value).map_err(fault)?;
    }
    Ok(if inner.get("preset").is_some() {
        spec
    } else {
        spec.over(default)
    })
}

/// The decoder that `spec` describes.
///
/// # Errors
/// Settings that do not go together.
pub fn resolve(spec: &DecodingSpec) -> Result<Decoding, ApiError> {
    spec.resolve().map_err(fault)
}

fn fault(error: SpecError) -> ApiError {
    let code = match error.fault {
        SpecFault::Unknown => ErrorCode::UnknownParameter,
        SpecFault::Type => ErrorCode::InvalidType,
        SpecFault::Value | SpecFault::Combination => ErrorCode::InvalidValue,
    };
    ApiError::field(code, format!("diffusion.{}", error.field), error.message)
}
