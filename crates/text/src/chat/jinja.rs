//! Filters, tests and operators as in Jinja2 and Python, where the engine's differ.

use minijinja::formatting::{FormatStyle, format};
use minijinja::value::{Rest, ValueKind};
use minijinja::{Environment, Error, Value};
use minijinja_contrib::globals;

use super::methods::{self, invalid, lines, strip};
use crate::python_json::{Style, to_json};

/// Adds the functions and tests that the engine lacks or has otherwise.
pub(super) fn install(environment: &mut Environment<'_>) {
    environment.add_function("joiner", globals::joiner);
    environment.add_function("cycler", |items: Rest<Value>| globals::cycler(items.0));
    environment.add_test("iterable", |value: &Value| {
        value.is_undefined() || !value.is_none() && value.try_iter().is_ok()
    });
    environment.add_test("sequence", |value: &Value| {
        let kinds = [ValueKind::Seq, ValueKind::String, ValueKind::Map];
        value.is_undefined() || kinds.contains(&value.kind())
    });
    environment.add_test("callable", |value: &Value| {
        matches!(value.kind(), ValueKind::Undefined | ValueKind::Plain)
    });
}

/// Maximum characters of an indent and of a separator of JSON.
pub(super) const MAX_INDENT_CHARS: usize = 64;

/// Python's name of the type of `value`.
fn type_of(value: &Value) -> &'static str {
    match value.kind() {
        ValueKind::Undefined => "Undefined",
        ValueKind::None => "NoneType",
        ValueKind::Bool => "bool",
        ValueKind::Number if value.is_integer() => "int",
        ValueKind::Number => "float",
        ValueKind::String => "str",
        ValueKind::Bytes => "bytes",
        ValueKind::Seq => "list",
        ValueKind::Map => "dict",
        _ => "object",
    }
}

/// `value` as text.
fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(super) fn length(value: &Value) -> Result<usize, Error> {
    match value.len() {
        _ if value.is_undefined() => Ok(0),
        Some(length) => Ok(length),
        None => Err(invalid(format!("a {} has no length", type_of(value)))),
    }
}

pub(super) fn first(value: &Value) -> Result<Value, Error> {
    match value.is_undefined() {
        true => Ok(Value::UNDEFINED),
        false => minijinja::filters::first(value),
    }
}

pub(super) fn last(value: Value) -> Result<Value, Error> {
    match value.is_undefined() {
        true => Ok(value),
        false => minijinja::filters::last(value),
    }
}

/// An attribute of a value; the members of a map are none.
pub(super) fn attr(value: &Value, name: &Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Map => Ok(Value::UNDEFINED),
        _ => minijinja::filters::attr(value, name),
    }
}

pub(super) fn items(value: &Value) -> Result<Value, Error> {
    match value.is_undefined() {
        true => Ok(Value::from(Vec::<Value>::new())),
        false => minijinja::filters::items(value),
    }
}

pub(super) fn trim(value: &Value, chars: Option<&str>) -> String {
    strip(&text_of(value), chars, true, true).to_owned()
}

pub(super) fn replace(value: &Value, old: &str, new: &str, count: Option<i64>) -> String {
    methods::replace(&text_of(value), old, new, count)
}

pub(super) fn indent(
    value: &Value,
    width: Option<&Value>,
    first: Option<bool>,
    blank: Option<bool>,
) -> Result<String, Error> {
    let margin = match width {
        None => " ".repeat(4),
        Some(width) => match (width.as_str(), width.as_usize()) {
            (Some(margin), _) => margin.to_owned(),
            (_, Some(width)) => " ".repeat(width),
            _ => return Err(invalid("indent: expected a width or a text")),
        },
    };
    // A line end at the end of the text begins another line.
    let text = text_of(value) + "\n";
    let mut made = String::new();
    for (index, line) in lines(&text, false).into_iter().enumerate() {
        if index > 0 {
            made.push('\n');
        }
        let indented = match index {
            0 => first.unwrap_or(false),
            _ => blank.unwrap_or(false) || !line.is_empty(),
        };
        made += if indented { &margin } else { "" };
        made += line;
    }
    Ok(made)
}

