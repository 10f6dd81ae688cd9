//! From text to tokens, with Python's rules of indentation.

use super::Fault;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    Name(String),
    Int(i64),
    Float(f64),
    Text(String),
    Sign(&'static str),
    /// The end of a logical line.
    Newline,
    Indent,
    Dedent,
}

/// Longer signs stand before their prefixes.
const SIGNS: [&str; 34] = [
    "**=", "//=", "==", "!=", "<=", ">=", "+=", "-=", "*=", "/=", "%=", "**", "//", "+", "-", "*",
    "/", "%", "<", ">", "=", "(", ")", "[", "]", "{", "}", ":", ",", ".", ";", "|", "&", "@",
];

/// The indentation of a function's body.
const BODY_INDENT: usize = 4;

/// The tokens of a function body: every block below the body's own is wrapped in indent and
/// dedent, and line breaks inside brackets do not count.
pub(super) fn tokens(body: &str) -> Result<Vec<Token>, Fault> {
    let mut tokens = Vec::new();
    let mut indents = vec![BODY_INDENT];
    let mut open = 0usize;
    for line in body.lines() {
        let code = line.trim_start_matches(' ');
        if code.is_empty() || code.starts_with('#') {
            continue;
        }
        if open == 0 {
            indent(line.len() - code.len(), &mut indents, &mut tokens)?;
        }
        line_tokens(code, &mut tokens, &mut open)?;
        if open == 0 {
            tokens.push(Token::Newline);
        }
    }
    if open > 0 {
        return Err(Fault::Syntax("a bracket is never closed".to_owned()));
    }
    tokens.extend(indents[1..].iter().map(|_| Token::Dedent));
    Ok(tokens)
}

fn indent(width: usize, stack: &mut Vec<usize>, tokens: &mut Vec<Token>) -> Result<(), Fault> {
    if stack.last().is_some_and(|&current| width > current) {
        stack.push(width);
        tokens.push(Token::Indent);
        return Ok(());
    }
    while stack.len() > 1 && stack.last().is_some_and(|&current| width < current) {
        stack.pop();
        tokens.push(Token::Dedent);
    }
    if stack.last() == Some(&width) {
        Ok(())
    } else {
        Err(Fault::Syntax(format!(
            "indentation of {width} fits no block"
        )))
    }
}

fn line_tokens(code: &str, tokens: &mut Vec<Token>, open: &mut usize) -> Result<(), Fault> {
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let token;
        (token, rest) = match first {
            ' ' => {
                rest = &rest[1..];
                continue;
            }
            '#' => break,
            '0'..='9' => number(rest)?,
            '"' | '\'' => string(rest, first)?,
            'a'..='z' | 'A'..='Z' | '_' => {
                let (name, rest) = split_while(rest, |c| c.is_ascii_alphanumeric() || c == '_');
                (Token::Name(name.to_owned()), rest)
            }
            _ => {
                let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign));
                let sign = sign.ok_or_else(|| Fault::Syntax(format!("character {first:?}")))?;
                match sign {
                    "(" | "[" | "{" => *open += 1,
                    ")" | "]" | "}" => {
                        let left = open.checked_sub(1);
                        *open = left.ok_or_else(|| Fault::Syntax(format!("unmatched {sign}")))?;
                    }
                    _ => {}
                }
                (Token::Sign(sign), &rest[sign.len()..])
            }
        };
        tokens.push(token);
    }
    Ok(())
}

/// An integer or a decimal fraction. Letters directly after it are an error, as in Python.
fn number(text: &str) -> Result<(Token, &str), Fault> {
    let wrong = || Fault::Syntax(format!("number in {text:?}"));
    let (whole, rest) = split_while(text, |c| c.is_ascii_digit());
    let (token, rest) = match rest.strip_prefix('.') {
        Some(fraction) => {
            let (digits, rest) = split_while(fraction, |c| c.is_ascii_digit());
            let value = text[..whole.len() + 1 + digits.len()]
                .parse()
                .map_err(|_| wrong())?;
            (Token::Float(value), rest)
        }
        None if whole.len() > 1 && whole.starts_with('0') => return Err(wrong()),
        None => (Token::Int(whole.parse().map_err(|_| wrong())?), rest),
    };
    if rest.starts_with(|c: char| c.is_alphanumeric() || c == '_') {
        return Err(wrong());
    }
    Ok((token, rest))
}

/// A string on one line, without escapes.
fn string(text: &str, quote: char) -> Result<(Token, &str), Fault> {
    let inner = &text[1..];
    let end = inner.find(quote);
    let end = end.ok_or_else(|| Fault::Syntax("a string is never closed".to_owned()))?;
    if inner[..end].contains('\\') {
        return Err(Fault::Syntax("an escape in a string".to_owned()));
    }
    Ok((Token::Text(inner[..end].to_owned()), &inner[end + 1..]))
}

fn split_while(text: &str, keep: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !keep(c)).unwrap_or(text.len()))
}
