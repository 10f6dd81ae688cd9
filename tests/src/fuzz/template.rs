//! Chat templates: every one is refused or renders in bounded time and memory, twice the same.

use std::sync::LazyLock;

use serde_json::json;
use text::{Message, Tokenizer, TokenizerFiles};

use super::{Outcome, Target};

/// The target. A rendering makes values of at most 192 MiB.
pub const TARGET: Target = Target {
    name: "template",
    run,
    words: "{% for m in messages %}¦{% endfor %}¦{% if ¦{% endif %}¦{% else %}¦{{ ¦ }}¦ %}¦{% set s = ¦ ~ ¦ + ¦\
            \u{20}* ¦ % ¦'ab'¦9999¦-1¦m.content¦|tojson¦|join(s)¦.replace('a', s)¦|indent(99)¦\
            {% set n = namespace(a=s) %}¦{% set n.a = [n.a, n.a] %}¦{% macro f(x) %}¦{% endmacro %}¦f(s)¦ == ¦\
            \u{20}in ¦not ¦range(99)¦{% set s %}¦{% endset %}¦[::-1]¦{#¦#}¦raise_exception(¦|batch(9)|list¦\
            '%99d'|format(1)¦loop.cycle(¦recursive¦{% call f(s) %}¦caller()",
    memory: 500,
    accepted: 10,
};

/// A tokenizer without a vocabulary, which loads at once.
static TOKENIZER: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let tokenizer = json!({"version": "1.0", "added_tokens": [], "decoder": {"type": "Fuse"},
        "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}});
    tokenizer.to_string().into_bytes()
});

/// `data` is the template.
pub fn run(data: &[u8]) -> Outcome {
    let template = String::from_utf8_lossy(data);
    let config = json!({"chat_template": template, "bos_token": "<s>", "eos_token": "</s>"});
    let tokenizer = Tokenizer::new(&TokenizerFiles {
        tokenizer: Some(TOKENIZER.clone()),
        config: Some(config.to_string().into_bytes()),
        ..TokenizerFiles::default()
    });
    let rendered = |chat: &[Message]| {
        let template = tokenizer.as_ref().map_err(Clone::clone)?.chat_template()?;
        template.render(chat, true)
    };
    let chat = [
        Message::new("system", "Be <b>brief</b>."),
        Message::new("user", "a \"b\" é\n{{ c }}"),
        Message::new("assistant", ""),
    ];
    let (first, second) = (rendered(&chat), rendered(&chat));
    assert_eq!(first, second, "the same chat twice");
    Outcome::of(first)
}
