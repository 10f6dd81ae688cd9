//! JSON in the format of Python's `json.dumps`, which chat templates expect from `tojson`.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

/// The arguments of `json.dumps`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Style {
    /// The indentation of each level; without it, everything is on one line.
    pub(crate) indent: Option<String>,
    /// The text between items, and the text after a key.
    pub(crate) separators: Option<[String; 2]>,
    /// Escapes every character that is not ASCII.
    pub(crate) ascii: bool,
}

/// Serializes `value`; by default on one line with a blank after `,` and `:`, and with no more
/// escapes than JSON requires.
///
/// # Errors
/// If the value has no JSON representation.
pub(crate) fn to_json<T: Serialize>(value: &T, style: &Style) -> Result<String, serde_json::Error> {
    let item = if style.indent.is_some() { "," } else { ", " };
    let [item, key] =
        style.separators.as_ref().map_or([item, ": "], |pair| pair.each_ref().map(String::as_str));
    let formatter = Python {
        indent: style.indent.as_deref(),
        item,
        key,
        ascii: style.ascii,
        level: 0,
        filled: false,
    };
    let mut bytes = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut bytes, formatter))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

struct Python<'a> {
    indent: Option<&'a str>,
    item: &'a str,
    key: &'a str,
    ascii: bool,
    level: usize,
    /// True if the list or object that ends next has items.
    filled: bool,
}

impl Python<'_> {
    fn open<W: ?Sized + Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.level += 1;
        self.filled = false;
        out.write_all(bracket)
    }

    fn item<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if !first {
            out.write_all(self.item.as_bytes())?;
        }
        self.line(out)
    }

    fn close<W: ?Sized + Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.level -= 1;
        if self.filled {
            self.line(out)?;
        }
        self.filled = true;
        out.write_all(bracket)
    }

    fn line<W: ?Sized + Write>(&self, out: &mut W) -> io::Result<()> {
        let Some(indent) = self.indent else {
            return Ok(());
        };
        out.write_all(b"\n")?;
        (0..self.level).try_for_each(|_| out.write_all(indent.as_bytes()))
    }
}

impl Formatter for Python<'_> {
    fn write_f64<W: ?Sized + Write>(&mut self, out: &mut W, value: f64) -> io::Result<()> {
        let text = format!("{value:?}");
        match text.split_once('e') {
            None => out.write_all(text.as_bytes()),
            Some((digits, exponent)) => {
                let (sign, exponent) = match exponent.strip_prefix('-') {
                    Some(exponent) => ('-', exponent),
                    None => ('+', exponent),
                };
                write!(out, "{digits}e{sign}{exponent:0>2}")
            }
        }
    }

    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        if !self.ascii {
            return out.write_all(fragment.as_bytes());
        }
        for c in fragment.chars() {
            if c.is_ascii() && c != '\u{7F}' {
                write!(out, "{c}")?;
            } else {
                let units = c.encode_utf16(&mut [0; 2]).to_vec();
                units.iter().try_for_each(|unit| write!(out, "\\u{unit:04x}"))?;
            }
        }
        Ok(())
    }

    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.item(out, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.filled = true;
        Ok(())
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.item(out, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(self.key.as_bytes())
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.filled = true;
        Ok(())
    }
}
