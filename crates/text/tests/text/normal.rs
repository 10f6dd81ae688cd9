//! Schemas that the compiler would misread or refuse: what is followed, what is left out, what is refused.

use asynclane_text::{Follow, GrammarSpec, Tool, ToolFormat, ToolGrammar, ToolUse};
use serde_json::{Map, Value, json};

use crate::setup::{BYTES, DEMO, SPACED, walk, walks};
use crate::tools::{calls, tool};

/// Schemas that pydantic 2 and zod 4 write for models with one field each.
fn models() -> Map<String, Value> {
    serde_json::from_str(include_str!("models.json")).unwrap()
}

fn tools(schema: &Value, follow: Follow, mode: ToolUse) -> ToolGrammar {
    let tool = Tool { follow, ..tool("f", schema.clone()) };
    ToolGrammar { parallel: false, ..calls(ToolFormat::Hermes, vec![tool], mode) }
}

/// The models of each library whose schemas have a keyword that no grammar follows.
const LEFT_OUT: [&str; 7] = [
    "pydantic_set",
    "pydantic_frozenset",
    "pydantic_dict_len",
    "pydantic_int64",
    "zod_emoji",
    "zod_duration",
    "zod_float32",
];

#[test]
fn models_of_pydantic_and_zod_are_tools() {
    let mut left_out = Vec::new();
    for (name, schema) in models() {
        let grammar = tools(&schema, Follow::AsFarAsPossible, ToolUse::Auto);
        let told = grammar.tools[0].left_out();
        DEMO.compile(&GrammarSpec::Tools(grammar));
        let wholly = tools(&schema, Follow::Wholly, ToolUse::Required);
        let wholly = DEMO.grammars.compile(&GrammarSpec::Tools(wholly));
        assert_eq!(wholly.is_err(), !told.is_empty(), "{name}: {told:?}");
        if !told.is_empty() {
            left_out.push(name);
        }
    }
    assert_eq!(left_out, LEFT_OUT);
}

fn schema(schema: Value) -> GrammarSpec {
    GrammarSpec::JsonSchema(schema)
}

/// Every pair of bounds at quarters of a unit, inclusive and exclusive, against numbers between and beyond.
#[test]
fn numbers_between_bounds_are_those_of_the_schema() {
    let quarters = [-1.25, -1.0, -0.75, -0.5, 0.0, 0.25, 0.5, 1.0, 1.5, 2.0];
    let numbers = [
        "-2", "-1.25", "-1", "-0.75", "-0.6", "-0.5", "-0.001", "0", "0.001", "0.25", "0.3", "0.5",
        "0.999", "1", "1.25", "1.5", "1.501", "2", "2.5", "12",
    ];
    for kind in ["number", "integer"] {
        let pairs = quarters.iter().flat_map(|low| quarters.map(|high| (*low, high)));
        for (low, high) in pairs {
            for (above, below) in [(false, false), (true, false), (false, true), (true, true)] {
                let least = if above { "exclusiveMinimum" } else { "minimum" };
                let most = if below { "exclusiveMaximum" } else { "maximum" };
                let spec = schema(json!({"type": kind, least: low, most: high}));
                let compiled = DEMO.grammars.compile(&spec);
                for text in numbers {
                    let number: f64 = text.parse().unwrap();
                    let held = (if above { number > low } else { number >= low })
                        && (if below { number < high } else { number <= high })
                        && (kind == "number" || !text.contains('.'));
                    let compiled = compiled.as_ref();
                    let accepted = compiled.is_ok_and(|start| DEMO.accepts(&**start, text));
                    assert_eq!(accepted, held, "{text}: {kind} {least} {low} {most} {high}");
                }
            }
        }
    }
}

