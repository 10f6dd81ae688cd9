//! Operators, built-in functions and methods.

use std::cmp::Ordering;

use super::ast::{Arithmetic, Comparison};
use super::value::Number;
use super::{Fault, Value};

/// Maximum items of a container and characters of a string.
pub(super) const LARGEST: usize = 1_000;

const FUNCTIONS: [&str; 10] = [
    "sum", "len", "sorted", "min", "max", "abs", "range", "list", "reversed", "int",
];

/// Whether a name stands for a built-in function.
pub(super) fn is_function(name: &str) -> bool {
    FUNCTIONS.contains(&name)
}

/// Calls a built-in function.
pub(super) fn call(name: &str, arguments: &[Value]) -> Result<Value, Fault> {
    match (name, arguments) {
        ("len", [Value::Str(text)]) => Ok(Value::Int(text.chars().count() as i64)),
        ("len", [container]) => Ok(Value::Int(items(container)?.len() as i64)),
        ("sum", [container]) => items(container)?
            .iter()
            .try_fold(Value::Int(0), |total, item| {
                arithmetic(Arithmetic::Add, &total, item)
            }),
        ("sorted", [container]) => Ok(Value::list(sorted(items(container)?)?)),
        ("list", [container]) => Ok(Value::list(items(container)?)),
        ("reversed", [container]) => Ok(Value::list(items(container)?.into_iter().rev())),
        ("min", [container]) => extreme(&items(container)?, Ordering::Less),
        ("max", [container]) => extreme(&items(container)?, Ordering::Greater),
        ("min", [_, _, ..]) => extreme(arguments, Ordering::Less),
        ("max", [_, _, ..]) => extreme(arguments, Ordering::Greater),
        ("abs", [value]) => match value.number() {
            Some(Number::Int(number)) => number.checked_abs().map(Value::Int).ok_or(TOO_LARGE),
            Some(Number::Float(number)) => Ok(Value::Float(number.abs())),
            None => Err(refused("abs", value)),
        },
        ("int", [value]) => match value.number() {
            Some(Number::Int(number)) => Ok(Value::Int(number)),
            Some(Number::Float(number)) if number.abs() < 9e15 => Ok(Value::Int(number as i64)),
            _ => Err(refused("int", value)),
        },
        ("range", bounds) => range(bounds),
        _ => Err(Fault::Runtime(format!(
            "{name} with {} arguments",
            arguments.len()
        ))),
    }
}

/// Calls a method of a list or dictionary.
pub(super) fn method(object: &Value, name: &str, arguments: &[Value]) -> Result<Value, Fault> {
    match (object, name, arguments) {
        (Value::List(list), "append", [item]) => {
            if list.borrow().len() >= LARGEST {
                return Err(TOO_LARGE);
            }
            list.borrow_mut().push(item.clone().contained()?);
        }
        (Value::List(list), "extend", [more]) => {
            let more = items(more)?;
            if list.borrow().len() + more.len() > LARGEST {
                return Err(TOO_LARGE);
            }
            list.borrow_mut().extend(more);
        }
        (Value::List(list), "sort", []) => {
            let sorted = sorted(list.borrow().clone())?;
            *list.borrow_mut() = sorted;
        }
        (Value::List(list), "reverse", []) => list.borrow_mut().reverse(),
        (Value::Dict(entries), "keys", []) => {
            return Ok(Value::list(
                entries.borrow().iter().map(|(key, _)| key.clone()),
            ));
        }
        (Value::Dict(entries), "values", []) => {
            return Ok(Value::list(
                entries.borrow().iter().map(|(_, value)| value.clone()),
            ));
        }
        _ => {
            let (kind, count) = (object.kind(), arguments.len());
            return Err(Fault::Runtime(format!(
                "{kind} has no {name} of {count} arguments"
            )));
        }
    }
    Ok(Value::None)
}

/// The items that a loop over the value visits.
pub(super) fn items(value: &Value) -> Result<Vec<Value>, Fault> {
    match value {
        Value::List(items) => Ok(items.borrow().clone()),
        Value::Dict(entries) => Ok(entries
            .borrow()
            .iter()
            .map(|(key, _)| key.clone())
            .collect()),
        Value::Str(text) => Ok(text.chars().map(|c| Value::Str(c.to_string())).collect()),
        _ => Err(refused("iteration", value)),
    }
}

