//! Refused specifications: unsatisfiable, unsupported, too large, too deep.

use asynclane_text::GrammarSpec;
use serde_json::{Value, json};

use crate::setup::{DEMO, forced};

/// A schema, and a part of its refusal.
const REFUSED: &str = r##"
{"type": "nothing"} | Invalid type
{"not": {"type": "null"}} | not is not supported
{"$ref": "http://example.com/a.json"} | found "http://example.com
{"$ref": "#/$defs/missing"} | missing
{"type": "object", "properties": []} | properties
{"type": "string", "pattern": "("} | unclosed
{"type": "integer", "minimum": 5, "maximum": 4} | minimum
[] | an object or a boolean
false | no value
{"anyOf": []} | anyOf
"##;

#[test]
fn an_invalid_specification_is_refused_in_one_line() {
    let schemas = REFUSED.lines().skip(1).map(|case| {
        let (schema, part) = case.split_once(" | ").unwrap();
        let schema = serde_json::from_str(schema).unwrap();
        (GrammarSpec::JsonSchema(schema), part)
    });
    let regex = |source: &str| GrammarSpec::Regex(source.to_owned());
    let lark = |source: &str| GrammarSpec::Lark(source.to_owned());
    let others = [
        (regex("a("), "the regex"),
        (regex("a\\"), "last backslash"),
        (regex(&"a".repeat(70_000)), "at most 65536 bytes"),
        (lark("begin: \"a\""), "start"),
        (lark("start: other"), "other"),
        (lark("start: <mask>"), "mask"),
        (lark("start: <[843]>"), "no token"),
        (lark(""), "Lark"),
        (GrammarSpec::Choice(Vec::new()), "at least one"),
    ];
    for (spec, part) in schemas.chain(others) {
        let line = DEMO.refusal(&spec);
        assert!(line.contains(part), "{line}");
    }
}

/// A schema with a chain of references; each link is wrapped `depth` times.
fn chain(links: usize, depth: usize, wrap: &dyn Fn(Value) -> Value) -> Value {
    let link = |number: usize| {
        let next = json!({"$ref": format!("#/$defs/d{}", number + 1)});
        let link = (0..depth).fold(next, |link, _| wrap(link));
        (format!("d{number}"), link)
    };
    let mut defs: serde_json::Map<String, Value> = (0..links).map(link).collect();
    defs.insert(format!("d{links}"), json!({"type": "null"}));
    json!({"$ref": "#/$defs/d0", "$defs": defs})
}

/// An object with `count` members.
fn members(count: usize, required: usize) -> Value {
    let names: Vec<String> = (0..count).map(|number| format!("member{number}")).collect();
    let member = |name: &String| (name.clone(), json!({"type": "integer"}));
    let members: serde_json::Map<String, Value> = names.iter().map(member).collect();
    json!({"type": "object", "properties": members, "required": names[..required],
        "additionalProperties": false})
}

#[test]
fn neither_size_nor_depth_overflows() {
    let list = |item: Value| json!({"type": "array", "items": item});
    let any = |option: Value| json!({"anyOf": [option]});
    let all = |part: Value| json!({"allOf": [part]});
    let object = |member: Value| json!({"type": "object", "properties": {"a": member}});
    let nested = |levels: usize| (0..levels).fold(json!({"type": "null"}), |item, _| list(item));
    let pattern = |text: &str| json!({"type": "string", "pattern": text});
    let followed = [
        nested(60),
        chain(900, 3, &list),
        chain(300, 3, &object),
        chain(300, 30, &any),
        chain(300, 30, &all),
        members(1000, 1000),
        members(1000, 0),
        json!({"type": "string", "minLength": 1_000_000_000_u64}),
        json!({"type": "array", "minItems": 1_000_000_000_u64}),
        json!({"type": "array", "prefixItems": vec![json!({"type": "null"}); 1000]}),
        json!({"enum": (0..1000).map(|n| json!({"v": n})).collect::<Vec<_>>()}),
        json!({"type": "integer", "multipleOf": 1_009}),
        json!({"items": {"multipleOf": 0.01}, "additionalProperties": {"multipleOf": 100}}),
        json!({"const": "é".repeat(8_000)}),
        pattern("^(((a{1,1000}){1,1000}){1,1000})$"),
    ];
    for schema in followed {
        let spec = GrammarSpec::JsonSchema(schema);
        DEMO.follow(&spec, 40, |constraint| drop(forced(constraint)));
    }
    let refused = [
        nested(128),
        chain(1100, 0, &list),
        chain(900, 12, &list),
        members(1100, 0),
        json!({"$ref": "#"}),
        json!({"allOf": [{"$ref": "#"}], "type": "object"}),
        json!({"multipleOf": 1_000_003}),
        json!({"allOf": [{"multipleOf": 9_973}, {"multipleOf": 9_967}]}),
        json!({"multipleOf": 1e-300}),
        json!({"multipleOf": -0.0}),
        json!({"const": "é".repeat(9_000)}),
        json!({"description": "é".repeat(600_000)}),
        json!({"minimum": "é".repeat(60)}),
        pattern(&"(".repeat(300)),
    ];
    for schema in refused {
        DEMO.refusal(&GrammarSpec::JsonSchema(schema));
    }
    let deep = (0..200_000).fold(Value::Null, |item, _| Value::Array(vec![item]));
    let deep = GrammarSpec::JsonSchema(Value::Array(vec![deep]));
    assert!(DEMO.refusal(&deep).contains("at most 128 levels"));
    // Dropping it would overflow the test's stack.
    std::mem::forget(deep);
}

#[test]
fn sources_are_bounded_in_size_and_depth() {
    let lines =
        |count: usize, line: &dyn Fn(usize) -> String| (0..count).map(line).collect::<String>();
    let rules = lines(2500, &|number| format!("r{number}: \"x\" r{}\n", number + 1));
    let terms = lines(2500, &|number| format!("T{number}: \"x\" T{} \"y\"\n", number + 1));
    let followed = [
        format!("start: r0\n{rules}r2500: \"a\"\n"),
        format!("start: T0\n{terms}T2500: \"a\"\n"),
        "start: start start | \"a\" | \"\"".to_owned(),
        "start: /(a|b)*a(a|b){200}c/".to_owned(),
    ];
    for source in followed {
        assert_eq!(DEMO.follow(&GrammarSpec::Lark(source), 40, |_| {}), 40);
    }
    let doubled = lines(40, &|number| format!("T{number}: T{0} T{0}\n", number + 1));
    let refused = [
        format!("start: T0\n{doubled}T40: \"a\"\n"),
        format!("start: {}\"a\"{}", "(".repeat(100), ")".repeat(100)),
        format!("start: {}\"a\"{}", "(".repeat(9_000), ")".repeat(9_000)),
        "start: %json {\"$ref\": \"http://example.com/x.json\"}".to_owned(),
        "start: %json {\"multipleOf\": 1000003}".to_owned(),
        "start: start".to_owned(),
    ];
    for source in refused {
        DEMO.refusal(&GrammarSpec::Lark(source));
    }
}
