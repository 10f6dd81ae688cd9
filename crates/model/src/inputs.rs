//! A batch flattened for the kernels, with all indices checked.

use crate::ModelInfo;
use kernels::device::{BatchArrays, BatchLimits, CanvasRows};
use kernels::{AttentionSegment, Draw, LogitBias, ScorerRow, Visible};
use step::{Attention, Batch, Row, Segment, set_words};

/// In place of a mask token: no token.
pub(crate) const NO_MASK: u32 = u32::MAX;

/// Exclusive upper bounds of a batch's indices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InputBounds {
    /// Rows of the embedding table.
    pub(crate) tokens: usize,
    /// Tokens with a logit.
    pub(crate) vocab: usize,
    pub(crate) positions: usize,
    /// The mask token, or [`NO_MASK`]; not a bound, but constant like the bounds.
    pub(crate) mask: u32,
    pub(crate) page_size: usize,
    pub(crate) pages: usize,
    /// The window of some layers of a canvas model.
    pub(crate) window: Option<u32>,
}

impl InputBounds {
    /// The bounds of a model with `pages` KV pages of `page_size` slots.
    pub(crate) fn of(info: &ModelInfo, (page_size, pages): (usize, usize)) -> Self {
        Self {
            tokens: info.embedding_size,
            vocab: info.vocab_size,
            positions: info.max_positions,
            mask: info.mask.unwrap_or(NO_MASK),
            page_size,
            pages,
            window: info
                .canvas
                .map(|canvas| u32::try_from(canvas.window).unwrap_or(u32::MAX)),
        }
    }

    /// The same for a backend, with attention tiles of up to `tile` rows and rows padded to a multiple
    /// of `pad`.
    pub(crate) fn limits(&self, tile: usize, pad: usize) -> BatchLimits {
        BatchLimits {
            tokens: self.tokens,
            positions: self.positions,
            vocab: self.vocab,
            pages: self.pages,
            page: self.page_size,
            tile,
            pad,
        }
    }
}

/// The arrays of a batch, with one entry per row unless noted otherwise. Reused between steps.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    pub(crate) tokens: Vec<u32>,
    pub(crate) positions: Vec<u32>,
    /// Physical slots in the pool.
    pub(crate) slots: Vec<u32>,
    pub(crate) visible: Vec<Visible>,
    pub(crate) segments: Vec<AttentionSegment>,
    /// Page tables of all segments.
    pub(crate) pages: Vec<u32>,
    /// Indices of the rows that are scored.
    pub(crate) scored: Vec<u32>,
    /// One entry per scored row.
    pub(crate) scorers: Vec<ScorerRow>,
    /// One entry per segment.
    pub(crate) draws: Vec<Draw>,
    pub(crate) biases: Vec<LogitBias>,
    /// Sets of tokens, each of `set_words(vocab)` words.
    pub(crate) allowed: Vec<u32>,
    pub(crate) copies: Vec<(u32, u32)>,
    /// The mask token.
    pub(crate) mask: u32,
    /// Of canvas models only.
    pub(crate) canvas: Option<CanvasInputs>,
}

/// The arrays that canvas models have besides.
#[derive(Debug, Default)]
pub(crate) struct CanvasInputs {
    /// What each row sees in layers with a window.
    pub(crate) windowed: Vec<Visible>,
    /// The rows that are denoised, ascending.
    pub(crate) denoised: Vec<u32>,
    /// The denoised rows that have a mean embedding.
    pub(crate) conditioned: Vec<u32>,
    /// What the logits of each scored row are divided by.
    pub(crate) scales: Vec<f32>,
}

impl CanvasInputs {
    /// The arrays for a backend.
    fn rows(&self) -> CanvasRows<'_> {
        CanvasRows {
            windowed: &self.windowed,
            denoised: &self.denoised,
            conditioned: &self.conditioned,
            scales: &self.scales,
            soft: &[],
        }
    }
}

