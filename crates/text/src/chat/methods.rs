//! Methods of Python's texts, maps and lists.

use minijinja::value::{Tuple, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

/// The parameters of the methods whose arguments may be named.
pub(super) fn parameters(method: &str) -> Option<&'static [&'static str]> {
    match method {
        "split" | "rsplit" => Some(&["sep", "maxsplit"]),
        "replace" => Some(&["old", "new", "count"]),
        "splitlines" => Some(&["keepends"]),
        _ => None,
    }
}

/// The error of a call.
pub(super) fn invalid(reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason.into())
}

/// Replaces the first `count` occurrences of `old`; all of them if `count` is absent or negative.
pub(super) fn replace(text: &str, old: &str, new: &str, count: Option<i64>) -> String {
    match count.and_then(|count| usize::try_from(count).ok()) {
        Some(count) => text.replacen(old, new, count),
        None => text.replace(old, new),
    }
}

/// Calls a method of Python's `str`, `dict`, `list` or `tuple`.
pub(super) fn method(
    state: &mut State<'_, '_>,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let made = match value.as_str() {
        Some(text) => text_method(state, text, name, args)?,
        None if name == "index" => Some(index_in_list(value, args)?),
        None => None,
    };
    match made {
        Some(made) => Ok(made),
        None => pycompat::unknown_method_callback(state, value, name, args),
    }
}

fn index_in_list(list: &Value, args: &[Value]) -> Result<Value, Error> {
    let (wanted,): (&Value,) = from_args(args)?;
    let index = list.try_iter()?.position(|item| item == *wanted);
    index.map(Value::from).ok_or_else(|| invalid("index: the value is not in the list"))
}

/// The result of a method of a text; nothing if the engine's own one does the same.
fn text_method(
    state: &mut State<'_, '_>,
    text: &str,
    name: &str,
    args: &[Value],
) -> Result<Option<Value>, Error> {
    let made = match name {
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<&str>,) = from_args(args)?;
            Value::from(strip(text, chars, name != "rstrip", name != "lstrip"))
        }
        "split" | "rsplit" => {
            let (separator, most): (Option<&str>, Option<i64>) = from_args(args)?;
            let most = most.and_then(|most| usize::try_from(most).ok());
            let parts = split(text, separator, most.unwrap_or(usize::MAX), name == "rsplit")?;
            parts.into_iter().map(Value::from).collect()
        }
        "partition" | "rpartition" => partition(text, name, args)?,
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "replace" => {
            let (old, new, count): (&str, &str, Option<i64>) = from_args(args)?;
            Value::from(replace(text, old, new, count))
        }
        "splitlines" => {
            let (keep,): (Option<bool>,) = from_args(args)?;
            let lines = lines(text, keep.unwrap_or(false));
            lines.into_iter().map(Value::from).collect()
        }
        "title" => Value::from(title(text)),
        "swapcase" => {
            let swapped = |c: char| match c.is_uppercase() {
                true => c.to_lowercase().to_string(),
                false => c.to_uppercase().to_string(),
            };
            Value::from(text.chars().map(swapped).collect::<String>())
        }
        "find" | "rfind" | "index" | "rindex" | "count" | "startswith" | "endswith"
            if args.len() > 1 =>
        {
            return windowed(state, text, name, args).map(Some);
        }
        "index" | "rindex" => {
            let (wanted,): (&str,) = from_args(args)?;
            let offset = match name {
                "index" => text.find(wanted),
                _ => text.rfind(wanted),
            };
            let offset =
                offset.ok_or_else(|| invalid("index: the text is not part of the other one"))?;
            Value::from(text[..offset].chars().count())
        }
        "ljust" | "rjust" | "center" | "zfill" => Value::from(padded(text, name, args)?),
        _ => return Ok(None),
    };
    Ok(Some(made))
}

fn partition(text: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let (separator,): (&str,) = from_args(args)?;
    let parts = match name {
        "partition" => text.split_once(separator),
        _ => text.rsplit_once(separator),
    };
    let parts = match parts {
        _ if separator.is_empty() => return Err(invalid("an empty separator")),
        Some((before, after)) => [before, separator, after],
        None if name == "partition" => [text, "", ""],
        None => ["", "", text],
    };
    Ok(Value::from(Tuple::from(parts.map(Value::from))))
}

