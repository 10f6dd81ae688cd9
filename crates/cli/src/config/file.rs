//! One TOML file; every problem with its line and column.

use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use toml::Value;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::layers::Layers;
use super::origin::{Origin, Problem};
use crate::names::unknown;

impl Layers {
    /// Adds the values of a file over the present ones.
    pub(super) fn file(&mut self, path: &Path) {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                self.problems.push(Problem {
                    origin: Origin::File(path.to_owned(), 0, 0),
                    key: String::new(),
                    what: error.to_string(),
                    missing: error.kind() == std::io::ErrorKind::NotFound,
                });
                return;
            }
        };
        let origin = |span: Range<usize>| place(path, &text, span.start);
        let (document, errors) = DeTable::parse_recoverable(&text);
        if !errors.is_empty() {
            // After a syntax error the parser's other values may be wrong.
            for error in errors {
                let what = error.message().replace('\n', " ");
                self.wrong("", what, origin(error.span().unwrap_or_default()));
            }
            return;
        }
        for (section, content) in document.get_ref() {
            let name = section.get_ref().as_ref();
            if self.names(Some(name)).is_none() {
                let sections = self.names(None).unwrap_or_default();
                let what = unknown(&sections, name);
                self.wrong(name, what, origin(section.span()));
                continue;
            }
            match content.get_ref() {
                DeValue::Table(table) => self.section(name, table, &origin),
                other => {
                    let what = format!("expected a table, found {}", other.type_str());
                    self.wrong(name, what, origin(content.span()));
                }
            }
        }
    }

    fn section(
        &mut self,
        section: &str,
        table: &DeTable<'_>,
        origin: &impl Fn(Range<usize>) -> Origin,
    ) {
        for (key, content) in table {
            let name = key.get_ref().as_ref();
            let whole = format!("{section}.{name}");
            if self.default_of(&whole).is_none() {
                let names = self.names(Some(section)).unwrap_or_default();
                let what = unknown(&names, name);
                self.wrong(&whole, what, origin(key.span()));
                continue;
            }
            match Value::deserialize(ValueDeserializer::from(content.clone())) {
                Ok(value) => self.put(&whole, value, origin(content.span())),
                Err(error) => {
                    self.wrong(&whole, error.message().to_owned(), origin(content.span()))
                }
            }
        }
    }
}

/// Line and column of a byte of the file, from 1.
fn place(path: &Path, text: &str, byte: usize) -> Origin {
    let before = text.get(..byte).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    Origin::File(path.to_owned(), line, column)
}
