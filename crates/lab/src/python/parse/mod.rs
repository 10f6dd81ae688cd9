//! From tokens to the syntax tree by recursive descent: statements, and the walk over tokens.

mod expression;

use super::Fault;
use super::ast::{Arithmetic, Expression, Statement, Target};
use super::lex::Token;

/// Deepest nesting of blocks and expressions.
const DEEPEST: usize = 40;

const KEYWORDS: [&str; 35] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue",
    "def", "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import",
    "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while",
    "with", "yield",
];

const UPDATES: [(&str, Arithmetic); 6] = [
    ("+=", Arithmetic::Add),
    ("-=", Arithmetic::Subtract),
    ("*=", Arithmetic::Multiply),
    ("/=", Arithmetic::Divide),
    ("//=", Arithmetic::FloorDivide),
    ("%=", Arithmetic::Remainder),
];

/// The statements of a function body. An empty body is an error.
pub(super) fn body(tokens: Vec<Token>) -> Result<Vec<Statement>, Fault> {
    let mut parser = Parser {
        tokens,
        at: 0,
        depth: 0,
        loops: 0,
    };
    let mut statements = Vec::new();
    while parser.peek().is_some() {
        statements.push(parser.statement()?);
    }
    if statements.is_empty() {
        return Err(Fault::Syntax("the body is empty".to_owned()));
    }
    Ok(statements)
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
    /// Loops around the current statement, where `break` and `continue` are allowed.
    loops: usize,
}

type Parsed<T> = Result<T, Fault>;

impl Parser {
    fn statement(&mut self) -> Parsed<Statement> {
        self.nested(|parser| match parser.keyword() {
            Some("if") => parser.condition(),
            Some("for") => {
                parser.at += 1;
                let name = parser.name()?;
                parser.expect_word("in")?;
                let over = parser.expression()?;
                Ok(Statement::For {
                    name,
                    over,
                    body: parser.loop_block()?,
                })
            }
            Some("while") => {
                parser.at += 1;
                let condition = parser.expression()?;
                Ok(Statement::While {
                    condition,
                    body: parser.loop_block()?,
                })
            }
            _ => {
                let statement = parser.simple_statement()?;
                if parser.next() == Some(Token::Newline) {
                    Ok(statement)
                } else {
                    Err(parser.unexpected("the end of the line"))
                }
            }
        })
    }

    fn condition(&mut self) -> Parsed<Statement> {
        let mut arms = Vec::new();
        while self.accept_word(if arms.is_empty() { "if" } else { "elif" }) {
            let condition = self.expression()?;
            arms.push((condition, self.block()?));
        }
        let otherwise = if self.accept_word("else") {
            self.block()?
        } else {
            Vec::new()
        };
        Ok(Statement::If { arms, otherwise })
    }

    fn simple_statement(&mut self) -> Parsed<Statement> {
        if let Some(word @ ("return" | "pass" | "break" | "continue")) = self.keyword() {
            self.at += 1;
            return match word {
                "return" if self.peek() == Some(&Token::Newline) => Ok(Statement::Return(None)),
                "return" => Ok(Statement::Return(Some(self.expression()?))),
                "pass" => Ok(Statement::Pass),
                _ if self.loops == 0 => Err(Fault::Syntax(format!("{word} outside a loop"))),
                "break" => Ok(Statement::Break),
                _ => Ok(Statement::Continue),
            };
        }
        let left = self.expression()?;
        if self.accept("=") {
            let target = target(left)?;
            return Ok(Statement::Assign {
                target,
                value: self.expression()?,
            });
        }
        let update = UPDATES.into_iter().find(|(sign, _)| self.accept(sign));
        if let Some((_, operator)) = update {
            let target = target(left)?;
            return Ok(Statement::Update {
                target,
                operator,
                value: self.expression()?,
            });
        }
        Ok(Statement::Expression(left))
    }

    fn loop_block(&mut self) -> Parsed<Vec<Statement>> {
        self.loops += 1;
        let block = self.block();
        self.loops -= 1;
        block
    }

    /// `:` and an indented block, or one simple statement on the same line.
    fn block(&mut self) -> Parsed<Vec<Statement>> {
        self.expect(":")?;
        if self.peek() != Some(&Token::Newline) {
            let statement = self.simple_statement()?;
            return match self.next() {
                Some(Token::Newline) => Ok(vec![statement]),
                _ => Err(self.unexpected("the end of the line")),
            };
        }
        self.at += 1;
        if self.next() != Some(Token::Indent) {
            return Err(self.unexpected("an indented block"));
        }
        let mut statements = Vec::new();
        while self.peek() != Some(&Token::Dedent) {
            statements.push(self.statement()?);
        }
        self.at += 1;
        Ok(statements)
    }

    /// Runs a rule one level deeper, so that no text can exhaust the stack.
    fn nested<T>(&mut self, rule: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth == DEEPEST {
            return Err(Fault::Limit("nesting"));
        }
        self.depth += 1;
        let parsed = rule(self);
        self.depth -= 1;
        parsed
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn keyword(&self) -> Option<&'static str> {
        match self.peek() {
            Some(Token::Name(name)) => KEYWORDS.into_iter().find(|word| word == name),
            _ => None,
        }
    }

    fn name(&mut self) -> Parsed<String> {
        match self.next() {
            Some(Token::Name(name)) if !KEYWORDS.contains(&name.as_str()) => Ok(name),
            _ => Err(self.unexpected("a name")),
        }
    }

    fn accept(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Sign(next)) if *next == sign);
        self.at += usize::from(found);
        found
    }

    fn accept_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Name(next)) if next == word);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, sign: &str) -> Parsed<()> {
        if self.accept(sign) {
            Ok(())
        } else {
            Err(self.missing(sign))
        }
    }

    fn expect_word(&mut self, word: &str) -> Parsed<()> {
        if self.accept_word(word) {
            Ok(())
        } else {
            Err(self.missing(word))
        }
    }

    fn missing(&self, expected: &str) -> Fault {
        Fault::Syntax(format!("expected {expected}, found {:?}", self.peek()))
    }

    /// The fault of a token that was already taken.
    fn unexpected(&self, expected: &str) -> Fault {
        let found = self.tokens.get(self.at.saturating_sub(1));
        Fault::Syntax(format!("expected {expected}, found {found:?}"))
    }
}

fn target(expression: Expression) -> Parsed<Target> {
    match expression {
        Expression::Name(name) => Ok(Target::Name(name)),
        Expression::Item { container, index } => Ok(Target::Item {
            container: *container,
            index: *index,
        }),
        _ => Err(Fault::Syntax(
            "assignment to something that is no variable".to_owned(),
        )),
    }
}
