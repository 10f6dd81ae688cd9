//! Requests to a server with OpenAI's API.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use ureq::Agent;
use ureq::http::header::{AUTHORIZATION, CONTENT_TYPE, SERVER};

use crate::args::DeterminismArgs;
use crate::exit;
use crate::names::{escaped, shown, without_password};
use crate::selftest::prompt;

/// Maximum bytes of an answer.
const MAX_BYTES: u64 = 16 << 20;
/// Time for a connection.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Pause after a refusal of an overloaded server.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

/// A request, for either endpoint.
#[derive(Clone, Debug)]
pub struct Question {
    prompt: String,
    temperature: u8,
    seed: u64,
    max_tokens: u32,
}

impl Question {
    /// A request that is compared.
    pub fn compared(number: u32, is_sampled: bool, max_tokens: u32) -> Self {
        let temperature = u8::from(is_sampled);
        Self { prompt: prompt(number as usize), temperature, seed: u64::from(number), max_tokens }
    }

    /// A request of a neighbour: another text of another length in every round.
    pub fn random(neighbour: u32, round: u32, most: u32) -> Self {
        let mut hasher = DefaultHasher::new();
        (neighbour, round).hash(&mut hasher);
        let noise = hasher.finish();
        let text = prompt((noise >> 16) as usize % 1000);
        let times = 1 + (noise as usize & 3);
        let max_tokens = 1 + (noise >> 40) as u32 % most;
        Self { prompt: vec![text; times].join("\n"), temperature: 1, seed: noise >> 12, max_tokens }
    }
}

/// An answer.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    pub text: String,
    /// The tokens as texts; empty if the server lists none.
    pub tokens: Vec<String>,
    /// Their log-probabilities.
    pub logprobs: Vec<Option<f64>>,
    pub fingerprint: Option<String>,
}

impl Answer {
    pub fn token(&self, index: usize) -> Option<&str> {
        self.tokens.get(index).map(String::as_str)
    }

    pub fn logprob(&self, index: usize) -> Option<f64> {
        self.logprobs.get(index).copied().flatten()
    }
}

/// The reason why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The server's answer: status and message.
    #[error("status {0}: {1}")]
    Status(u16, String),
    #[error("{0}")]
    Network(String),
    #[error("{0}")]
    Unreadable(String),
}

/// A server, and how it is asked.
#[derive(Clone, Debug)]
pub struct Client {
    agent: Agent,
    base: String,
    key: Option<String>,
    until: Instant,
    model: String,
    software: Option<String>,
    endpoint: &'static str,
    has_logprobs: bool,
}

