//! Structured output: every walk through the allowed tokens ends in a valid text.

use std::sync::LazyLock;

use asynclane_text::{GrammarSpec, Grammars, TokenId};
use decode::Constraint;
use serde_json::{Value, json};

use crate::fixtures::{BYTE_LEVEL, DEMO_PAIR, LLAMA, METASPACE, Pair};
use crate::schema::conforms;

/// Vocabulary size of the demo model; its tokenizer has fewer tokens.
const DEMO_IDS: u32 = 1024;

pub static DEMO: LazyLock<Setup> = LazyLock::new(|| Setup::new(&DEMO_PAIR, DEMO_IDS));
static BYTES: LazyLock<Setup> = LazyLock::new(|| Setup::of(&BYTE_LEVEL));
static SPACED: LazyLock<Setup> = LazyLock::new(|| Setup::of(&METASPACE[LLAMA]));

/// A tokenizer and its grammars.
pub struct Setup {
    pair: &'static Pair,
    grammars: Grammars,
    pub ids: u32,
}

impl Setup {
    fn new(pair: &'static Pair, ids: u32) -> Self {
        let grammars = Grammars::new(pair.ours.clone(), ids).unwrap();
        Self {
            pair,
            grammars,
            ids,
        }
    }

    fn of(pair: &'static Pair) -> Self {
        Self::new(pair, u32::try_from(pair.ours.vocab_size()).unwrap())
    }

    pub fn compile(&self, spec: &GrammarSpec) -> Box<dyn Constraint> {
        self.grammars.compile(spec).unwrap()
    }

    pub fn grammars(&self) -> &Grammars {
        &self.grammars
    }

    /// Whether `start` allows `text` as a whole.
    pub fn accepts(&self, start: &dyn Constraint, text: &str) -> bool {
        let mut constraint = start.boxed_clone();
        for token in self.pair.ours.encode(text, false).unwrap() {
            if !allowed(&mut *constraint, self.ids).contains(&token) {
                return false;
            }
            constraint.accept(token).unwrap();
        }
        constraint.may_end()
    }

    fn bytes(&self, token: TokenId) -> Vec<u8> {
        self.pair.ours.token_bytes(token).unwrap()
    }

    pub fn refusal(&self, spec: &GrammarSpec) -> String {
        let line = self.grammars.compile(spec).unwrap_err().to_string();
        assert!(
            line.chars().count() <= 300 && !line.contains('\n'),
            "{line}"
        );
        assert!(!line.contains("panic"), "{line}");
        line
    }
}

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((bits ^ (bits >> 31)) % bound as u64).unwrap()
    }
}

pub fn allowed(constraint: &mut dyn Constraint, ids: u32) -> Vec<TokenId> {
    let mut set = vec![7; 99];
    constraint.allowed(&mut set).unwrap();
    assert_eq!(set.len(), (ids as usize).div_ceil(32));
    let bits = 0..u32::try_from(set.len() * 32).unwrap();
    bits.filter(|id| set[*id as usize / 32] >> (id % 32) & 1 == 1)
        .collect()
}

pub fn forced(constraint: &mut dyn Constraint) -> Vec<TokenId> {
    let mut tokens = vec![7; 9];
    constraint.forced(&mut tokens);
    tokens
}

/// How a walk chooses tokens.
#[derive(Clone, Copy)]
struct Walk {
    seed: u64,
    /// Number of random tokens before it heads for the end.
    free: usize,
    /// Whether it accepts forced tokens.
    take_forced: bool,
}

/// Tokens that bring JSON closer to its end, in order of preference.
const CLOSING: [&str; 7] = ["}", "]", ",", "\"", ":", ".", "0"];

/// The token of `choices` that brings `text` closest to its end; sometimes a random one.
fn closer(setup: &Setup, text: &[u8], choices: &[TokenId], random: &mut Random) -> TokenId {
    let wanted = if is_in_string(text) {
        &["\""]
    } else {
        &CLOSING[..]
    };
    let find = |text: &&str| {
        let mut found = choices.iter().copied();
        found.find(|id| setup.bytes(*id) == text.as_bytes())
    };
    match wanted.iter().find_map(find) {
        Some(token) if random.below(4) > 0 => token,
        _ => choices[random.below(choices.len())],
    }
}

