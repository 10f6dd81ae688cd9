//! Facts about one Rust file, read from its tokens and its syntax tree: functions, tests, words.

use std::ops::RangeInclusive;

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, ImplItem, Item, Signature};

/// The tokens and the syntax tree of one file.
#[derive(Clone)]
pub struct Syntax {
    /// The tree, tests included.
    pub tree: syn::File,
    /// The tokens in order, tests included. Documentation comments are string literals.
    pub tokens: Vec<Token>,
    lines: usize,
    tests: Vec<RangeInclusive<usize>>,
}

/// A word, a literal, a sign or a bracket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// As written; a bracket is one character.
    pub text: String,
    /// Its line, from 1.
    pub line: usize,
}

/// A function with a body outside tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Line of the keyword `fn`, from 1.
    pub line: usize,
    /// Lines from there to the end of the body.
    pub lines: usize,
}

impl Syntax {
    /// Parses a file.
    ///
    /// # Errors
    /// The line, from 1, and the reason if the text is not Rust.
    pub fn parse(text: &str) -> Result<Self, (usize, String)> {
        let stream: TokenStream =
            text.parse().map_err(|error: proc_macro2::LexError| at(error.span(), &error))?;
        let mut tokens = Vec::new();
        flatten(stream.clone(), &mut tokens);
        let tree: syn::File = syn::parse2(stream).map_err(|error| at(error.span(), &error))?;
        let mut tests = Tests::default();
        tests.visit_file(&tree);
        let lines = text.lines().count();
        let tests = match tree.attrs.iter().any(is_test) {
            true => std::iter::once(1..=lines).collect(),
            false => tests.found,
        };
        Ok(Self { tree, tokens, lines, tests })
    }

    /// True if the line, from 1, belongs to a test item.
    pub fn in_tests(&self, line: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&line))
    }

    /// Lines outside test items.
    pub fn shipped_lines(&self) -> usize {
        (1..=self.lines).filter(|&line| !self.in_tests(line)).count()
    }

    /// All functions outside tests.
    pub fn functions(&self) -> Vec<Function> {
        let mut functions = Functions::default();
        functions.visit_file(&self.tree);
        functions.found.retain(|found| !self.in_tests(found.line));
        functions.found
    }

    /// Lines where these tokens follow each other, tests included.
    pub fn lines_of(&self, sequence: &[&str]) -> Vec<usize> {
        let matches = |window: &&[Token]| {
            let mut pairs = window.iter().zip(sequence);
            pairs.all(|(token, text)| token.text == *text)
        };
        let found = self.tokens.windows(sequence.len()).filter(matches);
        found.map(|window| window[0].line).collect()
    }
}

fn at(span: Span, why: &impl ToString) -> (usize, String) {
    (span.start().line, why.to_string())
}

/// Appends the tokens of a stream, brackets included.
fn flatten(stream: TokenStream, tokens: &mut Vec<Token>) {
    let token =
        |text: &dyn ToString, span: Span| Token { text: text.to_string(), line: span.start().line };
    for tree in stream {
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                tokens.push(token(&open, group.span_open()));
                flatten(group.stream(), tokens);
                tokens.push(token(&close, group.span_close()));
            }
            TokenTree::Ident(ident) => tokens.push(token(&ident, ident.span())),
            TokenTree::Punct(punct) => tokens.push(token(&punct.as_char(), punct.span())),
            TokenTree::Literal(literal) => tokens.push(token(&literal, literal.span())),
        }
    }
}

/// True if an attribute marks an item that is compiled for tests only.
pub fn is_test(attribute: &Attribute) -> bool {
    let path = attribute.path();
    if path.is_ident("cfg") {
        return attribute.parse_args::<syn::Ident>().is_ok_and(|it| it == "test");
    }
    path.segments.last().is_some_and(|last| last.ident == "test")
}

/// True if the item is compiled for tests only.
pub fn is_test_item(item: &Item) -> bool {
    attributes(item).iter().any(is_test)
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(it) => &it.attrs,
        Item::Enum(it) => &it.attrs,
        Item::Fn(it) => &it.attrs,
        Item::Impl(it) => &it.attrs,
        Item::Macro(it) => &it.attrs,
        Item::Mod(it) => &it.attrs,
        Item::Static(it) => &it.attrs,
        Item::Struct(it) => &it.attrs,
        Item::Trait(it) => &it.attrs,
        Item::Type(it) => &it.attrs,
        Item::Union(it) => &it.attrs,
        Item::Use(it) => &it.attrs,
        _ => &[],
    }
}

/// Line ranges of test items.
#[derive(Default)]
struct Tests {
    found: Vec<RangeInclusive<usize>>,
}

impl Tests {
    fn add(&mut self, item: &impl Spanned) {
        let span = item.span();
        self.found.push(span.start().line..=span.end().line);
    }
}

impl<'a> Visit<'a> for Tests {
    fn visit_item(&mut self, item: &'a Item) {
        match is_test_item(item) {
            true => self.add(item),
            false => visit::visit_item(self, item),
        }
    }

    fn visit_impl_item(&mut self, item: &'a ImplItem) {
        match item {
            ImplItem::Fn(method) if method.attrs.iter().any(is_test) => self.add(item),
            _ => visit::visit_impl_item(self, item),
        }
    }
}

/// Functions with their lengths.
#[derive(Default)]
struct Functions {
    found: Vec<Function>,
}

impl Functions {
    fn add(&mut self, signature: &Signature, body: &Block) {
        let line = signature.fn_token.span.start().line;
        self.found.push(Function {
            name: signature.ident.to_string(),
            line,
            lines: body.brace_token.span.close().end().line - line + 1,
        });
    }
}

impl<'a> Visit<'a> for Functions {
    fn visit_item_fn(&mut self, function: &'a syn::ItemFn) {
        self.add(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'a syn::ImplItemFn) {
        self.add(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'a syn::TraitItemFn) {
        if let Some(body) = &function.default {
            self.add(&function.sig, body);
        }
        visit::visit_trait_item_fn(self, function);
    }
}
