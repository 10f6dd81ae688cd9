//! Hints about thinking: they set the chat template's switch, or the header of ignored fields names
//! them.

use crate::common::*;

/// As Qwen3's: on without a variable.
const ENABLE: &str = "{% if enable_thinking is defined and enable_thinking is false %}off\
    {% elif enable_thinking is defined %}on{% else %}as it likes{% endif %}";
/// As DeepSeek-V3.1's: off without a variable.
const THINKING: &str = "{% if not thinking is defined %}{% set thinking = false %}{% endif %}\
    {% if thinking %}on{% else %}off{% endif %}";
/// As gpt-oss's.
const EFFORT: &str = "{% if reasoning_effort is not defined %}{% set reasoning_effort = 'medium' %}\
    {% endif %}{{ reasoning_effort }}";
/// Refuses other efforts than its own.
const STRICT: &str = "{% set effort = reasoning_effort | default('none') %}\
    {% if effort not in ['none', 'high'] %}{{ raise_exception('no') }}{% endif %}{{ effort }}";
/// Has the words, but no switch.
const NONE: &str = "{% set thinking = 'x' %}<think>{% for m in messages %}{{ m.thinking }}\
    {{ m['enable_thinking'] }}{{ 'reasoning_effort' }}{% endfor %}{# thinking #}";

/// The text that the model sees, and whether the header names the effort.
async fn shown(server: &Server, fields: Value) -> (String, bool) {
    let fields = merge(fields, json!({"max_tokens": 1, "return_token_ids": true}));
    let (answer, named) = server.ask_named(CHAT, fields).await;
    assert!(named.iter().all(|named| named == "reasoning_effort"));
    (server.prompt(&answer), named.is_some())
}

#[tokio::test]
async fn an_effort_sets_the_templates_switch() {
    for (template, effort, text, is_ignored) in rows! {
        ENABLE, json!(null), "as it likes", false; ENABLE, json!("none"), "off", false;
        ENABLE, json!("minimal"), "off", false; ENABLE, json!("low"), "on", false;
        ENABLE, json!("a new one"), "on", false; ENABLE, json!(3), "as it likes", true;
        THINKING, json!("none"), "off", false; THINKING, json!("high"), "on", false;
        EFFORT, json!(null), "medium", false; EFFORT, json!("high"), "high", false;
        EFFORT, json!([]), "medium", true; STRICT, json!("high"), "high", false;
        STRICT, json!("low"), "none", true; NONE, json!("high"), "<think>reasoning_effort", true;
    } {
        let fields = json!({"reasoning_effort": effort});
        let found = shown(&server_with_template(template), fields).await;
        assert_eq!(found, (text.to_owned(), is_ignored), "{template} {effort}");
    }
    // A variable of the request wins.
    for (effort, is_ignored) in [("none", false), ("high", true)] {
        let variables = json!({"chat_template_kwargs": {"enable_thinking": false}});
        let fields = merge(variables, json!({"reasoning_effort": effort}));
        let found = shown(&server_with_template(ENABLE), fields).await;
        assert_eq!(found, ("off".to_owned(), is_ignored));
    }
}

#[tokio::test]
async fn every_chat_endpoint_has_its_own_field() {
    let budget = json!({"output_config": {"task_budget": {"type": "tokens", "total": 9}}});
    let cases = rows! {
        RESPONSES, json!({"reasoning": {"effort": "none"}}), "reasoning.effort", true;
        RESPONSES, json!({"text": {"verbosity": "low"}}), "text.verbosity", false;
        RESPONSES, json!({"include": ["x", "message.output_text.logprobs"]}), "include", false;
        RESPONSES, json!({"truncation": "auto"}), "truncation", false;
        MESSAGES, json!({"context_management": {"edits": []}}), "context_management", false;
        MESSAGES, json!({"output_config": {"effort": "low"}}), "output_config.effort", true;
        MESSAGES, json!({"thinking": {"type": "disabled"}}), "thinking", true;
        MESSAGES, json!({"thinking": {"type": "adaptive"}}), "thinking", true;
        MESSAGES, json!({"speed": "fast"}), "speed", false;
        MESSAGES, budget, "output_config.task_budget", false;
    };
    let (plain, switched) = (server_with_template(NONE), server_with_template(ENABLE));
    for (path, fields, name, is_switch) in cases {
        let (_, ignored) = plain.ask_named(path, fields.clone()).await;
        assert_eq!(ignored.as_deref(), Some(name));
        let (answer, ignored) = switched.ask_named(path, fields.clone()).await;
        assert_eq!(ignored.is_none(), is_switch, "{name}: {ignored:?}");
        let (untouched, _) = switched.ask_named(path, json!({})).await;
        let is_changed = prompt_tokens(&answer) != prompt_tokens(&untouched);
        assert_eq!(is_changed, is_switch, "{name}");
    }
    let budget = json!({"thinking": {"type": "enabled", "budget_tokens": 1024},
        "cache_control": {"type": "ephemeral"}});
    let (_, ignored) = switched.ask_named(MESSAGES, budget.clone()).await;
    assert_eq!(ignored.as_deref(), Some("thinking.budget_tokens"));
    // The count of a body's tokens sees its effort.
    let effort = json!({"output_config": {"effort": "low"}});
    let (count, _) = switched.ask_named(COUNT, effort.clone()).await;
    let (answer, _) = switched.ask_named(MESSAGES, effort.clone()).await;
    assert_eq!(count["input_tokens"], prompt_tokens(&answer));
}
