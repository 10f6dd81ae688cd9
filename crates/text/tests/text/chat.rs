//! Chat templates: the demo's template, and the constructs of published ones.

use asynclane_text::{Conversation, Message, TextError, Tokenizer, TokenizerFiles};
use serde_json::{Value, json};

use crate::fixtures::{DEMO, DEMO_PAIR, bytes};

fn message(role: &str, content: &str) -> Message {
    Message {
        role: role.to_owned(),
        content: content.to_owned(),
        ..Message::default()
    }
}

/// The demo's tokenizer with another template.
fn with_template(template: Value, file: Option<&str>) -> Result<Tokenizer, TextError> {
    let config = json!({"chat_template": template, "bos_token": "<|startoftext|>"});
    Tokenizer::new(&TokenizerFiles {
        tokenizer: Some(std::fs::read(format!("{DEMO}/tokenizer.json")).unwrap()),
        config: Some(bytes(&config)),
        chat_template: file.map(|text| text.as_bytes().to_vec()),
        ..Default::default()
    })
}

fn render(template: &str, messages: &[Message]) -> Result<String, TextError> {
    with_template(json!(template), None)
        .unwrap()
        .chat_template()?
        .render(messages, true)
}

#[test]
fn the_demo_renders_and_encodes_as_it_was_trained() {
    let list: &[u32] = &[
        0, 2, 836, 3, 204, 204, 497, 270, 307, 316, 17, 369, 17, 316, 17, 274, 17, 274, 17, 308,
        19, 4, 2, 70, 819, 828, 89, 3, 204, 204,
    ];
    let sum: &[u32] = &[
        0, 2, 836, 3, 204, 204, 455, 276, 472, 19, 26, 357, 19, 336, 288, 404, 286, 357, 19, 350,
        288, 404, 286, 357, 19, 400, 401, 288, 404, 274, 357, 19, 392, 391, 357, 389, 477, 384,
        327, 36, 4, 2, 70, 819, 828, 89, 3, 204, 204,
    ];
    let sum_text = "Ben has 15.5 dollars. Then he loses 3 dollars. Next he loses 3 dollars. After \
                    that he loses 2 dollars. How many dollars does Ben have now?";
    let tokenizer = &DEMO_PAIR.ours;
    for (text, ids) in [("Sort the list 7, 0, 7, 2, 2, 9.", list), (sum_text, sum)] {
        let chat = tokenizer.chat_template().unwrap();
        let rendered = chat.render(&[message("user", text)], true).unwrap();
        let expected = format!(
            "<|startoftext|><|start_header_id|>user<|end_header_id|>\n\n{text}<|eot_id|>\
             <|start_header_id|>assistant<|end_header_id|>\n\n"
        );
        assert_eq!(rendered, expected);
        assert_eq!(tokenizer.encode(&rendered, false).unwrap(), ids);
    }
}

#[test]
fn turns_are_in_order_and_the_generation_prompt_is_optional() {
    let chat = DEMO_PAIR.ours.chat_template().unwrap();
    let messages = [
        message("system", " s "),
        message("user", "u"),
        message("assistant", "a"),
    ];
    let turn = |role: &str, text: &str| {
        format!("<|start_header_id|>{role}<|end_header_id|>\n\n{text}<|eot_id|>")
    };
    let expected = turn("system", "s") + &turn("user", "u") + &turn("assistant", "a");
    let rendered = chat.render(&messages, false).unwrap();
    assert_eq!(rendered, format!("<|startoftext|>{expected}"));
    assert!(chat.source().starts_with("{{ '<|startoftext|>' }}"));
}

#[test]
fn blocks_are_trimmed_as_in_hugging_face_templates() {
    let template = "{% for m in messages %}\n    {% if m.role == 'user' %}\n[{{ m.content }}]\n    \
                    {% endif %}\n{% endfor %}\n{{ bos_token }}\n";
    let rendered = render(template, &[message("user", "<b> & \"c\"")]).unwrap();
    assert_eq!(rendered, "[<b> & \"c\"]\n<|startoftext|>");
}

