//! Structured output: the fields that give a grammar, at most one of them.

use text::GrammarSpec;

use super::Stops;
use crate::error::{ApiError, ErrorCode, clip};
use crate::fields::{Fields, text, wrong_type};
use crate::json::Json;

/// The kinds of `structured_outputs`.
const KINDS: [&str; 5] = ["json", "json_object", "regex", "choice", "grammar"];

/// A grammar that every choice follows.
#[derive(Clone, Debug, PartialEq)]
pub struct Structured {
    /// The field that gave it, for errors.
    pub field: &'static str,
    /// The grammar.
    pub spec: GrammarSpec,
}

/// What the fields ask for, each by itself.
#[derive(Debug, Default)]
pub struct StructuredFields {
    /// In the order of the checks: the field that a client would take back, and its grammar.
    given: Vec<(&'static str, Structured)>,
}

/// Reads the fields of this kind.
///
/// # Errors
/// Type and range faults.
pub fn read(fields: Fields<'_>) -> Result<StructuredFields, ApiError> {
    let sources = [
        ("response_format", response_format(fields)?),
        ("structured_outputs", structured_outputs(fields)?),
        (
            "regex",
            nonempty(fields, "regex", "regex")?.map(|regex| Structured {
                field: "regex",
                spec: GrammarSpec::Regex(regex),
            }),
        ),
        (
            "grammar",
            nonempty(fields, "grammar", "grammar")?.map(|grammar| Structured {
                field: "grammar",
                spec: GrammarSpec::Lark(grammar),
            }),
        ),
    ];
    let given = sources.into_iter();
    let given = given.filter_map(|(name, structured)| Some((name, structured?)));
    Ok(StructuredFields {
        given: given.collect(),
    })
}

impl StructuredFields {
    /// The one grammar of the request, which alone decides when a text may end.
    ///
    /// # Errors
    /// A second grammar, or `ignore_eos` or `min_tokens` beside one.
    pub fn combinations(self, stops: &Stops) -> Result<Option<Structured>, ApiError> {
        let invalid =
            |param: &str, rest: String| Err(ApiError::field(ErrorCode::InvalidValue, param, rest));
        let mut given = self.given.into_iter();
        let Some((first, structured)) = given.next() else {
            return Ok(None);
        };
        if let Some((second, _)) = given.next() {
            return invalid(second, format!("must not be given together with {first}"));
        }
        let rest = || format!("must not be given together with {first}, which decides the end");
        if stops.ignore_eos {
            return invalid("ignore_eos", rest());
        }
        if stops.min_tokens > 0 {
            return invalid("min_tokens", rest());
        }
        Ok(Some(structured))
    }
}

fn response_format(fields: Fields<'_>) -> Result<Option<Structured>, ApiError> {
    let Some(object) = fields.object("response_format")? else {
        return Ok(None);
    };
    let inner = Fields::new(object, "response_format.");
    match text(inner.required("type")?, || inner.param("type"))? {
        "text" => Ok(None),
        "json_object" => Ok(Some(Structured {
            field: "response_format",
            spec: GrammarSpec::JsonObject,
        })),
        "json_schema" => {
            let field = "response_format.json_schema.schema";
            let missing = || {
                let code = ErrorCode::MissingRequiredParameter;
                ApiError::field(code, field, "is required and must be an object")
            };
            let inner = inner.object("json_schema")?.ok_or_else(missing)?;
            let inner = Fields::new(inner, "response_format.json_schema.");
            inner.text("name")?;
            inner.text("description")?;
            inner.boolean("strict")?;
            match inner.get("schema") {
                None => Err(missing()),
                Some(schema @ Json::Object(_)) => Ok(Some(Structured {
                    field,
                    spec: GrammarSpec::JsonSchema(schema.into()),
                })),
                Some(other) => Err(wrong_type(field.to_owned(), "an object", other)),
            }
        }
        other => {
            let found = clip(other);
            let rest = format!("must be one of text, json_object, json_schema, got \"{found}\"");
            Err(invalid("response_format.type", rest))
        }
    }
}

/// The object of vLLM's name: exactly one kind of grammar.
fn structured_outputs(fields: Fields<'_>) -> Result<Option<Structured>, ApiError> {
    let Some(object) = fields.object("structured_outputs")? else {
        return Ok(None);
    };
    let inner = Fields::new(object, "structured_outputs.");
    let unknown = |name: &&String| !KINDS.contains(&name.as_str()) && inner.get(name).is_some();
    if let Some(name) = object.keys().find(unknown) {
        let rest = format!("does not exist; there are {}", KINDS.join(", "));
        let code = ErrorCode::UnknownParameter;
        return Err(ApiError::field(code, inner.param(name), rest));
    }
    let json_object = inner.boolean("json_object")?.unwrap_or(false);
    let regex = nonempty(inner, "regex", "structured_outputs.regex")?;
    let lark = nonempty(inner, "grammar", "structured_outputs.grammar")?;
    let given = [
        ("structured_outputs.json", schema(inner)?),
        (
            "structured_outputs.json_object",
            json_object.then_some(GrammarSpec::JsonObject),
        ),
        ("structured_outputs.regex", regex.map(GrammarSpec::Regex)),
        ("structured_outputs.choice", choice(inner)?),
        ("structured_outputs.grammar", lark.map(GrammarSpec::Lark)),
    ];
    let mut given = given
        .into_iter()
        .filter_map(|(field, spec)| Some(Structured { field, spec: spec? }));
    let Some(first) = given.next() else {
        let rest = format!("must have one of {}", KINDS.join(", "));
        return Err(invalid("structured_outputs", rest));
    };
    match given.next() {
        None => Ok(Some(first)),
        Some(second) => {
            let rest = format!("must not be given together with {}", first.field);
            Err(invalid(second.field, rest))
        }
    }
}

/// A JSON schema, as an object or as the text of one.
fn schema(inner: Fields<'_>) -> Result<Option<GrammarSpec>, ApiError> {
    let field = "structured_outputs.json";
    let schema = match inner.get("json") {
        None => return Ok(None),
        Some(schema @ Json::Object(_)) => schema.into(),
        Some(Json::Text(text)) => match serde_json::from_str(text) {
            Ok(schema @ serde_json::Value::Object(_)) => schema,
            _ => return Err(invalid(field, "must be the text of a JSON object")),
        },
        Some(other) => {
            let expected = "an object or the text of one";
            return Err(wrong_type(field.to_owned(), expected, other));
        }
    };
    Ok(Some(GrammarSpec::JsonSchema(schema)))
}

fn choice(inner: Fields<'_>) -> Result<Option<GrammarSpec>, ApiError> {
    let Some(items) = inner.list("choice")? else {
        return Ok(None);
    };
    let field = "structured_outputs.choice";
    if items.is_empty() {
        return Err(invalid(field, "must not be empty"));
    }
    let mut texts = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let name = || format!("{field}[{index}]");
        match text(item, name)? {
            "" => return Err(invalid(&name(), "must not be empty")),
            text => texts.push(text.to_owned()),
        }
    }
    Ok(Some(GrammarSpec::Choice(texts)))
}

/// A string of at least one character; `field` is its full name.
fn nonempty(fields: Fields<'_>, name: &str, field: &str) -> Result<Option<String>, ApiError> {
    match fields.text(name)? {
        Some("") => Err(invalid(field, "must not be empty")),
        other => Ok(other.map(str::to_owned)),
    }
}

fn invalid(param: &str, rest: impl AsRef<str>) -> ApiError {
    ApiError::field(ErrorCode::InvalidValue, param, rest)
}
