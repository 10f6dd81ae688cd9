//! Configurations: of the server in TOML, and of models in JSON.

use cli::args::ModelArgs;
use cli::config::Config;
use model::{Checkpoint, WeightDtype};

use super::{File, Outcome, Target, check_error};

/// The target.
pub const TARGET: Target = Target {
    name: "config",
    run,
    words: "[engine]¦[server]¦[[¦]]¦ = ¦'''¦\"\"\"¦1e999¦0x¦inf¦nan¦1979-05-27¦{¦}¦#¦\\U0010FFFF¦a.b.c = 1",
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
    let file = File::new("config.toml", data);
    let arguments = ModelArgs { config: vec![file.0.clone()], ..ModelArgs::default() };
    match Config::resolve(&arguments, None) {
        Ok(_) => Outcome::Accepted,
        Err(error) => {
            // A line per problem.
            error.to_string().lines().for_each(check_error);
            Outcome::Refused
        }
    }
}
