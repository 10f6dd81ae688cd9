//! Expressions: one function per level of precedence, the loosest first.

use super::{DEEPEST, KEYWORDS, Parsed, Parser};
use crate::python::ast::{Arithmetic, Comparison, Comprehension, Expression};
use crate::python::lex::Token;
use crate::python::{Fault, Value};

const COMPARISONS: [(&str, Comparison); 6] = [
    ("<", Comparison::Less),
    ("<=", Comparison::LessOrEqual),
    (">", Comparison::Greater),
    (">=", Comparison::GreaterOrEqual),
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
];

impl Parser {
    pub(super) fn expression(&mut self) -> Parsed<Expression> {
        self.nested(|parser| {
            let then = parser.disjunction()?;
            if !parser.accept_word("if") {
                return Ok(then);
            }
            let condition = Box::new(parser.disjunction()?);
            parser.expect_word("else")?;
            let otherwise = Box::new(parser.expression()?);
            Ok(Expression::Choose {
                condition,
                then: Box::new(then),
                otherwise,
            })
        })
    }

    fn disjunction(&mut self) -> Parsed<Expression> {
        let mut left = self.conjunction()?;
        while self.accept_word("or") {
            left = Expression::Or(Box::new(left), Box::new(self.conjunction()?));
        }
        Ok(left)
    }

    fn conjunction(&mut self) -> Parsed<Expression> {
        let mut left = self.negation()?;
        while self.accept_word("and") {
            left = Expression::And(Box::new(left), Box::new(self.negation()?));
        }
        Ok(left)
    }

    fn negation(&mut self) -> Parsed<Expression> {
        if self.accept_word("not") {
            return self.nested(|parser| Ok(Expression::Not(Box::new(parser.negation()?))));
        }
        let first = self.sum()?;
        let mut rest = Vec::new();
        while let Some(comparison) = self.comparison()? {
            rest.push((comparison, self.sum()?));
        }
        if rest.is_empty() {
            Ok(first)
        } else {
            Ok(Expression::Compare(Box::new(first), rest))
        }
    }

    fn comparison(&mut self) -> Parsed<Option<Comparison>> {
        let sign = COMPARISONS.into_iter().find(|(sign, _)| self.accept(sign));
        if let Some((_, comparison)) = sign {
            return Ok(Some(comparison));
        }
        if self.accept_word("in") {
            return Ok(Some(Comparison::In));
        }
        if self.accept_word("not") {
            self.expect_word("in")?;
            return Ok(Some(Comparison::NotIn));
        }
        Ok(None)
    }

    fn sum(&mut self) -> Parsed<Expression> {
        const SIGNS: [(&str, Arithmetic); 2] =
            [("+", Arithmetic::Add), ("-", Arithmetic::Subtract)];
        self.left_associative(&SIGNS, Self::product)
    }

    fn product(&mut self) -> Parsed<Expression> {
        const SIGNS: [(&str, Arithmetic); 4] = [
            ("*", Arithmetic::Multiply),
            ("/", Arithmetic::Divide),
            ("//", Arithmetic::FloorDivide),
            ("%", Arithmetic::Remainder),
        ];
        self.left_associative(&SIGNS, Self::signed)
    }

    fn left_associative(
        &mut self,
        signs: &[(&str, Arithmetic)],
        operand: fn(&mut Self) -> Parsed<Expression>,
    ) -> Parsed<Expression> {
        let mut left = operand(self)?;
        let mut terms = 0;
        while let Some((_, operator)) = signs.iter().find(|(sign, _)| self.accept(sign)) {
            // A chain nests to the left, so its length is the depth of the tree.
            terms += 1;
            if terms > DEEPEST {
                return Err(Fault::Limit("nesting"));
            }
            left = Expression::Arithmetic(*operator, Box::new(left), Box::new(operand(self)?));
        }
        Ok(left)
    }

    fn signed(&mut self) -> Parsed<Expression> {
        if self.accept("-") {
            return self.nested(|parser| Ok(Expression::Negative(Box::new(parser.signed()?))));
        }
        if self.accept("+") {
            return self.nested(Self::signed);
        }
        let base = self.postfix()?;
        if !self.accept("**") {
            return Ok(base);
        }
        let exponent = self.nested(Self::signed)?;
        Ok(Expression::Arithmetic(
            Arithmetic::Power,
            Box::new(base),
            Box::new(exponent),
        ))
    }