/// The result of a method of a text that looks between two indices.
fn windowed(
    state: &mut State<'_, '_>,
    text: &str,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let (wanted, start, end): (&Value, i64, Option<i64>) = from_args(args)?;
    let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    let clamped = |index: i64| {
        if index < 0 { (index + length).max(0) } else { index.min(length) }
    };
    let (start, end) = (clamped(start), clamped(end.unwrap_or(length)));
    let byte = |index: i64| {
        let index = usize::try_from(index).unwrap_or(0);
        text.char_indices().nth(index).map_or(text.len(), |(byte, _)| byte)
    };
    let part = &text[byte(start)..byte(end.max(start))];
    let made = method(state, &Value::from(part), name, std::slice::from_ref(wanted))?;
    let is_index = matches!(name, "find" | "rfind" | "index" | "rindex");
    match i64::try_from(made.clone()) {
        Ok(index) if is_index && index >= 0 => Ok(Value::from(index + start)),
        _ => Ok(made),
    }
}

/// White space of Python's `str.strip` and `str.split`.
fn is_blank(c: char) -> bool {
    c.is_whitespace() || ('\u{1C}'..='\u{1F}').contains(&c)
}

/// `text` without `chars`, or white space, at its chosen sides.
pub(super) fn strip<'a>(text: &'a str, chars: Option<&str>, left: bool, right: bool) -> &'a str {
    let cut = |c: char| chars.map_or_else(|| is_blank(c), |chars| chars.contains(c));
    let text = if left { text.trim_start_matches(cut) } else { text };
    if right { text.trim_end_matches(cut) } else { text }
}

/// The parts of `text` after at most `most` cuts, which begin at its end if `from_end`.
fn split<'a>(
    text: &'a str,
    separator: Option<&str>,
    most: usize,
    from_end: bool,
) -> Result<Vec<&'a str>, Error> {
    let parts = most.saturating_add(1);
    let Some(separator) = separator else {
        return Ok(split_blanks(text, most, from_end));
    };
    if separator.is_empty() {
        return Err(invalid("an empty separator"));
    }
    Ok(match from_end {
        false => text.splitn(parts, separator).collect(),
        true => {
            let mut all: Vec<&str> = text.rsplitn(parts, separator).collect();
            all.reverse();
            all
        }
    })
}

/// As [`split`], at runs of white space.
fn split_blanks(text: &str, most: usize, from_end: bool) -> Vec<&str> {
    let mut rest = strip(text, None, !from_end, from_end);
    let mut parts = Vec::new();
    while parts.len() < most {
        let cut = match from_end {
            false => rest.find(is_blank).map(|index| rest.split_at(index)),
            true => rest.char_indices().rfind(|(_, c)| is_blank(*c)).map(|(index, c)| {
                let (before, part) = rest.split_at(index + c.len_utf8());
                (part, before)
            }),
        };
        let Some((part, after)) = cut else { break };
        parts.push(part);
        rest = strip(after, None, !from_end, from_end);
    }
    if !rest.is_empty() {
        let is_whole = parts.len() < most;
        parts.push(strip(rest, None, from_end && is_whole, !from_end && is_whole));
    }
    if from_end {
        parts.reverse();
    }
    parts
}

/// The lines of `text` as `str.splitlines` finds them, with their ends if `keep`.
pub(super) fn lines(text: &str, keep: bool) -> Vec<&str> {
    let is_end = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\u{B}' | '\u{C}' | '\u{1C}'
                ..='\u{1E}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let (mut all, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let end = rest.find(is_end).unwrap_or(rest.len());
        let length = match rest[end..].chars().next() {
            Some('\r') if rest[end..].starts_with("\r\n") => 2,
            Some(c) => c.len_utf8(),
            None => 0,
        };
        all.push(&rest[..if keep { end + length } else { end }]);
        rest = &rest[end + length..];
    }
    all
}

/// `text` with a capital letter after each character that is no letter.
fn title(text: &str) -> String {
    let mut made = String::with_capacity(text.len());
    let mut inside = false;
    for c in text.chars() {
        match inside {
            true => made.extend(c.to_lowercase()),
            false => made.extend(c.to_uppercase()),
        }
        inside = c.is_alphabetic();
    }
    made
}

/// `text` with as many fill characters at the sides of the method `name` as its width takes.
fn padded(text: &str, name: &str, args: &[Value]) -> Result<String, Error> {
    let (width, fill): (usize, Option<&str>) = from_args(args)?;
    let fill = match name {
        "zfill" => "0",
        _ => fill.unwrap_or(" "),
    };
    if fill.chars().count() != 1 {
        return Err(invalid(format!("{name}: expected one fill character")));
    }
    let room = width.saturating_sub(text.chars().count());
    let left = match name {
        "ljust" => 0,
        // Python puts the odd one of an odd width to the left.
        "center" => room / 2 + (room & width & 1),
        _ => room,
    };
    let (sign, text) = match name == "zfill" && text.starts_with(['+', '-']) {
        true => text.split_at(1),
        false => ("", text),
    };
    let (before, after) = (fill.repeat(left), fill.repeat(room - left));
    Ok(format!("{sign}{before}{text}{after}"))
}
