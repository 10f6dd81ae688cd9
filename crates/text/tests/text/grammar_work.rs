//! Specifications that are small and would be expensive: each is refused, or compiled and followed,
//! in bounded time. Repeated ones are compiled once.

use std::time::{Duration, Instant};

use asynclane_text::GrammarSpec;
use serde_json::{Map, Value, json};

use crate::setup::{DEMO, Random, allowed};

/// Far more than the slowest of these takes on a machine that does other work beside.
const LONG: Duration = Duration::from_secs(20);

fn regex(source: impl Into<String>) -> GrammarSpec {
    GrammarSpec::Regex(source.into())
}

fn lark(source: impl Into<String>) -> GrammarSpec {
    GrammarSpec::Lark(source.into())
}

fn string(pattern: impl Into<String>) -> GrammarSpec {
    GrammarSpec::JsonSchema(json!({"type": "string", "minLength": 3, "pattern": pattern.into()}))
}

/// The refusal of `spec`, in bounded time.
fn refused(spec: &GrammarSpec) -> String {
    let begin = Instant::now();
    let line = DEMO.refusal(spec);
    assert!(begin.elapsed() < LONG, "{:?}: {line}", begin.elapsed());
    line
}

#[test]
fn optional_parts_in_a_row_are_refused_before_they_are_compiled() {
    let parts = ["A"; 20].join(" ");
    let optional = |count: usize| ".?".repeat(count);
    let nested = parts.replace('A', "B");
    let nested = format!("start: T\nT: {parts}\nA: {nested}\nB: /{}/\n", optional(20));
    let json = json!({"type": "string", "minLength": 3, "pattern": optional(8_000)});
    let attacks = [
        regex(optional(32_000)),
        regex(optional(9_000)),
        regex("a?".repeat(4_000)),
        regex("(|a)".repeat(15_000)),
        regex("(a|b|c|d)?".repeat(5_000)),
        regex("(\\w\\s?)?".repeat(900)),
        lark(format!("start: T\nT: /{}/\n", optional(9_000))),
        lark(nested),
        lark(format!("start: %json {json}")),
        string(optional(8_000)),
    ];
    for spec in attacks {
        let line = refused(&spec);
        let expected = "expected regexes of which one step costs";
        assert!(line.contains(expected), "{line}");
    }
}

#[test]
fn large_classes_and_many_patterns_are_refused_before_they_are_compiled() {
    let pattern = |number: usize| json!({"type": "string", "pattern": format!("a.{{{number}}}b")});
    let all = |part: &dyn Fn(usize) -> Value| {
        let parts: Vec<Value> = (0..20).map(part).collect();
        GrammarSpec::JsonSchema(json!({ "allOf": parts }))
    };
    let hidden = all(&|number| json!({"properties": {"a": pattern(number)}}));
    let dated = json!({"type": "string", "format": "date-time"});
    let members: Map<String, Value> =
        (0..900).map(|number| (format!("m{number}"), dated.clone())).collect();
    let formats = json!({"type": "object", "properties": members});
    let range = |offset: u32| {
        Some(format!("[{}-{}]", char::from_u32(0x400 + offset)?, char::from_u32(0x2000 + offset)?))
    };
    let ranges: String = (0..2_000).filter_map(range).collect();
    let inverse = format!("(?i){}", "[^\\w]".repeat(1_000));
    let attacks = [
        (regex("\\w".repeat(20_000)), "classes by name"),
        (regex(inverse), "classes by name"),
        (regex(format!("(?i){ranges}")), "classes by name"),
        (lark(format!("start: /{ranges}/i\n")), "classes by name"),
        (all(&pattern), "one step costs"),
        (hidden, "one step costs"),
        (GrammarSpec::JsonSchema(formats), "patterns, formats and bounds"),
    ];
    for (spec, part) in attacks {
        let line = refused(&spec);
        assert!(line.contains(part), "{line}");
    }
}

