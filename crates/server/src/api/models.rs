//! `GET /v1/models` and `/v1/models/{id}`.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use decode::{CommitInfo, SettingInfo, Settings};
use engine::decoding::{Decoders, Preset, Value};
use serde::Serialize;
use serde_json::{Map, Value as JsonValue, json};

use super::route::{About, Route};
use crate::backend::Backend;
use crate::error::ApiError;
use crate::state::AppState;

#[derive(Debug, Serialize)]
struct Model<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    /// Anthropic's members.
    #[serde(rename = "type")]
    kind: &'static str,
    display_name: &'a str,
    created_at: &'static str,
    owned_by: &'a str,
    max_model_len: u32,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    demo: bool,
    parameters: u64,
    device: &'a str,
    diffusion: JsonValue,
}

/// The time of release that Anthropic's API gives where it is not known.
const UNKNOWN_RELEASE: &str = "1970-01-01T00:00:00Z";

/// The routes.
pub fn routes() -> [Route; 2] {
    let all = About::get("The served model, with its presets, schedules, commit rules and caches.");
    let single = About::get("The served model; its id may have slashes.");
    [Route::new("/v1/models", get(list), all), Route::new("/v1/models/{*id}", get(one), single)]
}

/// The list of models.
async fn list(State(state): State<AppState>) -> Result<Response, ApiError> {
    let backend = state.backend()?;
    #[derive(Serialize)]
    struct List<'a> {
        object: &'static str,
        data: [Model<'a>; 1],
        first_id: &'a str,
        last_id: &'a str,
        has_more: bool,
    }
    let (model, id) = (model(backend), &*backend.model.id);
    let list = List { object: "list", data: [model], first_id: id, last_id: id, has_more: false };
    Ok(Json(list).into_response())
}

/// One model; ids may hold `/`.
async fn one(
    State(state): State<AppState>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let backend = state.backend()?;
    match id {
        Ok(Path(id)) if id == backend.model.id => Ok(Json(model(backend)).into_response()),
        Ok(Path(id)) => Err(ApiError::model_not_found(&id)),
        Err(_) => Err(ApiError::model_not_found("?")),
    }
}

fn model(backend: &Backend) -> Model<'_> {
    let served = &backend.model;
    Model {
        id: &served.id,
        object: "model",
        created: served.created,
        kind: "model",
        display_name: &served.id,
        created_at: UNKNOWN_RELEASE,
        owned_by: &served.owner,
        max_model_len: backend.engine.limits().max_model_len,
        demo: served.is_demo,
        parameters: served.parameters,
        device: &served.device,
        diffusion: diffusion(&backend.engine.limits(), &served.decoders),
    }
}

/// The reason why a commit rule or a cache policy is unavailable.
const OTHER_WEIGHTS: &str = "needs weights that were trained with another attention";

/// The schedules, commit rules, caches and presets of `diffusion`, and why some are unavailable.
fn diffusion(limits: &engine::Limits, decoders: &Decoders) -> JsonValue {
    let registry = decoders.registry();
    let schedules = registry.schedules().iter().map(|schedule| {
        json!({
            "name": schedule.name,
            "summary": schedule.summary,
            "paper": schedule.paper,
            "settings": names(schedule.settings),
            "caches": registry.caches_of(schedule).iter().map(|cache| cache.name).collect::<JsonValue>(),
        })
    });
    let commits = registry.commits().iter().map(|rule| {
        let schedules = registry.schedules_for(rule);
        let caches = registry.caches_for(rule);
        json!({
            "name": rule.name,
            "summary": rule.summary,
            "paper": rule.paper,
            "settings": names(rule.settings),
            "schedules": schedules.iter().map(|schedule| schedule.name).collect::<JsonValue>(),
            "caches": caches.iter().map(|cache| cache.name).collect::<JsonValue>(),
            "unavailable": lack(limits, rule),
        })
    });
    let caches = registry.caches().iter().map(|cache| {
        let suits = cache.attention.contains(&limits.attention.kind());
        json!({
            "name": cache.name,
            "summary": cache.summary,
            "paper": cache.paper,
            "settings": names(cache.settings),
            "unavailable": (!suits).then_some(OTHER_WEIGHTS),
        })
    });
    json!({
        "default": decoders.default_preset(),
        "presets": presets(limits, decoders),
        "schedules": schedules.collect::<JsonValue>(),
        "commits": commits.collect::<JsonValue>(),
        "caches": caches.collect::<JsonValue>(),
    })
}

/// The reason why the model cannot run `rule` with its default settings, if it cannot.
fn lack(limits: &engine::Limits, rule: &'static CommitInfo) -> Option<&'static str> {
    if !rule.requires.attention.contains(&limits.attention.kind()) {
        return Some(OTHER_WEIGHTS);
    }
    if !limits.kind().suits(rule) {
        return Some(engine::decoding::NEEDS_OWN_ROWS);
    }
    let needs = (rule.requires.needs)(&Settings::defaults(rule.settings));
    let lack = needs.filter(|capability| !limits.kind().has(*capability, limits.filter));
    lack.map(|capability| capability.refusal())
}

fn names(settings: &[SettingInfo]) -> JsonValue {
    settings.iter().map(|setting| setting.name).collect()
}

/// The presets for the model's weights, with their settings and the length of their blocks.
fn presets(limits: &engine::Limits, decoders: &Decoders) -> Map<String, JsonValue> {
    let value = |value: Value<'static>| match value {
        Value::Name(name) => json!(name),
        Value::Integer(number) => json!(number),
        Value::Number(number) => json!(number),
        Value::Flag(flag) => json!(flag),
    };
    let full = |preset: &Preset| {
        let mut settings: Map<_, _> =
            (preset.settings()).map(|(name, set)| (name.to_owned(), value(set))).collect();
        let mut spec = decoders.blank();
        let named = spec.set("preset", Value::Name(preset.name));
        let decoding = named.and_then(|()| decoders.resolve(&spec)).ok();
        let length =
            decoding.and_then(|preset| preset.decoder.schedule.settings().get(BLOCK_LENGTH));
        if let Some(length) = length {
            settings.insert(BLOCK_LENGTH.to_owned(), value(length));
        }
        (preset.name.to_owned(), JsonValue::Object(settings))
    };
    limits.kind().presets().map(full).collect()
}

const BLOCK_LENGTH: &str = "block_length";
