//! Calls of functions: their grammars, and the reading of answers.

use asynclane_text::{
    CallStream, Conversation, Follow, GrammarSpec, Message, Part, PastCall, ReasoningStream, Tool,
    ToolFormat, ToolGrammar, ToolUse, plain_conversation,
};
use decode::Constraint;
use serde_json::{Value, json};

use crate::fixtures::{DEMO_PAIR, with_template};
use crate::setup::{DEMO, Random};

/// A function whose schema is followed wholly.
pub fn tool(name: &str, parameters: Value) -> Tool {
    Tool { name: name.to_owned(), parameters, follow: Follow::Wholly }
}

/// Calls of functions, several of which may follow each other.
pub fn calls(format: ToolFormat, tools: Vec<Tool>, mode: ToolUse) -> ToolGrammar {
    ToolGrammar { format, tools, mode, parallel: true, answer: None }
}

fn grammar(format: ToolFormat, mode: ToolUse) -> ToolGrammar {
    let add = json!({"type": "object", "properties": {
        "a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]});
    let say = json!({"type": "object", "properties": {
        "text": {"type": "string"}, "loud": {"type": "boolean"}}, "required": ["text"]});
    let tools = [("add", add), ("add_all", json!({})), ("say", say)];
    calls(format, tools.map(|(name, schema)| tool(name, schema)).into(), mode)
}

fn start(grammar: ToolGrammar) -> Box<dyn Constraint> {
    DEMO.compile(&GrammarSpec::Tools(grammar))
}

const CALL: &str =
    "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": -2}}\n</tool_call>";

#[test]
fn auto_is_text_with_whole_calls() {
    let start = start(grammar(ToolFormat::Hermes, ToolUse::Auto));
    let (among, two) = (format!("I add. {CALL} Done."), format!("{CALL}\n{CALL}"));
    DEMO.check(
        &*start,
        &["", "The answer is 5.", "a < b, {\"name\": 1}", CALL, "< <tool", &among, &two],
        &[
            "<tool_call>",
            "Yes <tool_call>\n{\"name\": \"add\"}",
            &CALL.replace("add", "sub"),
            &CALL.replace("-2", "\"2\""),
            &CALL.replace("\"b\"", "\"c\""),
            &CALL.replace("-2", "-2, \"c\": 3"),
            &CALL[..CALL.len() - 1],
            "15\n</tool_call>",
            &format!("{CALL}\n</tool_call>"),
            &format!("</tool_call> {CALL}"),
        ],
    );
}

#[test]
fn required_is_calls_only() {
    let many = grammar(ToolFormat::Hermes, ToolUse::Required);
    let one = ToolGrammar { parallel: false, ..many.clone() };
    let (one, many) = (start(one), start(many));
    let (among, two) = (format!("So {CALL}"), format!("{CALL}\n{CALL}"));
    DEMO.check(&*one, &[CALL], &["", "Hello", &among, &two]);
    DEMO.check(&*many, &[CALL, &two], &["", "Hello", &among]);
    // The beginning of every call needs no model.
    let mut forced = Vec::new();
    one.boxed_clone().forced(&mut forced);
    let text = DEMO_PAIR.ours.decode(&forced, false);
    assert!(text.starts_with("<tool_call>\n{\"name"), "{text:?}");
}

#[test]
fn formats_without_marks_begin_with_the_call() {
    for (format, key, between) in
        [(ToolFormat::Json, "arguments", "\n"), (ToolFormat::Llama3Json, "parameters", "; ")]
    {
        let start = start(grammar(format, ToolUse::Auto));
        let call = format!("{{\"name\": \"say\", \"{key}\": {{\"text\": \"Hi\"}}}}");
        let two = format!("{call}{between}{call}");
        let held = ["", "Hello {\"name\": 1}", "{\"n\": 1}", &call, &two];
        DEMO.check(&*start, &held, &["{\"name\": \"other\"}"]);
    }
}

#[test]
fn gemma_writes_bare_keys() {
    let start = start(grammar(ToolFormat::Gemma, ToolUse::Auto));
    let call = |call: &str| format!("<|tool_call>call:{call}<tool_call|>");
    for (text, held) in [
        ("add{a:1,b:22}", true),
        ("add_all{}", true),
        ("say{text:<|\"|>a \"b\" c<|\"|>,loud:true}", true),
        ("say{text:<|\"|><|\"|>}", true),
        ("add{a:1}", false),
        ("say{loud:true}", false),
    ] {
        assert_eq!(DEMO.accepts(&*start, &call(text)), held, "{text}");
    }
    DEMO.check(&*start, &["Hello"], &[]);
    let mut unsupported = grammar(ToolFormat::Gemma, ToolUse::Auto);
    unsupported.tools[0].parameters["properties"]["a"]["minimum"] = json!(1);
    let line = DEMO.refusal(&GrammarSpec::Tools(unsupported));
    assert!(line.contains("minimum"), "{line}");
}

#[test]
fn an_answer_may_have_a_schema_instead_of_free_text() {
    let schema =
        json!({"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]});
    let with_answer =
        ToolGrammar { answer: Some(schema), ..grammar(ToolFormat::Hermes, ToolUse::Auto) };
    let refused = ["Hello", "{\"x\": 4, \"y\": 5}"];
    DEMO.check(&*start(with_answer), &[CALL, "{\"x\": 4}"], &refused);
}

/// The kind of a part, and its text.
type Joined = (&'static str, String);

/// `text` in pieces of random lengths.
fn pieces<'a>(text: &'a str, random: &mut Random) -> Vec<&'a str> {
    let (mut rest, mut pieces) = (text, Vec::new());
    while !rest.is_empty() {
        let ends = rest.char_indices().map(|(start, c)| start + c.len_utf8());
        let ends: Vec<usize> = ends.take(7).collect();
        let (piece, behind) = rest.split_at(ends[random.below(ends.len())]);
        pieces.push(piece);
        rest = behind;
    }
    pieces
}

/// All parts of `text` in pieces, joined.
fn read(format: ToolFormat, text: &str, random: &mut Random) -> Vec<Joined> {
    let mut stream = CallStream::new(format);
    let pieces = pieces(text, random).into_iter();
    let mut parts: Vec<Part> = pieces.flat_map(|piece| stream.push(piece)).collect();
    parts.extend(stream.finish());
    let mut joined: Vec<Joined> = Vec::new();
    for part in parts {
        let (kind, text) = match part {
            Part::Text(text) => ("text", text),
            Part::Call { name, .. } => ("call", name),
            Part::Arguments { text, .. } => ("arguments", text),
            Part::Reasoning(_) => panic!("no reasoning is read"),
        };
        match joined.last_mut() {
            Some((last, more)) if *last == kind && kind != "call" => more.push_str(&text),
            _ => joined.push((kind, text)),
        }
    }
    joined
}

#[test]
fn answers_are_read_the_same_in_any_pieces() {
    use ToolFormat::{Gemma, Hermes, Json, Llama3Json};
    let text = |text: &str| vec![("text", text.to_owned())];
    let call = |name: &str, arguments: &str| {
        let pairs = [("call", name), ("arguments", arguments)];
        pairs.map(|(kind, text)| (kind, text.to_owned())).to_vec()
    };
    let nested = r#"{"a": {"b": ["}", "\"]"]}}"#;
    let say = format!("<tool_call>\n{{\"name\": \"say\", \"arguments\": {nested}}}\n</tool_call>");
    let whole = format!("Let me see. \n{CALL}\n{say} So.");
    let add = call("add", "{\"a\": 1, \"b\": -2}");
    let read_whole = [text("Let me see."), add, call("say", nested), text(" So.")];
    let lines = format!(
        "{{\"name\": \"f\", \"arguments\": {nested}}}\n{{\"name\": \"g\", \"arguments\": {{}}}}"
    );
    let llama = "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}";
    let no_call = "{\"na\": 1} {\"name\": 2}";
    let gemma =
        "Hm <|tool_call>call:f{a:<|\"|>x \"y\"\n<|\"|>,b:{c:[1,true,<|\"|>z<|\"|>]}}<tool_call|>";
    let of_gemma = call("f", r#"{"a":"x \"y\"\n","b":{"c":[1,true,"z"]}}"#);
    let two = [call("f", "{}"), call("g", "{}")].concat();
    let cut = CALL.split('}').next().unwrap();
    let cases = [
        (Hermes, &*whole, read_whole.concat()),
        (Hermes, "a <tool b\n", text("a <tool b\n")),
        (Hermes, cut, call("add", "{\"a\": 1, \"b\": -2")),
        (Hermes, "<tool_call>\n{\"name\": \"ad", vec![]),
        (Json, &lines, [call("f", nested), call("g", "{}")].concat()),
        (Llama3Json, llama, two),
        (Json, no_call, text(no_call)),
        (Json, "{\"na", text("{\"na")),
        (Gemma, gemma, [text("Hm"), of_gemma].concat()),
    ];
    let mut random = Random(4);
    for (format, answer, expected) in cases {
        for _ in 0..50 {
            assert_eq!(read(format, answer, &mut random), expected, "{answer}");
        }
    }
}

#[test]
fn reasoning_comes_before_the_text() {
    let long = "<think>\nHm. <b>\n</think>\n\nYes.";
    let cases = [
        (false, long, "Hm. <b>", "Yes."),
        (true, "Hm.</think>Yes.\n", "Hm.", "Yes.\n"),
        (false, "Yes <think> no", "", "Yes <think> no"),
        (false, " <th", "", " <th"),
        (true, " open ", "open", ""),
    ];
    let mut random = Random(9);
    for (is_open, answer, reasoning, text) in cases {
        for _ in 0..50 {
            let mut stream = ReasoningStream::new(is_open);
            let pieces = pieces(answer, &mut random).into_iter();
            let mut parts: Vec<Part> = pieces.flat_map(|piece| stream.push(piece)).collect();
            parts.extend(stream.finish());
            let (mut said, mut thought) = (String::new(), String::new());
            for part in parts {
                match part {
                    Part::Reasoning(part) => thought.push_str(&part),
                    Part::Text(part) => said.push_str(&part),
                    part => panic!("no call is read, found {part:?}"),
                }
            }
            assert_eq!((&*thought, &*said), (reasoning, text), "{answer}");
        }
    }
}

/// A chat with a call and its answer.
fn conversation() -> Conversation {
    let call = PastCall {
        id: "call_1".to_owned(),
        name: "add".to_owned(),
        arguments: json!({"b": 1, "a": [2, "x"]}),
    };
    let mut messages =
        [("system", "Be brief."), ("user", "Add."), ("assistant", ""), ("tool", "3")]
            .map(|(role, content)| Message::new(role, content));
    messages[2].calls = vec![call];
    messages[3].call_id = Some("call_1".to_owned());
    let variables = json!({"enable_thinking": false, "messages": 1});
    Conversation {
        messages: messages.into(),
        tools: vec![json!({"type": "function", "function": {"name": "add"}})],
        variables: variables.as_object().unwrap().clone(),
    }
}

#[test]
fn a_template_sees_tools_calls_and_variables() {
    let template = "{% for tool in tools %}{{ tool | tojson }}|{% endfor %}{{ enable_thinking }}|\
        {% for m in messages %}{{ m.role }}:{{ m.content }}{% if m.tool_calls %}{% for call in \
        m.tool_calls %}{{ call.function.name }}{{ call.function.arguments | tojson }}{{ call.id }}\
        {% endfor %}{% endif %}{{ m.tool_call_id }};{% endfor %}";
    let tokenizer = with_template(template).unwrap();
    let template = tokenizer.chat_template().unwrap();
    assert!(template.has_tools(true));
    let text = template.render_conversation(&conversation(), true).unwrap();
    assert_eq!(
        text,
        "{\"type\": \"function\", \"function\": {\"name\": \"add\"}}|False|system:Be brief.;\
         user:Add.;assistant:add{\"b\": 1, \"a\": [2, \"x\"]}call_1;tool:3call_1;"
    );
}

#[test]
fn a_template_without_tools_gets_plain_text() {
    assert!(!DEMO_PAIR.ours.chat_template().unwrap().has_tools(true));
    let plain = plain_conversation(&conversation(), ToolFormat::Hermes);
    let messages = plain.messages.iter();
    let texts: Vec<_> = messages.map(|m| (m.role.as_str(), m.content.as_str())).collect();
    assert_eq!(texts.len(), 4);
    let (role, system) = texts[0];
    assert_eq!(role, "system");
    assert!(system.starts_with("Be brief.\n\nFunctions:\n"), "{system}");
    assert!(system.contains("\n{\"name\": \"add\"}\n"));
    assert!(system.ends_with("</tool_call>"), "{system}");
    let call = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"b\": 1, \"a\": [2, \"x\"]}}\n</tool_call>";
    assert_eq!(texts[2], ("assistant", call));
    assert_eq!(texts[3], ("user", "<tool_response>\n3\n</tool_response>"));
    assert!(plain.tools.is_empty());
}

#[test]
fn formats_are_found_in_templates() {
    let tagged =
        "<tool_call>\n<function=f>\n<parameter=a>\n</parameter>\n</function>\n</tool_call>";
    let with_tools = "{% if tools %}<tool_call>{% endif %}";
    let llama = "{{ '<|python_tag|>' }} {\"name\": 1, \"parameters\": 2}";
    for (source, format) in [
        (with_tools, ToolFormat::Hermes),
        (&format!("<role>HUMAN</role>{with_tools}"), ToolFormat::Llada2),
        (llama, ToolFormat::Llama3Json),
        ("{{ '<|tool_call>' }}", ToolFormat::Gemma),
        (tagged, ToolFormat::Qwen3Coder),
        ("{{ messages }}", ToolFormat::Hermes),
    ] {
        assert_eq!(ToolFormat::of_template(source), Ok(format), "{source}");
    }
    for (source, mark) in [
        ("<function=f>{json}</function>", "<function="),
        ("{{ '[TOOL_CALLS] ' }}", "[TOOL_CALLS]"),
        ("<tool_call>{{ c.name }}<arg_key>", "<arg_key>"),
    ] {
        assert_eq!(ToolFormat::of_template(source), Err(mark));
    }
    for (name, format) in ToolFormat::NAMES {
        assert_eq!(ToolFormat::named(name), Some(format));
    }
}
