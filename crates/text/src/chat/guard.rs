//! Filters, methods and operators of templates that charge what they make before they make it.

use minijinja::value::{Kwargs, Rest, ValueOrKwargs, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value, filters};

use super::jinja::{self, MAX_INDENT_CHARS};
use super::meter::{self, ITEM_BYTES, exceeded};
use super::methods;

/// Checks two operands of an operator that joins them.
pub(super) const JOIN: &str = "=join";
/// Checks two operands of a repetition.
pub(super) const REPEAT: &str = "=repeat";
/// Checks two operands of a comparison.
pub(super) const COMPARE: &str = "=compare";
/// Checks two operands of `<` and its siblings.
pub(super) const ORDER: &str = "=order";
/// The remainder of two operands, or the first one as a format of the second one.
pub(super) const REMAINDER: &str = "=remainder";
/// Checks what a loop goes over.
pub(super) const ITERATE: &str = "=iterate";
/// Checks a new value.
pub(super) const MADE: &str = "=made";
/// Filters that read nothing but the kind or one item of their input.
const CHEAP: [&str; 9] =
    ["default", "d", "first", "last", "length", "count", "attr", "bool", "safe"];
/// Maximum characters of a number, of a width and of a precision in a format.
const MAX_WIDTH: u64 = 1_000;

/// Filters whose arguments go on to a test, another filter or a format as they are.
fn open_ended() -> Vec<(&'static str, Value)> {
    macro_rules! table {
        ($($name:literal => $filter:ident),* $(,)?) => {
            vec![$(($name, Value::from_function(filters::$filter))),*]
        };
    }
    table![
        "select" => select, "reject" => reject, "selectattr" => selectattr,
        "rejectattr" => rejectattr, "map" => map, "format" => format, "chain" => chain,
        "zip" => zip,
    ]
}

/// The filters that are offered, with Jinja2's names of their parameters after the input. The engine
/// takes the first `positional` of them by position, the others by name. The engine's filters that are
/// missing here show internals.
fn filters() -> Vec<FilterParameters> {
    macro_rules! table {
        ($($name:literal => $filter:path, $positional:literal, [$($parameter:literal),*]);* $(;)?) => {
            vec![$(FilterParameters {
                name: $name,
                filter: Value::from_function($filter),
                positional: $positional,
                parameters: &[$($parameter),*],
            }),*]
        };
    }
    table![
        "safe" => filters::safe, 0, [];
        "escape" => filters::escape, 0, [];
        "e" => filters::escape, 0, [];
        "lower" => filters::lower, 0, [];
        "upper" => filters::upper, 0, [];
        "title" => filters::title, 0, [];
        "capitalize" => filters::capitalize, 0, [];
        "replace" => jinja::replace, 3, ["old", "new", "count"];
        "length" => jinja::length, 0, [];
        "count" => jinja::length, 0, [];
        "dictsort" => filters::dictsort, 0, ["case_sensitive", "by", "reverse"];
        "items" => jinja::items, 0, [];
        "reverse" => filters::reverse, 0, [];
        "trim" => jinja::trim, 1, ["chars"];
        "join" => filters::join, 2, ["d", "attribute"];
        "split" => filters::split, 2, ["sep", "maxsplit"];
        "lines" => filters::lines, 0, [];
        "default" => filters::default, 2, ["default_value", "boolean"];
        "d" => filters::default, 2, ["default_value", "boolean"];
        "round" => filters::round, 2, ["precision", "method"];
        "abs" => filters::abs, 0, [];
        "int" => filters::int, 2, ["default", "base"];
        "float" => filters::float, 1, ["default"];
        "attr" => jinja::attr, 1, ["name"];
        "first" => jinja::first, 0, [];
        "last" => jinja::last, 0, [];
        "min" => filters::min, 0, ["case_sensitive", "attribute"];
        "max" => filters::max, 0, ["case_sensitive", "attribute"];
        "sort" => filters::sort, 0, ["reverse", "case_sensitive", "attribute"];
        "list" => filters::list, 0, [];
        "string" => filters::string, 0, [];
        "bool" => filters::bool, 0, [];
        "batch" => filters::batch, 2, ["linecount", "fill_with"];
        "slice" => filters::slice, 2, ["slices", "fill_with"];
        "sum" => filters::sum, 2, ["attribute", "start"];
        "indent" => jinja::indent, 3, ["width", "first", "blank"];
        "groupby" => filters::groupby, 1, ["attribute", "default", "case_sensitive"];
        "unique" => filters::unique, 0, ["case_sensitive", "attribute"];
        "tojson" => jinja::tojson, 4, ["ensure_ascii", "indent", "separators", "sort_keys"];
    ]
}

/// A filter with the names of its parameters.
struct FilterParameters {
    name: &'static str,
    filter: Value,
    positional: usize,
    parameters: &'static [&'static str],
}