/// `left operator right`.
pub(super) fn arithmetic(
    operator: Arithmetic,
    left: &Value,
    right: &Value,
) -> Result<Value, Fault> {
    match (operator, left, right) {
        (Arithmetic::Add, Value::List(left), Value::List(right)) => {
            let (left, right) = (left.borrow(), right.borrow());
            if left.len() + right.len() > LARGEST {
                return Err(TOO_LARGE);
            }
            return Ok(Value::list(left.iter().chain(right.iter()).cloned()));
        }
        (Arithmetic::Add, Value::Str(left), Value::Str(right)) => {
            if left.len() + right.len() > LARGEST {
                return Err(TOO_LARGE);
            }
            return Ok(Value::Str(format!("{left}{right}")));
        }
        _ => {}
    }
    match (left.number(), right.number()) {
        (Some(Number::Int(left)), Some(Number::Int(right))) => integers(operator, left, right),
        (Some(left), Some(right)) => floats(operator, left.as_float(), right.as_float()),
        _ => Err(refused(left.kind(), right)),
    }
}

/// `-operand`.
pub(super) fn negative(operand: &Value) -> Result<Value, Fault> {
    match operand.number() {
        Some(Number::Int(number)) => number.checked_neg().map(Value::Int).ok_or(TOO_LARGE),
        Some(Number::Float(number)) => Ok(Value::Float(-number)),
        None => Err(refused("minus", operand)),
    }
}

/// `left comparison right`.
pub(super) fn compare(how: Comparison, left: &Value, right: &Value) -> Result<bool, Fault> {
    match how {
        Comparison::Equal => Ok(left == right),
        Comparison::NotEqual => Ok(left != right),
        Comparison::In => contains(right, left),
        Comparison::NotIn => Ok(!contains(right, left)?),
        Comparison::Less => Ok(order(left, right)?.is_lt()),
        Comparison::LessOrEqual => Ok(order(left, right)?.is_le()),
        Comparison::Greater => Ok(order(left, right)?.is_gt()),
        Comparison::GreaterOrEqual => Ok(order(left, right)?.is_ge()),
    }
}

/// The position of an index in a sequence of `length`; negative indices count from its end.
pub(super) fn position(index: &Value, length: usize) -> Result<usize, Fault> {
    let Some(Number::Int(index)) = index.number() else {
        return Err(refused("an index", index));
    };
    let from_start = if index < 0 {
        index.saturating_add(length as i64)
    } else {
        index
    };
    usize::try_from(from_start)
        .ok()
        .filter(|position| *position < length)
        .ok_or_else(|| Fault::Runtime(format!("index {index} of {length} items")))
}

/// `items[start:stop:step]` with Python's defaults and clamping.
pub(super) fn slice(items: &[Value], bounds: [Option<i64>; 3]) -> Result<Vec<Value>, Fault> {
    let [start, stop, step] = bounds;
    let step = step.unwrap_or(1);
    if step == 0 {
        return Err(Fault::Runtime("a slice step of zero".to_owned()));
    }
    let length = items.len() as i64;
    // A walk to the left may stop before the first item, at -1.
    let (lowest, highest) = if step > 0 {
        (0, length)
    } else {
        (-1, length - 1)
    };
    let clamp = |bound: i64| {
        let bound = if bound < 0 {
            bound.saturating_add(length)
        } else {
            bound
        };
        bound.clamp(lowest, highest)
    };
    let mut at = start.map_or(if step > 0 { lowest } else { highest }, clamp);
    let stop = stop.map_or(if step > 0 { highest } else { lowest }, clamp);
    let mut taken = Vec::new();
    while if step > 0 { at < stop } else { at > stop } {
        taken.push(items[at as usize].clone());
        at = at.saturating_add(step);
    }
    Ok(taken)
}

const TOO_LARGE: Fault = Fault::Limit("size of a value");

fn refused(operation: &str, value: &Value) -> Fault {
    Fault::Runtime(format!("{operation} with {}", value.kind()))
}

