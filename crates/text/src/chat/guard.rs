//! Filters, methods and operators of templates that charge what they make before they make it.

use minijinja::value::Rest;
use minijinja::{Environment, Error, State, Value, filters};

use super::meter::{self, ITEM, exceeded};

/// Checks two operands of an operator that joins them.
pub(super) const JOIN: &str = "=join";
/// Checks two operands of a repetition.
pub(super) const REPEAT: &str = "=repeat";
/// Checks two operands of a comparison.
pub(super) const COMPARE: &str = "=compare";
/// Checks a new value.
pub(super) const MADE: &str = "=made";
/// Filters that read nothing but the kind or one item of their input.
const CHEAP: [&str; 9] = [
    "default", "d", "first", "last", "length", "count", "attr", "bool", "safe",
];
/// Most characters of a number, of a width and of a precision in a format.
const WIDTH: u64 = 1_000;

/// The filters that are offered. Those of the engine that are missing show internals.
fn known() -> Vec<(&'static str, Value)> {
    macro_rules! table {
        ($($name:literal => $filter:ident),* $(,)?) => {
            vec![$(($name, Value::from_function(filters::$filter))),*]
        };
    }
    table![
        "safe" => safe, "escape" => escape, "e" => escape, "lower" => lower, "upper" => upper,
        "title" => title, "capitalize" => capitalize, "replace" => replace, "length" => length,
        "count" => length, "dictsort" => dictsort, "items" => items, "reverse" => reverse,
        "trim" => trim, "join" => join, "split" => split, "lines" => lines, "default" => default,
        "d" => default, "round" => round, "abs" => abs, "int" => int, "float" => float,
        "attr" => attr, "first" => first, "last" => last, "min" => min, "max" => max,
        "sort" => sort, "list" => list, "string" => string, "bool" => bool, "batch" => batch,
        "slice" => slice, "sum" => sum, "indent" => indent, "select" => select,
        "reject" => reject, "selectattr" => selectattr, "rejectattr" => rejectattr, "map" => map,
        "groupby" => groupby, "unique" => unique, "chain" => chain, "zip" => zip,
        "format" => format,
    ]
}

/// Replaces the filters and methods of `environment` by those that charge, and adds the checks of
/// operators.
pub(super) fn install(environment: &mut Environment<'_>) {
    for name in ["pprint", "urlencode"] {
        environment.remove_filter(name);
    }
    environment.remove_global("debug");
    for (name, filter) in known() {
        environment.add_filter(name, move |state: &mut State<'_, '_>, args: Rest<Value>| {
            guarded(name, &args, || filter.call(state, &args))
        });
    }
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
    environment.add_filter(COMPARE, |pair: Value| {
        meter::read(&operand(&pair, 0))?;
        meter::read(&operand(&pair, 1)).map(|_| pair)
    });
    environment.add_filter(MADE, |value: Value| meter::made(&value).map(|()| value));
    environment.set_unknown_method_callback(|state, value, name, args| {
        let mut all = vec![value.clone()];
        all.extend_from_slice(args);
        guarded(name, &all, || {
            minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args)
        })
    });
}

/// An operand of a pair.
fn operand(pair: &Value, at: usize) -> Value {
    pair.get_item(&Value::from(at)).unwrap_or_default()
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
    let text = |at: usize| args.get(at).and_then(Value::as_str).unwrap_or_default();
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
        "batch" | "slice" => (items() + largest)
            .saturating_mul(ITEM)
            .saturating_add(bytes),
        "split" if args.len() > 1 && !text(1).is_empty() => (count(text(1)) + 1) * ITEM + bytes,
        "split" | "splitlines" | "lines" => {
            let parts = text(0)
                .split_whitespace()
                .count()
                .max(text(0).lines().count());
            (parts as u64 + 1) * ITEM + bytes
        }
        "list" | "sort" | "unique" | "reverse" | "map" | "select" | "reject" | "zip" | "chain"
        | "groupby" | "dictsort" | "sum" | "min" | "max" | "items" | "selectattr"
        | "rejectattr" => items().saturating_mul(ITEM).saturating_add(bytes),
        "upper" | "lower" | "title" | "capitalize" => bytes.saturating_mul(3),
        "escape" | "e" => bytes.saturating_mul(6),
        "round" if largest > WIDTH => return Err(exceeded("digits", WIDTH)),
        "format" => formatted(text(0), bytes)?,
        _ => 0,
    })
}

/// The bytes of a formatted text: no number in it may be large, and none may come from an
/// argument.
fn formatted(format: &str, bytes: u64) -> Result<u64, Error> {
    let mut number = 0_u64;
    let mut places = 0_u64;
    for c in format.chars() {
        number = match c.to_digit(10) {
            Some(digit) => number.saturating_mul(10).saturating_add(u64::from(digit)),
            None => 0,
        };
        if number > WIDTH || c == '*' {
            return Err(exceeded("characters of a width", WIDTH));
        }
        places += u64::from(matches!(c, '%' | '{'));
    }
    // An argument may be named at each place.
    let each = bytes.saturating_add(2 * WIDTH);
    Ok(bytes.saturating_add(places.saturating_mul(each)))
}
