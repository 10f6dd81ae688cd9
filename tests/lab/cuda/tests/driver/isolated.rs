//! Processes with the fake driver as their `libcuda.so.1`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Names the test that a process is to run.
const CHILD: &str = "FAKE_CUDA_CHILD";

/// The driver's plan and log, in the process that uses it.
pub struct Plan {
    plan: PathBuf,
    log: PathBuf,
}

impl Plan {
    fn of_environment() -> Self {
        let path = |name| PathBuf::from(std::env::var_os(name).expect("the parent sets it"));
        Self { plan: path("FAKE_CUDA_PLAN"), log: path("FAKE_CUDA_LOG") }
    }

    /// Sets the behaviour of the driver from its next call on.
    pub fn write(&self, text: &str) {
        std::fs::write(&self.plan, text).unwrap();
    }

    /// The log until now.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

/// The log of a process that has ended well; none in that process.
pub struct Log(Option<String>);

impl Log {
    /// Asserts that nothing was misused or left, and that the context was released.
    pub fn clean(&self) {
        if let Some(log) = &self.0 {
            for line in log.lines() {
                assert!(!line.starts_with("leak") && !line.starts_with("misuse"), "{line}");
            }
            assert!(log.lines().any(|line| line == "released"), "{log}");
        }
    }

    /// Asserts that a line contains `what`.
    pub fn tells(&self, what: &str) {
        if let Some(log) = &self.0 {
            assert!(log.contains(what), "{what}: {log}");
        }
    }
}

/// Runs `body` in a process of its own, which has the name of the calling test, on a fake driver with
/// this plan.
pub fn isolated(name: &str, plan: &str, body: impl FnOnce(&Plan)) -> Log {
    if std::env::var_os(CHILD).is_some() {
        body(&Plan::of_environment());
        return Log(None);
    }
    // Colons would divide the list of folders.
    let plain = name.replace("::", "-");
    let folder = std::env::temp_dir().join(format!("fake-cuda-{plain}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let library = library();
    let link = folder.join("libcuda.so.1");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(library, &link).unwrap();
    let (plans, log) = (folder.join("plan"), folder.join("log"));
    std::fs::write(&plans, plan).unwrap();
    let _ = std::fs::remove_file(&log);
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(CHILD, name)
        .env("LD_LIBRARY_PATH", &folder)
        .env("FAKE_CUDA_PLAN", &plans)
        .env("FAKE_CUDA_LOG", &log)
        .output()
        .unwrap();
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "{said}\n{text}");
    assert!(said.contains("1 passed"), "no test is called {name}: {said}");
    std::fs::remove_dir_all(&folder).unwrap();
    Log(Some(text))
}

/// The fake driver of this profile.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.ancestors().nth(2).unwrap_or(Path::new("."));
    let library = folder.join("examples/libfake_driver.so");
    let build = "cargo build --package asynclane-cuda-lab --example fake_driver";
    assert!(library.exists(), "{}: `{build}` builds it", library.display());
    library
}
