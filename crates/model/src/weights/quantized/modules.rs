//! Lists of modules in a quantization's configuration.

use std::collections::BTreeSet;

use regex::bytes::{Regex, RegexBuilder};
use serde_json::Value;

use crate::LoadError;
use crate::config::Keys;

/// Maximum number of patterns in a list, each of which is matched against every matrix.
const MOST_PATTERNS: usize = 64;
/// Maximum bytes of a compiled pattern.
const MOST_BYTES: usize = 64 << 10;
/// The class of matrices whose inputs are a layer's rows.
const LINEAR: &str = "Linear";
/// Signs of a pattern that no module name has.
const SIGNS: [char; 10] = ['*', '+', '?', '[', '(', '|', '^', '$', '\\', '{'];

/// A list of modules: by name, by pattern, or by class.
#[derive(Default)]
pub(super) struct Modules {
    names: BTreeSet<String>,
    patterns: Vec<Regex>,
    /// True if a name also stands for the modules inside and for the ends of longer names.
    is_partial: bool,
    /// True if it has every module.
    is_all: bool,
}

impl Modules {
    /// The list `key` of compressed-tensors: complete names, classes, and patterns after `re:` that match from
    /// the start of a name.
    ///
    /// # Errors
    /// No list of texts, or a pattern that is not supported.
    pub(super) fn of_names(config: &Keys, key: &str) -> Result<Self, LoadError> {
        let mut modules = Self::default();
        for entry in texts(config, key)? {
            match entry.strip_prefix("re:") {
                Some(pattern) => modules.add_pattern(config, key, pattern)?,
                None => drop(modules.names.insert(entry.to_owned())),
            }
        }
        Ok(modules)
    }

    /// The list `key` of transformers: parts of names between dots, or patterns of parts.
    ///
    /// # Errors
    /// As [`Self::of_names`].
    pub(super) fn of_parts(config: &Keys, keys: &[&str]) -> Result<Self, LoadError> {
        let mut modules = Self { is_partial: true, ..Self::default() };
        for key in keys {
            for entry in texts(config, key)? {
                match entry.strip_prefix("re:") {
                    Some(pattern) => modules.add_pattern(config, key, pattern)?,
                    None if entry.contains(SIGNS) => {
                        modules.add_pattern(config, key, &format!(r"(?:{entry})(?:\.|$)"))?;
                    }
                    None => drop(modules.names.insert(entry.trim_matches('.').to_owned())),
                }
            }
        }
        Ok(modules)
    }

    /// The list `key` of Model Optimizer: names, or parts of names around `*`. Of many patterns the first count.
    ///
    /// # Errors
    /// No list of texts.
    pub(super) fn of_wildcards(config: &Keys, key: &str) -> Result<Self, LoadError> {
        let mut modules = Self::default();
        for entry in texts(config, key)? {
            if !entry.contains('*') {
                modules.names.insert(entry.to_owned());
            } else if modules.patterns.len() < MOST_PATTERNS {
                let parts: Vec<String> = entry.split('*').map(regex::escape).collect();
                modules.add_pattern(config, key, &format!("{}$", parts.join(".*")))?;
            }
        }
        Ok(modules)
    }

    /// Modules with these names.
    pub(super) fn named<'a>(names: impl Iterator<Item = &'a String>) -> Self {
        Self { names: names.cloned().collect(), ..Self::default() }
    }

    /// Every linear layer.
    pub(super) fn linear() -> Self {
        Self { names: [LINEAR.to_owned()].into(), ..Self::default() }
    }

    /// Every linear layer, and embeddings.
    pub(super) fn all() -> Self {
        Self { is_all: true, ..Self::default() }
    }

    /// Adds a module by its name.
    pub(super) fn add(&mut self, name: &str) {
        self.names.insert(name.to_owned());
    }

    /// Adds a pattern that matches from the start of a name.
    ///
    /// # Errors
    /// A pattern that is not supported.
    pub(super) fn add_pattern(
        &mut self,
        config: &Keys,
        key: &str,
        pattern: &str,
    ) -> Result<(), LoadError> {
        if self.patterns.len() >= MOST_PATTERNS {
            return Err(config.refuse(key, format!("at most {MOST_PATTERNS} patterns")));
        }
        self.patterns.push(compiled(config, key, &format!("^(?:{pattern})"))?);
        Ok(())
    }

    /// True if the module, of a linear layer or not, is in the list.
    pub(super) fn contains(&self, module: &str, is_linear: bool) -> bool {
        self.names(module) || self.matches(module) || self.covers(is_linear)
    }

    /// True if the list has its name.
    pub(super) fn names(&self, module: &str) -> bool {
        if !self.is_partial || self.names.is_empty() {
            return self.names.contains(module);
        }
        let starts = std::iter::once(0).chain(module.match_indices('.').map(|(dot, _)| dot + 1));
        starts.into_iter().any(|start| {
            let rest = &module[start..];
            let ends = rest.match_indices('.').map(|(dot, _)| dot);
            ends.chain([rest.len()]).any(|end| self.names.contains(&rest[..end]))
        })
    }

    /// True if a pattern matches its name.
    pub(super) fn matches(&self, module: &str) -> bool {
        self.patterns.iter().any(|pattern| pattern.is_match(module.as_bytes()))
    }

    /// True if the list has every module, or the class of linear layers, and the module is one.
    pub(super) fn covers(&self, is_linear: bool) -> bool {
        self.is_all || is_linear && self.names.contains(LINEAR)
    }

    /// True if the list is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.patterns.is_empty() && !self.is_all
    }
}

/// A pattern over the names of modules.
///
/// # Errors
/// One that is not supported.
pub(in super::super) fn compiled(
    config: &Keys,
    key: &str,
    pattern: &str,
) -> Result<Regex, LoadError> {
    let compiled = RegexBuilder::new(pattern).unicode(false).size_limit(MOST_BYTES).build();
    compiled.map_err(|error| {
        let reason = error.to_string();
        let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ");
        let expected = format!("a pattern without look-around and back-references ({reason})");
        config.refuse(key, expected)
    })
}

/// The texts of a list and of the lists in it, none if the key is absent.
fn texts<'a>(config: &'a Keys, key: &str) -> Result<Vec<&'a str>, LoadError> {
    let Some(list) = config.get(key) else {
        return Ok(Vec::new());
    };
    let refuse = || config.refuse(key, "a list of names");
    let mut all = Vec::new();
    for entry in list.as_array().ok_or_else(refuse)? {
        match entry {
            Value::Array(inner) => {
                for entry in inner {
                    all.push(entry.as_str().ok_or_else(refuse)?);
                }
            }
            entry => all.push(entry.as_str().ok_or_else(refuse)?),
        }
    }
    Ok(all)
}