/// The filter of transformers, with the arguments of `json.dumps`.
pub(super) fn tojson(
    value: &Value,
    ensure_ascii: Option<bool>,
    indent: Option<&Value>,
    separators: Option<Vec<String>>,
    sort_keys: Option<bool>,
) -> Result<String, Error> {
    if value.is_undefined() {
        return Err(invalid("an undefined value has no JSON"));
    }
    let indent = match indent.map(|indent| (indent.as_str(), i64::try_from(indent.clone()))) {
        None => None,
        Some((Some(indent), _)) => Some(indent.to_owned()),
        Some((_, Ok(width))) => {
            Some(" ".repeat(usize::try_from(width).unwrap_or(0).min(MAX_INDENT_CHARS)))
        }
        Some(_) => return Err(invalid("tojson: expected a number or a text as indent")),
    };
    let separators = match separators.map(<[String; 2]>::try_from) {
        None => None,
        Some(Ok(pair)) => Some(pair),
        Some(Err(_)) => return Err(invalid("tojson: expected two separators")),
    };
    let mut texts = indent.iter().chain(separators.iter().flatten());
    if texts.any(|text| text.len() > MAX_INDENT_CHARS) {
        let reason =
            format!("tojson: expected indent and separators of at most {MAX_INDENT_CHARS} bytes");
        return Err(invalid(reason));
    }
    let style = Style { indent, separators, ascii: ensure_ascii.unwrap_or(false) };
    let made = match sort_keys {
        Some(true) => serde_json::to_value(value).and_then(|mut value| {
            value.sort_all_objects();
            to_json(&value, &style)
        }),
        _ => to_json(value, &style),
    };
    made.map_err(|error| invalid(error.to_string()))
}

/// Checks that `<` and its siblings can compare `a` with `b`.
pub(super) fn ordered(a: &Value, b: &Value) -> Result<(), Error> {
    let class = |value: &Value| match value.kind() {
        ValueKind::Bool | ValueKind::Number => Some(ValueKind::Number),
        kind @ (ValueKind::String | ValueKind::Seq | ValueKind::Bytes) => Some(kind),
        _ => None,
    };
    if class(a).is_some() && class(a) == class(b) {
        return Ok(());
    }
    let (a, b) = (type_of(a), type_of(b));
    Err(invalid(format!("a {a} and a {b} have no order")))
}

/// `a % b`: a text that formats its arguments, or a remainder with the sign of `b`.
pub(super) fn remainder(a: &Value, b: &Value) -> Result<Value, Error> {
    if let Some(text) = a.as_str() {
        let args = match b.is_tuple() {
            true => b.try_iter()?.collect(),
            false => vec![b.clone()],
        };
        return format(FormatStyle::Printf, text, &args).map(Value::from);
    }
    let integers = (i64::try_from(a.clone()), i64::try_from(b.clone()));
    let floats = (f64::try_from(a.clone()), f64::try_from(b.clone()));
    match (integers, floats) {
        _ if !(a.is_number() && b.is_number()) => {
            let (a, b) = (type_of(a), type_of(b));
            Err(invalid(format!("a {a} and a {b} have no remainder")))
        }
        ((_, Ok(0)), _) | (_, (_, Ok(0.0))) => Err(invalid("the remainder of a division by zero")),
        ((Ok(a), Ok(b)), _) if b != -1 => Ok(Value::from((a % b + b) % b)),
        (_, (Ok(a), Ok(b))) => Ok(Value::from((a % b + b) % b)),
        _ => Err(invalid("a remainder of numbers that are too large")),
    }
}

/// The items of a loop; a text gives its characters, because the engine does not know their number.
pub(super) fn iterated(value: Value) -> Result<Value, Error> {
    match value.as_str() {
        _ if value.is_none() => Err(invalid("expected a list in a loop, found none")),
        Some(text) => Ok(text.chars().map(Value::from).collect()),
        None => Ok(value),
    }
}