#[test]
fn python_idioms_of_published_templates_work() {
    let template = r#"
{%- set ns = namespace(last=messages|length - 1, seen=false) %}
{%- for m in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if not ns.seen and m.role == "user" and m.content is string
        and not(m.content.startswith('<t>') and m.content.endswith('</t>')) %}
        {%- set ns.seen = true %}{%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- if tools %}no{% endif %}
{%- if documents is not none %}no{% endif %}
{%- for m in messages %}
    {%- if m.reasoning_content is defined and m.reasoning_content is not none %}no{% endif %}
    {%- set content = m.content.split('</think>')[-1].lstrip('\n') %}
    {%- if loop.first and m['role'] != 'system' %}{%- continue %}{% endif %}
    {{- '<' + m.role.upper() + '>' + content.strip() + ('!' if loop.last else ';') }}
{%- endfor %}
{{- ns.last ~ messages[0]["role"] ~ (messages[-1] | tojson) }}
{%- if enable_thinking is defined and enable_thinking is false %}no{% endif %}
{%- for k, v in messages[0].items() %}{{ k }}{% endfor %}
{%- macro twice(x) %}{{ x }}{{ x }}{% endmacro %}{{ twice('z') }}"#;
    let messages = [
        message("system", "s"),
        message("user", " u "),
        message("assistant", "<think>x</think>\n\né'"),
    ];
    let json = r#"{"role": "assistant", "content": "<think>x</think>\n\né'"}"#;
    let expected = format!("<SYSTEM>s;<USER>u;<ASSISTANT>é'!1system{json}rolecontentzz");
    assert_eq!(render(template, &messages).unwrap(), expected);
}

#[test]
fn the_message_of_raise_exception_reaches_the_caller() {
    let template = "{{ raise_exception('roles must alternate') }}";
    assert_eq!(
        render(template, &[]),
        Err(TextError::Refused("roles must alternate".to_owned()))
    );
}

#[test]
fn a_failed_rendering_says_where_and_why() {
    let template =
        "{{ bos_token }}\n{% if messages[0].role == 'tool' %}{{ messages.x.y }}{% endif %}";
    let error = render(template, &[message("tool", "a")]).unwrap_err();
    let expected = "the chat template failed: tokenizer_config.json: chat_template: line 2: \
                    undefined value";
    assert!(error.to_string().starts_with(expected), "{error}");
    assert!(matches!(error, TextError::Render(_)));
}

#[test]
fn the_instructions_of_a_template_are_limited() {
    let template = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}";
    let error = with_template(json!(template), None).unwrap_err();
    assert!(error.to_string().contains("fuel"), "{error}");
}

#[test]
fn a_missing_template_affects_only_chat() {
    let plain = with_template(Value::Null, None).unwrap();
    assert_eq!(plain.encode("a", false).unwrap(), [70]);
    assert_eq!(
        plain.chat_template().unwrap_err(),
        TextError::NoChatTemplate
    );
}

#[test]
fn a_template_that_can_answer_no_chat_is_refused_at_load() {
    let place = "tokenizer_config.json: chat_template: line";
    for (template, expected) in [
        ("{% if %}", "1: syntax error: "),
        (
            "a\n{{ messages | nope }}",
            "2: unknown filter: filter nope is unknown",
        ),
        ("\n\n{% include 'other' %}", "3: template not found: "),
        ("{{ messages is nope }}", "1: unknown test: "),
        ("{{ 1 + none }}", "1: invalid operation: "),
    ] {
        let error = with_template(json!(template), None)
            .unwrap_err()
            .to_string();
        assert!(error.starts_with(&format!("{place} {expected}")), "{error}");
    }
    let error = with_template(Value::Null, Some("\n{% for %}")).unwrap_err();
    let expected = "chat_template.jinja: line 2: syntax error: ";
    assert!(error.to_string().starts_with(expected), "{error}");
    // Each of these answers some chats.
    for template in [
        "{{ raise_exception('never') }}",
        "{{ tools[0].function.name }}",
        "{% if messages[0].role == 'system' %}{% else %}{{ none + 1 }}{% endif %}",
    ] {
        with_template(json!(template), None).unwrap();
    }
}

