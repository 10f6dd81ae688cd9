//! Running a function body, step by step, within limits.

use std::collections::BTreeMap;

use super::ast::{Comparison, Comprehension, Expression, Statement, Target};
use super::builtins;
use super::{Fault, Value};

/// Statements and expressions that one call may evaluate.
const MOST_STEPS: u32 = 50_000;

/// Deepest nesting of expressions under evaluation, so that no text can exhaust the stack.
const DEEPEST: u32 = 200;

/// Runs `body` with the parameters bound to the arguments.
pub(super) fn call(
    parameters: &[String],
    arguments: &[Value],
    body: &[Statement],
) -> Result<Value, Fault> {
    let locals = parameters
        .iter()
        .cloned()
        .zip(arguments.iter().cloned())
        .collect();
    let mut frame = Frame {
        locals,
        steps: 0,
        depth: 0,
    };
    match frame.block(body)? {
        Flow::Return(value) => Ok(value),
        Flow::Next | Flow::Break | Flow::Continue => Ok(Value::None),
    }
}

/// Control flow after a statement.
enum Flow {
    Next,
    Break,
    Continue,
    Return(Value),
}

struct Frame {
    locals: BTreeMap<String, Value>,
    steps: u32,
    depth: u32,
}

impl Frame {
    fn block(&mut self, statements: &[Statement]) -> Result<Flow, Fault> {
        for statement in statements {
            match self.statement(statement)? {
                Flow::Next => {}
                leave => return Ok(leave),
            }
        }
        Ok(Flow::Next)
    }

    fn statement(&mut self, statement: &Statement) -> Result<Flow, Fault> {
        self.charge(1)?;
        match statement {
            Statement::Expression(expression) => {
                self.value(expression)?;
            }
            Statement::Assign { target, value } => {
                let value = self.value(value)?;
                self.assign(target, value)?;
            }
            Statement::Update {
                target,
                operator,
                value,
            } => {
                let before = match target {
                    Target::Name(name) => self.local(name)?,
                    Target::Item { container, index } => self.item(container, index)?,
                };
                let value = self.value(value)?;
                let after = builtins::arithmetic(*operator, &before, &value)?;
                self.assign(target, after)?;
            }
            Statement::If { arms, otherwise } => {
                for (condition, block) in arms {
                    if self.value(condition)?.truth() {
                        return self.block(block);
                    }
                }
                return self.block(otherwise);
            }
            Statement::For { name, over, body } => {
                for item in self.items(over)? {
                    self.locals.insert(name.clone(), item);
                    match self.block(body)? {
                        Flow::Next | Flow::Continue => self.charge(1)?,
                        Flow::Break => break,
                        leave => return Ok(leave),
                    }
                }
            }
            Statement::While { condition, body } => {
                while self.value(condition)?.truth() {
                    match self.block(body)? {
                        Flow::Next | Flow::Continue => self.charge(1)?,
                        Flow::Break => break,
                        leave => return Ok(leave),
                    }
                }
            }
            Statement::Return(None) => return Ok(Flow::Return(Value::None)),
            Statement::Return(Some(value)) => return Ok(Flow::Return(self.value(value)?)),
            Statement::Break => return Ok(Flow::Break),
            Statement::Continue => return Ok(Flow::Continue),
            Statement::Pass => {}
        }
        Ok(Flow::Next)
    }

    fn assign(&mut self, target: &Target, value: Value) -> Result<(), Fault> {
        let (container, index) = match target {
            Target::Name(name) => {
                self.locals.insert(name.clone(), value);
                return Ok(());
            }
            Target::Item { container, index } => (self.value(container)?, self.value(index)?),
        };
        let (index, value) = (index.contained()?, value.contained()?);
        match container {
            Value::List(items) => {
                let position = builtins::position(&index, items.borrow().len())?;
                items.borrow_mut()[position] = value;
            }
            Value::Dict(entries) => {
                let mut entries = entries.borrow_mut();
                match entries.iter().position(|(key, _)| *key == index) {
                    Some(place) => entries[place].1 = value,
                    None if entries.len() < builtins::LARGEST => entries.push((index, value)),
                    None => return Err(Fault::Limit("size of a value")),
                }
            }
            other => return Err(Fault::Runtime(format!("assignment into {}", other.kind()))),
        }
        Ok(())
    }

    fn value(&mut self, expression: &Expression) -> Result<Value, Fault> {
        self.charge(1)?;
        if self.depth == DEEPEST {
            return Err(Fault::Limit("nesting"));
        }
        self.depth += 1;
        let value = self.nested_value(expression);
        self.depth -= 1;
        value
    }

    fn nested_value(&mut self, expression: &Expression) -> Result<Value, Fault> {
        match expression {
            Expression::Constant(value) => Ok(value.clone()),
            Expression::Name(name) => self.local(name),
            Expression::List(items) => {
                let items = items.iter().map(|item| self.value(item)?.contained());
                Ok(Value::list(items.collect::<Result<Vec<_>, _>>()?))
            }
            Expression::Dict(entries) => self.dict(entries),
            Expression::Comprehension(comprehension) => self.comprehension(comprehension),
            Expression::Negative(operand) => builtins::negative(&self.value(operand)?),
            Expression::Not(operand) => Ok(Value::Bool(!self.value(operand)?.truth())),
            Expression::Arithmetic(operator, left, right) => {
                let (left, right) = (self.value(left)?, self.value(right)?);
                builtins::arithmetic(*operator, &left, &right)
            }
            Expression::And(left, right) => {
                let left = self.value(left)?;
                if left.truth() {
                    self.value(right)
                } else {
                    Ok(left)
                }
            }
            Expression::Or(left, right) => {
                let left = self.value(left)?;
                if left.truth() {
                    Ok(left)
                } else {
                    self.value(right)
                }
            }
            Expression::Compare(first, rest) => self.compare(first, rest),
            Expression::Choose {
                condition,
                then,
                otherwise,
            } => {
                let holds = self.value(condition)?.truth();
                self.value(if holds { then } else { otherwise })
            }
            Expression::Call {
                function,
                arguments,
            } => self.call(function, arguments),
            Expression::Method {
                object,
                name,
                arguments,
            } => {
                let object = self.value(object)?;
                let arguments = self.values(arguments)?;
                self.charge_size(&object)?;
                builtins::method(&object, name, &arguments)
            }
            Expression::Item { container, index } => self.item(container, index),
            Expression::Slice { container, bounds } => self.slice(container, bounds),
        }
    }

