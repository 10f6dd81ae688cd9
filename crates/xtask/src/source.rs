//! A light scan of Rust source: comments and literals blanked, test items found, functions
//! measured. Positions stay what they are in the file.

use std::ops::Range;

/// The scanned text of one file.
#[derive(Debug)]
pub struct Source {
    /// The text with comments, strings and character literals replaced by spaces.
    pub code: String,
    /// The same without items under `#[cfg(test)]` and without `#[test]` functions.
    pub shipped: String,
}

/// A function with a body, or a declaration without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Line of the keyword `fn`, from 1.
    pub line: usize,
    /// Lines from there to the closing brace.
    pub lines: usize,
    /// Arguments, a receiver included.
    pub arguments: usize,
    /// Whether a trait, perhaps somebody else's, says what the arguments are.
    pub of_trait: bool,
}

const TEST_ATTRIBUTES: [&str; 3] = ["#[cfg(test)]", "#[test]", "#[tokio::test"];

impl Source {
    /// Scans a file.
    pub fn scan(text: &str) -> Self {
        let code = blank_literals(text);
        let shipped = if code.contains("#![cfg(test)]") {
            blanked(&code, 0..code.len())
        } else {
            without_tests(&code)
        };
        Self { code, shipped }
    }

    /// All functions outside tests.
    pub fn functions(&self) -> Vec<Function> {
        let code = &self.shipped;
        let traits = trait_impls(code);
        let starts = words(code, "fn").filter_map(|start| {
            let of_trait = traits.iter().any(|body| body.contains(&start));
            Some(Function {
                of_trait,
                ..function(code, start)?
            })
        });
        starts.collect()
    }

    /// Lines up to the last one, without those that hold nothing but tests.
    pub fn shipped_lines(&self) -> usize {
        let lines = self.code.lines().count();
        let tests = self
            .code
            .lines()
            .zip(self.shipped.lines())
            .filter(|(code, shipped)| !code.trim().is_empty() && shipped.trim().is_empty());
        lines - tests.count()
    }
}

/// Line of a byte offset, from 1.
pub fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset]
        .iter()
        .filter(|&&byte| byte == b'\n')
        .count()
        + 1
}

/// Offsets of a whole word.
pub fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_part = |byte: Option<&u8>| byte.is_some_and(|&byte| is_ident(byte));
    code.match_indices(word)
        .map(|(start, _)| start)
        .filter(move |&start| {
            let bytes = code.as_bytes();
            let before = start.checked_sub(1).and_then(|before| bytes.get(before));
            !is_part(before) && !is_part(bytes.get(start + word.len()))
        })
}

/// Replaces comments, strings and character literals by spaces, newlines kept.
fn blank_literals(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(bytes, at);
        for byte in out[at..end].iter_mut().filter(|byte| **byte != b'\n') {
            *byte = b' ';
        }
        at = end.max(at + 1);
    }
    // Whole literals were blanked, so what is left is whole characters.
    String::from_utf8_lossy(&out).into_owned()
}

/// The end of the comment or literal that starts at `at`, `at` itself if none does.
fn literal_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let after_ident = at > 0 && is_ident(bytes[at - 1]);
    match rest {
        [b'/', b'/', ..] => at + rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => block_comment_end(bytes, at),
        [b'"', ..] => string_end(bytes, at + 1),
        [b'r', b'"' | b'#', ..] if !after_ident => raw_string_end(bytes, at + 1).unwrap_or(at),
        [b'b' | b'c', b'r', b'"' | b'#', ..] if !after_ident => {
            raw_string_end(bytes, at + 2).unwrap_or(at)
        }
        [b'\'', b'\\', _, ..] => {
            let close = bytes[at + 3..].iter().position(|&b| b == b'\'');
            close.map_or(bytes.len(), |close| at + 3 + close + 1)
        }
        [b'\'', first, ..] => {
            let close = at + 1 + utf8_len(*first);
            if bytes.get(close) == Some(&b'\'') {
                close + 1
            } else {
                at
            }
        }
        _ => at,
    }
}

fn block_comment_end(bytes: &[u8], start: usize) -> usize {
    let (mut depth, mut at) = (0, start);
    while at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    at
}

fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

/// The end of a raw string whose hashes start at `at`; `None` for a raw identifier.
fn raw_string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let hashes = bytes[at..].iter().take_while(|&&b| b == b'#').count();
    if bytes.get(at + hashes) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.extend(vec![b'#'; hashes]);
    let body = at + hashes + 1;
    let end = bytes[body..]
        .windows(close.len())
        .position(|window| window == close);
    Some(end.map_or(bytes.len(), |end| body + end + close.len()))
}

fn utf8_len(first: u8) -> usize {
    match first {
        0xF0.. => 4,
        0xE0.. => 3,
        0xC0.. => 2,
        _ => 1,
    }
}

fn without_tests(code: &str) -> String {
    let mut shipped = code.to_owned();
    for attribute in TEST_ATTRIBUTES {
        while let Some(start) = shipped.find(attribute) {
            let end = item_end(&shipped, start);
            shipped = blanked(&shipped, start..end);
        }
    }
    shipped
}

fn blanked(code: &str, range: Range<usize>) -> String {
    let blank = |c: char| {
        if c == '\n' {
            "\n".to_owned()
        } else {
            " ".repeat(c.len_utf8())
        }
    };
    let blank: String = code[range.clone()].chars().map(blank).collect();
    [&code[..range.start], &blank, &code[range.end..]].concat()
}

/// The end of the item that starts with attributes at `start`: its closing brace, or `;`.
fn item_end(code: &str, start: usize) -> usize {
    let bytes = code.as_bytes();
    let mut depth = 0;
    for (at, &byte) in bytes.iter().enumerate().skip(start) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' => depth -= 1,
            b'}' => {
                depth -= 1;
                if depth <= 0 {
                    return at + 1;
                }
            }
            b';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    bytes.len()
}

/// The function whose keyword stands at `start`; `None` for a function pointer type.
fn function(code: &str, start: usize) -> Option<Function> {
    let bytes = code.as_bytes();
    let name_start = start + 2 + code[start + 2..].find(|c: char| !c.is_whitespace())?;
    let name_len = bytes[name_start..]
        .iter()
        .take_while(|&&byte| is_ident(byte))
        .count();
    if name_len == 0 {
        return None;
    }
    let mut open = name_start + name_len;
    if bytes.get(open) == Some(&b'<') {
        open = close_of(bytes, open)? + 1;
    }
    let close = close_of(bytes, open)?;
    Some(Function {
        name: code[name_start..name_start + name_len].to_owned(),
        line: line_of(code, start),
        lines: line_of(code, item_end(code, start) - 1) - line_of(code, start) + 1,
        arguments: arguments(&bytes[open + 1..close]),
        of_trait: false,
    })
}

/// The bodies of `impl Trait for Type`.
fn trait_impls(code: &str) -> Vec<Range<usize>> {
    let bodies = words(code, "impl").filter_map(|start| {
        let open = start + code[start..].find('{')?;
        let header = &code[start..open];
        // The other `for` is that of a bound over lifetimes, `for<'a>`.
        let names_trait =
            words(header, "for").any(|at| !header[at + 3..].trim_start().starts_with('<'));
        names_trait.then(|| open..item_end(code, open))
    });
    bodies.collect()
}

/// Arguments in a parameter list: top-level commas, a trailing one left out.
fn arguments(list: &[u8]) -> usize {
    let (mut depth, mut count, mut pending) = (0, 0, false);
    for (at, &byte) in list.iter().enumerate() {
        match byte {
            b'(' | b'[' | b'{' | b'<' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            b'>' if at == 0 || list[at - 1] != b'-' => depth -= 1,
            b',' if depth == 0 => (count, pending) = (count + 1, false),
            _ => pending |= !byte.is_ascii_whitespace(),
        }
    }
    count + usize::from(pending)
}

/// Where the bracket that opens at `open` closes.
fn close_of(bytes: &[u8], open: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, &byte) in bytes.iter().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' | b'<' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            b'>' if bytes[at - 1] != b'-' && bytes[at - 1] != b'=' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

fn is_ident(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}