fn integers(operator: Arithmetic, left: i64, right: i64) -> Result<Value, Fault> {
    let zero = || Fault::Runtime("division by zero".to_owned());
    let result = match operator {
        Arithmetic::Add => left.checked_add(right),
        Arithmetic::Subtract => left.checked_sub(right),
        Arithmetic::Multiply => left.checked_mul(right),
        Arithmetic::Divide => return floats(operator, left as f64, right as f64),
        Arithmetic::FloorDivide | Arithmetic::Remainder if right == 0 => return Err(zero()),
        // Python rounds down, Rust rounds towards zero; they differ if the signs differ.
        Arithmetic::FloorDivide => left.checked_div(right).map(|quotient| {
            let inexact = left % right != 0;
            quotient - i64::from(inexact && (left < 0) != (right < 0))
        }),
        Arithmetic::Remainder => left.checked_rem(right).map(|rest| {
            if rest != 0 && (rest < 0) != (right < 0) {
                rest + right
            } else {
                rest
            }
        }),
        Arithmetic::Power if right < 0 => {
            return floats(operator, left as f64, right as f64);
        }
        Arithmetic::Power => u32::try_from(right)
            .ok()
            .and_then(|exponent| left.checked_pow(exponent)),
    };
    result.map(Value::Int).ok_or(TOO_LARGE)
}

fn floats(operator: Arithmetic, left: f64, right: f64) -> Result<Value, Fault> {
    let divides = !matches!(
        operator,
        Arithmetic::Add | Arithmetic::Subtract | Arithmetic::Multiply | Arithmetic::Power
    );
    if divides && right == 0.0 {
        return Err(Fault::Runtime("division by zero".to_owned()));
    }
    Ok(Value::Float(match operator {
        Arithmetic::Add => left + right,
        Arithmetic::Subtract => left - right,
        Arithmetic::Multiply => left * right,
        Arithmetic::Divide => left / right,
        Arithmetic::FloorDivide => (left / right).floor(),
        Arithmetic::Remainder => left - right * (left / right).floor(),
        Arithmetic::Power => left.powf(right),
    }))
}

fn contains(container: &Value, item: &Value) -> Result<bool, Fault> {
    match (container, item) {
        (Value::Str(text), Value::Str(part)) => Ok(text.contains(part.as_str())),
        (Value::Str(_), _) => Err(refused("in", item)),
        _ => Ok(items(container)?.contains(item)),
    }
}

fn order(left: &Value, right: &Value) -> Result<Ordering, Fault> {
    let order = match (left, right) {
        (Value::Str(left), Value::Str(right)) => Some(left.cmp(right)),
        _ => match (left.number(), right.number()) {
            (Some(Number::Int(left)), Some(Number::Int(right))) => Some(left.cmp(&right)),
            (Some(left), Some(right)) => left.as_float().partial_cmp(&right.as_float()),
            _ => None,
        },
    };
    order.ok_or_else(|| Fault::Runtime(format!("order of {} and {}", left.kind(), right.kind())))
}

/// Insertion sort with a comparison that may fail; stable, as Python's.
fn sorted(items: Vec<Value>) -> Result<Vec<Value>, Fault> {
    let mut sorted: Vec<Value> = Vec::with_capacity(items.len());
    for item in items {
        let mut place = sorted.len();
        while place > 0 && order(&item, &sorted[place - 1])?.is_lt() {
            place -= 1;
        }
        sorted.insert(place, item);
    }
    Ok(sorted)
}

fn extreme(items: &[Value], wanted: Ordering) -> Result<Value, Fault> {
    let (first, rest) = items
        .split_first()
        .ok_or_else(|| Fault::Runtime("extreme of nothing".to_owned()))?;
    let mut best = first;
    for item in rest {
        if order(item, best)? == wanted {
            best = item;
        }
    }
    Ok(best.clone())
}

fn range(bounds: &[Value]) -> Result<Value, Fault> {
    let bounds: Vec<i64> = bounds
        .iter()
        .map(|bound| match bound.number() {
            Some(Number::Int(bound)) => Ok(bound),
            _ => Err(refused("range", bound)),
        })
        .collect::<Result<_, _>>()?;
    let (start, stop, step) = match bounds[..] {
        [stop] => (0, stop, 1),
        [start, stop] => (start, stop, 1),
        [start, stop, step] if step != 0 => (start, stop, step),
        _ => return Err(Fault::Runtime("range of these bounds".to_owned())),
    };
    let mut items = Vec::new();
    let mut at = start;
    while if step > 0 { at < stop } else { at > stop } {
        if items.len() == LARGEST {
            return Err(TOO_LARGE);
        }
        items.push(Value::Int(at));
        at = at.saturating_add(step);
    }
    Ok(Value::list(items))
}
