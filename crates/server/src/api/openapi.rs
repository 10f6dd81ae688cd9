//! `GET /openapi.json`: the API as an OpenAPI document, made from the routes and from the structs that
//! read requests.

use std::sync::{Arc, LazyLock};

use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::messages::envelope;
use super::route::{About, JSON, Method, Route};
use crate::error::ErrorBody;

const PATH: &str = "/openapi.json";
/// The place of the schemas in the document.
const SCHEMAS: &str = "/components/schemas";

/// The generators of the schemas of requests and of answers: an optional field of a request may be
/// null, one of an answer is absent.
struct Schemas {
    bodies: SchemaGenerator,
    answers: SchemaGenerator,
}

/// The route of the document of all routes: of the `keyed` ones and of the `open` ones. Keys are
/// optional unless it `needs_keys`.
pub fn route(keyed: &[Route], open: &[Route], needs_keys: bool) -> Route {
    let about = About::get("This document.");
    let path = |route: &Route, is_keyed: bool| (route.path, route.about.clone(), is_keyed);
    let keyed = keyed.iter().map(|route| path(route, true));
    let open = open.iter().map(|route| path(route, false));
    let own = (PATH, about.clone(), false);
    let paths: Vec<_> = keyed.chain(open).chain([own]).collect();
    // Made at the first request.
    let text = LazyLock::new(move || Bytes::from(document(&paths, needs_keys).to_string()));
    let text = Arc::new(text);
    let handler = get(move || {
        let text = Bytes::clone(&text);
        async { ([(CONTENT_TYPE, JSON)], text) }
    });
    Route::new(PATH, handler, about)
}

/// The document of `paths`; with each, whether it needs a key.
fn document(paths: &[(&'static str, About, bool)], needs_keys: bool) -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = SCHEMAS.into();
    let mut schemas = Schemas {
        answers: settings.clone().for_serialize().into_generator(),
        bodies: settings.into_generator(),
    };
    let mut items = Map::new();
    for (path, about, is_keyed) in paths {
        // A wildcard of the router is an ordinary parameter here.
        let name = path.replace("{*", "{");
        let mut operation = operation(&name, about, &mut schemas);
        if *is_keyed {
            operation["security"] = security(needs_keys);
        }
        let method = match about.method {
            Method::Get => "get",
            Method::Post => "post",
        };
        items.insert(name, json!({ method: operation }));
    }
    let error = schemas.answers.subschema_for::<ErrorBody<'_>>();
    let mut answers = schemas.answers;
    let mut schemas = schemas.bodies.take_definitions(true);
    schemas.append(&mut answers.take_definitions(true));
    schemas.insert("MessagesError".to_owned(), envelope::schema());
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "AsyncLane",
            "summary": "Inference of diffusion language models.",
            "version": env!("CARGO_PKG_VERSION"),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": items,
        "components": {
            "schemas": schemas,
            "responses": {
                "Error": response("An error in OpenAI's shape.", JSON, &json!(error)),
                "MessagesError": response(
                    "An error in Anthropic's shape.",
                    JSON,
                    &json!({"$ref": "#/components/schemas/MessagesError"}),
                ),
            },
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "api_key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    });
    unwrap_lines(&mut document);
    document
}

/// A key in one of the two headers; optional on a server without keys.
fn security(needs_keys: bool) -> Value {
    let optional = (!needs_keys).then(|| json!({}));
    let either = [json!({"bearer": []}), json!({"api_key": []})];
    optional.into_iter().chain(either).collect()
}

fn operation(path: &str, about: &About, schemas: &mut Schemas) -> Value {
    let words = path.split(['/', '{', '}', '.', '-']);
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let errors = match path.starts_with("/v1/messages") {
        true => "#/components/responses/MessagesError",
        false => "#/components/responses/Error",
    };
    let answers = about.answers.iter().map(|media| {
        let schema = match about.answer {
            Some(schema) if *media == JSON => json!(schema(&mut schemas.answers)),
            _ if *media == JSON => json!({"type": "object"}),
            _ => json!({"type": "string"}),
        };
        ((*media).to_owned(), json!({ "schema": schema }))
    });
    let answers: Map<String, Value> = answers.collect();
    let name = if words.is_empty() { "page".to_owned() } else { words.join("_") };
    let mut operation = json!({
        "operationId": name,
        "summary": about.summary,
        "responses": {
            "200": {"description": "The answer.", "content": answers},
            "default": {"$ref": errors},
        },
    });
    let parameters: Vec<Value> = path
        .split('{')
        .skip(1)
        .filter_map(|rest| rest.split_once('}'))
        .map(|(name, _)| {
            json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}})
        })
        .collect();
    if !parameters.is_empty() {
        operation["parameters"] = Value::Array(parameters);
    }
    if about.method == Method::Post {
        let schema = about.fields.schema(about.is_promised, &mut schemas.bodies);
        let content = Map::from_iter([(JSON.to_owned(), json!({ "schema": schema }))]);
        operation["requestBody"] = json!({"required": true, "content": content});
    }
    operation
}

fn response(description: &str, media: &str, schema: &Value) -> Value {
    let content = Map::from_iter([(media.to_owned(), json!({ "schema": schema }))]);
    json!({"description": description, "content": content})
}

/// Descriptions are comments of the source: makes each one line.
fn unwrap_lines(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(text) if name == "description" => {
                        *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
                    }
                    member => unwrap_lines(member),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(unwrap_lines),
        _ => {}
    }
}