#[test]
fn numbers_that_would_be_rounded_are_refused_by_their_path() {
    let least = -9_007_199_254_740_995_i64;
    let most = 9_223_372_036_854_775_807_u64;
    for (part, path) in [
        (json!({"const": 9_007_199_254_740_993_u64}), "const"),
        (json!({"enum": [1, {"x": [most]}]}), "enum"),
        (json!({"type": "integer", "maximum": most}), "maximum"),
        (json!({"type": "integer", "minimum": least}), "minimum"),
        // The compiler negates bounds, which has no end for the least integer of 64 bits.
        (json!({ "const": i64::MIN }), "const"),
        (json!({"enum": [1, [i64::MIN + 1]]}), "enum"),
        (json!({"minimum": -1e300, "maximum": i64::MIN}), "minimum"),
        (json!({"exclusiveMaximum": i64::MIN + 1}), "exclusiveMaximum"),
    ] {
        let whole = json!({"properties": {"a": {"items": part}}});
        let line = DEMO.refusal(&schema(whole.clone()));
        let path = format!("properties.a.items.{path} has a whole number beyond 2^53");
        assert!(line.contains(&path), "{line}");
        let lark = GrammarSpec::Lark(format!("start: \"x\" %json {whole}"));
        assert!(DEMO.refusal(&lark).contains("beyond 2^53"));
    }
    DEMO.compile(&schema(json!({"const": 9_007_199_254_740_992_u64})));
    DEMO.compile(&schema(json!({"const": [-(1_i64 << 53), 1_i64 << 60]})));
    DEMO.compile(&schema(json!({"maximum": 1_000_000_000_000_000_000_i64})));
    let start = DEMO.compile(&schema(json!({"const": 9_007_199_254_740_991_u64})));
    DEMO.check(&*start, &["9007199254740991"], &["9007199254740990"]);
}

#[test]
fn dates_are_days_of_the_calendar() {
    let start = |name: &str| DEMO.compile(&schema(json!({"type": "string", "format": name})));
    for (format, texts, held) in [
        ("date", "2024-02-29 2000-02-29 2023-12-31", true),
        ("date", "2023-02-29 1900-02-29 2023-04-31 2023-13-01 2023-1-01", false),
        ("date-time", "2024-02-29T23:59:59Z 2024-02-29T23:59:59.125+02:00", true),
        ("date-time", "2024-02-29t23:59:59z 2024-02-29T23:59:60Z 2024-02-29T24:00:00Z", false),
        ("date-time", "2023-02-29T00:00:00Z 2024-02-29T00:00:00", false),
        ("date-time", "2024-02-29_23:59:59Z", false),
    ] {
        let start = start(format);
        for text in texts.split(' ') {
            let text = text.replace('_', " ");
            assert_eq!(DEMO.accepts(&*start, &format!("{text:?}")), held, "{text}");
        }
    }
    let both = schema(json!({"type": "string", "format": "date", "pattern": "^2024"}));
    DEMO.check(&*DEMO.compile(&both), &["\"2024-01-31\""], &["\"2023-01-31\""]);
}

