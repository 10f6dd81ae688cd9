//! Requests to the Hub. What it answers is not trusted: names and sizes are checked, and the token goes
//! to no other host.

use std::fmt::Write as _;
use std::io::{self, Read};
use std::time::Duration;

use ureq::http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, ETAG, LOCATION, RANGE,
    RETRY_AFTER,
};
use ureq::http::{HeaderMap, HeaderName, Response, StatusCode, Uri};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body};

/// Maximum redirects of one request.
const MAX_REDIRECTS: usize = 10;
/// Maximum bytes of the list of a repository's files.
const MAX_LIST_BYTES: u64 = 16 << 20;
/// Number of times that a request is repeated which the Hub could not answer.
const MAX_REPEATS: u32 = 3;
/// Longest pause before a repeated request. A longer one that the Hub asks for ends the download.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// Maximum characters of the Hub's reason that a message quotes.
const MAX_REASON_CHARS: usize = 300;
/// The digest and the size of a file that another host stores, and the commit of a file.
const LINKED_ETAG: HeaderName = HeaderName::from_static("x-linked-etag");
const LINKED_SIZE: HeaderName = HeaderName::from_static("x-linked-size");
const COMMIT: HeaderName = HeaderName::from_static("x-repo-commit");
/// The Hub's reason of a refusal.
const REASON: HeaderName = HeaderName::from_static("x-error-message");

/// Time that the Hub may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    /// For a connection.
    pub connect: Duration,
    /// For the head of an answer, and between two bytes of it.
    pub silence: Duration,
    /// Before the first repeated request; twice as long before each further one.
    pub pause: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            silence: Duration::from_secs(30),
            pause: Duration::from_secs(1),
        }
    }
}

/// The reason why a request or a download failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// The Hub's answer, and its reason if it gives one.
    #[error("status {0}")]
    Status(u16, String),
    /// No answer, or one that broke off.
    #[error("{0}")]
    Network(String),
    /// An answer that is not followed: what was expected and found.
    #[error("{0}")]
    Refused(String),
    /// The cache cannot be read or written.
    #[error("{0}")]
    Disk(#[from] io::Error),
}

/// A Hub, and the token for it.
#[derive(Debug)]
pub(super) struct Client {
    agent: Agent,
    /// Without a slash at its end.
    endpoint: String,
    token: Option<String>,
    pause: Duration,
}

/// The Hub's description of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    /// The name of its content: the SHA-256 of a large file in 64 hexadecimal digits, the name of its
    /// git object in 40 of another one.
    pub etag: String,
    /// Its bytes.
    pub size: u64,
}

