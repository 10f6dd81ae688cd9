//! A path: its handler, and what the document of the API says about it.

use axum::http::header::ALLOW;
use axum::http::{HeaderValue, StatusCode};
use axum::routing::MethodRouter;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::fields::table::Fields;
use crate::error::{ApiError, ErrorCode};
use crate::state::AppState;

/// The media type of a JSON object.
pub const JSON: &str = "application/json";
/// The media type of server-sent events.
pub const EVENTS: &str = "text/event-stream";
/// The media type of plain text.
pub const TEXT: &str = "text/plain";

/// A path with its handler.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its path.
    pub path: &'static str,
    pub(super) handler: MethodRouter<AppState>,
    pub(super) about: About,
}

/// The description of a path in the document of the API.
#[derive(Clone, Debug)]
pub struct About {
    /// The method beside HEAD and OPTIONS.
    pub method: Method,
    /// A summary of its effect.
    pub summary: &'static str,
    /// The fields of its body.
    pub fields: Fields,
    /// True if all fields are promised something: unknown ones are told.
    pub is_promised: bool,
    /// The media types of its answers.
    pub answers: &'static [&'static str],
    /// The schema of an answer in JSON; none = an object.
    pub answer: Option<AnswerSchema>,
}

/// Makes the schema of an answer.
pub type AnswerSchema = fn(&mut SchemaGenerator) -> Schema;

/// The methods that paths have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// GET, and with it HEAD.
    Get,
    /// POST.
    Post,
}

impl Route {
    /// The `path` with its `handler`, which answers OPTIONS with the allowed methods, and others with
    /// 405.
    pub fn new(path: &'static str, handler: MethodRouter<AppState>, about: About) -> Self {
        let methods = match about.method {
            Method::Get => "GET, HEAD, OPTIONS",
            Method::Post => "POST, OPTIONS",
        };
        Self { path, handler: only(handler, methods), about }
    }
}

impl About {
    /// A GET request with a JSON answer.
    pub fn get(summary: &'static str) -> Self {
        Self {
            method: Method::Get,
            summary,
            fields: Fields::default(),
            is_promised: false,
            answers: &[JSON],
            answer: None,
        }
    }

    /// A POST request with a JSON body of these `fields` and a JSON answer.
    pub fn post(summary: &'static str, fields: Fields) -> Self {
        Self { method: Method::Post, fields, ..Self::get(summary) }
    }

    /// With answers in JSON that `T` writes.
    #[must_use]
    pub fn answer<T: JsonSchema>(self) -> Self {
        Self { answer: Some(|schemas| schemas.subschema_for::<T>()), ..self }
    }

    /// With answers of these media types.
    #[must_use]
    pub fn answers(self, answers: &'static [&'static str]) -> Self {
        Self { answers, ..self }
    }
}

/// Answers OPTIONS with the allowed methods, and methods that `routes` lacks with 405.
fn only(routes: MethodRouter<AppState>, methods: &'static str) -> MethodRouter<AppState> {
    let options = move || async move {
        (StatusCode::NO_CONTENT, [(ALLOW, HeaderValue::from_static(methods))])
    };
    let refused = move || async move {
        let message = format!("the method is not allowed here; allowed are {methods}");
        let error = ApiError::new(ErrorCode::MethodNotAllowed, message);
        ApiError { allow: Some(methods), ..error }
    };
    routes.options(options).fallback(refused)
}