#[test]
fn keywords_that_ask_for_nothing_refuse_nothing() {
    let neutral = json!({"type": "object", "required": null, "minProperties": 0.0,
        "deprecated": true, "properties": {"a": {"type": "string", "minLength": 1.0,
        "maxLength": 2.0, "format": "binary", "pattern": null},
        "b": {"type": "array", "uniqueItems": false, "contains": null, "maxItems": 1,
        "minContains": 2}, "c": {"then": {"type": "string"}, "not": false, "if": {}},
        "d": {"type": "object", "propertyNames": {"type": "string"}, "dependentRequired": {}}},
        "unevaluatedProperties": false});
    let start = DEMO.compile(&schema(neutral));
    let held = r#"{"a": "xy", "b": [1], "c": 3, "d": {"e": 1}}"#;
    DEMO.check(&*start, &[held], &[r#"{"a": "xyz"}"#, r#"{"z": 1}"#]);
}

#[test]
fn names_that_a_pattern_allows_are_written() {
    // Only the named member matches: no other name may begin.
    let named = json!({"properties": {"abc": {"type": "integer"}}, "patternProperties": {"^abc$": {"minimum": 3}},
        "additionalProperties": false});
    let start = DEMO.compile(&schema(named));
    DEMO.check(&*start, &[r#"{"abc": 3}"#, "{}"], &[r#"{"abc": 3, "#]);
    for (names, held, refused) in [
        (json!({"enum": ["x", "y"]}), r#"{"x": true, "y": false}"#, r#"{"z": true}"#),
        (json!({"pattern": "^k[0-9]$"}), r#"{"k1": true, "k2": false}"#, r#"{"k": true}"#),
    ] {
        let start = DEMO.compile(&schema(json!({"type": "object", "propertyNames": names,
            "additionalProperties": {"type": "boolean"}})));
        DEMO.check(&*start, &[held], &[refused]);
    }
}

/// A schema, and the refusal's words about its path.
const REFUSED: &str = r##"
{"properties": {"a": {"uniqueItems": true}}} | properties.a.uniqueItems is not supported
{"anyOf": [{"type": "null"}, {"not": {"type": "string"}}]} | anyOf.1.not is not supported
{"$defs": {"x": {"pattern": "(?=a)b"}}, "$ref": "#/$defs/x"} | $defs.x.pattern
{"if": {"type": "string"}, "then": {"minLength": 2}} | if is not supported
"##;

#[test]
fn what_cannot_be_followed_is_told_by_its_path() {
    for case in REFUSED.lines().skip(1) {
        let (given, told) = case.split_once(" | ").unwrap();
        let line = DEMO.refusal(&schema(serde_json::from_str(given).unwrap()));
        assert!(line.contains(told), "{line}");
    }
}

/// Names that the schema leaves open, in any spelling, at any depth, and behind the mark of a call.
#[test]
fn no_object_has_a_name_twice() {
    let any = json!({"type": "object", "additionalProperties": true});
    for spec in [GrammarSpec::JsonObject, schema(any.clone())] {
        let start = DEMO.compile(&spec);
        let held = r#"{"a": 1, "b": {"a": 2}, "c": [{"a": 1}, {"a": 2}]}"#;
        let refused = [
            r#"{"a": 1, "a": 2}"#,
            r#"{"a": 1, "\u0061": 2}"#,
            r#"{"b": {"a": 2, "a\"": 3, "a": 4}}"#,
            r#"{"c": [{"a": 1, "a": 2}]}"#,
        ];
        DEMO.check(&*start, &[held, r#"{"b": "a", "a": "b"}"#], &refused);
    }
    let start = |mode| DEMO.compile(&GrammarSpec::Tools(tools(&any, Follow::Wholly, mode)));
    let call = |arguments: &str| {
        format!("<tool_call>\n{{\"name\": \"f\", \"arguments\": {arguments}}}\n</tool_call>")
    };
    let (held, refused) = (r#"{"a": 1, "b": 2}"#, r#"{"a": 1, "a": 2}"#);
    for mode in [ToolUse::Auto, ToolUse::Required] {
        DEMO.check(&*start(mode), &[&call(held)], &[&call(refused)]);
    }
    // Free text is no JSON.
    DEMO.check(&*start(ToolUse::Auto), &[refused], &[]);
}

/// Objects that can have all names which their schema permits end, or take another one, before a name repeats.
#[test]
fn limited_names_lead_to_no_dead_end() {
    let digit = json!({"type": "integer", "minimum": 0, "maximum": 9});
    let named = |pattern: &str| json!({"type": "object", "patternProperties": {pattern: digit}, "additionalProperties": false});
    let days = json!({"type": "object", "propertyNames": {"pattern": "^(mon|tue|wed|m\"n)$"},
        "additionalProperties": digit, "minProperties": 2});
    let schemas = [
        named("^[ab]$"),
        named("^a[A-C]?$"),
        named("^[A-B]{2}$"),
        json!({"type": "array", "items": named("^(x|xy|xyz)$"), "minItems": 2, "maxItems": 3}),
        json!({"type": "object", "properties": {"in": named("^[ab]$"), "m": digit}, "required": ["in", "m"]}),
        days,
    ];
    for given in schemas {
        for setup in [&*DEMO, &*BYTES, &*SPACED] {
            let start = setup.compile(&schema(given.clone()));
            let mut most = 0;
            for how in walks(60) {
                let text = setup.text(&walk(setup, &*start, how));
                let value: Value = serde_json::from_str(&text).unwrap();
                let valid = jsonschema::validate(&given, &value);
                valid.unwrap_or_else(|error| panic!("{text}: {error}"));
                assert_eq!(count_names(&value), text.matches("\":").count(), "{text}");
                most = most.max(count_names(&value));
            }
            assert!(most > 1, "{given}");
        }
    }
}

fn count_names(value: &Value) -> usize {
    match value {
        Value::Object(members) => members.len() + members.values().map(count_names).sum::<usize>(),
        Value::Array(items) => items.iter().map(count_names).sum(),
        _ => 0,
    }
}
