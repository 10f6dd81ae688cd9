//! The document at `/openapi.json`: all routes, all fields, and the ranges that the server checks.

use std::collections::BTreeSet;

use asynclane_server::api::fields::promises::{NEUTRAL, UNSUPPORTED};
use serde_json::{Map, Value, json};

use crate::common::*;

type Object = Map<String, Value>;

async fn document(server: &Server) -> Value {
    let reply = server.get("/openapi.json").await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.headers["content-type"], "application/json");
    reply.json()
}

fn object<'a>(value: &'a Value, pointer: &str) -> &'a Object {
    let found = value.pointer(pointer).and_then(Value::as_object);
    found.unwrap_or_else(|| panic!("an object at {pointer}"))
}

/// The schema that a reference names.
fn referred<'a>(document: &'a Value, reference: &str) -> &'a Value {
    let schema = document.pointer(reference.strip_prefix('#').unwrap());
    schema.unwrap_or_else(|| panic!("{reference}"))
}

/// A body that each endpoint with a body accepts.
fn bodies() -> [(&'static str, Value); 7] {
    let short = json!({"max_tokens": 2});
    [
        (COMPLETIONS, body(COMPLETIONS, short.clone())),
        (CHAT, body(CHAT, short.clone())),
        (RESPONSES, body(RESPONSES, json!({"max_output_tokens": 2}))),
        (MESSAGES, body(MESSAGES, short)),
        (COUNT, body(COUNT, json!({}))),
        ("/tokenize", json!({"prompt": "Hi"})),
        ("/detokenize", json!({"tokens": [7]})),
    ]
}

/// The forms of the body of `path`: each the schemas of its fields.
fn forms(document: &Value, path: &str) -> Vec<Value> {
    let operation = &document["paths"][path]["post"];
    let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
    let forms = schema["anyOf"].as_array().cloned();
    forms.unwrap_or_else(|| vec![schema.clone()])
}

#[tokio::test]
async fn every_route_is_in_the_document_and_has_its_methods() {
    let server = server();
    let document = document(&server).await;
    let mut documented = BTreeSet::new();
    for (path, item) in object(&document, "/paths") {
        let methods: Vec<_> = object(item, "").keys().map(|name| &**name).collect();
        let allowed = match methods[..] {
            ["get"] => "GET, HEAD, OPTIONS",
            ["post"] => "POST, OPTIONS",
            _ => panic!("{path}: {methods:?}"),
        };
        let address = path.replace("{id}", MODEL);
        let query = format!("{address}?limit=1");
        for method in ["GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE", "PATCH"] {
            let reply = server.send(method, &query, &[], "{}").await;
            let is_allowed = allowed.contains(method);
            assert_eq!(reply.status != 405, is_allowed, "{method} {path}");
            assert_ne!(reply.json()["error"]["code"], "unknown_url", "{path}");
            assert!(reply.headers.contains_key("x-request-id"));
            if method == "OPTIONS" {
                assert_eq!(reply.status, 204, "{path}");
            }
            if !is_allowed && method != "HEAD" && !path.starts_with(MESSAGES) {
                assert_eq!(reply.fault(405), "method_not_allowed", "{path}");
            }
            if method == "OPTIONS" || !is_allowed {
                assert_eq!(reply.headers["allow"], allowed, "{path}");
            }
            let is_empty = ["OPTIONS", "HEAD"].contains(&method);
            assert!(!is_empty || reply.bytes.is_empty(), "{method} {path}");
        }
        documented.insert(&**path);
    }
    // The documents list the same paths, the playground's files aside.
    let rows = include_str!("../../../../docs/api.md").lines();
    let rows = rows.filter(|row| row.starts_with("| `GET /") || row.starts_with("| `POST /"));
    let cells = rows.map(|row| row.split('|').nth(1).unwrap());
    let words = cells.flat_map(|cell| cell.split(['`', ' ', ',', ';']));
    let listed: BTreeSet<&str> = words.filter(|word| word.starts_with('/')).collect();
    documented.retain(|path| !path.starts_with("/playground/"));
    assert_eq!(documented, listed);
    // No path redirects.
    for path in ["/v1/models/", "/health/", "//health", "/v1"] {
        assert_eq!(server.get(path).await.status, 404, "{path}");
    }
    assert_eq!(server.send("OPTIONS", "*", &[], "").await.status, 404);
    let without = server_where(|options| options.settings.playground = false);
    let document = self::document(&without).await;
    assert!(document["paths"].get("/").is_none());
}

/// Visits every object of the document, with its place.
fn walk<'a>(value: &'a Value, place: String, visit: &mut dyn FnMut(&'a Object, &str)) {
    match value {
        Value::Object(members) => {
            visit(members, &place);
            for (name, member) in members {
                walk(member, format!("{place}/{name}"), visit);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                walk(item, format!("{place}/{index}"), visit);
            }
        }
        _ => {}
    }
}

/// The types of a schema's member `type`.
fn types(kind: Option<&Value>) -> Vec<&str> {
    match kind {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

#[tokio::test]
async fn the_document_has_the_structure_of_openapi() {
    let document = document(&server()).await;
    assert_eq!(document["openapi"], "3.1.0");
    for field in ["title", "version"] {
        assert!(document["info"][field].is_string(), "{field}");
    }
    let known =
        ["object", "array", "string", "integer", "number", "boolean", "null", "http", "apiKey"];
    let mut references = 0;
    walk(&document, String::new(), &mut |members, place| {
        if let Some(reference) = members.get("$ref") {
            referred(&document, reference.as_str().unwrap());
            references += 1;
        }
        for kind in types(members.get("type")) {
            assert!(known.contains(&kind), "{place}: {kind}");
        }
        let required = members.get("required").and_then(Value::as_array);
        for name in required.into_iter().flatten() {
            let field = &members["properties"][name.as_str().unwrap()];
            assert!(field.is_object(), "{place}: {name} is required");
        }
        let text = members.get("description").and_then(Value::as_str);
        let is_plain = text.is_none_or(|text| !text.contains(['\n', '[']));
        assert!(is_plain, "{place}: {text:?}");
    });
    assert!(references > 20, "{references}");
}

#[tokio::test]
async fn every_operation_is_complete() {
    let document = document(&server()).await;
    let mut operations = BTreeSet::new();
    for (path, item) in object(&document, "/paths") {
        assert!(path.starts_with('/'));
        for operation in item.as_object().unwrap().values() {
            let id = operation["operationId"].as_str().unwrap();
            assert!(operations.insert(id.to_owned()), "{id} twice");
            let summary = operation["summary"].as_str().unwrap();
            assert!(summary.ends_with('.'), "{path}");
            let answers = operation["responses"].as_object().unwrap();
            assert_eq!(answers.len(), 2, "{path}");
            assert!(answers["200"]["description"].is_string(), "{path}");
            assert!(!object(&answers["200"], "/content").is_empty(), "{path}");
            let named = operation["parameters"].as_array().map_or(0, Vec::len);
            assert_eq!(named, path.matches('{').count(), "{path}");
            for scheme in operation["security"].as_array().into_iter().flatten() {
                for name in scheme.as_object().unwrap().keys() {
                    object(&document, &format!("/components/securitySchemes/{name}"));
                }
            }
        }
    }
    for path in [CHAT, COMPLETIONS, RESPONSES, MESSAGES] {
        let answer = &document["paths"][path]["post"]["responses"]["200"]["content"];
        assert!(answer["text/event-stream"].is_object(), "{path}");
    }
}

#[tokio::test]
async fn the_document_tells_which_paths_need_a_key() {
    let guarded = server_where(|options| options.settings.keys = one_key("secret"));
    let guarded = document(&guarded).await;
    let keys = json!([{"bearer": []}, {"api_key": []}]);
    assert_eq!(guarded["paths"]["/v1/models"]["get"]["security"], keys);
    assert_eq!(guarded["paths"]["/v1/messages"]["post"]["security"], keys);
    let health = &guarded["paths"]["/health"]["get"];
    assert!(health.get("security").is_none());
    let open = document(&server()).await;
    let optional = &open["paths"]["/v1/models"]["get"]["security"];
    assert_eq!(optional[0], json!({}));
}

/// Sends a body with `field` at `value`: is it refused as an unknown field, and is it refused by the
/// field's name?
async fn judged(
    server: &Server,
    (path, body): &(&str, Value),
    field: &str,
    value: Value,
) -> (bool, bool) {
    let body = merge(body.clone(), json!({field: value}));
    let (_, answer) = server.post(path, &body).await;
    // Errors of Messages have no field, but their message begins with its name.
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    let unknown = ["does not exist", "is not supported by this server"];
    let is_unknown = unknown.iter().any(|words| message.contains(words));
    let is_named = message.split([' ', '.', '[']).next() == Some(field);
    (is_unknown && is_named, is_named)
}

/// Where unknown fields are refused, exactly the fields of the schema are accepted.
#[tokio::test]
async fn every_accepted_field_is_in_its_schema() {
    let server = server_where(|options| options.settings.reject_unknown_fields = true);
    let document = document(&server).await;
    let forms = bodies().map(|(path, _)| forms(&document, path));
    let mut names = BTreeSet::from(NEUTRAL);
    for form in forms.iter().flatten() {
        names.extend(object(form, "/properties").keys().map(|name| &**name));
    }
    names.extend(["foo", "prompt_logprobs"]);
    assert!(names.len() > 90, "{}", names.len());
    for (endpoint, forms) in bodies().iter().zip(&forms).take(4) {
        let fields = object(&forms[0], "/properties");
        for name in &names {
            let promised = fields.get(*name);
            let has_values = promised.is_some_and(|field| field.get("enum").is_some());
            if has_values && UNSUPPORTED.iter().any(|(field, _)| field == name) {
                continue;
            }
            let (is_unknown, _) = judged(&server, endpoint, name, json!("a value")).await;
            assert_eq!(promised.is_some(), !is_unknown, "{} {name}", endpoint.0);
        }
    }
}

/// The types that a schema allows; none means any.
fn kinds<'a>(document: &'a Value, schema: &'a Value) -> Option<BTreeSet<&'a str>> {
    if let Some(reference) = schema["$ref"].as_str() {
        return kinds(document, referred(document, reference));
    }
    if let Some(options) = schema["anyOf"].as_array() {
        let each = options.iter().map(|option| kinds(document, option));
        let each: Option<Vec<_>> = each.collect();
        return Some(each?.into_iter().flatten().collect());
    }
    let kinds = types(schema.get("type"));
    (!kinds.is_empty()).then(|| kinds.into_iter().collect())
}

/// Values of a type that a schema does not allow, and numbers next to its range, are refused by name.
#[tokio::test]
async fn types_and_ranges_are_those_of_the_server() {
    let server = server();
    let document = document(&server).await;
    let samples = rows! {
        "boolean", json!(true); "integer", json!(1); "number", json!(0.5); "string", json!("x");
        "array", json!([[[]]]); "object", json!({"?": {}});
    };
    let (mut types, mut ranges) = (0, 0);
    for endpoint in &bodies() {
        let forms = forms(&document, endpoint.0);
        for (name, field) in object(&forms[0], "/properties") {
            let is_neutral = NEUTRAL.contains(&&**name) && name != "metadata";
            let Some(kinds) = kinds(&document, field) else {
                continue;
            };
            if is_neutral || field.get("enum").is_some() {
                continue;
            }
            for (kind, value) in &samples {
                let is_whole = *kind == "integer" && kinds.contains("number");
                if !is_whole && !kinds.contains(kind) {
                    let (_, is_named) = judged(&server, endpoint, name, value.clone()).await;
                    assert!(is_named, "{} takes {name}: {value}", endpoint.0);
                    types += 1;
                }
            }
            for (bound, step) in [("minimum", -1.0), ("maximum", 1.0)] {
                let Some(end) = field[bound].as_f64() else {
                    continue;
                };
                let beyond = match kinds.contains("integer") {
                    true => json!((end + step) as i64),
                    false => json!(end + step),
                };
                let (_, is_named) = judged(&server, endpoint, name, beyond).await;
                assert!(is_named, "{} takes {name} beyond {end}", endpoint.0);
                ranges += 1;
            }
        }
    }
    assert!(types > 250 && ranges > 40, "{types} types, {ranges} ranges");
}

#[tokio::test]
async fn decoders_and_calls_are_described() {
    let document = document(&server()).await;
    let form = &forms(&document, CHAT)[0];
    assert_eq!(form["required"], json!(["messages"]));
    let settings = &form["properties"]["diffusion"]["properties"];
    let presets = items(&settings["preset"]["enum"]);
    assert!(presets.contains(&json!("balanced")), "{presets:?}");
    assert_eq!(settings["threshold"]["maximum"], 1.0);
    assert!(settings["threshold"]["description"].is_string());
    let trace = forms(&document, TRACE);
    let required: Vec<&Value> = trace.iter().map(|form| &form["required"]).collect();
    let (chat, completion) = (json!(["messages"]), json!(["prompt"]));
    assert_eq!(required, [&chat, &completion]);
    let tools = &form["properties"]["tools"]["items"]["$ref"];
    let tool = referred(&document, tools.as_str().unwrap());
    assert_eq!(tool["properties"]["type"]["enum"], json!(["function"]));
}

/// Every member of an answer is described, and every required member is there.
#[tokio::test]
async fn answers_are_as_described() {
    let server = server();
    let document = document(&server).await;
    for (path, body) in bodies() {
        let answers = &document["paths"][path]["post"]["responses"]["200"]["content"];
        let schema = &answers["application/json"]["schema"];
        let Some(reference) = schema["$ref"].as_str() else {
            continue;
        };
        let schema = referred(&document, reference);
        let (_, answer) = server.post(path, &body).await;
        let fields = object(schema, "/properties");
        for name in answer.as_object().unwrap().keys() {
            assert!(fields.contains_key(name), "{path} has {name}");
        }
        for name in items(&schema["required"]) {
            let member = answer.get(name.as_str().unwrap());
            assert!(member.is_some(), "{path} has no {name}");
        }
    }
    let schemas = object(&document, "/components/schemas");
    for name in rows! {
        "ChatChoice"; "CompletionChoice"; "Usage"; "DiffusionUsage"; "Tokenized";
    } {
        assert!(schemas.contains_key(name), "{name} in {:?}", schemas.keys());
    }
}
