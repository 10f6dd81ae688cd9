//! A server over HTTP: streamed chat completions with their tokens and usages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use engine::decoding::{DEFAULT_PRESET, DecodingSpec, Value};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::super::arrivals::Arrivals;
use super::super::latency::Times;
use super::super::tally::Tally;
use super::server::Local;
use super::sse::Lines;
use super::{Ask, Target};
use crate::conversation;
use cli::exit;

/// A server and its client.
pub struct Server {
    runtime: Arc<Runtime>,
    client: Client<HttpConnector, Full<Bytes>>,
    uri: Uri,
    model: String,
    /// The server, if it runs in this process.
    local: Option<Local>,
}

/// One answer.
#[derive(Debug, Default)]
struct Reply {
    times: Times,
    ids: Vec<u32>,
    forwards: u64,
    positions: u64,
}

/// The fields of a stream's chunk that the benchmark reads.
#[derive(Debug, Default, Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Usage>,
    error: Option<serde_json::Value>,
}

#[derive(Debug, Deserialize)]
struct Choice {
    #[serde(default)]
    token_ids: Option<Vec<u32>>,
    #[serde(default)]
    delta: Delta,
}

#[derive(Debug, Default, Deserialize)]
struct Delta {
    content: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Usage {
    completion_tokens: u64,
    diffusion: Option<Diffusion>,
}

#[derive(Debug, Deserialize)]
struct Diffusion {
    forwards: u64,
    positions: u64,
}

#[derive(Debug, Deserialize)]
struct Models {
    data: Vec<Model>,
}

#[derive(Debug, Deserialize)]
struct Model {
    id: String,
}

impl Server {
    /// A server of this process.
    ///
    /// # Errors
    /// An address that does not form a URL.
    pub fn local(runtime: Arc<Runtime>, local: Local) -> Result<Self> {
        Ok(Self {
            client: client(),
            uri: format!("http://{}/v1/chat/completions", local.address).parse()?,
            model: local.model.clone(),
            local: Some(local),
            runtime,
        })
    }

    /// A running server at `url`, which has no path; requests name the first model that it lists.
    ///
    /// # Errors
    /// Not an http URL, no answer.
    pub fn remote(runtime: Arc<Runtime>, url: &str) -> Result<Self> {
        let refused = |why: String| exit::failure(exit::USAGE, format!("--url {url}: {why}"));
        let base = url.trim_end_matches('/');
        let path = |path: &str| -> Result<Uri> {
            let uri: Uri =
                format!("{base}{path}").parse().map_err(|error| refused(format!("{error}")))?;
            match uri.scheme_str() {
                Some("http") => Ok(uri),
                _ => Err(refused("expected http://HOST:PORT".to_owned())),
            }
        };
        let client = client();
        let body = runtime.block_on(async {
            let answer = client.get(path("/v1/models")?).await;
            let answer = answer.map_err(|error| refused(describe(&error)))?;
            anyhow::Ok(answer.into_body().collect().await?.to_bytes())
        })?;
        let models: Models = serde_json::from_slice(&body)
            .map_err(|error| refused(format!("expected a list of models: {error}")))?;
        let model = models.data.into_iter().next();
        let model = model.ok_or_else(|| refused("it serves no model".to_owned()))?;
        Ok(Self {
            uri: path("/v1/chat/completions")?,
            model: model.id,
            client,
            local: None,
            runtime,
        })
    }

    fn body(&self, ask: &Ask<'_>) -> Bytes {
        let (messages, tools) = conversation::members(ask.text);
        let mut body = serde_json::json!({
            "model": self.model,
            "messages": messages,
            "max_tokens": ask.max_tokens,
            "temperature": 0,
            "stream": true,
            "stream_options": {"include_usage": true},
            "return_token_ids": true,
            "diffusion": settings(&ask.decoder.spec),
        });
        if !tools.is_null() {
            body["tools"] = tools;
        }
        body.to_string().into()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(local) = self.local.take() {
            local.stop(&self.runtime);
        }
    }
}

impl Target for Server {
    /// Always; the server validates requests when they are sent.
    fn admits(&self, _: &Ask<'_>) -> Result<()> {
        Ok(())
    }

