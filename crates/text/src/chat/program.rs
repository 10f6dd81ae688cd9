//! A template as a program whose operators are guarded.
//!
//! The engine compiles a template to instructions. Those that join, repeat, compare or build
//! values are surrounded by checks, so that no value is made before it is charged; written text
//! becomes a value, so that the formatter charges all output, captured output included.

use std::collections::BTreeMap;

use minijinja::machinery::{CodeGenerator, Instruction, Instructions, Token, parse, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Error, ErrorKind, Value};

use super::guard::{COMPARE, ITERATE, JOIN, MADE, ORDER, REMAINDER, REPEAT};

/// Maximum bytes of a template.
const MAX_SOURCE_BYTES: usize = 256 * 1024;
/// Maximum tokens between two brackets of a template, `{{ ... }}` or `{% ... %}`: the engine recurses
/// over them.
const MAX_TAG_TOKENS: usize = 1_500;
/// Maximum `elif` tags of a template: each is nested in the one before.
const MAX_ELIFS: usize = 500;
/// Maximum bytes, and items, of all products of constants.
const MAX_PRODUCT: u64 = 64 * 1024;
/// Marks a filter that the engine finds by its name each time.
const BY_NAME: u8 = u8::MAX;

/// The compiled template. Its source lives as long as the process.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) instructions: Instructions<'static>,
    pub(super) blocks: BTreeMap<&'static str, Instructions<'static>>,
}

impl Program {
    /// Compiles `source`. Recurses as deeply as the template is nested.
    pub(super) fn new(
        name: &'static str,
        source: &str,
        syntax: &SyntaxConfig,
    ) -> Result<Self, Error> {
        // Jinja2 knows one line end.
        let source = &source.replace("\r\n", "\n").replace('\r', "\n");
        check(source, syntax)?;
        // The instructions borrow from the source; a process loads few templates.
        let source: &'static str = Box::leak(without_generation(source, syntax)?.into_boxed_str());
        let template = parse(source, name, syntax.clone())?;
        let mut generator = CodeGenerator::new(name, source);
        generator.compile_stmt(&template);
        let (instructions, blocks) = generator.finish();
        let guard = |all: &Instructions<'static>| guarded(name, source, all);
        Ok(Self {
            blocks: blocks.iter().map(|(name, block)| (*name, guard(block))).collect(),
            instructions: guard(&instructions),
        })
    }
}

fn refused(reason: String) -> Error {
    Error::new(ErrorKind::SyntaxError, reason)
}

/// Checks size and depth of a template, and that no constant is multiplied at load.
fn check(source: &str, syntax: &SyntaxConfig) -> Result<(), Error> {
    if source.len() > MAX_SOURCE_BYTES {
        let found = source.len();
        return Err(refused(format!("expected at most {MAX_SOURCE_BYTES} bytes, found {found}")));
    }
    let (mut tag, mut branches, mut products) = (Vec::new(), 0, MAX_PRODUCT);
    for token in tokenize(source, false, syntax.clone()) {
        let (token, _) = token?;
        match token {
            Token::TemplateData(_) => {}
            Token::VariableStart | Token::BlockStart => tag.clear(),
            Token::VariableEnd | Token::BlockEnd => check_products(&tag, &mut products)?,
            token => {
                let is_branch = tag.is_empty() && matches!(token, Token::Ident("elif"));
                branches += usize::from(is_branch);
                if branches > MAX_ELIFS {
                    let reason = format!("expected at most {MAX_ELIFS} elif tags, found more");
                    return Err(refused(reason));
                }
                tag.push(token);
                if tag.len() > MAX_TAG_TOKENS {
                    let reason =
                        format!("expected at most {MAX_TAG_TOKENS} tokens in one tag, found more");
                    return Err(refused(reason));
                }
            }
        }
    }
    Ok(())
}

/// `source` with the blocks of transformers that mark an assistant's text as blocks that only have a
/// scope of their own. White space around tags stays.
fn without_generation(source: &str, syntax: &SyntaxConfig) -> Result<String, Error> {
    let (mut made, mut end, mut opens) = (String::with_capacity(source.len()), 0, false);
    for token in tokenize(source, false, syntax.clone()) {
        let (token, span) = token?;
        let tag = match token {
            Token::Ident("generation") if opens => "with",
            Token::Ident("endgeneration") if opens => "endwith",
            _ => "",
        };
        if !tag.is_empty() {
            made.push_str(&source[end..span.start_offset as usize]);
            made.push_str(tag);
            end = span.end_offset as usize;
        }
        opens = matches!(token, Token::BlockStart);
    }
    made.push_str(&source[end..]);
    Ok(made)
}

/// Refuses products of constant texts or lists, which the engine computes when it compiles, if they
/// are larger than what is `left` for all tags.
fn check_products(tag: &[Token<'_>], left: &mut u64) -> Result<(), Error> {
    if !tag.iter().any(|token| matches!(token, Token::Mul)) {
        return Ok(());
    }
    // No product of the constants of this tag is larger, whatever their order.
    let factor = |token: &Token<'_>| match token {
        Token::Int(number) => number.saturating_add(1),
        Token::Str(text) => text.len() as u64 + 1,
        Token::String(text) => text.len() as u64 + 1,
        Token::Int128(_) | Token::Float(_) | Token::Pow => u64::MAX,
        _ => 1,
    };
    let largest = tag.iter().map(factor).fold(1, u64::saturating_mul);
    if let Some(rest) = left.checked_sub(largest) {
        *left = rest;
        return Ok(());
    }
    let products = tag.iter().enumerate().filter(|(_, token)| matches!(token, Token::Mul));
    for (index, _) in products {
        let before: Vec<&Token<'_>> = tag[..index].iter().rev().collect();
        let after: Vec<&Token<'_>> = tag[index + 1..].iter().collect();
        let operands = [constant(&before), constant(&after)];
        let is = |kind: Operand| operands.contains(&kind);
        if is(Operand::Sequence) && !is(Operand::Variable) {
            return Err(refused("expected no large product of constant texts or lists".to_owned()));
        }
    }
    Ok(())
}

