//! Conversations as JSON, in the form of a request: `tools` and `messages`.

use serde_json::{Map, Value, json};

use super::catalogue::{Function, Kind};
use super::question::Question;
use super::{Call, Dialogue};

/// Most functions and messages of a conversation that is read.
const MOST: usize = 8;

/// The conversation as a request has it; `tools` is left out where no function is listed.
pub(super) fn write(dialogue: &Dialogue) -> Value {
    let mut messages = vec![json!({"role": "user", "content": dialogue.question.text()})];
    let plan = dialogue.plan().unwrap_or_default();
    for (number, (result, call)) in dialogue.results.iter().zip(&plan).enumerate() {
        let id = format!("call_{}", number + 1);
        messages.push(past_call(dialogue, call, (number, &id)));
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": result}));
    }
    if !dialogue.listed {
        return json!({"messages": messages});
    }
    let tools: Vec<Value> = dialogue.functions.iter().map(tool).collect();
    json!({"tools": tools, "messages": messages})
}

fn past_call(dialogue: &Dialogue, call: &Call<'_>, (number, id): (usize, &str)) -> Value {
    // The arguments are those of the time of the call.
    let then = Dialogue { results: dialogue.results[..number].to_vec(), ..dialogue.clone() };
    let function = json!({"name": call.function.name, "arguments": then.arguments(call)});
    json!({
        "role": "assistant",
        "content": null,
        "tool_calls": [{"id": id, "type": "function", "function": function}],
    })
}

fn tool(function: &Function) -> Value {
    let mut properties = Map::new();
    for (name, kind) in &function.parameters {
        let kind = match kind {
            Kind::Number => "integer",
            Kind::Text => "string",
        };
        properties.insert(name.clone(), json!({"type": kind}));
    }
    let names: Vec<&str> = function.parameters.iter().map(|(name, _)| name.as_str()).collect();
    json!({
        "type": "function",
        "function": {
            "name": function.name,
            "parameters": {"type": "object", "properties": properties, "required": names},
        },
    })
}

/// Reads a conversation; the caller compares its JSON with the given one. `None` if it is none of
/// this family.
pub(super) fn read(value: &Value) -> Option<Dialogue> {
    let messages = value["messages"].as_array()?;
    let listed = value.get("tools").is_some();
    let functions = match listed {
        true => value["tools"].as_array()?.iter().map(function).collect::<Option<Vec<_>>>()?,
        false => called(messages)?,
    };
    if messages.len() > MOST || functions.len() > MOST {
        return None;
    }
    let results = messages.iter().filter(|message| message["role"] == "tool");
    let results = results.map(|message| Some(message["content"].as_str()?.to_owned()));
    Some(Dialogue {
        functions,
        listed,
        question: Question::parse(messages.first()?["content"].as_str()?)?,
        results: results.collect::<Option<Vec<_>>>()?,
    })
}

fn function(tool: &Value) -> Option<Function> {
    let function = &tool["function"];
    let properties = function["parameters"]["properties"].as_object()?;
    let parameters = properties.iter().map(|(name, schema)| {
        let kind = match schema["type"].as_str()? {
            "integer" => Kind::Number,
            "string" => Kind::Text,
            _ => return None,
        };
        Some((name.clone(), kind))
    });
    Some(Function {
        name: function["name"].as_str()?.to_owned(),
        parameters: parameters.collect::<Option<Vec<_>>>()?,
    })
}

/// The functions of past calls, each once.
fn called(messages: &[Value]) -> Option<Vec<Function>> {
    let mut functions: Vec<Function> = Vec::new();
    for call in messages.iter().filter_map(|message| message["tool_calls"].get(0)) {
        let function = &call["function"];
        let arguments: Value = serde_json::from_str(function["arguments"].as_str()?).ok()?;
        let parameters = arguments.as_object()?.iter().map(|(name, value)| {
            let kind = if value.is_string() { Kind::Text } else { Kind::Number };
            (name.clone(), kind)
        });
        let function = Function {
            name: function["name"].as_str()?.to_owned(),
            parameters: parameters.collect(),
        };
        if !functions.contains(&function) {
            functions.push(function);
        }
    }
    Some(functions)
}
