//! Values, with Python's equality and sharing of containers.

use std::cell::RefCell;
use std::rc::Rc;

use super::Fault;

/// A value of the interpreter. Clones of a list or dictionary share their content. Code can put no
/// container into another, so comparing and dropping a value need no bound of their own.
#[derive(Debug, Clone)]
pub enum Value {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer; results beyond 64 bits are a fault.
    Int(i64),
    /// A floating point number, the result of `/` at the latest.
    Float(f64),
    /// A string.
    Str(String),
    /// A list.
    List(Rc<RefCell<Vec<Value>>>),
    /// A dictionary in order of insertion; keys are unique.
    Dict(Rc<RefCell<Vec<(Value, Value)>>>),
}

/// A value as a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    Int(i64),
    Float(f64),
}

impl Number {
    pub(super) fn as_float(self) -> f64 {
        match self {
            Number::Int(value) => value as f64,
            Number::Float(value) => value,
        }
    }
}

impl Value {
    /// A new list of the given items.
    pub fn list(items: impl IntoIterator<Item = Value>) -> Self {
        Value::List(Rc::new(RefCell::new(items.into_iter().collect())))
    }

    /// A new dictionary; a repeated key keeps its first place and takes its last value.
    pub fn dict(entries: impl IntoIterator<Item = (Value, Value)>) -> Self {
        let mut unique: Vec<(Value, Value)> = Vec::new();
        for (key, value) in entries {
            match unique.iter_mut().find(|(known, _)| *known == key) {
                Some(entry) => entry.1 = value,
                None => unique.push((key, value)),
            }
        }
        Value::Dict(Rc::new(RefCell::new(unique)))
    }

    /// Python's name of the value's type.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Value::None => "NoneType",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Float(_) => "float",
            Value::Str(_) => "str",
            Value::List(_) => "list",
            Value::Dict(_) => "dict",
        }
    }

    /// Truth values count as 0 and 1, as in Python.
    pub(super) fn number(&self) -> Option<Number> {
        match self {
            Value::Bool(value) => Some(Number::Int(i64::from(*value))),
            Value::Int(value) => Some(Number::Int(*value)),
            Value::Float(value) => Some(Number::Float(*value)),
            _ => None,
        }
    }

    /// The value as content of a container.
    pub(super) fn contained(self) -> Result<Self, Fault> {
        match self {
            Value::List(_) | Value::Dict(_) => Err(Fault::Limit("containers in containers")),
            value => Ok(value),
        }
    }

    pub(super) fn truth(&self) -> bool {
        match self {
            Value::None => false,
            Value::Bool(value) => *value,
            Value::Int(value) => *value != 0,
            Value::Float(value) => *value != 0.0,
            Value::Str(value) => !value.is_empty(),
            Value::List(items) => !items.borrow().is_empty(),
            Value::Dict(entries) => !entries.borrow().is_empty(),
        }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Value::None, Value::None) => true,
            (Value::Str(left), Value::Str(right)) => left == right,
            (Value::List(left), Value::List(right)) => left == right,
            (Value::Dict(left), Value::Dict(right)) => {
                let (left, right) = (left.borrow(), right.borrow());
                left.len() == right.len() && left.iter().all(|entry| right.contains(entry))
            }
            _ => match (self.number(), other.number()) {
                (Some(Number::Int(left)), Some(Number::Int(right))) => left == right,
                (Some(left), Some(right)) => left.as_float() == right.as_float(),
                _ => false,
            },
        }
    }
}
