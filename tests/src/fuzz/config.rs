//! Configurations: of the server in TOML, and of models in JSON.

use std::cell::RefCell;
use std::path::PathBuf;

use cli::args::ModelArgs;
use cli::config::Config;
use model::{Checkpoint, WeightDtype};

use super::{Outcome, Target, check_error};

/// The target.
pub const TARGET: Target = Target {
    name: "config",
    run,
    words: &[
        "[engine]",
        "[server]",
        "[[",
        "]]",
        " = ",
        "'''",
        "\"\"\"",
        "1e999",
        "0x",
        "inf",
        "nan",
        "1979-05-27",
        "{",
        "}",
        "#",
        "\\U0010FFFF",
        "a.b.c = 1",
    ],
    memory: 300,
    accepted: 30,
};

/// `data` is the configuration of a model if it begins as a JSON object does, otherwise of the server.
pub fn run(data: &[u8]) -> Outcome {
    match data.first() {
        Some(b'{') => model(data),
        _ => server(data),
    }
}

/// Reads the sizes of a model and counts its weights and their memory.
fn model(data: &[u8]) -> Outcome {
    let Ok(text) = std::str::from_utf8(data) else {
        return Outcome::Refused;
    };
    let survey = |mut checkpoint: Checkpoint| checkpoint.survey(WeightDtype::F32);
    Outcome::of(Checkpoint::synthetic(text, 1).and_then(survey))
}

fn server(data: &[u8]) -> Outcome {
    thread_local! {
        static FILE: RefCell<Option<File>> = const { RefCell::new(None) };
    }
    let path = FILE.with_borrow_mut(|file| file.get_or_insert_with(File::new).0.clone());
    std::fs::write(&path, data).expect("the folder of temporary files is writable");
    let arguments = ModelArgs {
        config: vec![path],
        ..ModelArgs::default()
    };
    match Config::resolve(&arguments, None) {
        Ok(_) => Outcome::Accepted,
        Err(error) => {
            // A line per problem.
            error.to_string().lines().for_each(check_error);
            Outcome::Refused
        }
    }
}

/// A file of one thread, removed when it ends.
struct File(PathBuf);

impl File {
    fn new() -> Self {
        let name = format!("asynclane-fuzz-{}.toml", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // It may be gone.
        let _ = std::fs::remove_file(&self.0);
    }
}
