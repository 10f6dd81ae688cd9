//! The syntax tree of a function body.

use super::Value;

#[derive(Debug)]
pub(super) enum Statement {
    Expression(Expression),
    Assign {
        target: Target,
        value: Expression,
    },
    Update {
        target: Target,
        operator: Arithmetic,
        value: Expression,
    },
    /// Conditions with their blocks in order, then the block of `else`.
    If {
        arms: Vec<(Expression, Vec<Statement>)>,
        otherwise: Vec<Statement>,
    },
    For {
        name: String,
        over: Expression,
        body: Vec<Statement>,
    },
    While {
        condition: Expression,
        body: Vec<Statement>,
    },
    Return(Option<Expression>),
    Break,
    Continue,
    Pass,
}

#[derive(Debug)]
pub(super) enum Target {
    Name(String),
    Item {
        container: Expression,
        index: Expression,
    },
}

#[derive(Debug)]
pub(super) enum Expression {
    /// A number, string, truth value or `None`; never a container.
    Constant(Value),
    Name(String),
    List(Vec<Expression>),
    Dict(Vec<(Expression, Expression)>),
    Comprehension(Box<Comprehension>),
    Negative(Box<Expression>),
    Not(Box<Expression>),
    Arithmetic(Arithmetic, Box<Expression>, Box<Expression>),
    And(Box<Expression>, Box<Expression>),
    Or(Box<Expression>, Box<Expression>),
    /// `a < b <= c`: the first operand, then each comparison with its right-hand side.
    Compare(Box<Expression>, Vec<(Comparison, Expression)>),
    /// `a if condition else b`.
    Choose {
        condition: Box<Expression>,
        then: Box<Expression>,
        otherwise: Box<Expression>,
    },
    Call {
        function: String,
        arguments: Vec<Expression>,
    },
    Method {
        object: Box<Expression>,
        name: String,
        arguments: Vec<Expression>,
    },
    Item {
        container: Box<Expression>,
        index: Box<Expression>,
    },
    /// `list[start:stop:step]`.
    Slice {
        container: Box<Expression>,
        bounds: [Option<Box<Expression>>; 3],
    },
}

/// `[element for name in over if condition ...]`.
#[derive(Debug)]
pub(super) struct Comprehension {
    pub(super) element: Expression,
    pub(super) name: String,
    pub(super) over: Expression,
    pub(super) conditions: Vec<Expression>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Remainder,
    Power,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
    In,
    NotIn,
}
