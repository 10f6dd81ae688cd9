//! Schemas that the compiler would misread or refuse: what is followed, what is left out, what is refused.

use asynclane_text::{Follow, GrammarSpec, Tool, ToolFormat, ToolGrammar, ToolUse};
use serde_json::{Map, Value, json};

use crate::grammar::DEMO;

/// Schemas that pydantic 2 and zod 4 write for models with one field each.
fn models() -> Map<String, Value> {
    serde_json::from_str(include_str!("models.json")).unwrap()
}

fn tools(schema: &Value, follow: Follow, mode: ToolUse) -> GrammarSpec {
    GrammarSpec::Tools(ToolGrammar {
        format: ToolFormat::Hermes,
        tools: vec![Tool {
            name: "f".to_owned(),
            parameters: schema.clone(),
            follow,
        }],
        mode,
        parallel: false,
        answer: None,
    })
}

/// Of each library the models whose schemas have a keyword that no grammar follows.
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
        let spec = tools(&schema, Follow::AsFarAsPossible, ToolUse::Auto);
        let compiled = DEMO.grammars().compile(&spec);
        assert!(compiled.is_ok(), "{name}: {}", compiled.unwrap_err());
        let GrammarSpec::Tools(of) = &spec else {
            unreachable!()
        };
        let wholly = DEMO
            .grammars()
            .compile(&tools(&schema, Follow::Wholly, ToolUse::Required));
        let told = of.tools[0].left_out();
        assert_eq!(
            wholly.is_err(),
            !told.is_empty(),
            "{name}: {told:?} {:?}",
            wholly.err()
        );
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
        for (low, high) in quarters
            .iter()
            .flat_map(|low| quarters.map(|high| (*low, high)))
        {
            for (above, below) in [(false, false), (true, false), (false, true), (true, true)] {
                let least = if above { "exclusiveMinimum" } else { "minimum" };
                let most = if below { "exclusiveMaximum" } else { "maximum" };
                let spec = schema(json!({"type": kind, least: low, most: high}));
                let compiled = DEMO.grammars().compile(&spec);
                for text in numbers {
                    let number: f64 = text.parse().unwrap();
                    let held = (if above { number > low } else { number >= low })
                        && (if below { number < high } else { number <= high })
                        && (kind == "number" || !text.contains('.'));
                    let accepted = compiled
                        .as_ref()
                        .is_ok_and(|start| DEMO.accepts(&**start, text));
                    assert_eq!(accepted, held, "{text}: {kind} {least} {low} {most} {high}");
                }
            }
        }
    }
}

#[test]
fn numbers_that_would_be_rounded_are_refused_by_their_path() {
    for (part, path) in [
        (json!({"const": 9_007_199_254_740_993_u64}), "const"),
        (
            json!({"enum": [1, {"x": [9_223_372_036_854_775_807_u64]}]}),
            "enum",
        ),
        (
            json!({"type": "integer", "maximum": 9_223_372_036_854_775_807_u64}),
            "maximum",
        ),
        (
            json!({"type": "integer", "minimum": -9_007_199_254_740_995_i64}),
            "minimum",
        ),
    ] {
        let whole = json!({"properties": {"a": {"items": part}}});
        let line = DEMO.refusal(&schema(whole.clone()));
        let path = format!("properties.a.items.{path} has a whole number beyond 2^53");
        assert!(line.contains(&path), "{line}");
        let lark = GrammarSpec::Lark(format!("start: \"x\" %json {whole}"));
        assert!(DEMO.refusal(&lark).contains("beyond 2^53"));
    }
    for kept in [
        json!({"const": 9_007_199_254_740_992_u64}),
        json!({"maximum": 1_000_000_000_000_000_000_i64}),
    ] {
        DEMO.compile(&schema(kept));
    }
    let start = DEMO.compile(&schema(json!({"const": 9_007_199_254_740_991_u64})));
    assert!(DEMO.accepts(&*start, "9007199254740991"));
    assert!(!DEMO.accepts(&*start, "9007199254740990"));
}

#[test]
fn dates_are_days_of_the_calendar() {
    let format = |name: &str| DEMO.compile(&schema(json!({"type": "string", "format": name})));
    let date = format("date");
    for (day, real) in [
        ("2024-02-29", true),
        ("2023-02-29", false),
        ("2000-02-29", true),
        ("1900-02-29", false),
        ("2023-04-31", false),
        ("2023-12-31", true),
        ("2023-13-01", false),
        ("2023-1-01", false),
    ] {
        assert_eq!(DEMO.accepts(&*date, &format!("{day:?}")), real, "{day}");
    }
    let time = format("date-time");
    for (text, real) in [
        ("2024-02-29T23:59:59Z", true),
        ("2024-02-29t23:59:59z", false),
        ("2024-02-29 23:59:59Z", false),
        ("2024-02-29T23:59:60Z", false),
        ("2024-02-29T23:59:59.125+02:00", true),
        ("2024-02-29T24:00:00Z", false),
        ("2023-02-29T00:00:00Z", false),
        ("2024-02-29T00:00:00", false),
    ] {
        assert_eq!(DEMO.accepts(&*time, &format!("{text:?}")), real, "{text}");
    }
    let both = schema(json!({"type": "string", "format": "date", "pattern": "^2024"}));
    let both = DEMO.compile(&both);
    assert!(DEMO.accepts(&*both, "\"2024-01-31\""));
    assert!(!DEMO.accepts(&*both, "\"2023-01-31\""));
}

