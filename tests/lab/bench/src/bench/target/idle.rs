//! Open streams without events, to measure their cost for other streams.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result};
use step::{Batch, BatchOutput, ExecuteError, Executor, ExecutorSpec};
use tokio::runtime::Runtime;

use super::super::tally::resident;
use super::server::Local;
use cli::config::Config;
use cli::exit;
use cli::load::Loaded;

/// Timeout for the start of a stream.
const PATIENCE: Duration = Duration::from_secs(30);

/// File descriptors that are not sockets of these streams.
const OTHER_FILES: u64 = 256;

/// A server whose streams have no events, and their clients.
pub struct IdleStreams {
    local: Option<Local>,
    streams: Vec<TcpStream>,
    /// Dropping this ends the forward pass with an error.
    gate: Option<Sender<()>>,
    /// Resident memory that the streams use.
    bytes: u64,
}

impl IdleStreams {
    /// Opens `count` streams to a separate server in this process, whose first forward pass does not
    /// end. This process's memory includes both sides; a client is only a socket.
    ///
    /// # Errors
    /// Too few file descriptors, a stream that does not start.
    pub fn open(runtime: &Runtime, loaded: Loaded, config: &Config, count: usize) -> Result<Self> {
        allow_files(2 * count as u64 + OTHER_FILES)?;
        let mut config = config.clone();
        config.engine.max_waiting = config.engine.max_waiting.max(count as u32);
        let (gate, closed) = channel();
        let held = Held {
            spec: loaded.executor.spec(),
            closed,
        };
        let executor = Box::new(held);
        let local = Local::start(runtime, Loaded { executor, ..loaded }, &config)?;
        let mut crowd = Self {
            streams: Vec::with_capacity(count),
            gate: Some(gate),
            local: None,
            bytes: 0,
        };
        let before = resident();
        for _ in 0..count {
            crowd.streams.push(begin(&local)?);
        }
        for stream in &mut crowd.streams {
            let mut start = [0; 12];
            stream.read_exact(&mut start).context("an idle stream")?;
            if &start != b"HTTP/1.1 200" {
                let message = format!(
                    "an idle stream is answered {}",
                    String::from_utf8_lossy(&start)
                );
                return Err(exit::failure(exit::ENGINE, message));
            }
        }
        crowd.bytes = resident().saturating_sub(before);
        crowd.local = Some(local);
        Ok(crowd)
    }

    /// Resident memory of both ends of the streams, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Ends the streams and their server.
    pub fn close(mut self, runtime: &Runtime) {
        self.streams.clear();
        self.gate = None;
        if let Some(local) = self.local.take() {
            local.stop(runtime);
        }
    }
}

/// Sends one request for a stream.
fn begin(local: &Local) -> Result<TcpStream> {
    let body = serde_json::json!({
        "model": local.model, "prompt": "a", "max_tokens": 8, "stream": true,
    })
    .to_string();
    let mut stream = TcpStream::connect(local.address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "POST /v1/completions HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        local.address,
        body.len()
    )?;
    Ok(stream)
}

/// Raises this process's limit of open files to `needed`, if it is lower.
#[cfg(unix)]
fn allow_files(needed: u64) -> Result<()> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    let enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= needed);
    if enough(limit.current) {
        return Ok(());
    }
    if !enough(limit.maximum) {
        let message = format!(
            "--idle-streams: expected a limit of at least {needed} open files, found {}",
            limit.maximum.unwrap_or_default()
        );
        return Err(exit::failure(exit::USAGE, message));
    }
    limit.current = Some(needed);
    setrlimit(Resource::Nofile, limit).context("raising the limit of open files")
}

/// Windows limits sockets by memory only.
#[cfg(not(unix))]
fn allow_files(_needed: u64) -> Result<()> {
    Ok(())
}

/// An executor whose forward pass does not end.
struct Held {
    spec: ExecutorSpec,
    closed: Receiver<()>,
}

impl Executor for Held {
    fn spec(&self) -> ExecutorSpec {
        self.spec
    }

    fn execute(&mut self, _: &Batch, _: &mut BatchOutput) -> Result<(), ExecuteError> {
        let _ = self.closed.recv();
        Err(ExecuteError("given up".to_owned()))
    }
}
