//! A folder with the fake driver, its plan and its log.

use std::path::PathBuf;
use std::process::Command;

use asynclane_tests::process::command;

pub struct Fake {
    folder: PathBuf,
}

impl Fake {
    /// A driver with this plan.
    pub fn new(name: &str, plan: &str) -> Self {
        let name = format!("fake-driver-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let library = std::env::var_os("FAKE_DRIVER").expect("tests/lab/cuda/check names it");
        std::os::unix::fs::symlink(library, folder.join("libcuda.so.1")).unwrap();
        let fake = Self { folder };
        fake.plan(plan);
        fake
    }

    /// The driver's behaviour from its next call on.
    pub fn plan(&self, text: &str) {
        // Replaced as a whole: the driver reads it at any moment.
        let (new, plan) = (self.folder.join("new"), self.folder.join("plan"));
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, plan).unwrap();
    }

    /// A folder for a model.
    pub fn model(&self) -> PathBuf {
        let folder = self.folder.join("model");
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// The served binary on this driver, about to run.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(arguments);
        command
            .env("LD_LIBRARY_PATH", &self.folder)
            .env("FAKE_CUDA_PLAN", self.folder.join("plan"))
            .env("FAKE_CUDA_LOG", self.folder.join("log"));
        command
    }

    /// The driver's log up to now.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Asserts that nothing was misused or left, and that the context was released.
    pub fn assert_clean(&self) {
        let log = self.log();
        for line in log.lines() {
            let fault = line.starts_with("leak") || line.starts_with("misuse");
            assert!(!fault, "{log}");
        }
        assert!(log.lines().any(|line| line == "released"), "{log}");
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