/// Whether `text` ends in a JSON string.
fn is_in_string(text: &[u8]) -> bool {
    let (mut inside, mut escaped) = (false, false);
    for byte in text {
        inside ^= *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
    }
    inside
}

/// The tokens of a complete text: random tokens, then tokens that end it.
fn walk(setup: &Setup, start: &dyn Constraint, how: Walk) -> Vec<TokenId> {
    let mut constraint = start.boxed_clone();
    let mut random = Random(how.seed);
    let mut tokens = Vec::new();
    while tokens.len() < how.free + 500 {
        if how.take_forced {
            for token in forced(&mut *constraint) {
                assert!(allowed(&mut *constraint, setup.ids).contains(&token));
                assert_eq!(constraint.accept(token), Ok(true));
                tokens.push(token);
            }
        }
        let closing = tokens.len() >= how.free;
        if constraint.may_end() && (closing || random.below(6) == 0) {
            return tokens;
        }
        let choices = allowed(&mut *constraint, setup.ids);
        if choices.is_empty() {
            assert!(constraint.may_end() && constraint.is_over());
            return tokens;
        }
        assert!(!constraint.is_over());
        let token = if closing {
            let text: Vec<u8> = tokens.iter().flat_map(|id| setup.bytes(*id)).collect();
            closer(setup, &text, &choices, &mut random)
        } else {
            choices[random.below(choices.len())]
        };
        assert_eq!(constraint.accept(token), Ok(true));
        tokens.push(token);
    }
    panic!(
        "the walk does not end: {}",
        setup.pair.ours.decode(&tokens, false)
    );
}

fn walks(count: u64) -> impl Iterator<Item = Walk> {
    (0..count).map(|seed| Walk {
        seed,
        free: usize::try_from(seed * 7 % 60).unwrap(),
        take_forced: seed % 3 == 0,
    })
}

fn text_of(setup: &Setup, tokens: &[TokenId]) -> String {
    let bytes: Vec<u8> = tokens.iter().flat_map(|id| setup.bytes(*id)).collect();
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(setup.pair.ours.decode(tokens, false), text);
    assert_eq!(setup.pair.ours.decode(tokens, true), text);
    text
}

fn schemas() -> Vec<Value> {
    vec![
        json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": 8},
                "age": {"type": "integer", "minimum": 0, "maximum": 150},
                "score": {"type": "number", "exclusiveMinimum": -2.5, "maximum": 7},
                "on": {"type": "boolean"},
                "none": {"type": "null"},
                "kind": {"enum": ["a", "b c", 3, null, {"x": [1]}]},
                "home": {
                    "type": "object",
                    "properties": {"zip": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3,5}$"}},
                    "required": ["zip"],
                    "additionalProperties": false,
                },
            },
            "required": ["name", "age", "home"],
            "additionalProperties": false,
        }),
        json!({
            "type": "array",
            "items": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
            "minItems": 2,
            "maxItems": 4,
        }),
        json!({
            "$defs": {
                "tree": {
                    "type": "object",
                    "properties": {
                        "value": {"type": "integer", "minimum": -9, "maximum": 9},
                        "children": {
                            "type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2,
                        },
                    },
                    "required": ["value", "children"],
                    "additionalProperties": false,
                },
            },
            "$ref": "#/$defs/tree",
        }),
        json!({
            "anyOf": [
                {"type": "string", "minLength": 2, "maxLength": 3},
                {"type": "object", "properties": {"é\u{7f}\"": {"const": "ü"}},
                    "additionalProperties": {"type": "null"}},
                {"$ref": "#/$defs/small"},
            ],
            "$defs": {"small": {"type": "integer", "minimum": 10, "maximum": 12}},
        }),
        json!({
            "allOf": [
                {"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}}},
                {"type": "object", "required": ["a"], "additionalProperties": {"type": "string"}},
            ],
        }),
    ]
}

