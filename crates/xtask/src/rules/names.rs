//! Names of variables, parameters and fields are nouns: a bare preposition names nothing.

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Expr, Token};

use crate::repository::{File, Problem};

/// Words that name no variable, parameter or field.
const PREPOSITIONS: [&str; 4] = ["of", "at", "to", "on"];

/// One problem per binding, parameter and field that is named by a preposition.
pub fn check(files: &[File]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in files {
        let Some(syntax) = file.syntax() else {
            continue;
        };
        let mut names = Names::default();
        names.visit_file(&syntax.tree);
        names.found.dedup();
        problems.extend(names.found.into_iter().map(|(line, name)| {
            let message = format!("`{name}` names a variable, a noun is expected");
            Problem::at("names", &file.path, line, message)
        }));
    }
    problems
}

/// The prepositions that name something, with their lines.
#[derive(Default)]
struct Names {
    found: Vec<(usize, String)>,
}

impl Names {
    fn add(&mut self, name: &Ident) {
        if PREPOSITIONS.iter().any(|word| name == word) {
            self.found.push((name.span().start().line, name.to_string()));
        }
    }

    /// The bindings of tokens that are no list of expressions: a name behind a keyword or before a type.
    fn add_bindings(&mut self, tokens: TokenStream) {
        let trees: Vec<TokenTree> = tokens.into_iter().collect();
        for (index, tree) in trees.iter().enumerate() {
            match tree {
                TokenTree::Group(group) => self.add_bindings(group.stream()),
                TokenTree::Ident(name) => {
                    let before = index.checked_sub(1).map(|before| trees[before].to_string());
                    let is_bound = ["let", "mut", "ref", "for", "|"].iter();
                    let is_bound = is_bound.copied().any(|word| before.as_deref() == Some(word));
                    let mut after = trees[index + 1..].iter().map(ToString::to_string);
                    let is_typed = after.next().as_deref() == Some(":");
                    if is_bound || is_typed && after.next().as_deref() != Some(":") {
                        self.add(name);
                    }
                }
                _ => {}
            }
        }
    }
}

impl<'a> Visit<'a> for Names {
    fn visit_pat_ident(&mut self, pattern: &'a syn::PatIdent) {
        self.add(&pattern.ident);
        visit::visit_pat_ident(self, pattern);
    }

    fn visit_field(&mut self, field: &'a syn::Field) {
        field.ident.iter().for_each(|name| self.add(name));
        visit::visit_field(self, field);
    }

    fn visit_macro(&mut self, invocation: &'a syn::Macro) {
        let list = Punctuated::<Expr, Token![,]>::parse_terminated;
        match list.parse2(invocation.tokens.clone()) {
            Ok(list) => list.iter().for_each(|value| Names::visit_expr(self, value)),
            Err(_) => self.add_bindings(invocation.tokens.clone()),
        }
    }
}
