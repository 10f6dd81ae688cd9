//! The binary `asynclane` as its users run it: arguments in, exit code, output and address out.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::thread::JoinHandle;

use crate::client::Client;

/// What the server says on standard error once requests are taken.
const READY: &str = "ready on http://";

/// The binary of the profile that this test was built with, brought up to date by Cargo where
/// Cargo runs the test.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let test = std::env::current_exe().expect("the system knows this program");
        let folder = test.ancestors().nth(2).expect("tests lie in PROFILE/deps");
        let path = folder.join("asynclane");
        let cargo = std::env::var_os("CARGO");
        if cargo.is_some() || !path.exists() {
            build(&cargo.unwrap_or_else(|| "cargo".into()), folder);
        }
        assert!(path.exists(), "{} was not built", path.display());
        path
    })
}

fn build(cargo: &std::ffi::OsStr, folder: &Path) {
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        None | Some("debug") => "dev",
        Some(name) => name,
    };
    let mut command = Command::new(cargo);
    // With all targets, crates have the features that the tests gave them: nothing but the binary
    // itself is left to build.
    command
        .args(["build", "--quiet", "--workspace", "--all-targets"])
        .args(["--profile", profile])
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    for (name, _) in std::env::vars_os() {
        // What the outer Cargo says of this test's package; build scripts that watch it would run
        // again here, and once more outside.
        let text = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_"]
            .iter()
            .any(|of| text.starts_with(of))
        {
            command.env_remove(name);
        }
    }
    let status = command.status().expect("cargo runs");
    assert!(status.success(), "the workspace does not build");
}

/// The binary about to run, without what the environment says of models and proxies.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy().to_ascii_uppercase();
        if ["ASYNCLANE_", "HF_"].iter().any(|of| text.starts_with(of)) || text.ends_with("_PROXY") {
            command.env_remove(name);
        }
    }
    command
}

/// Runs the binary to its end.
pub fn run(arguments: &[&str]) -> Output {
    let output = command(arguments).output();
    output.expect("the binary runs")
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

    /// As [`Server::start`], with what `change` does to the command.
    pub fn start_with(arguments: &[&str], change: impl FnOnce(&mut Command)) -> Self {
        let mut all = vec!["serve", "--listen", "127.0.0.1:0"];
        all.extend_from_slice(arguments);
        let mut command = command(&all);
        change(&mut command);
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let stderr = child.stderr.take().expect("it is piped");
        let mut lines = BufReader::new(stderr);
        let mut seen = String::new();
        let address = loop {
            let start = seen.len();
            let read = lines.read_line(&mut seen).expect("the log is UTF-8");
            assert!(read > 0, "the server ended before it was ready: {seen}");
            if let Some(address) = seen[start..].trim_end().strip_prefix(READY) {
                break address.parse().expect("the line ends with the address");
            }
        };
        let log = std::thread::spawn(move || {
            // What was read before an error is all there is to see.
            let _ = lines.read_to_string(&mut seen);
            seen
        });
        Self {
            child,
            client: Client::new(address),
            log: Some(log),
        }
    }

    /// A client of this server.
    pub fn client(&self) -> Client {
        self.client
    }

    /// The folder in which Linux shows the process.
    pub fn proc(&self) -> PathBuf {
        Path::new("/proc").join(self.child.id().to_string())
    }

    /// Sends a signal by its name, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let pid = self.child.id();
        let sent = Command::new("sh")
            .args(["-c", &format!("kill -{name} {pid}")])
            .status();
        assert!(sent.expect("a shell runs").success(), "no process {pid}");
    }

    /// Waits for its end: how it ended and what it wrote on standard error.
    pub fn wait(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().expect("the process can be waited for");
        let log = self.log.take().expect("taken here only");
        (status, log.join().expect("reading does not panic"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already where a test went well to its end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
