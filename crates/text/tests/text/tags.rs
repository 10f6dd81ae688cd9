//! Calls in tags, as Qwen3-Coder and Nemotron write them.

use asynclane_text::{
    CallStream, Conversation, GrammarSpec, Message, Part, ToolFormat, ToolUse, plain_conversation,
};
use decode::Constraint;
use serde_json::{Value, json};

use crate::setup::DEMO;
use crate::tools::{calls, tool};

fn schema() -> Value {
    json!({"type": "object", "properties": {"path": {"type": "string", "description": "a path",
        "format": "path"}, "unit": {"$ref": "#/$defs/unit"}, "size": {"type": "integer",
        "minimum": 1, "maximum": 20}, "flags": {"type": "array", "items": {"$ref": "#/$defs/unit"}},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": null},
        "short": {"type": ["string", "null"], "maxLength": 3},
        "level": {"type": ["integer", "string"]}, "any": {}, "code": {"type": "string",
        "minLength": 2, "maxLength": 3, "pattern": "^[a-z/]+$"}}, "required": ["path"],
        "$defs": {"unit": {"enum": ["C", "F"]}}})
}

fn start(parameters: Value, mode: ToolUse) -> Result<Box<dyn Constraint>, String> {
    let now = tool("now", json!({"properties": {}}));
    let tools = vec![tool("put", parameters), now];
    let grammar = GrammarSpec::Tools(calls(ToolFormat::Qwen3Coder, tools, mode));
    let compiled = DEMO.grammars.compile(&grammar);
    compiled.map_err(|error| error.to_string())
}

/// A call of `put` with parameters in tags.
fn call(parameters: &[(&str, &str)]) -> String {
    let parameters = parameters.iter();
    let parameters =
        parameters.map(|(name, value)| format!("<parameter={name}>\n{value}\n</parameter>\n"));
    let parameters: String = parameters.collect();
    format!("<tool_call>\n<function=put>\n{parameters}</function>\n</tool_call>")
}
/// The joined arguments of each call, and the text outside of them.
fn read(text: &str, piece: usize) -> (Vec<(String, String)>, String) {
    let schema = schema();
    let functions = [("put", &schema)];
    let mut stream = CallStream::new(ToolFormat::Qwen3Coder).with_schemas(functions.into_iter());
    let chars: Vec<char> = text.chars().collect();
    let mut parts = Vec::new();
    for piece in chars.chunks(piece) {
        parts.extend(stream.push(&piece.iter().collect::<String>()));
    }
    parts.extend(stream.finish());
    let (mut calls, mut outside) = (Vec::<(String, String)>::new(), String::new());
    for part in parts {
        match part {
            Part::Call { name, .. } => calls.push((name, String::new())),
            Part::Arguments { text, .. } => calls.last_mut().unwrap().1 += &text,
            Part::Text(text) | Part::Reasoning(text) => outside += &text,
        }
    }
    (calls, outside)
}

