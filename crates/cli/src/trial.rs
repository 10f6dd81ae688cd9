//! One trial of a model that was just loaded, so that one that can never answer is found before the first
//! request, and the rows of a step suit the CPU.

use std::time::{Duration, Instant};

use anyhow::Result;
use engine::{Engine, Request};
use step::{Attention, BatchOutput, Executor};
use text::{Message, Tokenizer};

use crate::config::{Config, DEFAULT_ROWS};
use crate::exit;
use crate::load::{self, LoadedModel};
use crate::names::escaped;

/// Maximum steps of the trial: the parts of its prompt, and one that scores tokens.
const MAX_STEPS: usize = 8;
const TEXT: &str = "Hello";
/// Fewest rows of a step that the trial chooses: with fewer, each expert of a mixture has few rows, and whole
/// prompts wait for more steps.
const FEWEST_ROWS: u32 = 256;
/// The same for models without experts whose prompts are split: their products are as fast with fewer rows.
const FEWEST_DENSE_ROWS: u32 = 64;

/// Runs a forward pass over a chat, or over a text if there is no template for chats, until tokens are scored.
/// On a CPU without a configured number, steps get the rows of about a second, so that nobody waits longer for
/// those of others.
///
/// # Errors
/// The forward pass fails: its logits are not finite, or the device does not work.
pub fn run(loaded: &mut LoadedModel, config: &Config) -> Result<()> {
    let prompt = prompt(&loaded.tokenizer)?;
    let decoders = config.decoders(loaded.weights)?;
    let decoding = decoders.resolve(&decoders.blank())?;
    let engine = Engine::new(&load::engine_config(config, loaded), loaded.executor.spec());
    let request =
        Request { stop_tokens: loaded.stop_tokens.clone(), ..Request::new(prompt, 1, decoding) };
    let timed = forward(engine, loaded.executor.as_mut(), request).map_err(|reason| {
        let name = escaped(&loaded.name, "");
        exit::failure(exit::CHECKPOINT, format!("{name}: the model cannot answer: {reason}"))
    })?;
    if loaded.hardware.is_cpu() && config.engine.row_budget == 0 {
        let is_dense = loaded.info.experts.is_none();
        let fewest = match is_dense && loaded.info.rows.attention != Attention::Full {
            true => FEWEST_DENSE_ROWS,
            false => FEWEST_ROWS,
        };
        let rows = timed.map_or(DEFAULT_ROWS, |timed| rows_of_a_second(timed, fewest));
        loaded.hardware.row_budget = rows;
    }
    Ok(())
}

/// The ids of a user's message, with a system message before it if the template asks for one. If the template
/// refuses both, the operator is warned, and the ids are those of a text: completions need no template.
fn prompt(tokenizer: &Tokenizer) -> Result<Vec<u32>> {
    let user = Message::new("user", TEXT);
    let chats = [vec![user.clone()], vec![Message::new("system", TEXT), user]];
    let mut refusal = None;
    for chat in chats.into_iter().filter(|_| tokenizer.chat_template().is_ok()) {
        match load::conversation_ids(chat, tokenizer) {
            Ok(ids) => return Ok(ids),
            Err(reason) => refusal = refusal.or(Some(reason)),
        }
    }
    if let Some(reason) = refusal {
        let reason = escaped(&reason.to_string(), "");
        say!(
            "warning: the chat template refuses a user's message, also after a system message: {reason}"
        );
    }
    Ok(tokenizer.encode(TEXT, true)?)
}

/// The rows of about a second, at least `fewest`, from a pass that had this many in this time.
fn rows_of_a_second((rows, time): (usize, Duration), fewest: u32) -> u32 {
    let in_second = rows as f64 / time.as_secs_f64().max(f64::EPSILON);
    (in_second as u32).clamp(fewest, DEFAULT_ROWS)
}

/// Runs `request`, which is not answered, and returns rows and time of its last pass. One that `engine` does not
/// admit proves nothing.
fn forward(
    mut engine: Engine,
    executor: &mut dyn Executor,
    request: Request,
) -> Result<Option<(usize, Duration)>, String> {
    let mut timed = None;
    if engine.submit(request).is_err() {
        return Ok(timed);
    }
    let mut output = BatchOutput::default();
    for _ in 0..MAX_STEPS {
        let Some(step) = engine.plan() else {
            break;
        };
        let (rows, start) = (step.batch().rows.len(), Instant::now());
        let begun = executor.begin(step.batch());
        let ran = begun.and_then(|()| executor.execute(step.batch(), &mut output));
        ran.map_err(|error| error.to_string())?;
        timed = Some((rows, start.elapsed()));
        // One more pass over a canvas of a large model takes seconds.
        if !output.candidates.is_empty() {
            break;
        }
        engine.apply(step, &output, Duration::ZERO);
        while engine.poll_event().is_some() {}
    }
    Ok(timed)
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
    fn steps_have_the_rows_of_a_second() {
        let rows = |rows, milliseconds, fewest| {
            rows_of_a_second((rows, Duration::from_millis(milliseconds)), fewest)
        };
        assert_eq!([rows(30, 500, 256), rows(30, 40, 256), rows(30, 1, 256)], [256, 750, 2048]);
        assert_eq!([rows(30, 500, 64), rows(30, 400, 64), rows(30, 200, 64)], [64, 75, 150]);
        assert_eq!(rows(30, 0, 64), 2048);
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
