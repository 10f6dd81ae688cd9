//! Calls of functions: their grammars, and the reading of answers.

use asynclane_text::{
    CallStream, Conversation, Follow, GrammarSpec, Grammars, Message, Part, PastCall,
    ReasoningStream, Tokenizer, TokenizerFiles, Tool, ToolFormat, ToolGrammar, ToolUse,
    plain_conversation,
};
use decode::Constraint;
use serde_json::{Value, json};

use crate::fixtures::{DEMO, DEMO_PAIR, bytes};
use crate::grammar::Random;

fn tools() -> Vec<Tool> {
    let add = json!({"type": "object", "properties": {
        "a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]});
    let say = json!({"type": "object", "properties": {
        "text": {"type": "string"}, "loud": {"type": "boolean"}}, "required": ["text"]});
    let tool = |name: &str, parameters: Value| Tool {
        name: name.to_owned(),
        parameters,
        follow: Follow::Wholly,
    };
    vec![
        tool("add", add),
        tool("add_all", json!({})),
        tool("say", say),
    ]
}

fn grammar(format: ToolFormat, mode: ToolUse) -> ToolGrammar {
    ToolGrammar {
        format,
        tools: tools(),
        mode,
        parallel: true,
        answer: None,
    }
}

fn start(grammar: &ToolGrammar) -> Box<dyn Constraint> {
    let grammars = Grammars::new(DEMO_PAIR.ours.clone(), 1024).unwrap();
    let compiled = grammars.compile(&GrammarSpec::Tools(grammar.clone()));
    compiled.unwrap_or_else(|error| panic!("{:?}: {error}", grammar.format))
}

/// Whether `text` is a whole text of `constraint`.
fn accepts(constraint: &dyn Constraint, text: &str) -> bool {
    let mut constraint = constraint.boxed_clone();
    let tokens = DEMO_PAIR.ours.encode(text, false).unwrap();
    tokens
        .into_iter()
        .all(|token| constraint.accept(token).unwrap())
        && constraint.may_end()
}

const CALL: &str =
    "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": -2}}\n</tool_call>";

#[test]
fn auto_is_text_with_whole_calls() {
    let constraint = start(&grammar(ToolFormat::Hermes, ToolUse::Auto));
    for text in [
        "",
        "The answer is 5.",
        "a < b, {\"name\": 1}",
        CALL,
        "< <tool",
    ] {
        assert!(accepts(&*constraint, text), "{text}");
    }
    for text in [format!("I add. {CALL} Done."), format!("{CALL}\n{CALL}")] {
        assert!(accepts(&*constraint, &text), "{text}");
    }
    for wrong in [
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
    ] {
        assert!(!accepts(&*constraint, wrong), "{wrong}");
    }
}

#[test]
fn required_is_calls_only() {
    let one = ToolGrammar {
        parallel: false,
        ..grammar(ToolFormat::Hermes, ToolUse::Required)
    };
    let (one, many) = (
        start(&one),
        start(&grammar(ToolFormat::Hermes, ToolUse::Required)),
    );
    assert!(accepts(&*one, CALL) && accepts(&*many, CALL));
    assert!(!accepts(&*one, &format!("{CALL}\n{CALL}")));
    assert!(accepts(&*many, &format!("{CALL}\n{CALL}")));
    for wrong in ["", "Hello", &format!("So {CALL}")] {
        assert!(!accepts(&*one, wrong) && !accepts(&*many, wrong), "{wrong}");
    }
    // What every call begins with needs no model.
    let mut forced = Vec::new();
    let mut fresh = one.boxed_clone();
    fresh.forced(&mut forced);
    let text = DEMO_PAIR.ours.decode(&forced, false);
    assert!(text.starts_with("<tool_call>\n{\"name"), "{text:?}");
}

#[test]
fn formats_without_marks_begin_with_the_call() {
    for (format, key, between) in [
        (ToolFormat::Json, "arguments", "\n"),
        (ToolFormat::Llama3Json, "parameters", "; "),
    ] {
        let constraint = start(&grammar(format, ToolUse::Auto));
        let call = format!("{{\"name\": \"say\", \"{key}\": {{\"text\": \"Hi\"}}}}");
        let two = format!("{call}{between}{call}");
        for text in ["", "Hello {\"name\": 1}", "{\"n\": 1}", &call, &two] {
            assert!(accepts(&*constraint, text), "{text}");
        }
        assert!(!accepts(&*constraint, "{\"name\": \"other\"}"));
    }
}

#[test]
fn gemma_writes_bare_keys() {
    let constraint = start(&grammar(ToolFormat::Gemma, ToolUse::Auto));
    for text in [
        "Hello",
        "<|tool_call>call:add{a:1,b:22}<tool_call|>",
        "<|tool_call>call:add_all{}<tool_call|>",
        "<|tool_call>call:say{text:<|\"|>a \"b\" c<|\"|>,loud:true}<tool_call|>",
        "<|tool_call>call:say{text:<|\"|><|\"|>}<tool_call|>",
    ] {
        assert!(accepts(&*constraint, text), "{text}");
    }
    for wrong in [
        "<|tool_call>call:add{a:1}<tool_call|>",
        "<|tool_call>call:say{loud:true}<tool_call|>",
    ] {
        assert!(!accepts(&*constraint, wrong), "{wrong}");
    }
    let mut unsupported = grammar(ToolFormat::Gemma, ToolUse::Auto);
    unsupported.tools[0].parameters["properties"]["a"]["minimum"] = json!(1);
    let grammars = Grammars::new(DEMO_PAIR.ours.clone(), 1024).unwrap();
    let refused = grammars.compile(&GrammarSpec::Tools(unsupported));
    let line = refused.err().map(|error| error.to_string()).unwrap();
    assert!(line.contains("minimum"), "{line}");
}

#[test]
fn an_answer_may_have_a_schema_instead_of_free_text() {
    let mut with_answer = grammar(ToolFormat::Hermes, ToolUse::Auto);
    with_answer.answer = Some(
        json!({"type": "object", "properties": {"x": {"type": "integer"}},
        "required": ["x"]}),
    );
    let constraint = start(&with_answer);
    assert!(accepts(&*constraint, CALL) && accepts(&*constraint, "{\"x\": 4}"));
    assert!(!accepts(&*constraint, "Hello") && !accepts(&*constraint, "{\"x\": 4, \"y\": 5}"));
}

/// The kind of a part, and its text.
type Joined = (&'static str, String);

/// All parts of `text` in pieces of random lengths, joined.
fn read(format: ToolFormat, text: &str, random: &mut Random) -> Vec<Joined> {
    let mut stream = CallStream::new(format);
    let mut parts = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let ends: Vec<usize> = rest
            .char_indices()
            .map(|(at, c)| at + c.len_utf8())
            .collect();
        let end = ends[random.below(ends.len().min(7))];
        parts.extend(stream.push(&rest[..end]));
        rest = &rest[end..];
    }
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
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn answers_are_read_the_same_in_any_pieces() {
    let text = |text: &str| ("text", text.to_owned());
    let call = |name: &str, arguments: &str| {
        vec![
            ("call", name.to_owned()),
            ("arguments", arguments.to_owned()),
        ]
    };
    let nested = r#"{"a": {"b": ["}", "\"]"]}}"#;
    let hermes = format!(
        "Let me see. \n{CALL}\n<tool_call>\n{{\"name\": \"say\", \"arguments\": {nested}}}\n</tool_call> So."
    );
    let add = call("add", "{\"a\": 1, \"b\": -2}");
    let cases = [
        (
            ToolFormat::Hermes,
            hermes,
            [
                vec![text("Let me see.")],
                add.clone(),
                call("say", nested),
                vec![text(" So.")],
            ]
            .concat(),
        ),
        (
            ToolFormat::Hermes,
            "a <tool b\n".to_owned(),
            vec![text("a <tool b\n")],
        ),
        (
            ToolFormat::Hermes,
            CALL.split('}').next().unwrap().to_owned(),
            call("add", "{\"a\": 1, \"b\": -2"),
        ),
        (
            ToolFormat::Hermes,
            "<tool_call>\n{\"name\": \"ad".to_owned(),
            vec![],
        ),
        (
            ToolFormat::Json,
            format!(
                "{{\"name\": \"f\", \"arguments\": {nested}}}\n{{\"name\": \"g\", \
            \"arguments\": {{}}}}"
            ),
            [call("f", nested), call("g", "{}")].concat(),
        ),
        (
            ToolFormat::Llama3Json,
            "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \
            \"parameters\": {}}"
                .to_owned(),
            [call("f", "{}"), call("g", "{}")].concat(),
        ),
        (
            ToolFormat::Json,
            "{\"na\": 1} {\"name\": 2}".to_owned(),
            vec![text("{\"na\": 1} {\"name\": 2}")],
        ),
        (ToolFormat::Json, "{\"na".to_owned(), vec![text("{\"na")]),
        (
            ToolFormat::Gemma,
            "Hm <|tool_call>call:f{a:<|\"|>x \"y\"\n<|\"|>,b:{c:[1,true,<|\"|>z<|\"|>]}}\
            <tool_call|>"
                .to_owned(),
            [
                vec![text("Hm")],
                call("f", r#"{"a":"x \"y\"\n","b":{"c":[1,true,"z"]}}"#),
            ]
            .concat(),
        ),
    ];
    let mut random = Random(4);
    for (format, answer, expected) in cases {
        for _ in 0..50 {
            assert_eq!(read(format, &answer, &mut random), expected, "{answer}");
        }
    }
}

#[test]
fn reasoning_comes_before_the_text() {
    let cases = [
        (
            false,
            "<think>\nHm. <b>\n</think>\n\nYes.",
            "Hm. <b>",
            "Yes.",
        ),
        (true, "Hm.</think>Yes.\n", "Hm.", "Yes.\n"),
        (false, "Yes <think> no", "", "Yes <think> no"),
        (false, " <th", "", " <th"),
        (true, " open ", "open", ""),
    ];
    let mut random = Random(9);
    for (is_open, answer, reasoning, text) in cases {
        for _ in 0..50 {
            let mut stream = ReasoningStream::new(is_open);
            let (mut rest, mut parts) = (answer, Vec::new());
            while !rest.is_empty() {
                let end = 1 + random.below(rest.len().min(6));
                parts.extend(stream.push(&rest[..end]));
                rest = &rest[end..];
            }
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
    Conversation {
        messages: vec![
            Message::new("system", "Be brief."),
            Message::new("user", "Add."),
            Message {
                calls: vec![call],
                ..Message::new("assistant", "")
            },
            Message {
                call_id: Some("call_1".to_owned()),
                ..Message::new("tool", "3")
            },
        ],
        tools: vec![json!({"type": "function", "function": {"name": "add"}})],
        variables: json!({"enable_thinking": false, "messages": 1})
            .as_object()
            .unwrap()
            .clone(),
    }
}

#[test]
fn a_template_sees_tools_calls_and_variables() {
    let template = "{% for tool in tools %}{{ tool | tojson }}|{% endfor %}{{ enable_thinking }}|\
        {% for m in messages %}{{ m.role }}:{{ m.content }}{% if m.tool_calls %}{% for call in \
        m.tool_calls %}{{ call.function.name }}{{ call.function.arguments | tojson }}{{ call.id }}\
        {% endfor %}{% endif %}{{ m.tool_call_id }};{% endfor %}";
    let config = json!({"chat_template": template});
    let tokenizer = Tokenizer::new(&TokenizerFiles {
        tokenizer: Some(std::fs::read(format!("{DEMO}/tokenizer.json")).unwrap()),
        config: Some(bytes(&config)),
        ..Default::default()
    });
    let tokenizer = tokenizer.unwrap();
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
    let texts: Vec<_> = plain
        .messages
        .iter()
        .map(|m| (m.role.as_str(), m.content.as_str()))
        .collect();
    assert_eq!(texts.len(), 4);
    let (role, system) = texts[0];
    assert_eq!(role, "system");
    assert!(system.starts_with("Be brief.\n\nFunctions:\n"), "{system}");
    assert!(system.contains("\n{\"name\": \"add\"}\n"));
    assert!(system.ends_with("</tool_call>"), "{system}");
    assert_eq!(
        texts[2],
        (
            "assistant",
            "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"b\": 1, \"a\": [2, \"x\"]}}\n</tool_call>"
        )
    );
    assert_eq!(texts[3], ("user", "<tool_response>\n3\n</tool_response>"));
    assert!(plain.tools.is_empty());
}

#[test]
fn formats_are_found_in_templates() {
    let cases = [
        ("{% if tools %}<tool_call>{% endif %}", ToolFormat::Hermes),
        (
            "<role>HUMAN</role>{% if tools %}<tool_call>{% endif %}",
            ToolFormat::Llada2,
        ),
        (
            "{{ '<|python_tag|>' }} {\"name\": 1, \"parameters\": 2}",
            ToolFormat::Llama3Json,
        ),
        ("{{ '<|tool_call>' }}", ToolFormat::Gemma),
        (
            "<tool_call>\n<function=f>\n<parameter=a>\n</parameter>\n</function>\n</tool_call>",
            ToolFormat::Qwen3Coder,
        ),
        ("{{ messages }}", ToolFormat::Hermes),
    ];
    for (source, format) in cases {
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