/// The value of a parameter beside `path`, and the JSON that it is read as; with `!`, the grammar
/// does not allow it.
const VALUES: &str = r#"
unit  | C              | "C"
unit! | "C"            | "\"C\""
size  | 12             | 12
size! | 21             | 21
flags | ["C", "F"]     | ["C", "F"]
flags!| ["D"]          | ["D"]
note  | null           | null
note  | nullable 5     | "nullable 5"
note  | 5              | "5"
short | null           | null
short | ab             | "ab"
short!| abcd           | "abcd"
level | 5              | 5
level | high           | "high"
any   | {"x": [1.5]}   | {"x": [1.5]}
any!  | [x             | "[x"
any   | true           | true
any   | x              | "x"
code  | a/             | "a/"
code! | a              | "a"
code! | A1             | "A1"
other!| x              | "x"
"#;

/// Checks a call with `parameters`: whether the grammar allows it, and its arguments.
fn check(parameters: &[(&str, &str)], allowed: bool, arguments: &Value) {
    let constraint = start(schema(), ToolUse::Required).unwrap();
    let text = call(parameters);
    assert_eq!(DEMO.accepts(&*constraint, &text), allowed, "{text}");
    for piece in [1, 2, 3, 7, 1000] {
        let (calls, outside) = read(&text, piece);
        assert_eq!((calls.len(), outside.as_str()), (1, ""), "{text}");
        assert_eq!(calls[0].0, "put");
        let found: Value = serde_json::from_str(&calls[0].1).unwrap();
        assert_eq!(found, *arguments, "{text}");
    }
}

#[test]
fn calls_in_tags_follow_their_schema_and_are_read_back() {
    check(&[], false, &json!({}));
    let marks = "\n</parameter> \n";
    for path in ["a \"b\"\n\n<x>\\ ", "", "5", "null", marks, "</function>"] {
        check(&[("path", path)], true, &json!({"path": path}));
    }
    for row in VALUES.lines().skip(1) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let name = cells[0].trim_end_matches('!');
        let value: Value = serde_json::from_str(cells[2]).unwrap();
        let parameters = [("path", "a"), (name, cells[1])];
        let arguments = json!({"path": "a", name: value});
        check(&parameters, name == cells[0], &arguments);
    }
}

#[test]
fn calls_in_tags_stand_among_free_text() {
    let constraint = start(schema(), ToolUse::Auto).unwrap();
    let now = "<tool_call>\n<function=now>\n</function>\n</tool_call>";
    let two = format!("{}\n{now}", call(&[("path", "a")]));
    let among = format!("So.\n{two} Done.");
    let other = two.replace("now", "new");
    let refused = ["<tool_call>\n{\"name\": \"now\"", &other, &two[..two.len() - 1]];
    DEMO.check(&*constraint, &["", "a <function=put> b", &two, &among], &refused);
    let (calls, outside) = read(&among, 3);
    let expected = [("put", "{\"path\": \"a\"}"), ("now", "{}")];
    let expected = expected.map(|(name, json)| (name.to_owned(), json.to_owned()));
    assert_eq!((&*calls, &*outside), (&expected[..], "So. Done."));
    // A text arrives before its end; a call that was cut keeps what it has.
    let cut = "<tool_call>\n<function=put>\n<parameter=path>\nab\n</para";
    assert_eq!(read(cut, 4).0[0].1, "{\"path\": \"ab");
}

/// A schema of parameters, and what is not supported of it.
const REFUSED: &str = r#"
{"properties": {"a": {"type": "string", "pattern": "^a|b$"}}} : patterns with |
{"properties": {"a": {"enum": ["1", 1]}}} : the text "1" beside other types
{"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 3}]}}} : numbers with bounds beside a text
{"properties": {"a": {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "integer", "multipleOf": 7}]}}} : numbers with bounds beside a text
{"properties": {"a>": {}}} : names with >
{"type": "object", "additionalProperties": true} : additionalProperties
{"anyOf": []} : anyOf
"#;

#[test]
fn what_tags_cannot_follow_is_refused_by_name() {
    for case in REFUSED.lines().skip(1) {
        let (schema, named) = case.split_once(" : ").unwrap();
        let schema = serde_json::from_str(schema).unwrap();
        let error = start(schema, ToolUse::Required).unwrap_err();
        let expected = "not supported in qwen3_coder's format of calls";
        assert!(error.contains(named) && error.contains(expected), "{error}");
    }
}

#[test]
fn a_template_without_tools_is_told_the_tags() {
    let mut chat = Conversation::new(vec![Message::new("user", "a")]);
    chat.tools = vec![json!({"function": {"name": "put"}})];
    let plain = plain_conversation(&chat, ToolFormat::Qwen3Coder);
    let expected = "<tool_call>\n<function=NAME>\n<parameter=KEY>\nvalue\n</parameter>\n\
                    </function>\n</tool_call>";
    let content = &plain.messages[0].content;
    assert!(content.ends_with(expected), "{content}");
}