impl Inputs {
    /// Replaces the content by `batch`.
    ///
    /// # Errors
    /// Describes the first index out of bounds or other invalid value.
    pub(crate) fn fill(&mut self, batch: &Batch, bounds: &InputBounds) -> Result<(), String> {
        self.clear();
        self.canvas = bounds.window.map(|_| CanvasInputs::default());
        self.mask = bounds.mask;
        self.pages.extend(batch.pages.iter().map(|page| page.0));
        self.copies
            .extend(batch.copies.iter().map(|copy| (copy.from.0, copy.to.0)));
        self.biases
            .extend(batch.biases.iter().map(|bias| LogitBias {
                token: bias.token,
                repetition: bias.repetition,
                amount: bias.amount,
            }));
        self.allowed.extend_from_slice(&batch.allowed);
        let words = set_words(bounds.vocab as u32);
        if !self.allowed.len().is_multiple_of(words) {
            return Err(format!(
                "allowed sets of {} words, expected a multiple of {words}",
                self.allowed.len()
            ));
        }
        let copied = self.copies.iter().flat_map(|&(from, to)| [from, to]);
        if let Some(page) = self
            .pages
            .iter()
            .copied()
            .chain(copied)
            .find(|&p| p as usize >= bounds.pages)
        {
            return Err(format!("page {page} of {}", bounds.pages));
        }
        for segment in &batch.segments {
            self.push_segment(batch, segment, bounds)?;
        }
        if self.tokens.len() != batch.rows.len() {
            return Err(format!(
                "segments end at row {} of {}",
                self.tokens.len(),
                batch.rows.len()
            ));
        }
        Ok(())
    }

    /// A single sequence on one page: row i has position i and slot i. Where blocks begin at the prompt's
    /// end, all tokens are the prompt's.
    pub(crate) fn alone(tokens: &[u32], attention: Attention, window: Option<u32>) -> Self {
        let count = tokens.len() as u32;
        let visible = |row: u32| {
            Visible::prefix(match attention {
                Attention::Full | Attention::BlocksAfterPrompt(_) => count,
                Attention::Blocks(length) => {
                    let block = row / length.max(1) + 1;
                    block.saturating_mul(length).min(count)
                }
                Attention::Causal | Attention::Canvas(_) => row + 1,
            })
        };
        Self {
            tokens: tokens.to_vec(),
            positions: (0..count).collect(),
            slots: (0..count).collect(),
            visible: (0..count).map(visible).collect(),
            segments: vec![AttentionSegment {
                rows: 0..count,
                pages: 0..1,
            }],
            pages: vec![0],
            canvas: window.map(|window| CanvasInputs {
                windowed: (0..count).map(|row| seen(row, row + 1, window)).collect(),
                ..CanvasInputs::default()
            }),
            ..Self::default()
        }
    }

