//! Structured output: the fields that give a grammar, at most one of them.

use engine::did_you_mean;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use text::GrammarSpec;

use super::body::{names, read_value, reason, required};
use super::schema::named;
use super::types::{List, NonEmpty, Object, Required};
use crate::error::{ApiError, ErrorCode, clip};
use crate::pipeline::generation::{Stops, Structured};

/// The fields.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct StructuredFields {
    /// OpenAI's structured output.
    response_format: Option<Object<ResponseFormat>>,
    /// vLLM's structured output: exactly one member.
    #[schemars(with = "Option<StructuredOutputs>")]
    structured_outputs: Option<Object<Map<String, Value>>>,
    /// The whole text matches this regular expression.
    regex: Option<NonEmpty>,
    /// The text follows this Lark grammar.
    grammar: Option<NonEmpty>,
    /// The text follows this JSON schema, an object or its text; the name of older vLLM.
    guided_json: Option<Value>,
    /// `regex` under the name of older vLLM.
    guided_regex: Option<NonEmpty>,
    /// The text is one of these; the name of older vLLM.
    guided_choice: Option<List<NonEmpty>>,
    /// `grammar` under the name of older vLLM.
    guided_grammar: Option<NonEmpty>,
    /// `grammar` under the name of SGLang.
    ebnf: Option<NonEmpty>,
}

/// `response_format`, OpenAI's field.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct ResponseFormat {
    #[serde(rename = "type")]
    kind: Required<FormatKind>,
    /// Read only with the type `json_schema`.
    #[schemars(with = "Option<SchemaField>")]
    json_schema: Option<Value>,
    /// The schema of the object, as in other servers, or `value` as in TGI; read only with the types
    /// `json_object` and `json`.
    #[serde(alias = "value")]
    schema: Option<Object<Map<String, Value>>>,
}

/// The kinds of structured output that OpenAI's fields name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatKind {
    /// Any text.
    Text,
    /// A JSON object.
    Object,
    /// A JSON object of a schema.
    Schema,
}

named!(FormatKind {
    "text" => Self::Text,
    "json_object" => Self::Object,
    "json" => Self::Object,
    "json_schema" => Self::Schema,
});

/// `response_format.json_schema`.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "ResponseFormatSchema")]
struct SchemaField {
    #[serde(rename = "name")]
    _name: Option<String>,
    #[serde(rename = "description")]
    _description: Option<String>,
    /// Objects are closed, whatever the server's setting.
    strict: Option<bool>,
    /// The JSON schema; required.
    schema: Option<Object<Map<String, Value>>>,
}

/// `structured_outputs`, vLLM's field: exactly one member.
#[derive(Deserialize, JsonSchema)]
struct StructuredOutputs {
    /// A JSON schema, an object or its text.
    json: Option<Value>,
    /// Any JSON object.
    json_object: Option<bool>,
    /// A regular expression of the whole text.
    regex: Option<NonEmpty>,
    /// The texts to choose from.
    choice: Option<List<NonEmpty>>,
    /// A Lark grammar.
    grammar: Option<NonEmpty>,
}

