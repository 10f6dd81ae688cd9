//! The valid answers of a snippet: its code under every allowed choice of local names.

use super::{Body, Finish, Keep, Key, Map, Op, Pair, Snippet, Style, Test};
use crate::wording::Wording;

const ACCUMULATORS: [&str; 2] = ["r", "z"];
const RESULTS: [&str; 2] = ["res", "out"];
const ITEMS: [&str; 3] = ["v", "n", "t"];
const MAPPED: [&str; 2] = ["u", "w"];

impl Snippet {
    /// One part only, because the names chosen at one place bind every other place.
    pub(crate) fn wording(&self) -> Wording {
        let texts = match &self.body {
            Body::Chain { pair, steps } => each_name(&ACCUMULATORS, |name| {
                let mut code = format!("    {name} = {}\n", pair.first);
                for (op, operand) in steps {
                    let (sign, operand) = (op.sign(), pair.operand(*operand));
                    code += &format!("    {name} = {name} {sign} {operand}\n");
                }
                code + &format!("    return {name}")
            }),
            Body::Loop { style, keep, map, finish } => loop_texts(*style, *keep, *map, *finish),
            Body::Dict { pair, keys } => {
                let lines: String = keys.iter().map(|key| key.line(*pair)).collect();
                vec![format!("    return {{\n{lines}    }}")]
            }
            Body::Branch { pair: Pair { first, second }, add, test, limit, arms } => {
                each_name(&ACCUMULATORS, |name| {
                    let [then, other] = arms.map(|(op, number)| {
                        format!("        {name} = {name} {} {number}\n", op.sign())
                    });
                    let sign = test.sign();
                    format!(
                        "    {name} = {first} + {add}\n    if {name} {sign} {limit}:\n{then}    \
                         else:\n{other}    return {name} + {second}"
                    )
                })
            }
        };
        vec![texts]
    }
}

fn each_name(names: &[&str], write: impl Fn(&str) -> String) -> Vec<String> {
    names.iter().map(|name| write(name)).collect()
}

fn loop_texts(style: Style, keep: Option<Keep>, map: Map, finish: Finish) -> Vec<String> {
    let mut texts = Vec::new();
    for result in RESULTS {
        for item in ITEMS {
            let mapped = map.expression(item);
            let kept = keep.map(|keep| keep.condition(item));
            let end = format!("    return {}", finish.expression(result));
            match style {
                Style::List => {
                    let filter = kept.map_or(String::new(), |kept| format!("        if {kept}\n"));
                    texts.push(format!(
                        "    {result} = [\n        {mapped}\n        for {item} in xs\n{filter}    \
                         ]\n{end}"
                    ));
                }
                Style::Loop => texts.extend(MAPPED.map(|name| {
                    let (filter, indent) = match &kept {
                        Some(kept) => (format!("        if {kept}:\n"), "            "),
                        None => (String::new(), "        "),
                    };
                    format!(
                        "    {result} = []\n    for {item} in xs:\n{filter}{indent}{name} = \
                         {mapped}\n{indent}{result}.append({name})\n{end}"
                    )
                })),
            }
        }
    }
    texts
}

impl Op {
    fn sign(self) -> &'static str {
        match self {
            Op::Add => "+",
            Op::Subtract => "-",
            Op::Multiply => "*",
        }
    }
}

impl Test {
    fn sign(self) -> &'static str {
        match self {
            Test::Above => ">",
            Test::Below => "<",
            Test::Equal => "==",
        }
    }
}

impl Keep {
    fn condition(self, item: &str) -> String {
        match self {
            Keep::Positive => format!("{item} > 0"),
            Keep::Negative => format!("{item} < 0"),
            Keep::Even => format!("{item} % 2 == 0"),
            Keep::Odd => format!("{item} % 2 == 1"),
            Keep::Big => format!("{item} > 10"),
            Keep::Small => format!("{item} < 10"),
        }
    }
}

impl Map {
    fn expression(self, item: &str) -> String {
        match self {
            Map::Negate => format!("-{item}"),
            Map::Square => format!("{item} * {item}"),
            Map::Add(number) => format!("{item} + {number}"),
            Map::Multiply(number) => format!("{item} * {number}"),
        }
    }
}

impl Finish {
    fn expression(self, result: &str) -> String {
        match self {
            Finish::List => result.to_owned(),
            Finish::Sorted => format!("sorted({result})"),
            Finish::Reversed => format!("{result}[::-1]"),
            Finish::Sum => format!("sum({result})"),
            Finish::Count => format!("len({result})"),
        }
    }
}

impl Key {
    fn line(self, Pair { first, second }: Pair) -> String {
        let value = match self {
            Key::Sum => format!("{first} + {second}"),
            Key::Diff => format!("{first} - {second}"),
            Key::Prod => format!("{first} * {second}"),
            Key::Min => format!("min({first}, {second})"),
            Key::Max => format!("max({first}, {second})"),
            Key::First => first.to_owned(),
            Key::Last => second.to_owned(),
        };
        format!("        \"{}\": {value},\n", self.name())
    }
}