#[test]
fn keywords_that_ask_for_nothing_refuse_nothing() {
    let neutral = json!({
        "type": "object", "required": null, "minProperties": 0.0, "deprecated": true,
        "properties": {
            "a": {"type": "string", "minLength": 1.0, "maxLength": 2.0, "format": "binary", "pattern": null},
            "b": {"type": "array", "uniqueItems": false, "contains": null, "maxItems": 1, "minContains": 2},
            "c": {"then": {"type": "string"}, "not": false, "if": {}},
            "d": {"type": "object", "propertyNames": {"type": "string"}, "dependentRequired": {}},
        },
        "unevaluatedProperties": false,
    });
    let start = DEMO.compile(&schema(neutral));
    assert!(DEMO.accepts(&*start, r#"{"a": "xy", "b": [1], "c": 3, "d": {"e": 1}}"#));
    assert!(!DEMO.accepts(&*start, r#"{"a": "xyz"}"#));
    assert!(!DEMO.accepts(&*start, r#"{"z": 1}"#));
}

#[test]
fn names_that_a_pattern_allows_are_written() {
    // Only the named member matches: no other name may begin.
    let named = json!({"properties": {"abc": {"type": "integer"}}, "patternProperties": {"^abc$": {"minimum": 3}},
        "additionalProperties": false});
    let start = DEMO.compile(&schema(named));
    assert!(DEMO.accepts(&*start, r#"{"abc": 3}"#));
    assert!(!DEMO.accepts(&*start, r#"{"abc": 3, "#));
    assert!(DEMO.accepts(&*start, "{}"));
    let listed = json!({"type": "object", "propertyNames": {"enum": ["x", "y"]},
        "additionalProperties": {"type": "boolean"}});
    let start = DEMO.compile(&schema(listed));
    assert!(DEMO.accepts(&*start, r#"{"x": true, "y": false}"#));
    assert!(!DEMO.accepts(&*start, r#"{"z": true}"#));
    let pattern = json!({"type": "object", "propertyNames": {"pattern": "^k[0-9]$"},
        "additionalProperties": {"type": "boolean"}});
    let start = DEMO.compile(&schema(pattern));
    assert!(DEMO.accepts(&*start, r#"{"k1": true, "k2": false}"#));
    assert!(!DEMO.accepts(&*start, r#"{"k": true}"#));
}

#[test]
fn what_cannot_be_followed_is_told_by_its_path() {
    let cases = [
        (
            json!({"properties": {"a": {"uniqueItems": true}}}),
            "properties.a.uniqueItems is not supported",
        ),
        (
            json!({"anyOf": [{"type": "null"}, {"not": {"type": "string"}}]}),
            "anyOf.1.not is not supported",
        ),
        (
            json!({"$defs": {"x": {"pattern": "(?=a)b"}}, "$ref": "#/$defs/x"}),
            "$defs.x.pattern",
        ),
        (
            json!({"if": {"type": "string"}, "then": {"minLength": 2}}),
            "if is not supported",
        ),
    ];
    for (given, told) in cases {
        let line = DEMO.refusal(&schema(given));
        assert!(line.contains(told), "{line}");
    }
}

/// Names that the schema leaves open, in any spelling, at any depth, and behind the mark of a call.
#[test]
fn no_object_has_a_name_twice() {
    let any = json!({"type": "object", "additionalProperties": true});
    for spec in [GrammarSpec::JsonObject, schema(any.clone())] {
        let start = DEMO.compile(&spec);
        for (text, held) in [
            (
                r#"{"a": 1, "b": {"a": 2}, "c": [{"a": 1}, {"a": 2}]}"#,
                true,
            ),
            (r#"{"a": 1, "a": 2}"#, false),
            (r#"{"a": 1, "\u0061": 2}"#, false),
            (r#"{"b": {"a": 2, "a\"": 3, "a": 4}}"#, false),
            (r#"{"b": "a", "a": "b"}"#, true),
            (r#"{"c": [{"a": 1, "a": 2}]}"#, false),
        ] {
            assert_eq!(DEMO.accepts(&*start, text), held, "{text}");
        }
    }
    for mode in [ToolUse::Auto, ToolUse::Required] {
        let start = DEMO.compile(&tools(&any, Follow::Wholly, mode));
        let call = |arguments: &str| {
            format!("<tool_call>\n{{\"name\": \"f\", \"arguments\": {arguments}}}\n</tool_call>")
        };
        assert!(DEMO.accepts(&*start, &call(r#"{"a": 1, "b": 2}"#)));
        assert!(!DEMO.accepts(&*start, &call(r#"{"a": 1, "a": 2}"#)));
    }
    // Free text is no JSON.
    let start = DEMO.compile(&tools(&any, Follow::Wholly, ToolUse::Auto));
    assert!(DEMO.accepts(&*start, r#"{"a": 1, "a": 2}"#));
}