#[test]
fn every_walk_ends_in_json_of_the_schema() {
    for (number, schema) in (0..).zip(schemas()) {
        for setup in [&*DEMO, &*BYTES, &*SPACED] {
            let start = setup.compile(&GrammarSpec::JsonSchema(schema.clone()));
            for how in walks(60) {
                let how = Walk {
                    seed: how.seed + 1000 * number,
                    ..how
                };
                let text = text_of(setup, &walk(setup, &*start, how));
                let value: Value = serde_json::from_str(&text).unwrap();
                conforms(&value, &schema, &schema).unwrap_or_else(|e| panic!("{text}: {e}"));
            }
        }
    }
}

#[test]
fn a_json_object_is_any_object_on_one_line() {
    for setup in [&*DEMO, &*BYTES, &*SPACED] {
        let start = setup.compile(&GrammarSpec::JsonObject);
        for how in walks(120) {
            let text = text_of(setup, &walk(setup, &*start, how));
            assert!(!text.contains('\n'), "{text}");
            match serde_json::from_str::<Value>(&text) {
                Ok(value) => assert!(value.is_object()),
                // JSON has no largest number, but the test's parser does.
                Err(error) => assert!(error.to_string().starts_with("number out"), "{text}"),
            }
        }
        for text in [
            r#"{"a": {"b": [1, -2.5e3, "x y"]}, "c":null}"#,
            "{}",
            r#"{"a":[]}"#,
        ] {
            assert!(accepts(setup, &*start, text), "{text}");
        }
        for text in [
            "[]",
            "{\n}",
            "{ }",
            r#"{"a":  1}"#,
            r#"{"a":1} "#,
            " {}",
            "null",
        ] {
            assert!(!accepts(setup, &*start, text), "{text}");
        }
    }
}

/// Whether the byte tokens of `text` are accepted in order and the text may end after them.
fn accepts(setup: &Setup, start: &dyn Constraint, text: &str) -> bool {
    let mut constraint = start.boxed_clone();
    let tokens = one_by_one(setup, text);
    tokens
        .into_iter()
        .all(|token| constraint.accept(token).unwrap())
        && constraint.may_end()
}

/// The single-byte tokens of `text`.
fn one_by_one(setup: &Setup, text: &str) -> Vec<TokenId> {
    let token = |byte: u8| {
        let is_byte = |id: &u32| {
            setup.pair.ours.token_bytes(*id) == Some(vec![byte]) && !setup.pair.ours.is_special(*id)
        };
        (0..setup.ids).find(is_byte).unwrap()
    };
    text.bytes().map(token).collect()
}

#[test]
fn a_regex_holds_from_beginning_to_end() {
    let spec = GrammarSpec::Regex(r"^(GET|PUT) /[a-z]{1,4}(/\d+)?\.(x|yé)$".to_owned());
    let start = DEMO.compile(&spec);
    for text in ["GET /a.x", "PUT /abcd/12.yé"] {
        assert!(accepts(&DEMO, &*start, text), "{text}");
    }
    for text in ["GET /.x", "GET /a.x ", "xGET /a.x", "POST /a.x", ""] {
        assert!(!accepts(&DEMO, &*start, text), "{text}");
    }
    for how in walks(60) {
        let text = text_of(&DEMO, &walk(&DEMO, &*start, how));
        assert!(text.starts_with("GET /") || text.starts_with("PUT /"));
        assert!(text.ends_with(".x") || text.ends_with(".yé"));
    }
    let dollar = DEMO.compile(&GrammarSpec::Regex(r"a\$".to_owned()));
    assert!(accepts(&DEMO, &*dollar, "a$"));
    let mut empty = DEMO.compile(&GrammarSpec::Regex("^$".to_owned()));
    assert!(empty.may_end() && empty.is_over());
}