impl FilterParameters {
    /// Calls the filter with `args`, the input first and named ones last.
    fn call(&self, state: &mut State<'_, '_>, args: &[Value]) -> Result<Value, Error> {
        let input = args.first().cloned().unwrap_or_default();
        let mut values = bound_to(self.parameters, args.get(1..).unwrap_or_default())?;
        let named: Vec<(&str, Value)> = (self.parameters.iter().zip(&values).skip(self.positional))
            .filter(|(_, value)| !value.is_undefined() && !value.is_none())
            .map(|(name, value)| (*name, value.clone()))
            .collect();
        values.insert(0, input);
        guarded(self.name, &values, || {
            let mut args = values[..values.len().min(self.positional + 1)].to_vec();
            while args.len() > 1 && args.last().is_some_and(Value::is_undefined) {
                args.pop();
            }
            let gaps = args.iter_mut().skip(1).filter(|arg| arg.is_undefined());
            let gap = match self.name {
                "default" | "d" => Value::from(""),
                _ => Value::from(()),
            };
            gaps.for_each(|arg| *arg = gap.clone());
            if !named.is_empty() {
                args.push(Kwargs::from_iter(named.iter().cloned()).into());
            }
            self.filter.call(state, &args)
        })
    }
}

/// The value of each of `parameters`, undefined where `args`, of which the last may be named ones,
/// has none.
///
/// # Errors
/// Arguments that no parameter takes.
pub(super) fn bound_to(parameters: &[&str], args: &[Value]) -> Result<Vec<Value>, Error> {
    let (values, named): (&[Value], Kwargs) = from_args(args)?;
    if values.len() > parameters.len() {
        let most = parameters.len();
        let reason = format!("expected at most {most} arguments, found {}", values.len());
        return Err(Error::new(ErrorKind::TooManyArguments, reason));
    }
    let mut all = values.to_vec();
    for (index, name) in parameters.iter().enumerate() {
        let given = named.get::<Option<Value>>(name)?;
        match given {
            Some(_) if index < values.len() => {
                let reason = format!("expected one argument {name}, found two");
                return Err(Error::new(ErrorKind::TooManyArguments, reason));
            }
            _ if index < values.len() => {}
            given => all.push(given.unwrap_or_default()),
        }
    }
    named.assert_all_used()?;
    Ok(all)
}

/// Replaces the filters and methods of `environment` by those that charge, and adds the checks of
/// operators.
pub(super) fn install(environment: &mut Environment<'_>) {
    for name in ["pprint", "urlencode"] {
        environment.remove_filter(name);
    }
    environment.remove_global("debug");
    for known in filters() {
        let name = known.name;
        environment.add_filter(
            name,
            move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
                known.call(state, &args.into_values())
            },
        );
    }
    for (name, filter) in open_ended() {
        let call = move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
            let args = args.into_values();
            guarded(name, &args, || filter.call(state, &args))
        };
        environment.add_filter(name, call);
    }
    jinja::install(environment);
    environment.add_filter(JOIN, |pair: Value| {
        let bytes = meter::read(&operand(&pair, 0))? + meter::read(&operand(&pair, 1))?;
        meter::make(bytes).map(|()| pair)
    });
    environment.add_filter(REPEAT, |pair: Value| {
        let (a, b) = (operand(&pair, 0), operand(&pair, 1));
        let times = |value: &Value| value.as_usize().unwrap_or(1).max(1) as u64;
        let bytes = meter::read(&a)?.max(meter::read(&b)?);
        if !(a.is_number() && b.is_number()) {
            meter::make(bytes.saturating_mul(times(&a)).saturating_mul(times(&b)))?;
        }
        Ok::<_, Error>(pair)
    });
    environment.add_filter(COMPARE, |pair: Value| compared(&pair).map(|_| pair));
    environment.add_filter(ORDER, |pair: Value| {
        let (a, b) = compared(&pair)?;
        jinja::ordered(&a, &b).map(|()| pair)
    });
    environment.add_filter(REMAINDER, |pair: Value| {
        let (a, b) = (operand(&pair, 0), operand(&pair, 1));
        guarded("format", &[a.clone(), b.clone()], || jinja::remainder(&a, &b))
    });
    environment.add_filter(ITERATE, |value: Value| {
        let bytes = value.as_str().map_or(0, str::len) as u64;
        meter::make(bytes.saturating_mul(ITEM_BYTES))?;
        jinja::iterated(value)
    });
    environment.add_filter(MADE, |value: Value| meter::made(&value).map(|()| value));
    environment.set_unknown_method_callback(|state, value, name, args| {
        let mut all = vec![value.clone()];
        match methods::parameters(name) {
            Some(parameters) => all.extend(bound_to(parameters, args)?),
            None => all.extend_from_slice(args),
        }
        guarded(name, &all, || methods::method(state, value, name, &all[1..]))
    });
}

