//! The binary as its users run it: arguments in, exit code, output and address out.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::thread::JoinHandle;

use serde_json::Value;

use crate::client::Client;

/// The start of the line on standard error once the server accepts requests.
const READY: &str = "ready on http://";

const BINARY: &str = "asynclane";

/// Names the served binary in place of the one of this test's profile: a release build, whose
/// times are held as they are.
const OTHER: &str = "SERVER_BINARY";

/// The served binary: the one that the environment variable `SERVER_BINARY` names, else the one in
/// the profile of this test.
pub fn binary() -> PathBuf {
    std::env::var_os(OTHER).map_or_else(|| folder().join(BINARY), PathBuf::from)
}

/// Factor by which the served binary may be slower than a release binary on an idle machine: more
/// without optimization and beside other tests.
pub fn patience() -> u32 {
    let optimized = !cfg!(debug_assertions) || std::env::var_os(OTHER).is_some();
    if optimized { 1 } else { 5 }
}

/// The folder with the binary of this test's profile. It is built first if Cargo runs the test or if it
/// is missing.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let test = std::env::current_exe().expect("the system knows this program");
        let folder = test.ancestors().nth(2).expect("tests lie in PROFILE/deps");
        let exists = || folder.join(BINARY).exists();
        let cargo = std::env::var_os("CARGO");
        if cargo.is_some() || !exists() {
            build(&cargo.unwrap_or_else(|| "cargo".into()), folder);
        }
        assert!(exists(), "{BINARY} was not built in {}", folder.display());
        folder.to_owned()
    })
}

fn build(cargo: &std::ffi::OsStr, folder: &Path) {
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        None | Some("debug") => "dev",
        Some(name) => name,
    };
    let mut command = Command::new(cargo);
    // With all targets, crates have the same features as in the tests, so that only the binaries are
    // left to build.
    command
        .args(["build", "--quiet", "--workspace", "--all-targets"])
        .args(["--profile", profile])
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    for (name, _) in std::env::vars_os() {
        // Variables that the outer Cargo sets for this package; build scripts that watch them would
        // run again, here and in the next outer build.
        let text = name.to_string_lossy();
        let own = ["CARGO_PKG_", "CARGO_MANIFEST_"];
        if own.iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    let status = command.status().expect("cargo runs");
    assert!(status.success(), "the workspace does not build");
}

/// The served binary about to run, without the environment's settings of models and proxies.
pub fn command(arguments: &[&str]) -> Command {
    prepared(binary(), arguments)
}

/// Another program, prepared as [`command`].
pub fn prepared(program: PathBuf, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy().to_ascii_uppercase();
        let own = ["ASYNCLANE_", "HF_"].iter().any(|prefix| text.starts_with(prefix));
        if own || text.ends_with("_PROXY") {
            command.env_remove(name);
        }
    }
    command
}

/// Runs the served binary to its end.
pub fn run(arguments: &[&str]) -> Output {
    run_command(command(arguments))
}

/// Runs a command to its end.
pub fn run_command(mut command: Command) -> Output {
    command.output().expect("the command runs")
}

/// Standard output of a run that must succeed.
pub fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Standard error of a run.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The one line on standard error of a run that must fail with the exit status `code`.
pub fn refusal(output: &Output, code: i32) -> String {
    let message = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(output.stdout.is_empty());
    message
}

/// A path as an argument.
pub fn utf8(path: &Path) -> &str {
    path.to_str().expect("the path is UTF-8")
}

/// A running `asynclane serve`; killed when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    client: Client,
    /// Reads standard error to its end, so that the server never waits for it.
    log: Option<JoinHandle<String>>,
}

impl Server {
    /// `asynclane serve --listen 127.0.0.1:0` and `arguments`, once it is ready.
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_with(arguments, |_| {})
    }

    /// As [`Server::start`]; `change` may modify the command.
    pub fn start_with(arguments: &[&str], change: impl FnOnce(&mut Command)) -> Self {
        let mut all = vec!["serve", "--listen", "127.0.0.1:0"];
        all.extend_from_slice(arguments);
        let mut command = command(&all);
        change(&mut command);
        Self::spawn(command)
    }

    /// A server that `command` starts, once it is ready.
    pub fn spawn(command: Command) -> Self {
        let (mut server, (mut lines, mut seen)) = Self::spawn_unread(command);
        server.log = Some(std::thread::spawn(move || {
            // After an error, the text read before it is the log.
            let _ = lines.read_to_string(&mut seen);
            seen
        }));
        server
    }

    /// As [`Server::spawn`]; whoever holds the reader of standard error decides whether it is read.
    pub fn spawn_unread(mut command: Command) -> (Self, (BufReader<ChildStderr>, String)) {
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the binary runs");
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut seen = String::new();
        let address = loop {
            let start = seen.len();
            let read = lines.read_line(&mut seen).expect("the log is UTF-8");
            assert!(read > 0, "the server ended before it was ready: {seen}");
            // A line of the log, as text or as an object.
            let line = seen[start..].trim_end();
            let object: Option<Value> = serde_json::from_str(line).ok();
            let message = object.as_ref().and_then(|object| object["message"].as_str());
            if let Some(address) = message.unwrap_or(line).strip_prefix(READY) {
                break address.parse().expect("the line ends with the address");
            }
        };
        let server = Self { child, client: Client::new(address), log: None };
        (server, (lines, seen))
    }

    /// A client of this server.
    pub fn client(&self) -> Client {
        self.client
    }

    /// The process's folder in `/proc`.
    pub fn proc(&self) -> PathBuf {
        Path::new("/proc").join(self.child.id().to_string())
    }

    /// Sends a signal by its name, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let pid = self.child.id();
        let kill = format!("kill -{name} {pid}");
        let sent = Command::new("sh").args(["-c", &kill]).status();
        assert!(sent.expect("a shell runs").success(), "no process {pid}");
    }

    /// Waits for its end.
    pub fn end(&mut self) -> ExitStatus {
        self.child.wait().expect("the process can be waited for")
    }

    /// Waits for its end; returns its status and its standard error.
    pub fn wait(mut self) -> (ExitStatus, String) {
        let status = self.end();
        let log = self.log.take().expect("its standard error is read");
        (status, log.join().expect("reading does not panic"))
    }

    /// Ends it with SIGTERM, which must succeed; returns its standard error.
    pub fn stop(self) -> String {
        self.signal("TERM");
        let (status, log) = self.wait();
        assert_eq!(status.code(), Some(0), "{log}");
        log
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // After a passed test the process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