impl Client {
    pub fn new(
        endpoint: &str,
        token: Option<String>,
        roots: RootCerts,
        patience: Timeouts,
    ) -> Self {
        let config = Agent::config_builder()
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            .user_agent(concat!("asynclane/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_resolve(Some(patience.connect))
            .timeout_connect(Some(patience.connect))
            .timeout_recv_response(Some(patience.silence))
            .timeout_per_read(Some(patience.silence))
            .timeout_per_write(Some(patience.silence))
            .build();
        let (agent, endpoint) = (config.new_agent(), endpoint.to_owned());
        Self { agent, endpoint, token, pause: patience.pause }
    }

    /// Waits before the repeat with this number, from 0 on.
    pub fn pause(&self, repeat: u32) {
        std::thread::sleep(self.pause.saturating_mul(1 << repeat.min(MAX_REPEATS)));
    }

    /// The text at `path`, which begins with a slash: a list of files.
    ///
    /// # Errors
    /// Every [`Fault`].
    pub fn list(&self, path: &str) -> Result<String, Fault> {
        let (_, mut answer) = self.get(path, 0)?;
        let body = answer.body_mut().with_config().limit(MAX_LIST_BYTES);
        body.read_to_string().map_err(network)
    }

    /// The file at `path` of `commit` from byte `from` on, if the Hub can begin there: what it says of
    /// the file, the first byte, and the bytes.
    ///
    /// # Errors
    /// Every [`Fault`].
    pub fn file(
        &self,
        path: &str,
        commit: &str,
        start: u64,
    ) -> Result<(Meta, u64, impl Read + use<>), Fault> {
        let (first, answer) = self.get(path, start)?;
        // The Hub's own answer names the file, also if it is stored elsewhere.
        let found = text(&first, &COMMIT);
        if found.as_deref().is_some_and(|found| found != commit) {
            return Err(refused("X-Repo-Commit", commit, found.as_deref()));
        }
        let etag = text(&first, &LINKED_ETAG).or_else(|| text(&first, &ETAG));
        let etag = etag.as_deref().map(|etag| {
            let etag = etag.strip_prefix("W/").unwrap_or(etag);
            etag.trim_matches('"')
        });
        let etag = match etag {
            Some(etag) if is_digest(etag) => etag.to_ascii_lowercase(),
            other => return Err(refused("ETag", "40 or 64 hexadecimal digits", other)),
        };
        let (begin, size) = extent(answer.status().as_u16(), answer.headers(), start)?;
        let linked = text(&first, &LINKED_SIZE);
        if linked.is_some() && linked.as_deref() != Some(&size.to_string()) {
            let expected = format!("{size} by the file's host");
            return Err(refused("X-Linked-Size", &expected, linked.as_deref()));
        }
        let bytes = answer.into_body().into_reader();
        Ok((Meta { etag, size }, begin, bytes))
    }

    /// The answer at `path` from byte `from` on, and the headers of the first one before redirects to
    /// another host. A Hub that is busy or fails is asked again.
    fn get(&self, path: &str, start: u64) -> Result<(HeaderMap, Response<Body>), Fault> {
        let mut repeat = 0;
        loop {
            match self.get_once(path, start)? {
                Ok(answered) => return Ok(answered),
                Err((status, headers)) => {
                    let asked = text(&headers, &RETRY_AFTER).and_then(|text| text.parse().ok());
                    let asked = asked.map(Duration::from_secs);
                    let is_brief = asked.is_none_or(|pause| pause <= LONGEST_PAUSE);
                    let is_passing =
                        status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
                    if !is_passing || !is_brief || repeat >= MAX_REPEATS {
                        let reason = text(&headers, &REASON).unwrap_or_default();
                        let reason = reason.chars().take(MAX_REASON_CHARS).collect();
                        return Err(Fault::Status(status.as_u16(), reason));
                    }
                    match asked {
                        Some(pause) => {
                            let seconds = pause.as_secs();
                            say!(
                                "the hub answers with status {status}: asked again in {seconds} s"
                            );
                            std::thread::sleep(pause);
                        }
                        None => self.pause(repeat),
                    }
                    repeat += 1;
                }
            }
        }
    }

    /// The same, or the status and the headers of an answer that has no content.
    fn get_once(&self, path: &str, start: u64) -> Result<Answered, Fault> {
        let mut url = format!("{}{path}", self.endpoint);
        let mut first = None;
        for _ in 0..=MAX_REDIRECTS {
            let mut request = self.agent.get(&url).header(ACCEPT_ENCODING, "identity");
            if start > 0 {
                request = request.header(RANGE, format!("bytes={start}-"));
            }
            if let Some(token) = &self.token
                && origin(&url).is_some()
                && origin(&url) == origin(&self.endpoint)
            {
                request = request.header(AUTHORIZATION, format!("Bearer {token}"));
            }
            let answer = request.call().map_err(network)?;
            let (status, headers) = (answer.status(), answer.headers());
            let mut has_moved = false;
            if status.is_redirection() {
                let next = target(&url, text(headers, &LOCATION).as_deref())?;
                // The new name of a repository, whose answer has the headers of the file.
                let is_bare = !headers.contains_key(COMMIT) && !headers.contains_key(LINKED_ETAG);
                has_moved = is_bare && origin(&next) == origin(&url);
                url = next;
            }
            if !has_moved {
                first.get_or_insert_with(|| headers.clone());
            }
            if status.is_success() {
                return Ok(Ok((first.unwrap_or_default(), answer)));
            }
            if !status.is_redirection() {
                return Ok(Err((status, headers.clone())));
            }
        }
        Err(Fault::Refused(format!("expected at most {MAX_REDIRECTS} redirects, found more")))
    }
}

/// The headers that describe a file and the answer with its content, or those of an answer without it.
type Answered = Result<(HeaderMap, Response<Body>), (StatusCode, HeaderMap)>;

/// The certificates of a PEM file, which the Hub's certificate is checked with in place of the built-in ones.
///
/// # Errors
/// No certificate, or a malformed one.
pub(super) fn roots(pem: &[u8]) -> Result<RootCerts, String> {
    let mut found = Vec::new();
    for item in parse_pem(pem) {
        if let PemItem::Certificate(certificate) = item.map_err(|error| error.to_string())? {
            found.push(certificate);
        }
    }
    match found.is_empty() {
        true => Err("no certificate".to_owned()),
        false => Ok(RootCerts::from(found)),
    }
}

/// The first byte and the size of the file of an answer to a request from byte `from` on.
fn extent(status: u16, headers: &HeaderMap, start: u64) -> Result<(u64, u64), Fault> {
    if status != 206 {
        let length = text(headers, &CONTENT_LENGTH);
        let size = length.as_deref().and_then(|length| length.parse().ok());
        let size = size.ok_or_else(|| refused("Content-Length", "a size", length.as_deref()))?;
        return Ok((0, size));
    }
    let range = text(headers, &CONTENT_RANGE);
    let parsed = range.as_deref().and_then(|range| {
        let (range, size) = range.strip_prefix("bytes ")?.split_once('/')?;
        let (begin, end) = range.split_once('-')?;
        let (begin, end, size): (u64, u64, u64) =
            (begin.parse().ok()?, end.parse().ok()?, size.parse().ok()?);
        (begin == start && end.checked_add(1) == Some(size)).then_some((begin, size))
    });
    let expected = format!("bytes {start}- to the end of the file");
    parsed.ok_or_else(|| refused("Content-Range", &expected, range.as_deref()))
}

/// The URL to which a redirect of `url` leads.
fn target(url: &str, location: Option<&str>) -> Result<String, Fault> {
    let expected = "the address of a redirect";
    let unusable = || refused("Location", expected, location);
    let location = location.ok_or_else(unusable)?;
    let (scheme, rest) = url.split_once("://").ok_or_else(unusable)?;
    let host = rest.split('/').next().unwrap_or_default();
    let next = match location {
        _ if location.starts_with("//") => format!("{scheme}:{location}"),
        _ if location.starts_with('/') => format!("{scheme}://{host}{location}"),
        _ => location.to_owned(),
    };
    origin(&next).ok_or_else(unusable)?;
    if scheme == "https" && !next.starts_with("https:") {
        return Err(refused("Location", "https after https", Some(location)));
    }
    Ok(next)
}

/// Scheme, host and port of an address of HTTP.
fn origin(url: &str) -> Option<(String, String, u16)> {
    let url: Uri = url.parse().ok()?;
    let default = match url.scheme_str()? {
        "https" => 443,
        "http" => 80,
        _ => return None,
    };
    let host = url.host()?.to_ascii_lowercase();
    let port = url.port_u16().unwrap_or(default);
    Some((url.scheme_str()?.to_owned(), host, port))
}

/// True if `name` can be the name of a commit or of a file's content.
pub(super) fn is_digest(name: &str) -> bool {
    matches!(name.len(), 40 | 64) && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// `bytes` in hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string succeeds.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let value = headers.get(name)?;
    Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
}

fn refused(what: &str, expected: &str, found: Option<&str>) -> Fault {
    let found = found.map_or("none".to_owned(), |found| {
        let found: String = found.chars().take(200).collect();
        format!("{found:?}")
    });
    Fault::Refused(format!("{what}: expected {expected}, found {found}"))
}

fn network(error: ureq::Error) -> Fault {
    Fault::Network(error.to_string())
}
