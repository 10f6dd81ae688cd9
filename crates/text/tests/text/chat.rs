//! Chat templates: the demo's template, and the constructs of published ones.

use asynclane_text::{Conversation, Message, TextError, Tokenizer, TokenizerFiles};
use serde_json::{Value, json};

use crate::fixtures::{DEMO_PAIR, demo_files, turn, with_template};

/// The demo's tokenizer with another template, and a template file beside it.
fn with_file(template: Value, file: &str) -> Result<Tokenizer, TextError> {
    Tokenizer::new(&TokenizerFiles {
        chat_template: Some(file.as_bytes().to_vec()),
        ..demo_files(&json!({"chat_template": template}))
    })
}

fn render(template: &str, messages: &[Message]) -> Result<String, TextError> {
    let tokenizer = with_template(template).unwrap();
    tokenizer.chat_template()?.render(messages, true)
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
        let rendered = chat.render(&[Message::new("user", text)], true).unwrap();
        let asked = turn("user", text);
        let expected =
            format!("<|startoftext|>{asked}<|start_header_id|>assistant<|end_header_id|>\n\n");
        assert_eq!(rendered, expected);
        assert_eq!(tokenizer.encode(&rendered, false).unwrap(), ids);
    }
}

#[test]
fn turns_are_in_order_and_the_generation_prompt_is_optional() {
    let chat = DEMO_PAIR.ours.chat_template().unwrap();
    let messages = [("system", " s "), ("user", "u"), ("assistant", "a")];
    let messages = messages.map(|(role, text)| Message::new(role, text));
    let expected = turn("system", "s") + &turn("user", "u") + &turn("assistant", "a");
    let rendered = chat.render(&messages, false).unwrap();
    assert_eq!(rendered, format!("<|startoftext|>{expected}"));
    assert!(chat.source().starts_with("{{ '<|startoftext|>' }}"));
}

#[test]
fn a_failed_rendering_says_where_and_why() {
    let template =
        "{{ bos_token }}\n{% if messages[0].role == 'tool' %}{{ messages.x.y }}{% endif %}";
    let error = render(template, &[Message::new("tool", "a")]).unwrap_err();
    let expected = "the chat template failed: tokenizer_config.json: chat_template: line 2: \
                    undefined value";
    assert!(error.to_string().starts_with(expected), "{error}");
    assert!(matches!(error, TextError::Render(_)));
}

#[test]
fn a_missing_template_affects_only_chat() {
    let plain = with_template(Value::Null).unwrap();
    assert_eq!(plain.encode("a", false).unwrap(), [70]);
    let error = plain.chat_template().unwrap_err();
    assert_eq!(error, TextError::NoChatTemplate);
}

#[test]
fn a_template_that_can_answer_no_chat_is_refused_at_load() {
    let place = "tokenizer_config.json: chat_template: line";
    let unknown = "2: unknown filter: filter nope is unknown";
    for (template, expected) in [
        ("{% if %}", "1: syntax error: "),
        ("a\n{{ messages | nope }}", unknown),
        ("\n\n{% include 'other' %}", "3: template not found: "),
        ("{{ messages is nope }}", "1: unknown test: "),
        ("{{ 1 + none }}", "1: invalid operation: "),
    ] {
        let error = with_template(template).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{place} {expected}")), "{error}");
    }
    let error = with_file(Value::Null, "\n{% for %}").unwrap_err();
    let expected = "chat_template.jinja: line 2: syntax error: ";
    assert!(error.to_string().starts_with(expected), "{error}");
    // Each of these answers some chats.
    for template in [
        "{{ raise_exception('never') }}",
        "{{ tools[0].function.name }}",
        "{% if messages[0].role == 'system' %}{% else %}{{ none + 1 }}{% endif %}",
    ] {
        with_template(template).unwrap();
    }
}

#[test]
fn the_time_of_a_template_is_the_local_one_unless_a_chat_fixes_it() {
    let tokenizer = with_template("{{ strftime_now('%Y') }}").unwrap();
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
fn a_file_takes_the_place_of_every_template() {
    let file = std::env::temp_dir().join(format!("asynclane-{}.jinja", std::process::id()));
    let tokenizer = |template: &str| {
        std::fs::write(&file, template).unwrap();
        let own = TokenizerFiles {
            chat_template: Some(b"{% if %}".to_vec()),
            tool_template: Some(b"tools".to_vec()),
            ..demo_files(&json!({"chat_template": "{{ own"}))
        };
        Tokenizer::new(&own.with_chat_template(&file).unwrap())
    };
    let own = tokenizer("mine").unwrap();
    let mut chat = Conversation::new(vec![Message::new("user", "a")]);
    for tools in [vec![], vec![json!(5)]] {
        chat.tools = tools;
        let template = own.chat_template().unwrap();
        assert_eq!(template.render_conversation(&chat, true).unwrap(), "mine");
    }
    let error = tokenizer("{% if %}").unwrap_err().to_string();
    let expected = format!("{}: line 1: syntax error: ", file.display());
    assert!(error.starts_with(&expected), "{error}");
    std::fs::remove_file(&file).unwrap();
    let missing = TokenizerFiles::default().with_chat_template(&file).unwrap_err().to_string();
    assert!(missing.contains(&file.display().to_string()), "{missing}");
}

#[test]
fn chats_with_tools_have_the_template_of_that_name() {
    let named = |name: &str, text: &str| json!({"name": name, "template": text});
    let tool_use = "{{ tools[0] }}";
    let list = [("default", "plain"), ("tool_use", tool_use), ("rag", "r")];
    let list = json!(list.map(|(name, text)| named(name, text)));
    let with = |tool_template: &str| {
        Tokenizer::new(&TokenizerFiles {
            chat_template: Some(b"plain".to_vec()),
            tool_template: Some(tool_template.as_bytes().to_vec()),
            ..demo_files(&json!({}))
        })
    };
    for tokenizer in [with_template(list).unwrap(), with(tool_use).unwrap()] {
        let template = tokenizer.chat_template().unwrap();
        assert_eq!(template.source(), "plain");
        assert!(!template.has_tools(false) && template.has_tools(true));
        let mut chat = Conversation::new(vec![Message::new("user", "a")]);
        assert_eq!(template.render_conversation(&chat, true).unwrap(), "plain");
        chat.tools = vec![json!(5)];
        assert_eq!(template.render_conversation(&chat, true).unwrap(), "5");
    }
    let expected = "additional_chat_templates/tool_use.jinja: line 1: syntax error: ";
    let error = with("{% if %}").unwrap_err().to_string();
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn the_template_file_takes_precedence_over_the_config() {
    let named = |name: &str, text: &str| json!({"name": name, "template": text});
    let list = json!([named("tool_use", "t"), named("default", "d")]);
    let source = |tokenizer: Result<Tokenizer, TextError>| {
        tokenizer.map(|t| t.chat_template().unwrap().source().to_owned())
    };
    assert_eq!(source(with_file(list.clone(), "file")).unwrap(), "file");
    assert_eq!(source(with_template(list)).unwrap(), "d");
    let only = with_template(json!([named("only", "o")]));
    assert_eq!(source(only).unwrap(), "o");
    let error = with_template(json!([named("a", "x"), named("b", "y")])).unwrap_err();
    let expected = "tokenizer_config.json: chat_template: expected a string, or a list with a \
                    template named default, found the names [\"a\", \"b\"]";
    assert_eq!(error.to_string(), expected);
}
