//! The draft model: a second model of the same tokenizer, whose drafts the configured one verifies.

use anyhow::Result;
use decode::AttentionKind;
use engine::decoding::{Decoding, WeightKind};
use engine::{Drafter, EngineConfig};
use model::{Checkpoint, Files, ModelInfo};
use step::Executor;
use text::Tokenizer;

use crate::config::{AUTO, Config};
use crate::device;
use crate::exit;
use crate::fit;
use crate::hub;
use crate::kv;
use crate::load;
use crate::names::escaped;

/// A draft model ready to run.
pub struct DraftModel {
    /// As configured.
    pub name: String,
    /// Runs its forward passes.
    pub executor: Box<dyn Executor>,
    /// Its decoder.
    pub decoding: Decoding,
}

impl DraftModel {
    /// A drafter for an engine with this configuration.
    pub fn drafter(self, config: &EngineConfig) -> Drafter {
        Drafter::new(config, self.executor, self.decoding)
    }
}

/// A draft model that goes with the configured one; its weights are not read yet.
pub struct DraftCheckpoint {
    config: Config,
    checkpoint: Checkpoint,
    decoding: Decoding,
    /// Tokens of its tokenizer.
    tokens: usize,
    /// Bytes that it needs on the CPU.
    pub bytes: u64,
}

/// The model with its drafter, if the configured draft model is one of DFlash: layers that read states
/// of the model's layers. Its weights are downloaded if they are not here.
///
/// # Errors
/// A drafter that cannot be read; a decoder for it.
pub fn in_layers(checkpoint: Checkpoint, config: &Config) -> Result<Checkpoint> {
    let drafts = &config.model.decoding;
    if drafts.draft_model.is_empty() {
        return Ok(checkpoint);
    }
    let place = hub::description(&drafts.draft_model)?.place;
    if !Checkpoint::is_drafter(&Files::folder(&*place)) {
        return Ok(checkpoint);
    }
    if drafts.draft_decoder != AUTO {
        let message = format!(
            "model.draft_decoder: expected {AUTO} beside a DFlash drafter, which fills a block in one pass, \
             found {}",
            drafts.draft_decoder
        );
        return Err(exit::failure(exit::CONFIG, message));
    }
    let folder = hub::folder(&drafts.draft_model)?;
    checkpoint.with_drafter(&Files::folder(&*folder)).map_err(exit::refused)
}

/// Checks the configured draft model against the model at `place` with the properties `verifier`. Reads no
/// weights. `None` if none is configured, or it is in the verifier's layers.
///
/// # Errors
/// One line: a model that cannot verify, one that cannot draft, another tokenizer, a decoder that does
/// not go with the weights, too little memory.
pub fn choose(
    config: &Config,
    place: &str,
    verifier: &ModelInfo,
) -> Result<Option<DraftCheckpoint>> {
    let path = &config.model.decoding.draft_model;
    if path.is_empty() || verifier.rows.drafter.is_some() {
        return Ok(None);
    }
    let weights = config.weights(verifier);
    if weights.attention.kind() != AttentionKind::Causal {
        let found = format!("{} with {}", config.model.path, weights.words());
        return Err(refused(format!("expected a causal model as model.path, found {found}")));
    }
    let own = config.for_drafts(verifier);
    let folder = &*fit::fetch(&own)?;
    let mut surveyed = kv::with_format(load::checkpoint(folder)?, &own);
    let survey = surveyed.survey(*own.model.dtype).map_err(exit::refused)?;
    let weights = own.weights(&survey.info);
    if weights.attention.kind() == AttentionKind::Canvas {
        return Err(refused(format!(
            "expected weights that fill masks or predict the next token, found {path} with {}",
            weights.words()
        )));
    }
    let words = load::tokenizer(place)?;
    let others = load::tokenizer(folder)?;
    if let Some(difference) = difference(&words, &others) {
        return Err(refused(format!(
            "expected the tokenizer of {}, found another in {path}: {difference}",
            config.model.path
        )));
    }
    let decoding = draft_decoding(&own, weights)?;
    let needs = kv::needs(&own, &mut surveyed)?;
    fit::check(&own, &needs, 0)?;
    Ok(Some(DraftCheckpoint {
        decoding,
        tokens: others.vocab_size(),
        bytes: needs.bytes(),
        checkpoint: surveyed,
        config: own.clone(),
    }))
}

impl DraftCheckpoint {
    /// Reads the weights and allocates the KV pages.
    ///
    /// # Errors
    /// As [`load::load`].
    pub fn load(self) -> Result<DraftModel> {
        let mut checkpoint = self.checkpoint;
        let (gpu, config) = device::chosen(&self.config, &mut checkpoint)?;
        let placed = load::placed((gpu, &config), checkpoint, self.tokens, 0)?;
        for warning in &placed.warnings {
            say!("warning: {}", escaped(&warning.to_string(), ""));
        }
        Ok(DraftModel {
            name: self.config.model.path,
            executor: placed.executor,
            decoding: self.decoding,
        })
    }
}

/// The decoder of the draft model. Drafts are short, so it never rewrites tokens.
///
/// # Errors
/// A decoder that does not go with the weights.
fn draft_decoding(config: &Config, weights: WeightKind) -> Result<Decoding> {
    let weights = WeightKind { edits: false, ..weights };
    let decoding = config.draft_decoding(weights)?;
    let refused = |message| exit::failure(exit::CONFIG, format!("model.draft_decoder: {message}"));
    if decoding.decoder.schedule.drafts() > 0 {
        return Err(refused(format!(
            "expected a decoder without drafts, found {}",
            decoding.label
        )));
    }
    let admitted = weights.admits(&decoding, None);
    admitted.map_err(|fault| refused(format!("{}: {}", fault.setting, fault.message)))?;
    Ok(decoding)
}

/// The first token that two tokenizers give different ids, in words. Ids that one of them leaves open
/// are no difference: checkpoints add special tokens behind the vocabulary that they share.
fn difference(words: &Tokenizer, others: &Tokenizer) -> Option<String> {
    let both = words.vocab_size().min(others.vocab_size());
    (0..u32::try_from(both).unwrap_or(u32::MAX)).find_map(|id| {
        let (one, other) = (words.id_to_token(id)?, others.id_to_token(id)?);
        (one != other).then(|| format!("token {id} is {one:?} and {other:?}"))
    })
}

fn refused(message: String) -> anyhow::Error {
    exit::failure(exit::CHECKPOINT, format!("model.draft_model: {message}"))
}

#[cfg(test)]
mod tests;
