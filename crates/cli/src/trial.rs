//! One trial of a model that was just loaded, so that one that can never answer is found before the first
//! request.

use std::time::Duration;

use anyhow::Result;
use engine::{Engine, Request};
use step::{BatchOutput, Executor};

use crate::config::Config;
use crate::exit;
use crate::load::{self, LoadedModel};
use crate::names::escaped;

/// Maximum steps of the trial: the parts of its prompt, and one that scores tokens.
const MAX_STEPS: usize = 8;
const TEXT: &str = "Hello";

/// Runs a forward pass over a chat, or over a text if the template cannot hold this chat, until tokens are scored.
///
/// # Errors
/// The forward pass fails: its logits are not finite, or the device does not work.
pub fn run(loaded: &mut LoadedModel, config: &Config) -> Result<()> {
    let prompt = match load::chat_ids(TEXT, &loaded.tokenizer) {
        Ok(ids) => ids,
        Err(_) => loaded.tokenizer.encode(TEXT, true)?,
    };
    let decoders = config.decoders(loaded.weights)?;
    let decoding = decoders.resolve(&decoders.blank())?;
    let request =
        Request { stop_tokens: loaded.stop_tokens.clone(), ..Request::new(prompt, 1, decoding) };
    let engine = Engine::new(&load::engine_config(config, loaded), loaded.executor.spec());
    forward(engine, loaded.executor.as_mut(), request).map_err(|reason| {
        let name = escaped(&loaded.name, "");
        exit::failure(exit::CHECKPOINT, format!("{name}: the model cannot answer: {reason}"))
    })
}

/// Runs `request`, which is not answered. One that `engine` does not admit proves nothing.
fn forward(
    mut engine: Engine,
    executor: &mut dyn Executor,
    request: Request,
) -> Result<(), String> {
    if engine.submit(request).is_err() {
        return Ok(());
    }
    let mut output = BatchOutput::default();
    for _ in 0..MAX_STEPS {
        let Some(step) = engine.plan() else {
            break;
        };
        let begun = executor.begin(step.batch());
        let ran = begun.and_then(|()| executor.execute(step.batch(), &mut output));
        ran.map_err(|error| error.to_string())?;
        // One more pass over a canvas of a large model takes seconds.
        if !output.candidates.is_empty() {
            break;
        }
        engine.apply(step, &output, Duration::ZERO);
        while engine.poll_event().is_some() {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use step::{Batch, ExecuteError, ExecutorSpec};

    use super::*;
    use crate::args::ModelArgs;

    /// As weights whose logits are not numbers.
    struct BrokenExecutor(ExecutorSpec);

    impl Executor for BrokenExecutor {
        fn spec(&self) -> ExecutorSpec {
            self.0
        }

        fn execute(&mut self, _: &Batch, _: &mut BatchOutput) -> Result<(), ExecuteError> {
            let reason = "the logits of scored row 0 are not finite";
            Err(ExecuteError(reason.to_owned()))
        }
    }

    #[test]
    fn weights_that_cannot_answer_are_found() {
        for model in ["demo", "demo-wedlm", "demo-sdar"] {
            let mut args = ModelArgs::default();
            args.weights.model = Some(model.to_owned());
            let config = Config::resolve(&args, None).unwrap();
            let mut loaded = load::load(&config).unwrap();
            run(&mut loaded, &config).unwrap();
            loaded.executor = Box::new(BrokenExecutor(loaded.executor.spec()));
            let refusal = run(&mut loaded, &config).unwrap_err().to_string();
            let expected = "the model cannot answer: forward pass failed: the logits of scored row 0 are not finite";
            assert_eq!(refusal, format!("{model}: {expected}"));
        }
    }
}
