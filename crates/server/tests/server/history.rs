//! Calls of former answers in a history: whole, without arguments, and cut by a budget.

use crate::common::*;

/// Writes the arguments of calls as most published templates do.
const WRITES: &str = "{% for m in messages %}{{ m.content }}{% for call in m.tool_calls %}\
    [{% if call.function.arguments is string %}{{ call.function.arguments }}{% else %}\
    {{ call.function.arguments | tojson }}{% endif %}]{% endfor %}{% endfor %}{# tools #}";

/// Reads the arguments of calls by name.
const READS: &str = "{% for m in messages %}{{ m.content }}{% for call in m.tool_calls %}\
    [{% for name, value in call.function.arguments.items() %}{{ name }}={{ value }};{% endfor %}]\
    {% endfor %}{% endfor %}{# tools #}";

/// The text that the model sees of a history with a call of `arguments`, where null means absent. It
/// has the same length at every endpoint.
async fn seen(server: &Server, arguments: &Value) -> String {
    let chat = ask!(server, CHAT {"return_token_ids": true, "messages": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "", "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}]}]});
    let response = ask!(server, RESPONSES {"input": [{"role": "user", "content": "Hi"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments}]});
    let message = ask!(server, MESSAGES {"messages": [{"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "c", "name": "f", "input": arguments}]}]});
    let length = ids(&chat["choices"][0]["prompt_token_ids"]).len();
    for answer in [&chat, &response, &message] {
        assert_eq!(prompt_tokens(answer), length as u64, "{arguments}");
    }
    server.prompt(&chat)
}

#[tokio::test]
async fn arguments_may_be_absent_empty_or_cut() {
    let server = server_with_template(WRITES);
    for (arguments, expected) in rows! {
        Value::Null, "Hi[{}]"; json!(""), "Hi[{}]"; json!(" \n"), "Hi[{}]"; json!("{}"), "Hi[{}]";
        json!("{\"a\":1}"), "Hi[{\"a\": 1}]"; json!("{\"a\": \"b"), "Hi[{\"a\": \"b]";
        json!("[1]"), "Hi[[1]]"; json!("null"), "Hi[null]"; json!("two words"), "Hi[two words]";
    } {
        assert_eq!(seen(&server, &arguments).await, expected, "{arguments}");
    }
    server.until_idle().await;
}

#[tokio::test]
async fn a_template_that_reads_arguments_by_name_gets_the_text_as_one() {
    let server = server_with_template(READS);
    for (arguments, expected) in
        [("{\"a\": 1}", "Hi[a=1;]"), ("", "Hi[]"), ("{\"a\": ", "Hi[arguments={\"a\": ;]")]
    {
        assert_eq!(seen(&server, &json!(arguments)).await, expected);
    }
    server.until_idle().await;
}

#[tokio::test]
async fn a_template_without_tools_shows_the_text_in_every_format() {
    for (name, format) in text::ToolFormat::NAMES {
        let server = wide_server_where(|options| options.formats.tools = Some(format));
        let shown = seen(&server, &json!("{\"a\": \"b")).await;
        assert!(shown.contains("{\"a\": \"b"), "{name}: {shown}");
    }
}

/// MCP tools without output give an empty list.
#[tokio::test]
async fn an_empty_list_is_an_empty_text() {
    let server = server_with_template(WRITES);
    let mut prompts = Vec::new();
    for content in [json!([]), json!("")] {
        let user = json!({"role": "user", "content": content});
        let chat = ask!(server, CHAT {"messages": [user,
            {"role": "assistant", "content": content, "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c", "content": content}]});
        let response = ask!(server, RESPONSES {"input": [user,
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": content}]});
        let message = ask!(server, MESSAGES {"messages": [user,
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c", "content": content}]}]});
        prompts.push([&chat, &response, &message].map(prompt_tokens));
    }
    assert_eq!(prompts[0], prompts[1]);
}

#[tokio::test]
async fn an_answer_that_its_budget_cut_may_be_sent_back() {
    let server = wide_server();
    let parameters =
        json!({"type": "object", "properties": {"a": {"enum": [1, 22]}}, "required": ["a"]});
    let tool = json!({"type": "function", "name": "f", "parameters": parameters});
    let user = json!({"role": "user", "content": "Hi"});
    for budget in 1..40 {
        let answer = ask!(server, CHAT {"tools": [{"type": "function", "function": tool}],
            "tool_choice": "required", "max_tokens": budget});
        ask!(server, CHAT {"messages": [user, answer["choices"][0]["message"], user]});

        let answer = ask!(server, RESPONSES {"tools": [tool], "tool_choice": "required",
            "max_output_tokens": budget});
        let input = [std::slice::from_ref(&user), items(&answer["output"])].concat();
        ask!(server, RESPONSES {"input": input});

        let answer = ask!(server, MESSAGES {"max_tokens": budget, "tool_choice": {"type": "any"},
            "tools": [{"name": "f", "input_schema": parameters}]});
        let said = json!({"role": "assistant", "content": answer["content"]});
        ask!(server, MESSAGES {"messages": [user, said, user]});
    }
    server.until_idle().await;
}