    fn dict(&mut self, entries: &[(Expression, Expression)]) -> Result<Value, Fault> {
        let mut pairs = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            pairs.push((
                self.value(key)?.contained()?,
                self.value(value)?.contained()?,
            ));
        }
        Ok(Value::dict(pairs))
    }

    /// A chain of comparisons ends at the first that does not hold.
    fn compare(
        &mut self,
        first: &Expression,
        rest: &[(Comparison, Expression)],
    ) -> Result<Value, Fault> {
        let mut left = self.value(first)?;
        for (comparison, right) in rest {
            let right = self.value(right)?;
            if !builtins::compare(*comparison, &left, &right)? {
                return Ok(Value::Bool(false));
            }
            left = right;
        }
        Ok(Value::Bool(true))
    }

    fn values(&mut self, expressions: &[Expression]) -> Result<Vec<Value>, Fault> {
        expressions
            .iter()
            .map(|expression| self.value(expression))
            .collect()
    }

    fn call(&mut self, function: &str, arguments: &[Expression]) -> Result<Value, Fault> {
        if self.locals.contains_key(function) {
            return Err(Fault::Runtime(format!("{function} is no function")));
        }
        let arguments = self.values(arguments)?;
        for argument in &arguments {
            self.charge_size(argument)?;
        }
        builtins::call(function, &arguments)
    }

    /// The name of a comprehension lives inside it only, and hides a local of the same name.
    fn comprehension(&mut self, comprehension: &Comprehension) -> Result<Value, Fault> {
        let Comprehension {
            element,
            name,
            over,
            conditions,
        } = comprehension;
        let items = self.items(over)?;
        let hidden = self.locals.remove(name);
        let mut results = Vec::new();
        'items: for item in items {
            self.locals.insert(name.clone(), item);
            for condition in conditions {
                if !self.value(condition)?.truth() {
                    continue 'items;
                }
            }
            results.push(self.value(element)?.contained()?);
        }
        match hidden {
            Some(value) => self.locals.insert(name.clone(), value),
            None => self.locals.remove(name),
        };
        Ok(Value::list(results))
    }

    fn item(&mut self, container: &Expression, index: &Expression) -> Result<Value, Fault> {
        let (container, index) = (self.value(container)?, self.value(index)?);
        match &container {
            Value::List(items) => {
                let items = items.borrow();
                Ok(items[builtins::position(&index, items.len())?].clone())
            }
            Value::Dict(entries) => {
                let entries = entries.borrow();
                let entry = entries.iter().find(|(key, _)| *key == index);
                let missing = || Fault::Runtime("a key that is not there".to_owned());
                entry.map(|(_, value)| value.clone()).ok_or_else(missing)
            }
            _ => Err(Fault::Runtime(format!("an item of {}", container.kind()))),
        }
    }

    fn slice(
        &mut self,
        container: &Expression,
        bounds: &[Option<Box<Expression>>; 3],
    ) -> Result<Value, Fault> {
        let container = self.value(container)?;
        let mut numbers = [None; 3];
        for (number, bound) in numbers.iter_mut().zip(bounds) {
            let Some(bound) = bound else { continue };
            *number = match self.value(bound)? {
                Value::Int(value) => Some(value),
                Value::None => None,
                other => return Err(Fault::Runtime(format!("a slice at {}", other.kind()))),
            };
        }
        self.charge_size(&container)?;
        match &container {
            Value::List(items) => Ok(Value::list(builtins::slice(&items.borrow(), numbers)?)),
            _ => Err(Fault::Runtime(format!("a slice of {}", container.kind()))),
        }
    }

    fn items(&mut self, over: &Expression) -> Result<Vec<Value>, Fault> {
        let over = self.value(over)?;
        self.charge_size(&over)?;
        builtins::items(&over)
    }

    fn local(&self, name: &str) -> Result<Value, Fault> {
        let undefined = || match builtins::is_function(name) {
            true => Fault::Runtime(format!("{name} is a function, not a value")),
            false => Fault::Runtime(format!("{name} is not defined")),
        };
        self.locals.get(name).cloned().ok_or_else(undefined)
    }

    /// Charges steps in proportion to a container's size.
    fn charge_size(&mut self, value: &Value) -> Result<(), Fault> {
        let size = match value {
            Value::List(items) => items.borrow().len(),
            Value::Dict(entries) => entries.borrow().len(),
            Value::Str(text) => text.len(),
            _ => 0,
        };
        self.charge(size as u32)
    }

    fn charge(&mut self, steps: u32) -> Result<(), Fault> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps > MOST_STEPS {
            Err(Fault::Limit("steps"))
        } else {
            Ok(())
        }
    }
}
