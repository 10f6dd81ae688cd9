//! `POST /v1/completions`, `/v1/chat/completions` and `/v1/diffusion/trace`: one path from request
//! to answer.

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};

use crate::api::response::Whole;
use crate::api::stream;
use crate::api::trace;
use crate::error::ApiError;
use crate::http::body;
use crate::http::keys::KeyName;
use crate::http::request_id::RequestId;
use crate::http::shutdown::Phase;
use crate::pipeline::admit;
use crate::pipeline::assemble::Delta;
use crate::pipeline::deliver::Generation;
use crate::record::{Caller, Record};
use crate::request::Route;
use crate::state::{AppState, Backend};

/// Answers a generation request, whole or streamed.
pub async fn generate(route: Route, State(state): State<AppState>, request: Request) -> Response {
    let backend = match state.backend() {
        Ok(backend) => backend.clone(),
        Err(error) => return error.into_response(),
    };
    let id = request
        .extensions()
        .get::<RequestId>()
        .map_or("", RequestId::as_str);
    let key = request.extensions().get::<KeyName>();
    let key = key.map(|name| &*name.0);
    let caller = Caller {
        request_id: id,
        route,
        key,
        model: &backend.model.id,
        headers: request.headers(),
    };
    let record = Record::new(backend.metrics.clone(), &caller);
    match accept(&state, &backend, (route, request), record).await {
        Ok(generation) if route == Route::Trace => trace::respond(generation),
        Ok(generation) => match generation.answer().output.stream {
            Some(options) => stream::respond(generation, options),
            None => whole(generation).await,
        },
        Err(error) => error.into_response(),
    }
}

/// Reads, checks and submits the request.
async fn accept(
    state: &AppState,
    backend: &Backend,
    (route, request): (Route, Request),
    mut record: Record,
) -> Result<Generation, ApiError> {
    let Some(in_flight) = state.shutdown().enter() else {
        let error = ApiError::shutting_down();
        record.fail(&error);
        return Err(error);
    };
    record.hold(in_flight);
    let read = async {
        let body = body::read(request, state.settings()).await?;
        admit::prepare(state, route, body).await
    };
    let prepared = tokio::select! {
        prepared = read => prepared,
        () = state.shutdown().reached(Phase::Ending) => Err(ApiError::shutting_down()),
    };
    let prepared = prepared.inspect_err(|error| record.fail(error))?;
    Generation::start(state, backend, prepared, record)
}

/// The join of all deltas, as one answer; of more sequences than choices the best.
async fn whole(mut generation: Generation) -> Response {
    let sequences = generation.answer().sequences();
    let mut joined: Vec<Delta> = (0..sequences)
        .map(|index| Delta {
            index,
            ..Delta::default()
        })
        .collect();
    while let Some(delta) = generation.next().await {
        match delta {
            Ok(delta) => {
                let choice = &mut joined[delta.index];
                choice.text.push_str(&delta.text);
                choice.token_ids.extend(delta.token_ids);
                choice.scored.extend(delta.scored);
                choice.finish = choice.finish.or(delta.finish);
            }
            Err(error) => return error.into_response(),
        }
    }
    let choices = generation.choose(joined);
    let usage = generation.finish();
    Json(Whole::new(generation.answer(), &choices, usage)).into_response()
}
