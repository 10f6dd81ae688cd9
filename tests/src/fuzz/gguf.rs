//! GGUF files: opened, surveyed and loaded, or refused.

use std::cell::RefCell;
use std::path::PathBuf;

use model::{Checkpoint, Files, Model, WeightDtype};

use super::{Outcome, Target};

/// The target.
pub const TARGET: Target = Target {
    name: "gguf",
    run,
    words: &[
        "GGUF",
        "general.alignment",
        "general.architecture",
        "llada",
        "dream",
    ],
    memory: 300,
    accepted: 30,
};

/// `data` is the file.
pub fn run(data: &[u8]) -> Outcome {
    thread_local! {
        static FILE: RefCell<Option<File>> = const { RefCell::new(None) };
    }
    let path = FILE.with_borrow_mut(|file| file.get_or_insert_with(File::new).0.clone());
    // A file that was mapped is never changed: the next input is another file of the same name.
    let _ = std::fs::remove_file(&path);
    std::fs::write(&path, data).expect("the folder of temporary files is writable");
    let opened = Checkpoint::open(&Files::gguf_file(&path));
    Outcome::of(opened.and_then(|mut checkpoint| {
        let survey = checkpoint.survey(WeightDtype::F32)?;
        let model = Model::load(checkpoint)?;
        assert_eq!(
            model.info(),
            &survey.info,
            "a survey tells what loading finds"
        );
        Ok(())
    }))
}

/// A file of one thread, removed when it ends.
struct File(PathBuf);

impl File {
    fn new() -> Self {
        let name = format!("asynclane-fuzz-{}.gguf", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // It may be gone.
        let _ = std::fs::remove_file(&self.0);
    }
}