#[test]
fn a_lark_grammar_holds() {
    let source = "start: \"(\" start? \")\" | NUMBER\nNUMBER: /[1-9]{1,3}/\n";
    let start = DEMO.compile(&GrammarSpec::Lark(source.to_owned()));
    for text in ["()", "((12))", "7"] {
        assert!(accepts(&DEMO, &*start, text), "{text}");
    }
    for text in ["(", "())", "1234", "(0)"] {
        assert!(!accepts(&DEMO, &*start, text), "{text}");
    }
}

#[test]
fn a_choice_is_one_of_its_texts() {
    let choices = ["yes", "yes, \"very\"", "no\n", "\u{7f}é", "\\"].map(str::to_owned);
    for setup in [&*DEMO, &*BYTES] {
        let start = setup.compile(&GrammarSpec::Choice(choices.to_vec()));
        let mut seen = std::collections::BTreeSet::new();
        for how in walks(120) {
            seen.insert(text_of(setup, &walk(setup, &*start, how)));
        }
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
    let schema = json!({
        "type": "object",
        "properties": {"temperature_in_celsius": {"type": "integer"}},
        "required": ["temperature_in_celsius"],
        "additionalProperties": false,
    });
    let mut constraint = DEMO.compile(&GrammarSpec::JsonSchema(schema));
    let before = allowed(&mut *constraint, DEMO.ids);
    let tokens = forced(&mut *constraint);
    assert_eq!(forced(&mut *constraint), tokens);
    assert_eq!(allowed(&mut *constraint, DEMO.ids), before);
    let text = text_of(&DEMO, &tokens);
    let whole = "{\"temperature_in_celsius\":";
    assert!(whole.starts_with(&text) && text.len() > 15, "{text}");
    let canonical = DEMO_PAIR.ours.encode(whole, false).unwrap();
    assert!(canonical.starts_with(&tokens));
    assert!(!constraint.may_end());
    for token in tokens {
        assert_eq!(constraint.accept(token), Ok(true));
    }
    assert!(accepts(
        &DEMO,
        &*constraint,
        &format!("{}-7}}", &whole[text.len()..])
    ));
}

#[test]
fn a_clone_is_independent() {
    let start = DEMO.compile(&GrammarSpec::JsonObject);
    let mut one = start.boxed_clone();
    for token in one_by_one(&DEMO, "{\"a\":") {
        assert_eq!(one.accept(token), Ok(true));
    }
    let mut two = one.clone();
    let there = allowed(&mut *one, DEMO.ids);
    for token in one_by_one(&DEMO, "1}") {
        assert_eq!(two.accept(token), Ok(true));
    }
    assert!(two.is_over() && !one.may_end());
    assert_eq!(allowed(&mut *one, DEMO.ids), there);
    assert!(accepts(&DEMO, &*one, "[true]}"));
    assert!(accepts(&DEMO, &*start, "{}"));
}

#[test]
fn may_end_is_true_before_is_over() {
    let mut constraint = DEMO.compile(&GrammarSpec::Regex("a{1,2}".to_owned()));
    let a = one_by_one(&DEMO, "a")[0];
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
        assert_eq!(
            SPACED.pair.ours.decode(&[id], false).as_bytes(),
            SPACED.bytes(id)
        );
    }
}

#[test]
fn a_decoder_that_depends_on_neighbours_is_refused() {
    let usable = METASPACE.iter().map(|pair| {
        let ids = u32::try_from(pair.ours.vocab_size()).unwrap();
        match Grammars::new(pair.ours.clone(), ids) {
            Ok(grammars) => {
                let spec = GrammarSpec::Choice(vec!["the a".to_owned()]);
                grammars.compile(&spec).unwrap();
                true
            }
            Err(error) => {
                assert!(error.to_string().contains("decoder: expected"), "{error}");
                false
            }
        }
    });
    let usable: Vec<bool> = usable.collect();
    // Not usable: stages after byte-fallback, WordPiece, no decoder.
    assert_eq!(usable, [true, true, false, true, false, true, false, false]);
}
