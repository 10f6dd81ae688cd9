//! `asynclane generate`: answers one prompt, prints tokens as they are committed, and the lane tree.

mod canvas;
mod lanes;
mod screen;

use std::io::{Read, Write};

use anyhow::Result;
use engine::{Event, EventStream, Extras, Finished, Request, StepTrace};
use server::api::fields::numbers::Count;
use step::Sampling;
use text::{StreamOptions, TextStream};

use crate::args::GenerateArgs;
use crate::config::Config;
use crate::exit;
use crate::load::{self, LoadedModel};

use canvas::Canvas;
use screen::Screen;

/// Maximum tokens of an answer without `--max-tokens`.
const DEFAULT_MAX_TOKENS: u32 = 256;

/// Writes the answer to standard output and everything else to standard error.
///
/// # Errors
/// A model that does not load, a prompt that does not fit, a failed step.
pub fn run(args: &GenerateArgs) -> Result<()> {
    let config = Config::resolve(&args.model, None)?;
    let prompt = match &args.prompt {
        Some(prompt) => prompt.clone(),
        None => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            text
        }
    };
    let loaded = load::load(&config)?;
    let request = request(args, &config, &loaded, &prompt)?;
    let budget = request.max_tokens;
    let tokenizer = loaded.tokenizer.clone();
    let engine_config = load::engine_config(&config, &loaded);
    let drafter = loaded.draft.map(|draft| draft.drafter(&engine_config));
    let (handle, thread) =
        engine::spawn_with_drafter(&engine_config, loaded.executor, drafter, Box::new(()))?;
    let streams = handle.submit(vec![request]);
    let mut streams = streams.map_err(|error| exit::failure(exit::USAGE, error.to_string()))?;
    let stream = streams.pop().expect("one stream per request");
    drop(handle);
    let canvas = Canvas::new(&tokenizer, budget);
    let result = Output {
        args,
        canvas,
        text: TextStream::new(&tokenizer, &StreamOptions::default()),
        screen: Screen::new(args.trace),
    }
    .follow(stream);
    let _ = thread.join();
    result
}

fn request(
    args: &GenerateArgs,
    config: &Config,
    loaded: &LoadedModel,
    prompt: &str,
) -> Result<Request> {
    let prompt_ids = match args.raw {
        true => loaded.tokenizer.encode(prompt, true)?,
        false => load::chat_ids(prompt.trim(), &loaded.tokenizer)?,
    };
    let max_tokens = budget(args, prompt_ids.len(), loaded.max_model_len(config))?;
    let decoders = config.decoders(loaded.weights)?;
    let decoding = decoders.resolve(&decoders.blank())?;
    Ok(Request {
        sampling: Sampling {
            temperature: args.temperature.0 as f32,
            seed: server::choice_seed(args.seed.get(), 0),
            ..Sampling::GREEDY
        },
        stop_tokens: loaded.stop_tokens.clone(),
        code_prompt: server::is_code_shaped(prompt),
        extras: Extras { trace: true, ..Extras::default() },
        ..Request::new(prompt_ids, max_tokens, decoding)
    })
}

/// The budget that a prompt of `tokens` tokens leaves.
fn budget(args: &GenerateArgs, tokens: usize, context: u32) -> Result<u32> {
    let room = u32::try_from(tokens).map_or(0, |tokens| context.saturating_sub(tokens));
    let refused = |message: String| Err(exit::failure(exit::USAGE, message));
    match args.max_tokens.map(Count::count) {
        _ if tokens == 0 => refused("the prompt has no tokens".to_owned()),
        _ if room == 0 => refused(format!("the prompt has {tokens} tokens, the context {context}")),
        Some(budget) if budget > room => refused(format!(
            "--max-tokens must be at most {room}, got {budget}: the prompt has {tokens} tokens, the \
             context {context}"
        )),
        budget => Ok(budget.unwrap_or(room.min(DEFAULT_MAX_TOKENS))),
    }
}

struct Output<'a> {
    args: &'a GenerateArgs,
    canvas: Canvas<'a>,
    text: TextStream,
    /// `Some` if standard output is a terminal.
    screen: Option<Screen>,
}

impl Output<'_> {
    fn follow(mut self, mut stream: EventStream) -> Result<()> {
        let mut out = std::io::stdout().lock();
        let mut lanes = lanes::Lanes::default();
        while let Some(event) = stream.blocking_next() {
            match event {
                // A text is written, and none is read.
                Event::Started | Event::Labels(_) => {}
                Event::Tokens { chunk, .. } => {
                    let piece = self.text.push(chunk.as_slice());
                    if self.screen.is_none() {
                        write!(out, "{}", piece.text)?;
                        out.flush()?;
                    }
                }
                Event::Step(step) => {
                    self.canvas.apply(&step);
                    lanes.apply(&step);
                    self.draw(&step, &lanes)?;
                }
                Event::Finished(finished) => {
                    let rest = self.text.finish();
                    match self.screen.take() {
                        Some(screen) => {
                            screen.clear();
                            writeln!(out, "{}", self.canvas.finished())?;
                        }
                        None => writeln!(out, "{}", rest.text)?,
                    }
                    return self.conclude(finished, &lanes);
                }
                Event::Refused { message } | Event::Failed { message } => {
                    return Err(exit::failure(exit::ENGINE, message));
                }
            }
        }
        Err(exit::failure(exit::ENGINE, "the engine stopped before the answer was complete"))
    }

    fn draw(&self, step: &StepTrace, lanes: &lanes::Lanes) -> Result<()> {
        if self.args.trace {
            let mut err = std::io::stderr().lock();
            writeln!(err, "{}", self.canvas.step_line(step))?;
        } else if let Some(screen) = &self.screen {
            screen.draw(&self.canvas, lanes);
        }
        Ok(())
    }

    fn conclude(&self, finished: Finished, lanes: &lanes::Lanes) -> Result<()> {
        let mut err = std::io::stderr().lock();
        let stats = finished.stats;
        if self.args.trace {
            write!(err, "\n{}", lanes.draw(&self.canvas))?;
        }
        if self.args.stats || self.args.trace {
            let tokens = f64::from(stats.emitted_tokens.max(1));
            let forwards = match stats.forwards() {
                1 => "1 forward".to_owned(),
                count => format!("{count} forwards"),
            };
            writeln!(
                err,
                "{} tokens, {forwards} ({} prefill, {} decode, {} refresh), {:.2} tokens per \
                 forward, {:.1} positions per token, {} lanes, {} forks, {} drafts",
                stats.emitted_tokens,
                stats.passes.prefill,
                stats.passes.decode,
                stats.passes.refresh,
                f64::from(stats.emitted_tokens) / f64::from(stats.forwards().max(1)),
                stats.positions as f64 / tokens,
                stats.lanes,
                stats.forks,
                stats.commits.drafts,
            )?;
            let draft_model = stats.draft_model;
            if draft_model.forwards > 0 {
                writeln!(
                    err,
                    "draft model: {} forwards, {} tokens drafted, {} verified",
                    draft_model.forwards, draft_model.drafted, draft_model.verified,
                )?;
            }
        }
        Ok(())
    }
}
