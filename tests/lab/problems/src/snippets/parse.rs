//! Parses a snippet from its prompt.

use super::{
    Body, FUNCTIONS, Finish, Keep, Key, Map, Op, Operand, PAIRS, Pair, Snippet, Style, Test,
};

/// Longer chains of multiplications could overflow 64 bits.
const LONGEST_CHAIN: usize = 8;

impl Snippet {
    /// The function that the prompt asks for; `None` if it is not a prompt of this family.
    pub(crate) fn parse(prompt: &str) -> Option<Self> {
        let rest = prompt.strip_prefix("Complete the function.\ndef ")?;
        let (name, rest) = rest.split_once('(')?;
        let function = FUNCTIONS.into_iter().find(|known| *known == name)?;
        let (parameters, rest) = rest.split_once("):\n    \"\"\"")?;
        let docstring = rest.strip_suffix("\"\"\"\n")?;
        let body = if parameters == "xs" {
            parse_loop(docstring)?
        } else {
            let (first, second) = parameters.split_once(", ")?;
            let pair = PAIRS.into_iter().find(|p| p.first == first && p.second == second)?;
            parse_chain(docstring, pair)
                .or_else(|| parse_dict(docstring, pair))
                .or_else(|| parse_branch(docstring, pair))?
        };
        Some(Self { function, body })
    }
}

fn parse_chain(docstring: &str, pair: Pair) -> Option<Body> {
    let rest = docstring.strip_prefix("Start with ")?.strip_prefix(pair.first)?;
    let steps = rest.strip_suffix(" and return it.")?.strip_prefix(", then ")?;
    let steps = steps.split(", then ").map(|step| {
        let (op, operand) = parse_operation(step)?;
        let operand = if operand == pair.second {
            Operand::Second
        } else {
            Operand::Number(number(operand)?)
        };
        Some((op, operand))
    });
    let steps: Vec<_> = steps.collect::<Option<_>>()?;
    (steps.len() <= LONGEST_CHAIN).then_some(Body::Chain { pair, steps })
}

fn parse_loop(docstring: &str) -> Option<Body> {
    let style = Style::ALL.into_iter().find(|style| docstring.starts_with(style.asked()))?;
    let rest = docstring.strip_prefix(style.asked())?.strip_suffix('.')?;
    let (source, rest) = rest.split_once(", ")?;
    let (map, finish) = rest.split_once(" and return the ")?;
    let keep = match source.strip_prefix(" Keep the ") {
        Some(kept) => {
            let kept = kept.strip_suffix(" numbers in xs")?;
            Some(Keep::ALL.into_iter().find(|keep| keep.asked() == kept)?)
        }
        None if source == " Go over xs" => None,
        None => return None,
    };
    let finish = Finish::ALL.into_iter().find(|known| known.asked() == finish)?;
    Some(Body::Loop { style, keep, map: parse_map(map)?, finish })
}

fn parse_map(text: &str) -> Option<Map> {
    match text {
        "negate each" => Some(Map::Negate),
        "square each" => Some(Map::Square),
        _ => match text.strip_prefix("multiply each by ") {
            Some(factor) => number(factor).map(Map::Multiply),
            None => number(text.strip_prefix("add ")?.strip_suffix(" to each")?).map(Map::Add),
        },
    }
}

fn parse_dict(docstring: &str, pair: Pair) -> Option<Body> {
    let rest = docstring.strip_prefix("Return a dict with ")?;
    let (keys, _) = rest.split_once(" of ")?;
    let keys = keys.split(", ").map(|name| Key::ALL.into_iter().find(|key| key.name() == name));
    Some(Body::Dict { pair, keys: keys.collect::<Option<_>>()? })
}

fn parse_branch(docstring: &str, pair: Pair) -> Option<Body> {
    let (add, rest) = docstring.strip_prefix("Add ")?.split_once(" to ")?;
    let (_, rest) = rest.split_once(", if it is ")?;
    let (condition, rest) = rest.split_once(" then ")?;
    let (then, rest) = rest.split_once(" else ")?;
    let (other, _) = rest.split_once(", and return it plus ")?;
    let test = Test::ALL.into_iter().find(|test| condition.starts_with(test.asked()))?;
    let limit = number(condition.strip_prefix(test.asked())?.strip_prefix(' ')?)?;
    let arm = |text| {
        let (op, operand) = parse_operation(text)?;
        Some((op, number(operand)?))
    };
    Some(Body::Branch { pair, add: number(add)?, test, limit, arms: [arm(then)?, arm(other)?] })
}

fn parse_operation(text: &str) -> Option<(Op, &str)> {
    Op::ALL.into_iter().find_map(|op| Some((op, text.strip_prefix(op.asked())?.strip_prefix(' ')?)))
}

/// A number of at most two digits, which keeps every result of a function small.
fn number(text: &str) -> Option<i64> {
    if text.len() <= 2 { text.parse().ok() } else { None }
}
