//! Templates beside Python's jinja2: `templates/differential.py` made the hashes that are compared.

use std::collections::BTreeMap;
use std::path::PathBuf;

use asynclane_text::{Conversation, Message, PastCall, TextError, Tokenizer};
use serde_json::{Value, json};

use crate::fixtures::demo_files;

/// The folder of the corpus; `TEMPLATES` names another one, such as one with published templates.
fn folder() -> PathBuf {
    let ours = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/text/templates");
    std::env::var_os("TEMPLATES").map_or_else(|| ours.into(), PathBuf::from)
}

fn read(file: &str) -> String {
    std::fs::read_to_string(folder().join(file)).unwrap()
}

fn text(value: &Value, key: &str) -> Option<String> {
    value.get(key).and_then(Value::as_str).map(str::to_owned)
}

fn message(value: &Value) -> Message {
    let calls = value.get("tool_calls").and_then(Value::as_array);
    let call = |call: &Value| PastCall {
        id: text(call, "id").unwrap(),
        name: text(&call["function"], "name").unwrap(),
        arguments: call["function"]["arguments"].clone(),
    };
    Message {
        role: text(value, "role").unwrap(),
        content: text(value, "content").unwrap(),
        reasoning: text(value, "reasoning_content"),
        calls: calls.into_iter().flatten().map(call).collect(),
        call_id: text(value, "tool_call_id"),
        name: text(value, "name"),
    }
}

/// A chat, and whether an answer begins after it.
fn chat(value: &Value) -> (Conversation, bool) {
    let list = |key: &str| value.get(key).and_then(Value::as_array).cloned();
    let variables = value.get("variables").and_then(Value::as_object).cloned();
    let mut conversation = Conversation {
        messages: list("messages").unwrap().iter().map(message).collect(),
        tools: list("tools").unwrap_or_default(),
        variables: variables.unwrap_or_default(),
    };
    let now = conversation.variables.entry("strftime_now");
    now.or_insert_with(|| json!("2024-07-26T09:05:03"));
    let prompt = value.get("prompt").and_then(Value::as_bool);
    (conversation, prompt.unwrap_or(true))
}

/// A rendered chat as a column of `expected.txt`.
fn mark(made: &Result<String, TextError>) -> String {
    match made {
        Ok(text) => fnv(text),
        Err(TextError::Refused(reason)) => format!("!{}", fnv(reason)),
        Err(_) => "-".to_owned(),
    }
}

/// FNV-1a in 64 bits.
fn fnv(text: &str) -> String {
    let step = |value: u64, byte: u8| (value ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    format!("{:016x}", text.bytes().fold(0xCBF2_9CE4_8422_2325, step))
}

fn loaded(template: &str) -> Result<Tokenizer, TextError> {
    let config = json!({"chat_template": template, "bos_token": "<s>", "eos_token": "</s>"});
    Tokenizer::new(&demo_files(&config))
}

/// The first word of each line, and the words after it.
fn table(text: &str) -> BTreeMap<&str, Vec<&str>> {
    let rows = text.lines().map(|line| {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default().trim_end_matches(':');
        (name, words.collect())
    });
    rows.collect()
}

#[test]
fn templates_equal_jinja2_but_for_the_listed_ones() {
    let chats: Vec<Value> = serde_json::from_str(&read("chats.json")).unwrap();
    let chats: Vec<(Conversation, bool)> = chats.iter().map(chat).collect();
    let [corpus, expected, listed] = ["corpus.jinja", "expected.txt", "differs.txt"].map(read);
    let (expected, listed) = (table(&expected), table(&listed));
    let mut differing = Vec::new();
    let corpus = format!("\n{}", corpus.trim_end());
    for part in corpus.split("\n=== ").skip(1) {
        let (name, source) = part.split_once('\n').unwrap();
        let tokenizer = loaded(source);
        let render = |(chat, prompt): &(Conversation, bool)| {
            let template = tokenizer.as_ref().map_err(Clone::clone)?.chat_template()?;
            template.render_conversation(chat, *prompt)
        };
        let made: Vec<_> = chats.iter().map(render).collect();
        let pairs = made.iter().zip(&expected[name]).enumerate();
        let wrong = pairs.filter(|(_, (made, expected))| mark(made) != **expected);
        let wrong: Vec<usize> = wrong.map(|(chat, _)| chat).collect();
        if !wrong.is_empty() {
            differing.push(name);
            if !listed.contains_key(name) {
                // `differential.py NAME NUMBER` prints what is expected.
                let made = &made[wrong[0]];
                eprintln!("{name}: chats {wrong:?}, the first of them:\n{made:?}");
            }
        }
    }
    assert!(10 * listed.len() <= expected.len());
    differing.sort_unstable();
    assert_eq!(differing, listed.into_keys().collect::<Vec<_>>());
}