    /// The arrays for a backend, without mean embeddings. `vocab` is the number of tokens with a logit.
    pub(crate) fn arrays(&self, vocab: usize) -> BatchArrays<'_> {
        BatchArrays {
            tokens: &self.tokens,
            positions: &self.positions,
            slots: &self.slots,
            visible: &self.visible,
            segments: &self.segments,
            pages: &self.pages,
            scored: &self.scored,
            scorers: &self.scorers,
            biases: &self.biases,
            allowed: &self.allowed,
            set_words: set_words(vocab as u32),
            draws: &self.draws,
            copies: &self.copies,
            canvas: self.canvas.as_ref().map(CanvasInputs::rows),
        }
    }

    fn clear(&mut self) {
        self.tokens.clear();
        self.positions.clear();
        self.slots.clear();
        self.visible.clear();
        self.segments.clear();
        self.pages.clear();
        self.scored.clear();
        self.scorers.clear();
        self.draws.clear();
        self.biases.clear();
        self.allowed.clear();
        self.copies.clear();
    }

    fn push_segment(
        &mut self,
        batch: &Batch,
        segment: &Segment,
        bounds: &InputBounds,
    ) -> Result<(), String> {
        let (from, to) = (segment.rows.start as usize, segment.rows.end as usize);
        let rows = batch
            .rows
            .get(from..to)
            .filter(|_| from == self.tokens.len());
        let Some(rows) = rows else {
            return Err(format!(
                "segment of rows {from}..{to} at row {}",
                self.tokens.len()
            ));
        };
        let (first, last) = (segment.pages.start as usize, segment.pages.end as usize);
        if batch.pages.get(first..last).is_none() {
            return Err(format!(
                "page table {first}..{last} of {}",
                batch.pages.len()
            ));
        }
        for row in rows {
            self.push_row(row, (first, last), bounds)?;
        }
        self.push_canvas(rows, segment, bounds)?;
        self.segments.push(AttentionSegment {
            rows: segment.rows.clone(),
            pages: segment.pages.clone(),
        });
        let sampling = &segment.sampling;
        self.draws.push(Draw {
            temperature: sampling.temperature,
            top_p: sampling.top_p,
            min_p: sampling.min_p,
            top_k: sampling.top_k,
            seed: sampling.seed,
            clock: sampling.clock,
        });
        Ok(())
    }

    fn push_row(
        &mut self,
        row: &Row,
        (first, last): (usize, usize),
        bounds: &InputBounds,
    ) -> Result<(), String> {
        let index = self.tokens.len();
        let slots = (last - first) * bounds.page_size;
        let visible = Visible {
            beyond: row.beyond,
            ..Visible::prefix(row.visible_end.get())
        };
        let (slot, reach) = (row.slot.index(), visible.reach());
        if row.token as usize >= bounds.tokens {
            return Err(format!(
                "row {index}: token {} of {}",
                row.token, bounds.tokens
            ));
        }
        if row.position.index() >= bounds.positions {
            return Err(format!(
                "row {index}: position {} of {}",
                row.position, bounds.positions
            ));
        }
        if row.ask as usize >= bounds.tokens {
            return Err(format!(
                "row {index}: asks for token {} of {}",
                row.ask, bounds.tokens
            ));
        }
        if slot >= slots || reach > slots {
            return Err(format!(
                "row {index}: slot {slot}, {reach} visible, of {slots} slots"
            ));
        }
        let page = self.pages[first + slot / bounds.page_size] as usize;
        self.tokens.push(row.token);
        self.positions.push(row.position.get());
        self.slots
            .push((page * bounds.page_size + slot % bounds.page_size) as u32);
        self.visible.push(visible);
        if row.score.is_wanted() {
            let scorer = self
                .scorer(row, bounds)
                .map_err(|what| format!("row {index}: {what}"))?;
            self.scored.push(index as u32);
            self.scorers.push(scorer);
        }
        Ok(())
    }

    /// What the rows of a segment have besides in canvas models.
    fn push_canvas(
        &mut self,
        rows: &[Row],
        segment: &Segment,
        bounds: &InputBounds,
    ) -> Result<(), String> {
        let (Some(window), Some(canvas)) = (bounds.window, &mut self.canvas) else {
            return Ok(());
        };
        let scale = segment.sampling.scale;
        if !(scale > 0.0 && scale.is_finite()) {
            return Err(format!(
                "logits divided by {scale}, expected a positive number"
            ));
        }
        // The rows of a canvas see the window of its first one.
        let first = rows.iter().find(|row| row.denoise.is_some());
        let first = first.map_or(0, |row| row.slot.get());
        for (row, index) in rows.iter().zip(segment.rows.start..) {
            let at = match row.denoise {
                Some(denoise) => {
                    canvas.denoised.push(index);
                    if denoise.conditioned {
                        canvas.conditioned.push(index);
                    }
                    first
                }
                None => row.slot.get(),
            };
            let visible = seen(at, row.visible_end.get(), window);
            canvas.windowed.push(visible);
            if row.score.is_wanted() {
                canvas.scales.push(scale);
            }
        }
        Ok(())
    }

    /// The scorer of a row of the segment that is being added.
    fn scorer(&self, row: &Row, bounds: &InputBounds) -> Result<ScorerRow, String> {
        let range = row.biases.start as usize..row.biases.end as usize;
        let Some(biases) = self.biases.get(range) else {
            return Err(format!("biases {:?} of {}", row.biases, self.biases.len()));
        };
        for bias in biases {
            if bias.token as usize >= bounds.vocab {
                return Err(format!("bias for token {} of {}", bias.token, bounds.vocab));
            }
            if !(bias.repetition > 0.0 && bias.repetition.is_finite()) {
                return Err(format!(
                    "repetition {} of token {}, expected a positive number",
                    bias.repetition, bias.token
                ));
            }
        }
        let sets = self.allowed.len() / set_words(bounds.vocab as u32);
        if let Some(set) = row.allowed.filter(|&set| set as usize >= sets) {
            return Err(format!("allowed set {set} of {sets}"));
        }
        let (tops, most) = (row.score.tops(), bounds.vocab - 1);
        if tops > most {
            return Err(format!("{tops} most probable tokens of {most}"));
        }
        Ok(ScorerRow {
            input: row.ask,
            position: row.position.get(),
            biases: row.biases.clone(),
            allowed: row.allowed,
            tops: tops as u32,
            draw: self.draws.len() as u32,
        })
    }
}

/// What a row at slot `at` sees up to `end` in layers with a window.
fn seen(at: u32, end: u32, window: u32) -> Visible {
    Visible {
        begin: at.saturating_add(1).saturating_sub(window),
        ..Visible::prefix(end)
    }
}