    fn postfix(&mut self) -> Parsed<Expression> {
        let mut value = self.atom()?;
        for _ in 0..DEEPEST {
            value = if self.accept("(") {
                let Expression::Name(function) = value else {
                    return Err(Fault::Syntax("a call of something unnamed".to_owned()));
                };
                Expression::Call {
                    function,
                    arguments: self.arguments()?,
                }
            } else if self.accept(".") {
                let name = self.name()?;
                self.expect("(")?;
                Expression::Method {
                    object: Box::new(value),
                    name,
                    arguments: self.arguments()?,
                }
            } else if self.accept("[") {
                self.item(value)?
            } else {
                return Ok(value);
            };
        }
        Err(Fault::Limit("nesting"))
    }

    /// Call arguments up to the closing bracket; a lone generator is taken as a list.
    fn arguments(&mut self) -> Parsed<Vec<Expression>> {
        let mut arguments = Vec::new();
        while !self.accept(")") {
            let argument = self.expression()?;
            if arguments.is_empty() && self.keyword() == Some("for") {
                arguments.push(self.comprehension(argument)?);
                self.expect(")")?;
                break;
            }
            arguments.push(argument);
            if !self.accept(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(arguments)
    }

    /// An index or a slice, up to the closing bracket.
    fn item(&mut self, container: Expression) -> Parsed<Expression> {
        let container = Box::new(container);
        let mut bounds = [const { None }; 3];
        for position in 0..3 {
            if !matches!(self.peek(), Some(Token::Sign(":" | "]"))) {
                bounds[position] = Some(Box::new(self.expression()?));
            }
            if self.accept("]") {
                return match (position, bounds) {
                    (0, [Some(index), ..]) => Ok(Expression::Item { container, index }),
                    (0, _) => Err(Fault::Syntax("an empty index".to_owned())),
                    (_, bounds) => Ok(Expression::Slice { container, bounds }),
                };
            }
            self.expect(":")?;
        }
        Err(self.unexpected("]"))
    }

    fn atom(&mut self) -> Parsed<Expression> {
        let token = self.next();
        match token {
            Some(Token::Int(value)) => Ok(Expression::Constant(Value::Int(value))),
            Some(Token::Float(value)) => Ok(Expression::Constant(Value::Float(value))),
            Some(Token::Text(value)) => Ok(Expression::Constant(Value::Str(value))),
            Some(Token::Sign("(")) => {
                let inner = self.expression()?;
                self.expect(")")?;
                Ok(inner)
            }
            Some(Token::Sign("[")) => self.list(),
            Some(Token::Sign("{")) => self.dict(),
            Some(Token::Name(name)) => match name.as_str() {
                "True" => Ok(Expression::Constant(Value::Bool(true))),
                "False" => Ok(Expression::Constant(Value::Bool(false))),
                "None" => Ok(Expression::Constant(Value::None)),
                word if KEYWORDS.contains(&word) => Err(self.unexpected("an expression")),
                _ => Ok(Expression::Name(name)),
            },
            _ => Err(self.unexpected("an expression")),
        }
    }

    fn list(&mut self) -> Parsed<Expression> {
        let mut items = Vec::new();
        while !self.accept("]") {
            items.push(self.expression()?);
            if let (Some("for"), 1) = (self.keyword(), items.len()) {
                let element = items.remove(0);
                let comprehension = self.comprehension(element)?;
                self.expect("]")?;
                return Ok(comprehension);
            }
            if !self.accept(",") {
                self.expect("]")?;
                break;
            }
        }
        Ok(Expression::List(items))
    }

    /// `for name in over if condition ...` behind its element.
    fn comprehension(&mut self, element: Expression) -> Parsed<Expression> {
        self.expect_word("for")?;
        let name = self.name()?;
        self.expect_word("in")?;
        let over = self.disjunction()?;
        let mut conditions = Vec::new();
        while self.accept_word("if") {
            conditions.push(self.disjunction()?);
        }
        let comprehension = Comprehension {
            element,
            name,
            over,
            conditions,
        };
        Ok(Expression::Comprehension(Box::new(comprehension)))
    }

    fn dict(&mut self) -> Parsed<Expression> {
        let mut entries = Vec::new();
        while !self.accept("}") {
            let key = self.expression()?;
            self.expect(":")?;
            entries.push((key, self.expression()?));
            if !self.accept(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(Expression::Dict(entries))
    }
}
