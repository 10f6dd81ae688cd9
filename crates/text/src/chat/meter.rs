//! The budget of a rendering, in bytes made and read.
//!
//! A template's instructions are counted by its engine, but one instruction may join two texts of
//! any size. Every operation that makes a value charges the bytes of the result before it makes
//! it, and every one that reads whole values charges a part of their bytes. A rendering has a
//! thread of its own, and the meter belongs to that thread.

use std::cell::Cell;

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

/// Maximum bytes that a rendering makes: all values together, its output included.
const MAX_MADE_BYTES: u64 = 192 << 20;
/// Maximum bytes of one value.
const MAX_VALUE_BYTES: u64 = 48 << 20;
/// Bytes of an item of a list, in addition to the bytes of its text.
pub(super) const ITEM_BYTES: u64 = 64;
/// Reading this many bytes counts as one.
const READ_BYTES_PER_UNIT: u64 = 16;
/// Maximum levels of nested lists and maps.
const MAX_DEPTH: usize = 64;

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(MAX_MADE_BYTES) };
}

/// Marks an error of a template that makes too much.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct BudgetError(String);

/// An error for a limit.
pub(super) fn exceeded(what: &str, limit: u64) -> Error {
    let reason = format!("expected at most {limit} {what}, found more");
    Error::new(ErrorKind::InvalidOperation, reason.clone()).with_source(BudgetError(reason))
}

/// Starts a rendering on this thread, of messages of `bytes` bytes.
pub(super) fn start(bytes: usize) {
    LEFT.set(MAX_MADE_BYTES.saturating_add(4 * bytes as u64));
}

/// Charges a new value of `bytes` bytes.
pub(super) fn make(bytes: u64) -> Result<(), Error> {
    if bytes > MAX_VALUE_BYTES {
        return Err(exceeded("bytes of one value", MAX_VALUE_BYTES));
    }
    spend(bytes)
}

/// Charges reading `value` completely; returns its bytes.
pub(super) fn read(value: &Value) -> Result<u64, Error> {
    let bytes = size(value)?;
    spend(bytes / READ_BYTES_PER_UNIT)?;
    Ok(bytes)
}

/// Checks a value that was made and charges it.
pub(super) fn made(value: &Value) -> Result<(), Error> {
    make(size(value)?)
}

fn spend(bytes: u64) -> Result<(), Error> {
    let left = LEFT.get().checked_sub(bytes);
    LEFT.set(left.unwrap_or(0));
    match left {
        Some(_) => Ok(()),
        None => Err(exceeded("bytes of all values of a rendering", MAX_MADE_BYTES)),
    }
}

/// The bytes of `value`: of its texts, and [`ITEM_BYTES`] for each of its items. A shared item counts as
/// often as it is met.
fn size(value: &Value) -> Result<u64, Error> {
    if let Some(bytes) = flat(value) {
        return Ok(bytes);
    }
    let mut total = 0;
    let mut open = vec![items(value)?];
    while let Some(rest) = open.last_mut() {
        let Some(item) = rest.next() else {
            open.pop();
            continue;
        };
        total += ITEM_BYTES + flat(&item).unwrap_or(0);
        if total > MAX_VALUE_BYTES {
            return Err(exceeded("bytes of one value", MAX_VALUE_BYTES));
        }
        // Each step of the walk costs, also if the value is refused in the end.
        spend(ITEM_BYTES / READ_BYTES_PER_UNIT)?;
        if flat(&item).is_none() {
            if open.len() == MAX_DEPTH {
                return Err(exceeded("levels of lists and maps", MAX_DEPTH as u64));
            }
            open.push(items(&item)?);
        }
    }
    Ok(total)
}

/// The items of a list, and the keys and values of a map.
fn items(value: &Value) -> Result<Box<dyn Iterator<Item = Value>>, Error> {
    let keys = value.try_iter()?;
    if value.kind() != ValueKind::Map {
        return Ok(Box::new(keys));
    }
    let map = value.clone();
    let pair = move |key: Value| {
        let value = map.get_item(&key).unwrap_or_default();
        [key, value]
    };
    Ok(Box::new(keys.flat_map(pair)))
}

/// The bytes of a value that has no items.
fn flat(value: &Value) -> Option<u64> {
    if let Some(text) = value.as_str() {
        return Some(text.len() as u64);
    }
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable | ValueKind::Map => None,
        ValueKind::Bytes => value.as_bytes().map(|bytes| bytes.len() as u64),
        _ => Some(40),
    }
}
