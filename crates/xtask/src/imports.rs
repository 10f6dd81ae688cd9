//! Imports between the files of a crate, and the circles among them.
//!
//! A name counts for the file that defines it, not for the file that re-exports it. Tests,
//! `mod` declarations and the tokens of macros do not count.

mod circles;
mod modules;

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Item, ItemMod};

pub use circles::{Circle, circles, siblings};
use modules::{Modules, flatten};

use crate::repository::File;
use crate::syntax::is_test_item;

/// For each file, the files that it imports.
pub type Imports = BTreeMap<String, BTreeSet<String>>;

/// The imports between the files of each crate, tests not counted.
pub fn imports(files: &[File]) -> Imports {
    let mut imports = Imports::new();
    for root in files.iter().filter(|file| is_root(&file.path)) {
        let modules = Modules::of_crate(root, files);
        for (path, module) in &modules.all {
            let mut names = Names::default();
            for item in &module.body {
                names.visit_item(item);
            }
            let importer = &module.file;
            let targets = names.found.iter().filter_map(|name| modules.file_of(path, name));
            let others = targets.filter(|target| target != importer);
            imports.entry(importer.clone()).or_default().extend(others);
        }
    }
    imports
}

/// `lib.rs` or `main.rs` of a crate.
fn is_root(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(parts[..], ["crates", _, "src", "lib.rs" | "main.rs"])
}

/// Every path that a module writes.
#[derive(Default)]
struct Names {
    found: Vec<Vec<String>>,
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
        let (names, globs) = flatten(&item.tree);
        self.found.extend(names.into_iter().map(|(_, path)| path));
        self.found.extend(globs);
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let words = path.segments.iter().map(|segment| segment.ident.to_string());
        self.found.push(words.collect());
        visit::visit_path(self, path);
    }
}
