//! The limits of a grammar in llguidance's dialect of Lark.

use serde::de::IgnoredAny;

/// Keywords that a JSON value follows.
const BEFORE_JSON: [&str; 3] = ["%json", "%regex", "%llguidance"];

/// Refuses rules with parameters (`name::_`, `name::incr(..)`), also inside of `%lark`: a few bytes of
/// them describe more items than a compilation, or one step, can work through. Reads a source as the
/// compiler's lexer does; one that this lexer refuses is left to it.
pub(super) fn check(source: &str) -> Result<(), String> {
    let mut position = 0;
    while let Some(rest) = source.get(position..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with("::") {
            let (line, column) = place(source, position);
            let fault = match rest.starts_with("::=") {
                true => "expected a Lark grammar (rule: ...), found GBNF or EBNF (::=)",
                false => "rules with parameters (`::`) are not supported",
            };
            return Err(format!("{fault}, line {line} column {column}"));
        }
        position += match token(rest) {
            Some(length) => length,
            None => return Ok(()),
        };
    }
    Ok(())
}

/// The bytes of the token at the start of `rest`, as far as it may contain any character, otherwise of
/// one character. `None` if it does not end.
fn token(rest: &str) -> Option<usize> {
    let keyword = BEFORE_JSON.iter().find(|name| rest.starts_with(**name));
    if let Some(keyword) = keyword {
        return Some(keyword.len() + json(&rest[keyword.len()..])?);
    }
    let first = rest.chars().next()?;
    match first {
        '#' => Some(rest.find('\n').unwrap_or(rest.len())),
        '/' if rest.starts_with("//") => Some(rest.find('\n').unwrap_or(rest.len())),
        '/' | '"' => closed(rest, first),
        '<' => Some(rest.find('>')? + 1),
        _ => Some(first.len_utf8()),
    }
}

/// The bytes of the first JSON value of `rest` and the blanks before it.
fn json(rest: &str) -> Option<usize> {
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    Some(values.byte_offset())
}

/// The bytes up to the next `mark` without a backslash before it, both marks included.
fn closed(rest: &str, mark: char) -> Option<usize> {
    let mut escaped = false;
    let inner = rest.char_indices().skip(1);
    for (position, c) in inner {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == mark => return Some(position + c.len_utf8()),
            _ => {}
        }
    }
    None
}

/// Line and column of the byte `position`, from 1.
fn place(source: &str, position: usize) -> (usize, usize) {
    let before = &source[..position];
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn a_rule_with_parameters_is_refused_wherever_it_stands() {
        for (source, place) in [
            ("start: a::0x0\na::_: a::incr([0:20])", "line 1 column 9"),
            ("start: a\na::_: \"x\"", "line 2 column 2"),
            ("start: \"é\" a::_", "line 1 column 13"),
            ("start: %lark {\n  start: a::0x1\n}", "line 2 column 11"),
            ("start: %json {\"a\": \"::\"} a::1", "line 1 column 27"),
            ("start: /a\\/::/ a::1", "line 1 column 17"),
            ("start: <a\"b> a::1 <\">", "line 1 column 15"),
            ("# a \" b\nstart: a::1", "line 2 column 9"),
            ("start: \"a\\\"\" a::1 \"", "line 1 column 15"),
            ("start: a // / \"\nb: a::1", "line 2 column 5"),
        ] {
            let reason = check(source).expect_err(source);
            assert!(reason.ends_with(place), "{source}: {reason}");
        }
    }

    #[test]
    fn a_grammar_of_llama_cpp_is_named() {
        let expected =
            "expected a Lark grammar (rule: ...), found GBNF or EBNF (::=), line 2 column 6";
        assert_eq!(check("# a\nroot ::= \"a\""), Err(expected.to_owned()));
    }

    #[test]
    fn two_colons_in_a_text_are_none() {
        for source in [
            "start: \"::\"",
            "start: /::/ <::>",
            "start: a // ::\na: b # a::1\nb: \"x\"",
            "start: %json {\"const\": \"a::b\"}",
            "start: %regex {\"substring_words\": \"a :: b\"}",
            "start: a : : b",
            "start: \"a",
            "",
        ] {
            assert_eq!(check(source), Ok(()), "{source}");
        }
    }
}