#[test]
fn the_time_of_a_template_is_the_local_one_unless_a_chat_fixes_it() {
    let tokenizer = with_template(json!("{{ strftime_now('%Y') }}"), None).unwrap();
    let template = tokenizer.chat_template().unwrap();
    let year: i32 = template.render(&[], true).unwrap().parse().unwrap();
    assert!(year >= 2024, "{year}");
    let with = |time: Value| {
        let mut chat = Conversation::new(Vec::new());
        chat.variables.insert("strftime_now".to_owned(), time);
        template.render_conversation(&chat, true)
    };
    for time in ["1987-05-06", "1987-05-06T07:08:09"] {
        assert_eq!(with(json!(time)).unwrap(), "1987");
    }
    for time in [json!("yesterday"), json!(5), Value::Null] {
        let error = with(time).unwrap_err().to_string();
        assert!(error.contains("strftime_now: expected a date"), "{error}");
    }
}

#[test]
fn chats_with_tools_have_the_template_of_that_name() {
    let named = |name: &str, text: &str| json!({"name": name, "template": text});
    let list = json!([
        named("default", "plain"),
        named("tool_use", "{{ tools[0] }}"),
        named("rag", "r")
    ]);
    let with = |files: TokenizerFiles| {
        let tokenizer = Some(std::fs::read(format!("{DEMO}/tokenizer.json")).unwrap());
        Tokenizer::new(&TokenizerFiles { tokenizer, ..files })
    };
    let listed = with(TokenizerFiles {
        config: Some(bytes(&json!({"chat_template": list}))),
        ..TokenizerFiles::default()
    });
    let files = with(TokenizerFiles {
        chat_template: Some(b"plain".to_vec()),
        tool_template: Some(b"{{ tools[0] }}".to_vec()),
        ..TokenizerFiles::default()
    });
    for tokenizer in [listed.unwrap(), files.unwrap()] {
        let template = tokenizer.chat_template().unwrap();
        assert_eq!(
            (template.source(), template.has_tools(false)),
            ("plain", false)
        );
        assert!(template.has_tools(true));
        let mut chat = Conversation::new(vec![message("user", "a")]);
        assert_eq!(template.render_conversation(&chat, true).unwrap(), "plain");
        chat.tools = vec![json!(5)];
        assert_eq!(template.render_conversation(&chat, true).unwrap(), "5");
    }
    let broken = with(TokenizerFiles {
        chat_template: Some(b"plain".to_vec()),
        tool_template: Some(b"{% if %}".to_vec()),
        ..TokenizerFiles::default()
    });
    let expected = "additional_chat_templates/tool_use.jinja: line 1: syntax error: ";
    let error = broken.unwrap_err().to_string();
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn the_template_file_takes_precedence_over_the_config() {
    let named = |name: &str, text: &str| json!({"name": name, "template": text});
    let list = json!([named("tool_use", "t"), named("default", "d")]);
    let source = |template: Value, file: Option<&str>| {
        with_template(template, file).map(|t| t.chat_template().unwrap().source().to_owned())
    };
    assert_eq!(source(list.clone(), Some("file")).unwrap(), "file");
    assert_eq!(source(list, None).unwrap(), "d");
    assert_eq!(source(json!([named("only", "o")]), None).unwrap(), "o");
    let error = source(json!([named("a", "x"), named("b", "y")]), None).unwrap_err();
    let expected = "tokenizer_config.json: chat_template: expected a string, or a list with a \
                    template named default, found the names [\"a\", \"b\"]";
    assert_eq!(error.to_string(), expected);
}
