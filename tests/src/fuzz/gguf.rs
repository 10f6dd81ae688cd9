//! GGUF files: opened, surveyed and loaded, or refused.

use model::{Checkpoint, Files, Model, WeightDtype};

use super::{File, Outcome, Target};

/// The target.
pub const TARGET: Target = Target {
    name: "gguf",
    run,
    words: "GGUF¦general.alignment¦general.architecture¦llada¦dream",
    memory: 300,
    accepted: 30,
};

/// `data` is the file.
pub fn run(data: &[u8]) -> Outcome {
    let file = File::new("model.gguf", data);
    let opened = Checkpoint::open(&Files::gguf_file(&file.0));
    Outcome::of(opened.and_then(|mut checkpoint| {
        let survey = checkpoint.survey(WeightDtype::F32)?;
        // A survey tells what loading finds.
        assert_eq!(Model::load(checkpoint)?.info(), &survey.info);
        Ok(())
    }))
}
