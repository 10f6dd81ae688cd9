//! Where the names of one concept stand outside its own files.

use std::collections::{BTreeMap, BTreeSet};

use syn::Item;
use syn::spanned::Spanned;

use crate::repository::File;
use crate::syntax::{Syntax, Token};

/// Lines that mention a concept, by file.
pub type Mentions = BTreeMap<String, BTreeSet<usize>>;

/// The mentions of a concept outside the files that `own` accepts.
///
/// `name` is its name in snake case. It counts as a word or as a whole string, also in capitals,
/// and so does every word that begins with the name in camel case. Tests, documentation, `use` and
/// `mod NAME;` do not count.
pub fn mentions(files: &[File], name: &str, own: &dyn Fn(&str) -> bool) -> Mentions {
    let (camel, capitals) = (camel(name), name.to_uppercase());
    let quoted = format!("\"{name}\"");
    let named = |token: &Token| {
        let text = &token.text;
        *text == name || *text == capitals || *text == quoted || text.starts_with(&camel)
    };
    let mut found = Mentions::new();
    for file in files
        .iter()
        .filter(|file| !file.is_test() && !own(&file.path))
    {
        let Some(syntax) = file.syntax() else {
            continue;
        };
        let lines = syntax.tokens.iter().filter(|token| named(token));
        let lines = lines.map(|token| token.line);
        let declarations = declarations(syntax);
        let counts = |line: &usize| !syntax.in_tests(*line) && !declarations.contains(line);
        let lines: BTreeSet<usize> = lines.filter(counts).collect();
        if !lines.is_empty() {
            found.insert(file.path.clone(), lines);
        }
    }
    found
}

/// Lines of `use` and `mod NAME;`.
fn declarations(syntax: &Syntax) -> BTreeSet<usize> {
    let is_declaration = |item: &&Item| match item {
        Item::Use(_) => true,
        Item::Mod(module) => module.content.is_none(),
        _ => false,
    };
    let items = syntax.tree.items.iter().filter(is_declaration);
    items
        .flat_map(|item| item.span().start().line..=item.span().end().line)
        .collect()
}

/// `early_commit` as `EarlyCommit`.
fn camel(name: &str) -> String {
    let word = |word: &str| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_uppercase() + rest
    };
    name.split('_').map(word).collect()
}
