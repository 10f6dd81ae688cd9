//! A loaded model behind an engine thread, for commands that answer on the terminal.

use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::Result;
use decode::TokenId;
use engine::decoding::{Decoders, Decoding, WeightKind};
use engine::{EventStream, Extras, Handle, Request};
use step::Sampling;
use text::Tokenizer;

use crate::args::SamplingArgs;
use crate::config::Config;
use crate::exit;
use crate::load::{self, LoadedModel};

/// A loaded model and its engine.
pub struct Session {
    /// The model's tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// The decoders that suit the weights.
    pub decoders: Decoders,
    /// The training of the weights.
    pub weights: WeightKind,
    /// The model name in requests.
    pub name: String,
    /// True if it is an embedded demo model.
    pub is_demo: bool,
    /// Maximum positions of a sequence.
    pub context: u32,
    stop_tokens: Vec<TokenId>,
    /// `None` once the session has ended.
    engine: Option<(Handle, JoinHandle<()>)>,
}

impl Session {
    /// Loads the configured model and starts its engine.
    ///
    /// # Errors
    /// A model that does not load.
    pub fn start(config: &Config) -> Result<Self> {
        let loaded = load::load(config)?;
        let engine_config = load::engine_config(config, &loaded);
        let context = loaded.max_model_len;
        let decoders = config.decoders(loaded.weights)?;
        let LoadedModel { executor, tokenizer, weights, draft, stop_tokens, name, is_demo, .. } =
            loaded;
        let drafter = draft.map(|draft| draft.drafter(&engine_config));
        let engine = engine::spawn_with_drafter(&engine_config, executor, drafter, Box::new(()))?;
        let engine = Some(engine);
        Ok(Self { tokenizer, decoders, weights, name, is_demo, context, stop_tokens, engine })
    }

    /// The budget of an answer to a prompt of `tokens` tokens.
    ///
    /// # Errors
    /// A prompt without tokens or without room for an answer, a budget beyond the context.
    pub fn budget(
        &self,
        sampling: &SamplingArgs,
        decoding: &Decoding,
        tokens: usize,
    ) -> Result<u32> {
        let context = self.context;
        let room = u32::try_from(tokens).map_or(0, |tokens| context.saturating_sub(tokens));
        let refused = |message: String| Err(exit::failure(exit::USAGE, message));
        match sampling.max_tokens.map(|count| count.count()) {
            _ if tokens == 0 => refused("the prompt has no tokens".to_owned()),
            _ if room == 0 => {
                refused(format!("the prompt has {tokens} tokens, the context {context}"))
            }
            Some(budget) if budget > room => refused(format!(
                "--max-tokens must be at most {room}, got {budget}: the prompt has {tokens} \
                 tokens, the context {context}"
            )),
            budget => Ok(budget.unwrap_or(room.min(decoding.default_budget()))),
        }
    }

    /// Starts an answer. `code_prompt` says that the prompt looks like code.
    ///
    /// # Errors
    /// A request that the engine cannot take.
    pub fn submit(
        &self,
        prompt: Prompt,
        decoding: Decoding,
        sampling: &SamplingArgs,
    ) -> Result<EventStream> {
        let request = Request {
            sampling: Sampling {
                temperature: sampling.temperature.0 as f32,
                seed: server::choice_seed(sampling.seed.get(), 0),
                ..Sampling::GREEDY
            },
            stop_tokens: self.stop_tokens.clone(),
            code_prompt: prompt.is_code,
            extras: Extras { trace: true, ..Extras::default() },
            ..Request::new(prompt.tokens, prompt.budget, decoding)
        };
        let (handle, _) = self.engine.as_ref().expect("the session has not ended");
        let streams = handle.submit(vec![request]);
        let streams = streams.map_err(|error| exit::failure(exit::USAGE, error.to_string()))?;
        Ok(streams.into_iter().next().expect("one stream per request"))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some((handle, thread)) = self.engine.take() {
            drop(handle);
            // A panic has been reported by its thread.
            let _ = thread.join();
        }
    }
}

/// Refuses a prompt of blanks; `advice` tells where to write one.
///
/// # Errors
/// The prompt has blanks alone.
pub fn refuse_blanks(prompt: &str, advice: &str) -> Result<()> {
    match prompt.trim().is_empty() {
        true => Err(exit::failure(exit::USAGE, format!("no prompt: {advice}"))),
        false => Ok(()),
    }
}

/// An encoded prompt with the budget of its answer.
pub struct Prompt {
    /// The tokens.
    pub tokens: Vec<TokenId>,
    /// Maximum tokens of the answer.
    pub budget: u32,
    /// True if the text looks like code.
    pub is_code: bool,
}