/// The operands of a comparison, read.
fn compared(pair: &Value) -> Result<(Value, Value), Error> {
    let (a, b) = (operand(pair, 0), operand(pair, 1));
    meter::read(&a)?;
    meter::read(&b)?;
    Ok((a, b))
}

/// An operand of a pair.
fn operand(pair: &Value, index: usize) -> Value {
    pair.get_item(&Value::from(index)).unwrap_or_default()
}

/// Calls a filter or method whose first argument is its input, with what it may make charged.
fn guarded(
    name: &str,
    args: &[Value],
    call: impl FnOnce() -> Result<Value, Error>,
) -> Result<Value, Error> {
    if CHEAP.contains(&name) {
        return call();
    }
    let mut bytes = 0_u64;
    for arg in args {
        bytes = bytes.saturating_add(meter::read(arg)?);
    }
    let bound = bound(name, args, bytes)?;
    if bound > 0 {
        meter::make(bound)?;
    }
    let made = call()?;
    if bound == 0 {
        meter::made(&made)?;
    }
    Ok(made)
}

/// The bytes that a filter or method makes at most, of arguments of `bytes` bytes; 0 if no more
/// than that.
fn bound(name: &str, args: &[Value], bytes: u64) -> Result<u64, Error> {
    let text = |index: usize| args.get(index).and_then(Value::as_str).unwrap_or_default();
    let items = || match args.first().and_then(Value::as_str) {
        Some(text) => text.len() as u64,
        None => args.first().and_then(Value::len).unwrap_or(0) as u64,
    };
    let count = |part: &str| match part {
        "" => text(0).len() as u64 + 1,
        part => text(0).matches(part).count() as u64,
    };
    let numbers = args.iter().skip(1).filter_map(Value::as_usize);
    let largest = numbers.max().unwrap_or(0) as u64;
    Ok(match name {
        "replace" => bytes.saturating_add(count(text(1)).saturating_mul(text(2).len() as u64)),
        "join" => {
            let part = text(0).len().max(text(1).len()) as u64;
            let parts = args.iter().filter_map(|arg| arg.len()).max().unwrap_or(0) as u64;
            bytes.saturating_add(parts.saturating_mul(part))
        }
        "indent" => {
            let lines = text(0).lines().count() as u64 + 1;
            bytes.saturating_add(lines.saturating_mul(largest.max(text(1).len() as u64).max(4)))
        }
        "batch" | "slice" => (items() + largest).saturating_mul(ITEM_BYTES).saturating_add(bytes),
        "split" | "rsplit" if args.len() > 1 && !text(1).is_empty() => {
            (count(text(1)) + 1) * ITEM_BYTES + bytes
        }
        "split" | "rsplit" | "splitlines" | "lines" => {
            // Some control characters end words or lines too.
            let is_end = |c: &char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
            let parts = text(0).split_whitespace().count() + text(0).chars().filter(is_end).count();
            (parts as u64 + 1) * ITEM_BYTES + bytes
        }
        "list" | "sort" | "unique" | "reverse" | "map" | "select" | "reject" | "zip" | "chain"
        | "groupby" | "dictsort" | "sum" | "min" | "max" | "items" | "selectattr"
        | "rejectattr" => items().saturating_mul(ITEM_BYTES).saturating_add(bytes),
        "upper" | "lower" | "title" | "capitalize" | "swapcase" => bytes.saturating_mul(3),
        "escape" | "e" => bytes.saturating_mul(6),
        // An item and its blanks at the deepest level, and six bytes for a character that is escaped.
        "tojson" => {
            bytes.saturating_mul(6 + largest.max(text(2).len() as u64).min(MAX_INDENT_CHARS as u64))
        }
        "center" | "ljust" | "rjust" | "zfill" => largest.saturating_mul(4).saturating_add(bytes),
        "round" if largest > MAX_WIDTH => return Err(exceeded("digits", MAX_WIDTH)),
        "format" => formatted(text(0), bytes)?,
        _ => 0,
    })
}

/// The bytes of a formatted text: no number in it may be large, and none may come from an
/// argument.
fn formatted(format: &str, bytes: u64) -> Result<u64, Error> {
    let mut number = 0_u64;
    let mut fields = 0_u64;
    for c in format.chars() {
        number = match c.to_digit(10) {
            Some(digit) => number.saturating_mul(10).saturating_add(u64::from(digit)),
            None => 0,
        };
        if number > MAX_WIDTH || c == '*' {
            return Err(exceeded("characters of a width", MAX_WIDTH));
        }
        fields += u64::from(matches!(c, '%' | '{'));
    }
    // An argument may be named in each field.
    let each = bytes.saturating_add(2 * MAX_WIDTH);
    Ok(bytes.saturating_add(fields.saturating_mul(each)))
}
