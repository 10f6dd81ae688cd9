//! A small, safe interpreter for the subset of Python that answers to snippets use.
//!
//! It runs untrusted text: it has no input or output, every loop, recursion and container is bounded,
//! and unknown syntax is an error. The subset is slightly larger than what answers use: numbers, strings, lists, dictionaries, comprehensions, loops, conditions
//! and a dozen built-in functions and methods.

mod ast;
mod builtins;
mod lex;
mod parse;
mod run;
mod value;

use std::fmt;

pub use value::Value;

/// Longest body that is read, in bytes.
const LONGEST_BODY: usize = 16 * 1024;

/// A parsed function body with the names of its parameters.
#[derive(Debug)]
pub struct Function {
    parameters: Vec<String>,
    body: Vec<ast::Statement>,
}

impl Function {
    /// Parses the body of a function, indented by four blanks as it stands below its `def` line.
    ///
    /// # Errors
    /// [`Fault::Syntax`] if the text is not a body of the supported subset.
    pub fn parse(parameters: &[&str], body: &str) -> Result<Self, Fault> {
        if body.len() > LONGEST_BODY {
            return Err(Fault::Limit("body length"));
        }
        let body = parse::body(lex::tokens(body)?)?;
        Ok(Self {
            parameters: parameters.iter().map(|&name| name.to_owned()).collect(),
            body,
        })
    }

    /// Calls the function. A body that ends without `return` gives [`Value::None`].
    ///
    /// # Errors
    /// [`Fault::Runtime`] if Python would raise, [`Fault::Limit`] if the call takes too many steps or
    /// too much memory.
    pub fn call(&self, arguments: &[Value]) -> Result<Value, Fault> {
        if arguments.len() != self.parameters.len() {
            return Err(Fault::Runtime(format!(
                "arguments: expected {}, found {}",
                self.parameters.len(),
                arguments.len()
            )));
        }
        run::call(&self.parameters, arguments, &self.body)
    }
}

/// The reason why a body cannot be parsed or run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The text is not a function body of the subset.
    Syntax(String),
    /// An operation that Python would refuse.
    Runtime(String),
    /// A bound was reached; the name says which.
    Limit(&'static str),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Syntax(what) => write!(f, "syntax: {what}"),
            Fault::Runtime(what) => write!(f, "runtime: {what}"),
            Fault::Limit(what) => write!(f, "limit: {what}"),
        }
    }
}

impl std::error::Error for Fault {}
