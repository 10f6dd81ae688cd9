//! Which file of a crate imports which, and the circles among them.
//!
//! A name counts for the file that defines it, not for the file that re-exports it. Tests, and
//! `mod` declarations, do not count.

mod circles;
mod modules;

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Item, ItemMod};

pub use circles::{Circle, circles};
use modules::{Modules, flatten};

use crate::repository::File;
use crate::syntax::{Token, is_test_item};

/// For each file, the files that it imports and the first line that does.
pub type Imports = BTreeMap<String, BTreeMap<String, usize>>;

/// The imports between the files of each crate, tests not counted.
pub fn imports(files: &[File]) -> Imports {
    let mut imports = Imports::new();
    for root in files.iter().filter(|file| is_root(&file.path)) {
        let modules = Modules::of_crate(root, files);
        for (path, module) in &modules.all {
            let mut names = Names {
                found: Vec::new(),
                module: path.clone(),
            };
            for item in &module.body {
                names.visit_item(item);
            }
            for (module, name, line) in names.found {
                let Some(target) = modules.file_of(&module, &name) else {
                    continue;
                };
                let from = &modules.all[path].file;
                if target != *from {
                    let edges = imports.entry(from.clone()).or_default();
                    let first = edges.entry(target).or_insert(line);
                    *first = line.min(*first);
                }
            }
        }
    }
    imports
}

/// `lib.rs` or `main.rs` of a crate.
fn is_root(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(parts[..], ["crates", _, "src", "lib.rs" | "main.rs"])
}

/// Every path that a module writes, with its line.
struct Names {
    found: Vec<(Vec<String>, Vec<String>, usize)>,
    module: Vec<String>,
}

impl Names {
    fn add(&mut self, name: Vec<String>, line: usize) {
        self.found.push((self.module.clone(), name, line));
    }
}

impl<'a> Visit<'a> for Names {
    fn visit_item(&mut self, item: &'a Item) {
        if !is_test_item(item) {
            visit::visit_item(self, item);
        }
    }

    // `pub(crate)` names no import.
    fn visit_visibility(&mut self, _: &'a syn::Visibility) {}

    // An inline module has an entry of its own.
    fn visit_item_mod(&mut self, _: &'a ItemMod) {}

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        let line = item.use_token.span.start().line;
        let (names, globs) = flatten(&item.tree);
        for (_, path) in names {
            self.add(path, line);
        }
        for path in globs {
            self.add(path, line);
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let name: Vec<String> = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect();
        if let Some(first) = path.segments.first() {
            self.add(name, first.ident.span().start().line);
        }
        visit::visit_path(self, path);
    }

    /// The tokens of a macro are no syntax tree: sequences of words and `::` are paths.
    fn visit_macro(&mut self, call: &'a syn::Macro) {
        let mut tokens = Vec::new();
        crate::syntax::flatten(call.tokens.clone(), &mut tokens);
        for (name, line) in paths(&tokens) {
            self.add(name, line);
        }
        visit::visit_macro(self, call);
    }
}

/// Paths of at least two words in a sequence of tokens.
fn paths(tokens: &[Token]) -> Vec<(Vec<String>, usize)> {
    let is_word = |text: &str| text.starts_with(|c: char| c.is_alphabetic() || c == '_');
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let start = at;
        let mut words = Vec::new();
        while at < tokens.len() && is_word(&tokens[at].text) {
            words.push(tokens[at].text.clone());
            let colons = tokens.get(at + 1..at + 3);
            if !colons.is_some_and(|colons| colons.iter().all(|colon| colon.text == ":")) {
                break;
            }
            at += 3;
        }
        if words.len() > 1 {
            found.push((words, tokens[start].line));
        }
        at += 1;
    }
    found
}

/// All files that `imports` names.
fn files_of(imports: &Imports) -> BTreeSet<&String> {
    imports
        .iter()
        .flat_map(|(from, to)| std::iter::once(from).chain(to.keys()))
        .collect()
}
