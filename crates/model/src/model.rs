//! A loaded model and its info.

use crate::arch::{self, Decoder, Work};
use crate::inputs::{self, InputBounds, Inputs, PassRows};
use crate::{Checkpoint, ForwardError, LoadError, Memory, ModelInfo};
use kernels::device::RowSet;
use kernels::{ArrayKind, Cpu, Host, Pass};

/// A model ready to run on a backend.
pub struct Model<B: Host = Cpu> {
    pub(crate) backend: B,
    pub(crate) decoder: Decoder<B>,
    info: ModelInfo,
    memory: Memory,
    warnings: Vec<String>,
}

impl Model {
    /// Loads the architecture named in the configuration; converts and packs its weights.
    ///
    /// # Errors
    /// If the architecture or a setting is not supported, or a tensor is missing, has a wrong shape
    /// or type, or contains a number that is not finite.
    pub fn load(checkpoint: Checkpoint) -> Result<Self, LoadError> {
        Self::load_on(Cpu::default(), checkpoint)
    }
}

impl<B: Host> Model<B> {
    /// As [`Model::load`], on another backend.
    ///
    /// # Errors
    /// As [`Model::load`]; if the backend has no products in the checkpoint's dtype.
    pub fn load_on(backend: B, mut checkpoint: Checkpoint) -> Result<Self, LoadError> {
        let Checkpoint { config, weights, drafter } = &mut checkpoint;
        let loaded = arch::load(&backend, config, weights, drafter.as_deref_mut());
        let (decoder, info) = loaded?;
        let (info, warnings) = checkpoint.finish(info);
        Ok(Self { backend, decoder, info, memory: checkpoint.weights.memory, warnings })
    }

    /// The backend that it runs on.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// The model's info.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// The memory that the model takes, without KV pages.
    pub fn memory(&self) -> Memory {
        self.memory
    }

    /// Warnings about the checkpoint, one line each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Logits `[tokens, v]` in row-major order of one sequence at positions 0, 1, .. with the model's own
    /// attention; those of a canvas model are its encoder's. Rows are not shifted, independent of
    /// [`ModelInfo::logit_shift`].
    ///
    /// # Errors
    /// If `tokens` is empty, or a token or the length is out of range.
    pub fn logits(&self, tokens: &[u32]) -> Result<Vec<f32>, ForwardError> {
        let most = self.info.max_positions;
        if tokens.is_empty() || tokens.len() > most {
            return Err(ForwardError(format!("{} tokens, expected 1..={most}", tokens.len())));
        }
        let size = self.info.vocabulary.embedding_size;
        if let Some(token) = tokens.iter().find(|&&token| token as usize >= size) {
            return Err(ForwardError(format!("token {token} of {size}")));
        }
        self.alone(tokens).map_err(|error| ForwardError(error.to_string()))
    }

    fn alone(&self, tokens: &[u32]) -> candle_core::Result<Vec<f32>> {
        let (backend, info, rows) = (&self.backend, &self.info, tokens.len());
        let kv = self.kv(rows, 1)?;
        let bounds = InputBounds::of(info, rows, 1);
        let sequence = inputs::alone(tokens, info.rows.attention);
        let mut inputs = Inputs::default();
        inputs.fill(&sequence, PassRows::All, &bounds).map_err(candle_core::Error::msg)?;
        let arrays = inputs.arrays(&sequence);
        let limits = bounds.limits(1, 1);
        let mut batch = B::Batch::default();
        backend.upload(&arrays, &limits, &mut batch)?;
        let pass = Pass {
            arrays: &arrays,
            batch: &batch,
            kv: &kv,
            mask: inputs.mask,
            adapted: &inputs.adapted,
        };
        let mut work = Work::new(backend, info, rows)?;
        let mut logits = backend.array(ArrayKind::Sums, rows, info.vocabulary.size)?;
        self.decoder.hidden(backend, &pass, &mut work, &|| Ok(()))?;
        let all = RowSet::First(rows);
        let normed = self.decoder.normed(backend, &pass, &mut work, &all)?;
        backend.linear(self.decoder.head(), normed, rows, &mut logits)?;
        let mut logits = backend.download(&logits, rows)?;
        if let Some(cap) = self.decoder.cap() {
            logits.iter_mut().for_each(|x| *x = cap * (*x / cap).tanh());
        }
        Ok(logits)
    }

    /// Allocates `pages` KV pages of `page_size` slots.
    pub(crate) fn kv(&self, page_size: usize, pages: usize) -> candle_core::Result<B::Kv> {
        let sizes = self.info.kv_sizes(self.info.formats.kv, page_size, pages);
        self.backend.kv(&sizes)
    }
}