impl Client {
    /// Asks a server for its models, and for one token of either endpoint with and without
    /// log-probabilities until it answers.
    ///
    /// # Errors
    /// No server, no model, an endpoint that answers nothing.
    pub fn connect(args: &DeterminismArgs, address: &str, until: Instant) -> Result<Self> {
        let agent = Agent::config_builder()
            .user_agent(concat!("asynclane/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_TIME))
            .max_idle_connections(args.neighbours as usize + 2)
            .build();
        let base = match address.contains("://") {
            true => address.to_owned(),
            false => format!("http://{address}"),
        };
        let base = base.trim_end_matches('/').trim_end_matches("/v1").to_owned();
        let mut client = Self {
            agent: agent.new_agent(),
            base,
            key: args.key.as_ref().map(|key| key.0.clone()),
            until,
            model: args.request_model.clone().unwrap_or_default(),
            software: None,
            endpoint: CHAT,
            has_logprobs: true,
        };
        client.choose_model().map_err(|problem| client.failure(&problem))?;
        client.choose_endpoint().map_err(|problem| client.failure(&problem))?;
        Ok(client)
    }

    fn choose_model(&mut self) -> Result<(), Problem> {
        let (listed, software) = self.call("/v1/models", None)?;
        self.software = software;
        if self.model.is_empty() {
            let first = listed["data"][0]["id"].as_str();
            let first = first.ok_or_else(|| {
                Problem::Unreadable("/v1/models: expected data[0].id, found none".to_owned())
            })?;
            self.model = first.to_owned();
        }
        Ok(())
    }

    /// Takes the first endpoint that answers, with log-probabilities if one gives them.
    fn choose_endpoint(&mut self) -> Result<(), Problem> {
        let mut first = None;
        for has_logprobs in [true, false] {
            for endpoint in [CHAT, COMPLETIONS] {
                (self.endpoint, self.has_logprobs) = (endpoint, has_logprobs);
                match self.ask_once(&Question::compared(0, false, 1)) {
                    Ok(answer) if !has_logprobs || !answer.logprobs.is_empty() => return Ok(()),
                    Ok(_) => {}
                    Err(Problem::Network(problem)) => return Err(Problem::Network(problem)),
                    Err(problem) => {
                        first.get_or_insert(problem);
                    }
                }
            }
        }
        let nothing = || Problem::Unreadable("expected an answer, found none".to_owned());
        Err(first.unwrap_or_else(nothing))
    }

    /// The answer to `question`. A server that is overloaded is asked again while there is time.
    ///
    /// # Errors
    /// A question that gets no answer.
    pub fn ask(&self, question: &Question) -> Result<Answer> {
        loop {
            match self.ask_once(question) {
                Err(Problem::Status(429 | 503, _)) if self.has_time() => {
                    std::thread::sleep(RETRY_PAUSE);
                }
                asked => return asked.map_err(|problem| self.failure(&problem)),
            }
        }
    }

    /// As [`Self::ask`], once.
    ///
    /// # Errors
    /// Every [`Problem`].
    pub fn ask_once(&self, question: &Question) -> Result<Answer, Problem> {
        let mut body = json!({
            "model": self.model,
            "max_tokens": question.max_tokens,
            "temperature": question.temperature,
            "seed": question.seed,
        });
        match self.endpoint {
            CHAT => body["messages"] = json!([{"role": "user", "content": question.prompt}]),
            _ => body["prompt"] = json!(question.prompt),
        }
        match (self.has_logprobs, self.endpoint) {
            (false, _) => {}
            (true, CHAT) => body["logprobs"] = json!(true),
            (true, _) => body["logprobs"] = json!(1),
        }
        let (answer, _) = self.call(self.endpoint, Some(&body))?;
        read(&answer).ok_or_else(|| {
            let expected = "expected choices[0] with a message or a text";
            Problem::Unreadable(format!("{}: {expected}", self.endpoint))
        })
    }

    /// The JSON at `path`, to which `body` is posted, and the name of the software that answers.
    fn call(&self, path: &str, body: Option<&Value>) -> Result<(Value, Option<String>), Problem> {
        let network = |error: ureq::Error| Problem::Network(error.to_string());
        let url = format!("{}{path}", self.base);
        let left = self.until.saturating_duration_since(Instant::now());
        let left = left.max(Duration::from_millis(1));
        let key = self.key.as_ref().map(|key| format!("Bearer {key}"));
        let answer = match body {
            None => {
                let mut request = self.agent.get(&url).config().timeout_global(Some(left)).build();
                if let Some(key) = key {
                    request = request.header(AUTHORIZATION, key);
                }
                request.call()
            }
            Some(body) => {
                let mut request = self.agent.post(&url).config().timeout_global(Some(left)).build();
                if let Some(key) = key {
                    request = request.header(AUTHORIZATION, key);
                }
                request.header(CONTENT_TYPE, "application/json").send(body.to_string())
            }
        };
        let mut answer = answer.map_err(network)?;
        let software = answer.headers().get(SERVER);
        let software = software.map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned());
        let status = answer.status().as_u16();
        let text = answer.body_mut().with_config().limit(MAX_BYTES).read_to_string();
        let text = text.map_err(network)?;
        if status != 200 {
            return Err(Problem::Status(status, shown(&text)));
        }
        let parsed = serde_json::from_str(&text);
        let parsed = parsed.map_err(|error| Problem::Unreadable(format!("{path}: {error}")))?;
        Ok((parsed, software))
    }

    fn failure(&self, problem: &Problem) -> anyhow::Error {
        let base = without_password(&self.base);
        let problem = escaped(&problem.to_string().replace(&self.base, &base), "");
        exit::failure(exit::UNAVAILABLE, format!("{}: {problem}", shown(&base)))
    }

    /// True until the check is given up.
    pub fn has_time(&self) -> bool {
        Instant::now() < self.until
    }

    /// The software and its version as the server tells them.
    pub fn server(&self, answer: Option<&Answer>) -> String {
        let fingerprint = answer.and_then(|answer| answer.fingerprint.as_deref());
        match (self.software.as_deref().map(shown), fingerprint.map(shown)) {
            (Some(software), Some(fingerprint)) => format!("{software}, {fingerprint}"),
            (Some(name), None) | (None, Some(name)) => name,
            (None, None) => "does not tell its name".to_owned(),
        }
    }

    /// The name of the model in requests.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The endpoint that answers.
    pub fn endpoint(&self) -> &'static str {
        self.endpoint
    }

    /// True if answers have log-probabilities.
    pub fn has_logprobs(&self) -> bool {
        self.has_logprobs
    }

    /// The name of the compared numbers.
    pub fn compared(&self) -> &'static str {
        match self.has_logprobs {
            true => "tokens and log-probabilities",
            false => "texts",
        }
    }
}

/// An answer of either endpoint.
fn read(answer: &Value) -> Option<Answer> {
    let choice = answer["choices"].get(0)?;
    let message = &choice["message"];
    let text = message["content"].as_str().or_else(|| choice["text"].as_str());
    if text.is_none() && !message.is_object() {
        return None;
    }
    let logprobs = &choice["logprobs"];
    let mut tokens = Vec::new();
    let mut numbers = Vec::new();
    if let Some(content) = logprobs["content"].as_array() {
        for token in content {
            tokens.push(token["token"].as_str().unwrap_or_default().to_owned());
            numbers.push(token["logprob"].as_f64());
        }
    } else if let Some(listed) = logprobs["tokens"].as_array() {
        tokens.extend(listed.iter().map(|token| token.as_str().unwrap_or_default().to_owned()));
        let listed = logprobs["token_logprobs"].as_array();
        numbers.extend(listed.into_iter().flatten().map(Value::as_f64));
    }
    Some(Answer {
        text: text.unwrap_or_default().to_owned(),
        tokens,
        logprobs: numbers,
        fingerprint: answer["system_fingerprint"].as_str().map(str::to_owned),
    })
}
