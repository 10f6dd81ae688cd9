//! `strftime_now` of templates: the date and the time at which a chat is rendered.

use std::fmt::Write as _;

use chrono::{Local, NaiveDate, NaiveDateTime, NaiveTime};
use minijinja::{Error, ErrorKind, Value};

/// The function, and the variable of a chat that fixes its time.
pub(super) const FIELD: &str = "strftime_now";

/// The function, which formats `fixed`, a date with or without a time, or else the local time.
///
/// # Errors
/// If `fixed` is no date; the client's fault.
pub(super) fn function(fixed: Option<&serde_json::Value>) -> Result<Value, String> {
    let now = match fixed {
        None => Local::now().naive_local(),
        Some(value) => value.as_str().and_then(read).ok_or_else(|| {
            format!(
                "{FIELD}: expected a date such as 2024-07-26 or 2024-07-26T09:30:00, found {value}"
            )
        })?,
    };
    Ok(Value::from_function(move |format: &str| written(now, format)))
}

fn read(text: &str) -> Option<NaiveDateTime> {
    let date = text.parse::<NaiveDate>();
    let date = date.map(|date| date.and_time(NaiveTime::MIN));
    date.or_else(|_| text.parse()).ok()
}

/// `now` as Python's `datetime.strftime` writes a time without a zone.
fn written(now: NaiveDateTime, format: &str) -> Result<String, Error> {
    let mut known = String::with_capacity(format.len());
    let mut rest = format.chars();
    while let Some(c) = rest.next() {
        match (c, rest.as_str().chars().next()) {
            ('%', Some(kind)) => {
                rest.next();
                match kind {
                    'Z' | 'z' => {}
                    'f' => known.push_str("%6f"),
                    kind => known.extend(['%', kind]),
                }
            }
            _ => known.push(c),
        }
    }
    let mut text = String::new();
    write!(text, "{}", now.format(&known)).map_err(|_| {
        let reason = format!("strftime_now: {format:?} is no format of a time");
        Error::new(ErrorKind::InvalidOperation, reason)
    })?;
    Ok(text)
}
