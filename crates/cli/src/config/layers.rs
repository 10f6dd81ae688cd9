//! Layers of values: each value is checked at its origin; later layers win key by key.

use toml::{Table, Value};

use super::origin::{Origin, Origins, Problem};
use super::schema::Config;

/// The values of all layers that were put.
#[derive(Debug)]
pub struct Layers {
    /// Every section and key with its default.
    defaults: Table,
    /// Every section with the keys that were set.
    given: Table,
    origins: Origins,
    pub(super) problems: Vec<Problem>,
}

impl Default for Layers {
    fn default() -> Self {
        let defaults = Table::try_from(Config::default());
        Self {
            defaults: defaults.expect("a configuration is a table"),
            given: Table::new(),
            origins: Origins::default(),
            problems: Vec::new(),
        }
    }
}

impl Layers {
    /// The known names: the sections, or the keys of `section`. `None` if there is no such section.
    pub(super) fn names(&self, section: Option<&str>) -> Option<Vec<&str>> {
        let table = match section {
            None => &self.defaults,
            Some(name) => self.defaults.get(name)?.as_table()?,
        };
        Some(table.keys().map(String::as_str).collect())
    }

    /// Every known key: `section.name`.
    pub(super) fn keys(&self) -> Vec<String> {
        let sections = self.defaults.iter();
        let keys = sections.flat_map(|(section, content)| {
            let names = content.as_table().into_iter().flat_map(Table::keys);
            names.map(move |name| format!("{section}.{name}"))
        });
        keys.collect()
    }

    /// The default of `section.name`.
    pub(super) fn default_of(&self, key: &str) -> Option<&Value> {
        let (section, name) = key.split_once('.')?;
        self.defaults.get(section)?.get(name)
    }

    /// Sets the value of a known key, or records why the value is invalid.
    pub(super) fn put(&mut self, key: &str, value: Value, origin: Origin) {
        let Some((section, name)) = key.split_once('.') else {
            return;
        };
        let mut alone = Table::new();
        alone.insert(name.to_owned(), value.clone());
        let mut whole = Table::new();
        whole.insert(section.to_owned(), Value::Table(alone));
        if let Err(error) = whole.try_into::<Config>() {
            let what = wording(error.message());
            self.wrong(key, what, origin);
            return;
        }
        // A text without a meaning counts only if it is in effect.
        self.problems.retain(|one| one.key != key || !one.what.contains(", found \""));
        let sections = self.given.entry(section);
        let section = sections.or_insert_with(|| Value::Table(Table::new()));
        if let Value::Table(table) = section {
            table.insert(name.to_owned(), value);
        }
        self.origins.set(key, origin);
    }

    /// Records a problem.
    pub(super) fn wrong(&mut self, key: &str, what: String, origin: Origin) {
        self.problems.push(Problem { origin, key: key.to_owned(), what, missing: false });
    }

    /// The configuration of all valid values, their origins, and the problems.
    pub(super) fn finish(self) -> (Config, Origins, Vec<Problem>) {
        let config = self.given.try_into();
        let config = config.expect("every value was checked alone");
        (config, self.origins, self.problems)
    }
}

/// serde's `invalid type: string "x", expected u32` as `expected …, found …`.
fn wording(message: &str) -> String {
    let message = message.lines().next().unwrap_or_default();
    let Some((found, expected)) = message.rsplit_once(", expected ") else {
        return message.to_owned();
    };
    let found = ["invalid type: ", "invalid value: "]
        .iter()
        .find_map(|prefix| found.strip_prefix(prefix))
        .unwrap_or(found);
    let expected = match expected {
        "u32" => format!("a whole number up to {}", u32::MAX),
        "u64" | "usize" => "a whole number from 0 on".to_owned(),
        "f64" => "a number".to_owned(),
        other => other.to_owned(),
    };
    format!("expected {expected}, found {found}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_value_leaves_the_one_below_it() {
        let mut layers = Layers::default();
        layers.put("engine.row_budget", Value::Integer(7), Origin::Set);
        layers.put("engine.row_budget", Value::Integer(-1), Origin::Set);
        let text = Value::String("no".to_owned());
        layers.put("server.cors", text, Origin::Set);
        let (config, origins, problems) = layers.finish();
        assert_eq!(config.engine.row_budget, 7);
        assert_eq!(origins.get("engine.row_budget"), &Origin::Set);
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let expected = [
            "--set engine.row_budget: expected a whole number up to 4294967295, found integer `-1`",
            "--set server.cors: expected a boolean, found string \"no\"",
        ];
        assert_eq!(lines, expected);
    }
}