/// The grammars of a request, each by the field that a client would remove.
#[derive(Clone, Debug, Default)]
pub struct Grammars(Vec<(&'static str, Structured)>);

impl StructuredFields {
    /// The grammar of every field that gives one. Objects are closed unless they are `open` by
    /// default.
    ///
    /// # Errors
    /// Type and range faults.
    pub fn grammars(self, open: bool) -> Result<Grammars, ApiError> {
        let format = self.response_format.clone();
        let format = format.map_or(Ok(None), |Object(format)| format.grammar(open))?;
        let outputs = self.structured_outputs.clone();
        let outputs = outputs.map(|Object(outputs)| structured_outputs(outputs, open));
        let given = |field, spec| Structured::new(field, spec);
        let regex = self.regex.clone();
        let regex = regex.map(|text| given("regex", GrammarSpec::Regex(text.0)));
        let lark = self.grammar.clone();
        let lark = lark.map(|text| given("grammar", GrammarSpec::Lark(text.0)));
        let sources = [
            ("response_format", format),
            ("structured_outputs", outputs.transpose()?),
            ("regex", regex),
            ("grammar", lark),
        ];
        let older = self.older(open)?;
        let given = sources.into_iter().chain(older);
        let given = given.filter_map(|(name, structured)| Some((name, structured?)));
        Ok(Grammars(given.collect()))
    }

    /// The fields of older vLLM and of SGLang.
    fn older(self, open: bool) -> Result<[(&'static str, Option<Structured>); 5], ApiError> {
        let json = self.guided_json;
        let json = json.map(|given| schema("guided_json", given, open));
        let choice = self.guided_choice;
        let choice = choice.map(|given| choice_of("guided_choice", given));
        let regex = self.guided_regex.map(|text| GrammarSpec::Regex(text.0));
        let lark = self.guided_grammar.map(|text| GrammarSpec::Lark(text.0));
        let ebnf = self.ebnf.map(|text| GrammarSpec::Lark(text.0));
        let specs = [
            ("guided_json", json.transpose()?),
            ("guided_regex", regex),
            ("guided_choice", choice.transpose()?),
            ("guided_grammar", lark),
            ("ebnf", ebnf),
        ];
        Ok(specs.map(|(field, spec)| (field, spec.map(|spec| Structured::new(field, spec)))))
    }
}

impl Grammars {
    /// Adds the grammar of the field `name`.
    pub fn add(&mut self, name: &'static str, structured: Structured) {
        self.0.push((name, structured));
    }

    /// The one grammar of the request, which alone decides where a text may end.
    ///
    /// # Errors
    /// A second grammar, or `ignore_eos` or `min_tokens` beside one.
    pub fn one(self, stops: &Stops) -> Result<Option<Structured>, ApiError> {
        let mut given = self.0.into_iter();
        let Some((first, structured)) = given.next() else {
            return Ok(None);
        };
        if let Some((second, _)) = given.next() {
            let rest = format!("must not be given together with {first}");
            return Err(invalid(second, rest));
        }
        let rest = || format!("must not be given together with {first}, which decides the end");
        if stops.ignore_eos {
            return Err(invalid("ignore_eos", rest()));
        }
        if stops.min_tokens > 0 {
            return Err(invalid("min_tokens", rest()));
        }
        Ok(Some(structured))
    }
}

impl ResponseFormat {
    fn grammar(self, open: bool) -> Result<Option<Structured>, ApiError> {
        let (field, spec) = match self.kind.0 {
            FormatKind::Text => return Ok(None),
            FormatKind::Object => match self.schema {
                Some(Object(schema)) => ("response_format.schema", json_schema(schema, open)),
                None => ("response_format", GrammarSpec::JsonObject),
            },
            FormatKind::Schema => {
                let field = "response_format.json_schema.schema";
                let given = self.json_schema.ok_or_else(|| required(field))?;
                let given: Object<SchemaField> = read_value("response_format.json_schema", given)?;
                let strict = given.0.strict.unwrap_or(false);
                let Object(schema) = given.0.schema.ok_or_else(|| required(field))?;
                (field, json_schema(schema, open && !strict))
            }
        };
        Ok(Some(Structured::new(field, spec)))
    }
}

fn structured_outputs(members: Map<String, Value>, open: bool) -> Result<Structured, ApiError> {
    let kinds = names::<StructuredOutputs>();
    let unknown =
        |(name, value): &(&String, &Value)| !kinds.contains(&name.as_str()) && !value.is_null();
    if let Some((name, _)) = members.iter().find(unknown) {
        let param = format!("structured_outputs.{}", clip(name));
        let hint = did_you_mean(name, kinds.iter().copied());
        let rest = format!("does not exist{hint}; there are {}", kinds.join(", "));
        return Err(ApiError::field(ErrorCode::UnknownParameter, param, rest));
    }
    let fields: StructuredOutputs = read_value("structured_outputs", Value::Object(members))?;
    let is_json = fields.json_object == Some(true);
    let given = [
        (
            "structured_outputs.json",
            fields.json.map(|given| schema("structured_outputs.json", given, open)).transpose()?,
        ),
        ("structured_outputs.json_object", is_json.then_some(GrammarSpec::JsonObject)),
        ("structured_outputs.regex", fields.regex.map(|text| GrammarSpec::Regex(text.0))),
        (
            "structured_outputs.choice",
            fields.choice.map(|given| choice_of("structured_outputs.choice", given)).transpose()?,
        ),
        ("structured_outputs.grammar", fields.grammar.map(|text| GrammarSpec::Lark(text.0))),
    ];
    let mut given =
        given.into_iter().filter_map(|(field, spec)| Some(Structured::new(field, spec?)));
    let Some(first) = given.next() else {
        let rest = format!("must have one of {}", kinds.join(", "));
        return Err(invalid("structured_outputs", rest));
    };
    match given.next() {
        None => Ok(first),
        Some(second) => {
            let rest = format!("must not be given together with {}", first.field);
            Err(invalid(second.field, rest))
        }
    }
}

/// A JSON schema of `field`, as an object or as the text of one.
fn schema(field: &str, given: Value, open: bool) -> Result<GrammarSpec, ApiError> {
    let schema = match given {
        Value::Object(schema) => schema,
        Value::String(text) => serde_json::from_str(&text).map_err(|error| {
            let rest = format!("must be the text of a JSON object: {}", reason(&error));
            invalid(field, rest)
        })?,
        other => {
            let Object(schema) = read_value(field, other)?;
            schema
        }
    };
    Ok(json_schema(schema, open))
}

/// The grammar of `schema`; its objects are closed unless they are `open` by default.
pub fn json_schema(schema: Map<String, Value>, open: bool) -> GrammarSpec {
    let schema = Value::Object(schema);
    match open {
        true => GrammarSpec::JsonSchema(schema),
        false => GrammarSpec::ClosedJsonSchema(schema),
    }
}

fn choice_of(field: &str, texts: List<NonEmpty>) -> Result<GrammarSpec, ApiError> {
    if texts.0.is_empty() {
        return Err(invalid(field, "must not be empty"));
    }
    let texts = texts.0.into_iter().map(|text| text.0);
    Ok(GrammarSpec::Choice(texts.collect()))
}

fn invalid(param: &str, rest: impl AsRef<str>) -> ApiError {
    ApiError::field(ErrorCode::InvalidValue, param, rest)
}