/// The content of an operand.
#[derive(Clone, Copy, PartialEq)]
enum Operand {
    /// Numbers only.
    Number,
    /// Constants, with a text or a list.
    Sequence,
    /// Something that is known only when the template is rendered.
    Variable,
}

/// The operand that begins with the first of `tokens`, which are in the order away from the
/// operator.
fn constant(tokens: &[&Token<'_>]) -> Operand {
    let mut depth = 0_i32;
    let mut found = Operand::Number;
    for token in tokens {
        let bracket = match token {
            Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => 1,
            Token::ParenClose | Token::BracketClose | Token::BraceClose => -1,
            _ => 0,
        };
        depth += bracket;
        match token {
            Token::Ident("not" | "and" | "or" | "in" | "is" | "if" | "else") => {}
            Token::Ident("true" | "false" | "none" | "True" | "False" | "None") => {}
            Token::Ident(_) => return Operand::Variable,
            Token::Str(_) | Token::String(_) | Token::BracketOpen | Token::BracketClose => {
                found = Operand::Sequence;
            }
            Token::BraceOpen | Token::BraceClose | Token::Comma => found = Operand::Sequence,
            _ => {}
        }
        let ends = depth == 0 && !matches!(token, Token::Minus | Token::Plus | Token::Ident(_));
        if ends {
            break;
        }
    }
    found
}

/// `all` with checks around its operators.
fn guarded(
    name: &'static str,
    source: &'static str,
    all: &Instructions<'static>,
) -> Instructions<'static> {
    let mut parts = Vec::new();
    // The new index of each instruction, and of the end.
    let mut indices = Vec::new();
    let (mut index, mut new_index) = (0, 0);
    while let Some(instruction) = all.get(index) {
        let part = surrounded(instruction);
        indices.push(new_index);
        new_index += u32::try_from(part.len()).unwrap_or(u32::MAX);
        parts.push((index, part));
        index += 1;
    }
    indices.push(new_index);
    let moved = |target: u32| {
        let new_index = usize::try_from(target).ok().and_then(|target| indices.get(target));
        new_index.copied().unwrap_or(index_after(&indices))
    };
    let mut new = Instructions::new(name, source);
    for (index, part) in parts {
        let line = all.get_line(index).unwrap_or(0);
        for instruction in part {
            let line = u16::try_from(line).unwrap_or(u16::MAX);
            new.add_with_line(retargeted(instruction, &moved), line);
        }
    }
    new
}

fn index_after(indices: &[u32]) -> u32 {
    indices.last().copied().unwrap_or(0)
}

/// An instruction with its checks. A check of two operands takes both from the stack as a list
/// and puts them back.
fn surrounded(instruction: &Instruction<'static>) -> Vec<Instruction<'static>> {
    let filter = |name| Instruction::ApplyFilter(name, Some(1), BY_NAME);
    let pair = |name| {
        vec![
            Instruction::BuildList(Some(2)),
            filter(name),
            Instruction::UnpackList(2),
            Instruction::Swap,
            instruction.clone(),
        ]
    };
    match instruction {
        Instruction::EmitRaw(text) => {
            vec![Instruction::LoadConst(Value::from(*text)), Instruction::Emit]
        }
        Instruction::StringConcat | Instruction::Add => pair(JOIN),
        Instruction::Mul => pair(REPEAT),
        Instruction::Rem => vec![Instruction::BuildList(Some(2)), filter(REMAINDER)],
        Instruction::Lt | Instruction::Lte | Instruction::Gt | Instruction::Gte => pair(ORDER),
        Instruction::Eq
        | Instruction::Ne
        | Instruction::In
        | Instruction::CompareAndPreserve(_) => pair(COMPARE),
        Instruction::PushLoop(_) => vec![filter(ITERATE), instruction.clone()],
        Instruction::Slice
        | Instruction::BuildMap(_)
        | Instruction::BuildList(_)
        | Instruction::BuildTuple(_) => vec![instruction.clone(), filter(MADE)],
        other => vec![other.clone()],
    }
}

/// An instruction with its target at the new index.
fn retargeted(
    instruction: Instruction<'static>,
    moved: &dyn Fn(u32) -> u32,
) -> Instruction<'static> {
    match instruction {
        Instruction::Iterate(target) => Instruction::Iterate(moved(target)),
        Instruction::Jump(target) => Instruction::Jump(moved(target)),
        Instruction::JumpIfFalse(target) => Instruction::JumpIfFalse(moved(target)),
        Instruction::JumpIfFalseOrPop(target) => Instruction::JumpIfFalseOrPop(moved(target)),
        Instruction::JumpIfTrueOrPop(target) => Instruction::JumpIfTrueOrPop(moved(target)),
        Instruction::BuildMacro(name, target, flags) => {
            Instruction::BuildMacro(name, moved(target), flags)
        }
        other => other,
    }
}
