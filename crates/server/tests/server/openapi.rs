//! The document at `/openapi.json`: all routes, all fields, and the ranges that the server checks.

use std::collections::BTreeSet;

use asynclane_server::api::fields::promises::{NEUTRAL, UNSUPPORTED};
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use serde_json::{Map, Value, json};

use crate::common::translated::{MESSAGES, RESPONSES};
use crate::common::{MODEL, Options, Server, chat, completion, one_key, server, server_with};

async fn document(server: &Server) -> Value {
    let (status, headers, bytes) = server.get("/openapi.json").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(headers["content-type"], "application/json");
    serde_json::from_slice(&bytes).unwrap()
}

fn object<'a>(value: &'a Value, at: &str) -> &'a Map<String, Value> {
    let found = value.pointer(at).and_then(Value::as_object);
    found.unwrap_or_else(|| panic!("an object at {at}"))
}

/// A body that each endpoint with a body accepts.
fn bodies() -> [(&'static str, Value); 7] {
    let short = json!({"max_tokens": 2});
    [
        ("/v1/completions", completion(short.clone())),
        ("/v1/chat/completions", chat(short.clone())),
        (
            RESPONSES.path,
            RESPONSES.body(&json!({"max_output_tokens": 2})),
        ),
        (MESSAGES.path, MESSAGES.body(&short)),
        ("/v1/messages/count_tokens", MESSAGES.body(&json!({}))),
        ("/tokenize", json!({"prompt": "Hi"})),
        ("/detokenize", json!({"tokens": [7]})),
    ]
}

/// The forms of the body of `path`: each the schemas of its fields.
fn forms(document: &Value, path: &str) -> Vec<Value> {
    let operation = &document["paths"][path]["post"];
    let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
    match schema["anyOf"].as_array() {
        Some(forms) => forms.clone(),
        None => vec![schema.clone()],
    }
}

#[tokio::test]
async fn every_route_is_in_the_document_and_has_its_methods() {
    let server = server();
    let document = document(&server).await;
    let mut documented = BTreeSet::new();
    for (path, item) in object(&document, "/paths") {
        let methods: Vec<&str> = item
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let (method, allowed, other) = match methods[..] {
            ["get"] => (Method::GET, "GET, HEAD, OPTIONS", Method::POST),
            ["post"] => (Method::POST, "POST, OPTIONS", Method::GET),
            _ => panic!("{path}: {methods:?}"),
        };
        let address = path.replace("{id}", MODEL);
        let (status, answer) = server.raw(method, &address, b"{}").await;
        assert_ne!(answer["error"]["code"], "unknown_url", "{path}");
        assert_ne!(status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
        let request = Request::builder().method(other).uri(&address);
        let (status, headers, _) = server.call(request.body(Body::empty()).unwrap()).await;
        assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
        assert_eq!(headers["allow"], allowed, "{path}");
        documented.insert(path.clone());
    }
    // The documents list the same paths, the playground's files aside.
    let page = include_str!("../../../../docs/api.md");
    let rows = page
        .lines()
        .filter(|line| line.starts_with("| `GET /") || line.starts_with("| `POST /"));
    let cells = rows.map(|row| row.split('|').nth(1).unwrap());
    let words = cells.flat_map(|cell| cell.split(['`', ' ', ',', ';']));
    let listed: BTreeSet<String> = words
        .filter(|word| word.starts_with('/'))
        .map(str::to_owned)
        .collect();
    documented.retain(|path| !path.starts_with("/playground/"));
    assert_eq!(documented, listed);
    let mut options = Options::default();
    options.settings.playground = false;
    let other = self::document(&server_with(options)).await;
    assert!(other["paths"].get("/").is_none());
}

/// Every object that the document holds, with its place.
fn walk<'a>(value: &'a Value, at: String, visit: &mut dyn FnMut(&'a Map<String, Value>, &str)) {
    match value {
        Value::Object(members) => {
            visit(members, &at);
            for (name, member) in members {
                walk(member, format!("{at}/{name}"), visit);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                walk(item, format!("{at}/{index}"), visit);
            }
        }
        _ => {}
    }
}

#[tokio::test]
async fn the_document_has_the_structure_of_openapi() {
    let document = document(&server()).await;
    assert_eq!(document["openapi"], "3.1.0");
    for field in ["title", "version"] {
        assert!(document["info"][field].is_string(), "{field}");
    }
    let mut references = 0;
    walk(&document, String::new(), &mut |members, at| {
        if let Some(reference) = members.get("$ref") {
            let pointer = reference.as_str().unwrap().strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{at}: {pointer}");
            references += 1;
        }
        let kinds = match members.get("type") {
            Some(Value::String(kind)) => vec![kind.as_str()],
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        let known = [
            "object", "array", "string", "integer", "number", "boolean", "null", "http", "apiKey",
        ];
        for kind in kinds {
            assert!(known.contains(&kind), "{at}: {kind}");
        }
        if let Some(required) = members.get("required").and_then(Value::as_array) {
            for name in required {
                let field = &members["properties"][name.as_str().unwrap()];
                assert!(field.is_object(), "{at}: {name} is required");
            }
        }
        let told = members.get("description").and_then(Value::as_str);
        assert!(
            told.is_none_or(|told| !told.contains(['\n', '['])),
            "{at}: {told:?}"
        );
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
            assert!(
                operation["summary"].as_str().unwrap().ends_with('.'),
                "{path}"
            );
            let answers = operation["responses"].as_object().unwrap();
            assert!(
                answers["200"]["description"].is_string() && answers.len() == 2,
                "{path}"
            );
            assert!(
                !answers["200"]["content"].as_object().unwrap().is_empty(),
                "{path}"
            );
            let parameters = operation["parameters"].as_array();
            let named = parameters.map_or(0, Vec::len);
            assert_eq!(named, path.matches('{').count(), "{path}");
            for scheme in operation["security"].as_array().into_iter().flatten() {
                for name in scheme.as_object().unwrap().keys() {
                    object(&document, &format!("/components/securitySchemes/{name}"));
                }
            }
        }
    }
    for path in [
        "/v1/chat/completions",
        "/v1/completions",
        RESPONSES.path,
        MESSAGES.path,
    ] {
        let answer = &document["paths"][path]["post"]["responses"]["200"]["content"];
        assert!(answer["text/event-stream"].is_object(), "{path}");
    }
}

#[tokio::test]
async fn the_document_needs_no_key_and_tells_who_does() {
    let mut options = Options::default();
    options.settings.keys = one_key("secret");
    let document = self::document(&server_with(options)).await;
    let keys = json!([{"bearer": []}, {"api_key": []}]);
    assert_eq!(document["paths"]["/v1/models"]["get"]["security"], keys);
    assert_eq!(document["paths"]["/v1/messages"]["post"]["security"], keys);
    assert!(
        document["paths"]["/health"]["get"]
            .get("security")
            .is_none()
    );
    let open = self::document(&server()).await;
    let optional = &open["paths"]["/v1/models"]["get"]["security"];
    assert_eq!(optional[0], json!({}));
    let loading = asynclane_server::AppState::new(asynclane_server::Settings::default());
    let router = asynclane_server::router(loading);
    let request = Request::get("/openapi.json").body(Body::empty()).unwrap();
    let response = tower::ServiceExt::oneshot(router, request).await.unwrap();
    assert_eq!(
        response.status(),
        StatusCode::OK,
        "it needs no model either"
    );
}

/// What the server says of `body` with `field` at `value`: whether the field is unknown, and whether
/// it is refused by name.
async fn judged(
    server: &Server,
    path: &str,
    mut body: Value,
    (field, value): (&str, Value),
) -> (bool, bool) {
    body[field] = value;
    let (_, answer) = server.post(path, &body).await;
    let error = &answer["error"];
    // Errors of Messages have no field, but their message begins with its name.
    let message = error["message"].as_str().unwrap_or_default();
    let is_unknown =
        message.contains("does not exist") || message.contains("is not supported by this server");
    let word = message.split([' ', '.', '[']).next().unwrap_or_default();
    (is_unknown && word == field, word == field)
}

/// With unknown fields refused, the fields of a schema are exactly those that are not.
#[tokio::test]
async fn every_accepted_field_is_in_its_schema() {
    let mut options = Options::default();
    options.settings.reject_unknown_fields = true;
    let server = server_with(options);
    let document = document(&server).await;
    let mut names: BTreeSet<String> = NEUTRAL.map(str::to_owned).into();
    for (path, _) in bodies() {
        let forms = forms(&document, path);
        let fields = forms
            .iter()
            .flat_map(|form| object(form, "/properties").keys().cloned());
        names.extend(fields);
    }
    names.extend(["foo".to_owned(), "prompt_logprobs".to_owned()]);
    assert!(names.len() > 90, "{}", names.len());
    for (path, body) in bodies().into_iter().take(4) {
        let forms = forms(&document, path);
        let fields = object(&forms[0], "/properties");
        for name in &names {
            let promised = fields.get(name);
            if promised.is_some_and(|field| field.get("enum").is_some())
                && UNSUPPORTED.iter().any(|(of, _)| of == name)
            {
                continue;
            }
            let (is_unknown, _) =
                judged(&server, path, body.clone(), (name, json!("a value"))).await;
            assert_eq!(promised.is_some(), !is_unknown, "{path} {name}");
        }
    }
}

/// The types that a schema allows; none = any.
fn kinds<'a>(document: &'a Value, schema: &'a Value) -> Option<BTreeSet<&'a str>> {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = document
            .pointer(reference.strip_prefix('#').unwrap())
            .unwrap();
        return kinds(document, target);
    }
    if let Some(options) = schema["anyOf"].as_array() {
        let each = options.iter().map(|option| kinds(document, option));
        return each
            .collect::<Option<Vec<_>>>()
            .map(|each| each.into_iter().flatten().collect());
    }
    match &schema["type"] {
        Value::String(kind) => Some(BTreeSet::from([kind.as_str()])),
        Value::Array(kinds) => Some(kinds.iter().filter_map(Value::as_str).collect()),
        _ => None,
    }
}

/// Values of a type that a schema does not allow, and numbers next to its range, are refused by name.
#[tokio::test]
async fn types_and_ranges_are_those_of_the_server() {
    let server = server();
    let document = document(&server).await;
    let samples = [
        ("boolean", json!(true)),
        ("integer", json!(1)),
        ("number", json!(0.5)),
        ("string", json!("x")),
        ("array", json!([[[]]])),
        ("object", json!({"?": {}})),
    ];
    let (mut types, mut ranges) = (0, 0);
    for (path, body) in bodies() {
        let forms = forms(&document, path);
        for (name, field) in object(&forms[0], "/properties") {
            if NEUTRAL.contains(&name.as_str()) && name != "metadata" || field.get("enum").is_some()
            {
                continue;
            }
            let Some(kinds) = kinds(&document, field) else {
                continue;
            };
            for (kind, value) in &samples {
                let allowed =
                    kinds.contains(kind) || (*kind == "integer" && kinds.contains("number"));
                if !allowed {
                    let (_, is_named) =
                        judged(&server, path, body.clone(), (name, value.clone())).await;
                    assert!(is_named, "{path} takes {name}: {value}, of {kinds:?}");
                    types += 1;
                }
            }
            for (bound, step) in [("minimum", -1.0), ("maximum", 1.0)] {
                let Some(end) = field[bound].as_f64() else {
                    continue;
                };
                let value = |number: f64| match kinds.contains("integer") {
                    true => json!(number as i64),
                    false => json!(number),
                };
                let (_, beyond) =
                    judged(&server, path, body.clone(), (name, value(end + step))).await;
                assert!(beyond, "{path} takes {name} beyond {end}");
                ranges += 1;
            }
        }
    }
    assert!(types > 250 && ranges > 40, "{types} types, {ranges} ranges");
}

#[tokio::test]
async fn decoders_and_calls_are_described() {
    let document = document(&server()).await;
    let form = &forms(&document, "/v1/chat/completions")[0];
    assert_eq!(form["required"], json!(["messages", "model"]));
    let settings = &form["properties"]["diffusion"]["properties"];
    let presets = settings["preset"]["enum"].as_array().unwrap();
    assert!(presets.contains(&json!("balanced")), "{presets:?}");
    assert_eq!(settings["threshold"]["maximum"], 1.0);
    assert!(settings["threshold"]["description"].is_string());
    let trace = forms(&document, "/v1/diffusion/trace");
    let required: Vec<&Value> = trace.iter().map(|form| &form["required"]).collect();
    assert_eq!(
        required,
        [&json!(["messages", "model"]), &json!(["prompt", "model"])]
    );
    let tools = &form["properties"]["tools"]["items"]["$ref"];
    let tool = document.pointer(tools.as_str().unwrap().strip_prefix('#').unwrap());
    assert_eq!(
        tool.unwrap()["properties"]["type"]["enum"],
        json!(["function"])
    );
}

/// Every member of an answer is described, and those that are required are there.
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
        let schema = document
            .pointer(reference.strip_prefix('#').unwrap())
            .unwrap();
        let (_, answer) = server.post(path, &body).await;
        let fields = object(schema, "/properties");
        for name in answer.as_object().unwrap().keys() {
            assert!(fields.contains_key(name), "{path} has {name}");
        }
        for name in schema["required"].as_array().unwrap() {
            assert!(
                answer.get(name.as_str().unwrap()).is_some(),
                "{path} has no {name}"
            );
        }
    }
    let schemas = object(&document, "/components/schemas");
    for name in [
        "ChatChoice",
        "CompletionChoice",
        "Usage",
        "DiffusionUsage",
        "Tokenized",
    ] {
        assert!(schemas.contains_key(name), "{name} in {:?}", schemas.keys());
    }
}