#[test]
fn ordinary_patterns_are_followed() {
    let specs = [
        regex("(a|b|c){1000}{1000}"),
        regex("((a{100}){100}){100}"),
        regex("(.{0,1000}a){1000}"),
        regex("\\w".repeat(1_000)),
        regex("(?i)(größe|länge|[a-z0-9_-]+|\\w+)"),
        regex(".?".repeat(20)),
        string("^\\w+([.-]?\\w+)*@\\w+([.-]?\\w+)*$"),
        GrammarSpec::JsonSchema(json!({"allOf": [{"type": "object",
            "properties": {"a": {"type": "string", "pattern": "^[a-z]+$"}}},
            {"type": "object", "properties": {"a": {"type": "string", "maxLength": 9}}}]})),
        GrammarSpec::JsonSchema(json!({"type": "string", "minLength": 5, "maxLength": 100_000})),
    ];
    for spec in specs {
        let begin = Instant::now();
        let steps = DEMO.follow(&spec, 20, |_| {});
        assert!(begin.elapsed() < LONG, "{spec:?}");
        assert!(steps > 0, "{spec:?}");
    }
}

/// Each step costs a bounded amount of counted work, so that it ends in the same error however
/// loaded the machine is.
#[test]
fn an_ambiguous_grammar_ends_in_an_error_instead_of_a_long_step() {
    let spec = lark(
        "start: s\ns: s s s s | s s s | s s | | /[^\"]/ | /[a-zA-Z ]/ | /[^,]/ | /./ | /[a-z. 0-9]/\n",
    );
    let mut ends = Vec::new();
    for _ in 0..2 {
        let mut constraint = DEMO.compile(&spec);
        let (mut random, mut set, mut steps) = (Random(3), Vec::new(), 0);
        let error = loop {
            let begin = Instant::now();
            if let Err(error) = constraint.allowed(&mut set) {
                break error;
            }
            let choices = allowed(&mut *constraint, DEMO.ids);
            if let Err(error) = constraint.accept(choices[random.below(choices.len())]) {
                break error;
            }
            assert!(begin.elapsed() < LONG);
            steps += 1;
            assert!(steps < 1_000);
        };
        assert_eq!(error.0, "the grammar is too complex");
        ends.push(steps);
    }
    assert_eq!(ends[0], ends[1]);
}

#[test]
fn a_known_specification_is_not_compiled_again() {
    let member = |number| (format!("member{number}"), json!({"type": "integer"}));
    let members: Map<String, Value> = (0..300).map(member).collect();
    let spec = GrammarSpec::JsonSchema(json!({"type": "object", "properties": members}));
    let begin = Instant::now();
    let mut first = DEMO.compile(&spec);
    let once = begin.elapsed();
    let start = allowed(&mut *first, DEMO.ids);
    assert_eq!(first.accept(start[0]), Ok(true));
    let begin = Instant::now();
    for _ in 0..10 {
        // The copy is at the start, wherever another one is.
        assert_eq!(allowed(&mut *DEMO.compile(&spec), DEMO.ids), start);
    }
    let again = begin.elapsed() / 10;
    assert!(again < once, "{again:?}, at first {once:?}");
    let wrong = regex("a(");
    assert_eq!(DEMO.refusal(&wrong), DEMO.refusal(&wrong));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(allowed(&mut *DEMO.compile(&spec), DEMO.ids), start));
        }
    });
}

#[test]
fn rules_with_parameters_are_refused_before_they_are_compiled() {
    let permuted =
        (0..60).map(|bit| format!(" | \"{bit}\" p::set_bit({bit}) %if bit_clear({bit})\n"));
    let permuted: String = permuted.collect();
    let (rule, nested) = ("a::_: a::incr([0:20])", "start: b\nb: %lark { start: a::0x0");
    for (source, place) in [
        (format!("start: a::0x0\n{rule}"), "line 1 column 9"),
        (format!("start: /[A-Za-z0-9 .]{{40}}/ a::0x0\n{rule}"), "line 1 column 29"),
        (format!("{nested}\n{rule} }}"), "line 2 column 20"),
        (format!("start: p::0x0\np::_: \"\" %if is_ones([0:60])\n{permuted}"), "line 1 column 9"),
    ] {
        let expected = format!(
            "the Lark grammar cannot be followed: rules with parameters (`::`) are not supported, \
             {place}"
        );
        assert_eq!(refused(&lark(source)), expected);
    }
}
