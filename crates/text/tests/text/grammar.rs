//! Structured output: every walk through the allowed tokens ends in a valid text.

use std::collections::BTreeSet;

use asynclane_text::{GrammarSpec, Grammars, TokenId};
use decode::Constraint;
use serde_json::{Value, json};

use crate::fixtures::{DEMO_PAIR, METASPACE};
use crate::setup::{BYTES, DEMO, Random, SPACED, Setup, Walk, allowed, forced, walk, walks};

fn schemas() -> Vec<Value> {
    let zip = json!({"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3,5}$"});
    let home = json!({"type": "object", "properties": {"zip": zip}, "required": ["zip"],
        "additionalProperties": false});
    let person = json!({
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "score": {"type": "number", "exclusiveMinimum": -2.5, "maximum": 7},
        "on": {"type": "boolean"},
        "none": {"type": "null"},
        "kind": {"enum": ["a", "b c", 3, null, {"x": [1]}]},
        "home": home,
    });
    let flags = json!({"type": "array", "items": {"type": "boolean"}, "maxItems": 2});
    let children = json!({"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2});
    let node =
        json!({"value": {"type": "integer", "minimum": -9, "maximum": 9}, "children": children});
    let tree = json!({"type": "object", "properties": node, "required": ["value", "children"],
        "additionalProperties": false});
    let small = json!({"type": "integer", "minimum": 10, "maximum": 12});
    let odd = json!({"type": "object", "properties": {"é\u{7f}\"": {"const": "ü"}},
        "additionalProperties": {"type": "null"}});
    let short = json!({"type": "string", "minLength": 2, "maxLength": 3});
    let limited = json!({"a": {"type": "string", "maxLength": 3}});
    let texts =
        json!({"type": "object", "required": ["a"], "additionalProperties": {"type": "string"}});
    vec![
        json!({"type": "object", "properties": person, "required": ["name", "age", "home"],
            "additionalProperties": false}),
        json!({"type": "array", "items": flags, "minItems": 2, "maxItems": 4}),
        json!({"$defs": {"tree": tree}, "$ref": "#/$defs/tree"}),
        json!({"anyOf": [short, odd, {"$ref": "#/$defs/small"}], "$defs": {"small": small}}),
        json!({"allOf": [{"type": "object", "properties": limited}, texts]}),
    ]
}

#[test]
fn every_walk_ends_in_json_of_the_schema() {
    for (number, schema) in (0..).zip(schemas()) {
        for setup in [&*DEMO, &*BYTES, &*SPACED] {
            let start = setup.compile(&GrammarSpec::JsonSchema(schema.clone()));
            for how in walks(60) {
                let seed = how.seed + 1000 * number;
                let how = Walk { seed, ..how };
                let text = setup.text(&walk(setup, &*start, how));
                let value: Value = serde_json::from_str(&text).unwrap();
                let valid = jsonschema::validate(&schema, &value);
                valid.unwrap_or_else(|error| panic!("{text}: {error}"));
            }
        }
    }
}

#[test]
fn a_json_object_is_any_object_on_one_line() {
    for setup in [&*DEMO, &*BYTES, &*SPACED] {
        let start = setup.compile(&GrammarSpec::JsonObject);
        for how in walks(120) {
            let text = setup.text(&walk(setup, &*start, how));
            assert!(!text.contains('\n'), "{text}");
            match serde_json::from_str::<Value>(&text) {
                Ok(value) => assert!(value.is_object()),
                // JSON has no largest number, but the test's parser does.
                Err(error) => assert!(error.to_string().starts_with("number out"), "{text}"),
            }
        }
        let held = r#"{"a": {"b": [1, -2.5e3, "x y"]}, "c":null}"#;
        let spaced = [r#"{"a":  1}"#, r#"{"a":1} "#, " {}", "{\n}", "{ }"];
        setup.check_bytes(&*start, &[held, "{}", r#"{"a":[]}"#], &["[]", "null"]);
        setup.check_bytes(&*start, &[], &spaced);
    }
}

#[test]
fn a_regex_holds_from_beginning_to_end() {
    let spec = GrammarSpec::Regex(r"^(GET|PUT) /[a-z]{1,4}(/\d+)?\.(x|yé)$".to_owned());
    let start = DEMO.compile(&spec);
    let wrong = ["GET /.x", "GET /a.x ", "xGET /a.x", "POST /a.x", ""];
    DEMO.check_bytes(&*start, &["GET /a.x", "PUT /abcd/12.yé"], &wrong);
    for how in walks(60) {
        let text = DEMO.text(&walk(&DEMO, &*start, how));
        assert!(text.starts_with("GET /") || text.starts_with("PUT /"));
        assert!(text.ends_with(".x") || text.ends_with(".yé"));
    }
    let dollar = DEMO.compile(&GrammarSpec::Regex(r"a\$".to_owned()));
    DEMO.check_bytes(&*dollar, &["a$"], &[]);
    let mut empty = DEMO.compile(&GrammarSpec::Regex("^$".to_owned()));
    assert!(empty.may_end() && empty.is_over());
}

#[test]
fn a_lark_grammar_holds() {
    let source = "start: \"(\" start? \")\" | NUMBER\nNUMBER: /[1-9]{1,3}/\n";
    let start = DEMO.compile(&GrammarSpec::Lark(source.to_owned()));
    DEMO.check_bytes(&*start, &["()", "((12))", "7"], &["(", "())", "1234", "(0)"]);
}

#[test]
fn a_choice_is_one_of_its_texts() {
    let choices = ["yes", "yes, \"very\"", "no\n", "\u{7f}é", "\\"].map(str::to_owned);
    for setup in [&*DEMO, &*BYTES] {
        let start = setup.compile(&GrammarSpec::Choice(choices.to_vec()));
        let texts = walks(120).map(|how| setup.text(&walk(setup, &*start, how)));
        let seen: BTreeSet<String> = texts.collect();
        assert!(seen.iter().all(|text| choices.contains(text)), "{seen:?}");
        assert_eq!(seen.len(), choices.len());
    }
}

#[test]
fn allowed_is_what_accept_takes() {
    for setup in [&*DEMO, &*BYTES, &*SPACED] {
        for spec in [
            GrammarSpec::JsonObject,
            GrammarSpec::JsonSchema(schemas().swap_remove(0)),
            GrammarSpec::Regex("(?s:.*)".to_owned()),
            GrammarSpec::Choice(vec!["{\"a".to_owned(), "<mask></s>".to_owned()]),
        ] {
            let start = setup.compile(&spec);
            for seed in 0..3 {
                let mut constraint = start.boxed_clone();
                let mut random = Random(seed);
                for _ in 0..6 {
                    let choices = every_token_agrees(setup, &mut *constraint);
                    if choices.is_empty() {
                        break;
                    }
                    let token = choices[random.below(choices.len())];
                    assert_eq!(constraint.accept(token), Ok(true));
                }
            }
        }
    }
}

/// The allowed tokens. Checks that `accept` agrees for all ids, both on a constraint that has
/// computed its set and on one that has not.
fn every_token_agrees(setup: &Setup, constraint: &mut dyn Constraint) -> Vec<TokenId> {
    let mut fresh = constraint.boxed_clone();
    let choices = allowed(constraint, setup.ids);
    let tokenizer = &setup.pair.ours;
    for id in (0..setup.ids + 40).chain([u32::MAX]) {
        let expected = choices.contains(&id);
        let mut trial = constraint.boxed_clone();
        assert_eq!(trial.accept(id), Ok(expected), "{id}");
        assert_eq!(fresh.boxed_clone().accept(id), Ok(expected), "{id}");
        if expected {
            assert!(!tokenizer.is_special(id) && tokenizer.id_to_token(id).is_some());
            assert!(!tokenizer.eos_ids().contains(&id));
        } else {
            assert_eq!(fresh.accept(id), Ok(false));
        }
    }
    assert_eq!(allowed(&mut *fresh, setup.ids), choices);
    choices
}

#[test]
fn forced_tokens_are_a_prefix_of_the_canonical_tokenization() {
    let schema = json!({"type": "object",
        "properties": {"temperature_in_celsius": {"type": "integer"}},
        "required": ["temperature_in_celsius"], "additionalProperties": false});
    let mut constraint = DEMO.compile(&GrammarSpec::JsonSchema(schema));
    let before = allowed(&mut *constraint, DEMO.ids);
    let tokens = forced(&mut *constraint);
    assert_eq!(forced(&mut *constraint), tokens);
    assert_eq!(allowed(&mut *constraint, DEMO.ids), before);
    let text = DEMO.text(&tokens);
    let whole = "{\"temperature_in_celsius\":";
    assert!(whole.starts_with(&text) && text.len() > 15, "{text}");
    let canonical = DEMO_PAIR.ours.encode(whole, false).unwrap();
    assert!(canonical.starts_with(&tokens));
    assert!(!constraint.may_end());
    for token in tokens {
        assert_eq!(constraint.accept(token), Ok(true));
    }
    let rest = format!("{}-7}}", &whole[text.len()..]);
    DEMO.check_bytes(&*constraint, &[&rest], &[]);
}

#[test]
fn may_end_is_true_before_is_over() {
    let mut constraint = DEMO.compile(&GrammarSpec::Regex("a{1,2}".to_owned()));
    let a = DEMO.bytes_of("a")[0];
    assert!(!constraint.may_end() && !constraint.is_over());
    assert_eq!(constraint.accept(a), Ok(true));
    assert!(constraint.may_end() && !constraint.is_over());
    assert_eq!(constraint.accept(a), Ok(true));
    assert!(constraint.may_end() && constraint.is_over());
    assert!(allowed(&mut *constraint, DEMO.ids).is_empty());
    assert!(forced(&mut *constraint).is_empty());
    assert_eq!(constraint.accept(a), Ok(false));
    assert!(constraint.may_end() && constraint.is_over());
}

#[test]
fn tokens_that_the_decoder_changes_at_the_start_are_not_allowed_first() {
    let choices = vec!["the".to_owned(), " the".to_owned()];
    let mut constraint = SPACED.compile(&GrammarSpec::Choice(choices));
    for id in allowed(&mut *constraint, SPACED.ids) {
        let text = SPACED.pair.ours.decode(&[id], false);
        assert_eq!(text.as_bytes(), SPACED.bytes(id));
    }
}

#[test]
fn a_decoder_that_depends_on_neighbours_is_refused() {
    let usable = METASPACE.iter().map(|pair| {
        let ids = u32::try_from(pair.ours.vocab_size()).unwrap();
        let grammars = Grammars::new(pair.ours.clone(), ids);
        match &grammars {
            Ok(grammars) => {
                let spec = GrammarSpec::Choice(vec!["the a".to_owned()]);
                grammars.compile(&spec).unwrap();
            }
            Err(error) => assert!(error.to_string().contains("decoder: expected"), "{error}"),
        }
        grammars.is_ok()
    });
    let usable: Vec<bool> = usable.collect();
    // Not usable: stages after byte-fallback, WordPiece, no decoder.
    assert_eq!(usable, [true, true, false, true, false, true, false, false]);
}