    fn answer(&mut self, asks: &[Ask<'_>], arrivals: Arrivals) -> Result<(Tally, Vec<Vec<u32>>)> {
        let bodies: Vec<Bytes> = asks.iter().map(|ask| self.body(ask)).collect();
        let (client, uri) = (self.client.clone(), self.uri.clone());
        let (replies, wall) = self.runtime.block_on(ask_all(client, uri, bodies, arrivals))?;
        let mut tally = Tally { problems: asks.len() as u64, wall, ..Tally::default() };
        let mut answers = Vec::with_capacity(replies.len());
        for reply in replies {
            tally.tokens += reply.times.tokens;
            tally.forwards += reply.forwards;
            tally.positions += reply.positions;
            tally.times.push(reply.times);
            answers.push(reply.ids);
        }
        Ok((tally, answers))
    }
}

fn client() -> Client<HttpConnector, Full<Bytes>> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    Client::builder(TokioExecutor::new()).build(connector)
}

/// The settings as a request's `diffusion` object. It always names the preset, because the server's
/// default may differ.
fn settings(spec: &DecodingSpec) -> serde_json::Value {
    let mut object = serde_json::Map::new();
    object.insert("preset".to_owned(), DEFAULT_PRESET.into());
    for (name, value) in spec.settings() {
        let value = match value {
            Value::Name(text) => text.into(),
            Value::Integer(number) => number.into(),
            Value::Number(number) => number.into(),
            Value::Flag(flag) => flag.into(),
        };
        object.insert(name.to_owned(), value);
    }
    object.into()
}

/// Sends every body at its arrival; returns the replies in order, and the total time.
async fn ask_all(
    client: Client<HttpConnector, Full<Bytes>>,
    uri: Uri,
    bodies: Vec<Bytes>,
    mut arrivals: Arrivals,
) -> Result<(Vec<Reply>, Duration)> {
    let mut replies: Vec<Reply> = bodies.iter().map(|_| Reply::default()).collect();
    let (sender, mut done) = mpsc::channel(bodies.len().max(1));
    let started = Instant::now();
    let mut in_flight = 0;
    loop {
        while let Some((index, arrived)) = arrivals.due(started.elapsed(), in_flight) {
            let (client, uri, body) = (client.clone(), uri.clone(), bodies[index].clone());
            let sender = sender.clone();
            in_flight += 1;
            tokio::spawn(async move {
                let reply = ask(client, uri, body, started + arrived).await;
                let _ = sender.send((index, reply)).await;
            });
        }
        let wait = arrivals.next_at().map(|time| time.saturating_sub(started.elapsed()));
        if in_flight == 0 && wait.is_none() {
            return Ok((replies, started.elapsed()));
        }
        let wait = tokio::time::sleep(wait.unwrap_or(Duration::MAX));
        tokio::select! {
            Some((index, reply)) = done.recv() => {
                replies[index] = reply?;
                in_flight -= 1;
            }
            () = wait => {}
        }
    }
}

/// Sends one request and reads its stream to the end.
async fn ask(
    client: Client<HttpConnector, Full<Bytes>>,
    uri: Uri,
    body: Bytes,
    arrived: Instant,
) -> Result<Reply> {
    let request =
        Request::post(uri).header("content-type", "application/json").body(Full::new(body))?;
    let answer = client.request(request).await;
    let answer = answer.map_err(|error| exit::failure(exit::UNAVAILABLE, describe(&error)))?;
    let status = answer.status();
    let mut body = answer.into_body();
    if !status.is_success() {
        let text = body.collect().await?.to_bytes();
        let text = String::from_utf8_lossy(&text);
        let message = format!("the server answers {status}: {text}");
        return Err(exit::failure(exit::USAGE, message));
    }
    let mut reply = Reply::default();
    let mut lines = Lines::default();
    while let Some(bytes) = next(&mut body).await? {
        lines.push(&bytes).context("the stream")?;
        while let Some(data) = lines.next_data() {
            if data != b"[DONE]" {
                let chunk = serde_json::from_slice(&data).context("a chunk of the stream")?;
                reply.take(chunk, arrived.elapsed())?;
            }
        }
    }
    reply.times.end = arrived.elapsed();
    if reply.times.first.is_zero() {
        reply.times.first = reply.times.end;
    }
    Ok(reply)
}

async fn next(body: &mut Incoming) -> Result<Option<Bytes>> {
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(frame) => {
                if let Ok(bytes) = frame?.into_data() {
                    return Ok(Some(bytes));
                }
            }
        }
    }
}

impl Reply {
    fn take(&mut self, chunk: Chunk, now: Duration) -> Result<()> {
        if let Some(error) = chunk.error {
            return Err(exit::failure(exit::ENGINE, error.to_string()));
        }
        for choice in chunk.choices {
            let ids = choice.token_ids.unwrap_or_default();
            let text = choice.delta.content.unwrap_or_default();
            if self.times.first.is_zero() && !(ids.is_empty() && text.is_empty()) {
                self.times.first = now;
            }
            self.ids.extend(ids);
        }
        if let Some(usage) = chunk.usage {
            self.times.tokens = usage.completion_tokens;
            if let Some(diffusion) = usage.diffusion {
                self.forwards = diffusion.forwards;
                self.positions = diffusion.positions;
            }
        }
        Ok(())
    }
}

/// An error with its causes, which the client's own message omits.
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_its_preset_and_settings() {
        let spec = DecodingSpec::parse("schedule=block_wise,threshold=0.5,prune=false").unwrap();
        let expected = serde_json::json!({
            "preset": DEFAULT_PRESET, "schedule": "block_wise", "threshold": 0.5, "prune": false,
        });
        assert_eq!(settings(&spec), expected);
        let spec = DecodingSpec::parse("vanilla,block_length=8").unwrap();
        let expected = serde_json::json!({"preset": "vanilla", "block_length": 8});
        assert_eq!(settings(&spec), expected);
    }

    #[test]
    fn the_first_token_is_the_first_chunk_with_text_or_ids() {
        let mut reply = Reply::default();
        let ms = Duration::from_millis;
        let chunk = |text: &str| serde_json::from_str::<Chunk>(text).unwrap();
        let role = r#"{"choices": [{"delta": {"role": "assistant", "content": ""}}]}"#;
        reply.take(chunk(role), ms(1)).unwrap();
        let token = r#"{"choices": [{"delta": {"content": "a"}, "token_ids": [7, 8]}]}"#;
        reply.take(chunk(token), ms(2)).unwrap();
        reply.take(chunk(token), ms(3)).unwrap();
        let last = r#"{"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 4,
            "diffusion": {"forwards": 3, "positions": 90}}}"#;
        reply.take(chunk(last), ms(4)).unwrap();
        assert_eq!((reply.times.first, reply.times.tokens), (ms(2), 4));
        assert_eq!((reply.forwards, reply.positions), (3, 90));
        assert_eq!(reply.ids, [7, 8, 7, 8]);
        let error = r#"{"error": {"message": "overloaded"}}"#;
        assert!(reply.take(chunk(error), ms(5)).is_err());
    }
}
