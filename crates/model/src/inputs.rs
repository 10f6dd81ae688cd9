//! A batch flattened for the kernels, with all indices checked.

use crate::{ModelInfo, RowGate};
use kernels::device::{BatchArrays, BatchLimits, CanvasRows};
use kernels::{ScorerRow, Visible};
use step::{
    Attention, Batch, BatchOutput, PageId, Position, Row, Sampling, Segment, Slot, as_count,
    as_index, set_words,
};

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
    /// The rows that an adapter changes; constant likewise.
    pub(crate) gate: Option<RowGate>,
    pub(crate) page_size: usize,
    pub(crate) pages: usize,
    /// The window of some layers of a canvas model.
    pub(crate) window: Option<u32>,
}

impl InputBounds {
    /// The bounds of a model with `pages` KV pages of `page_size` slots.
    pub(crate) fn of(info: &ModelInfo, page_size: usize, pages: usize) -> Self {
        Self {
            tokens: info.vocabulary.embedding_size,
            vocab: info.vocabulary.size,
            positions: info.max_positions,
            mask: info.vocabulary.mask.unwrap_or(NO_MASK),
            gate: info.rows.gate,
            page_size,
            pages,
            window: info.canvas.map(|canvas| u32::try_from(canvas.window).unwrap_or(u32::MAX)),
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

/// The rows of a batch that a pass reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum PassRows {
    /// All rows.
    #[default]
    All,
    /// Rows that a drafter leaves to its target.
    Final,
    /// Rows of open blocks, which a drafter reads.
    Open,
}

impl PassRows {
    /// The rows of each pass over a batch, in their order, with or without a drafter.
    pub(crate) fn of(has_drafter: bool) -> &'static [Self] {
        match has_drafter {
            true => &[Self::Final, Self::Open],
            false => &[Self::All],
        }
    }

    fn contains(self, row: &Row) -> bool {
        match self {
            Self::All => true,
            Self::Final => !row.open,
            Self::Open => row.open,
        }
    }
}

/// Appends the outputs of the passes over a batch to `output`, in the order of the batch's rows.
pub(crate) fn merge(batch: &Batch, passes: [BatchOutput; 2], output: &mut BatchOutput) {
    let mut passes = passes.map(|pass| (pass.candidates.into_iter(), pass.tops.into_iter()));
    for row in batch.rows.iter().filter(|row| row.score.is_wanted()) {
        let (candidates, tops) = &mut passes[usize::from(row.open)];
        output.candidates.extend(candidates.next());
        output.tops.extend(tops.take(row.score.tops()));
    }
}

/// The arrays of a batch's rows, with one entry per row unless noted otherwise. Reused between steps.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    pass_rows: PassRows,
    /// The segments of these rows.
    segments: Vec<Segment>,
    pub(crate) tokens: Vec<u32>,
    pub(crate) positions: Vec<u32>,
    /// Physical slots in the pool.
    pub(crate) slots: Vec<u32>,
    pub(crate) visible: Vec<Visible>,
    /// Indices of the rows that an adapter changes.
    pub(crate) adapted: Vec<u32>,
    /// Indices of the rows that are scored.
    pub(crate) scored: Vec<u32>,
    /// One entry per scored row.
    pub(crate) scorers: Vec<ScorerRow>,
    /// The mask token.
    pub(crate) mask: u32,
    /// Additional arrays of canvas models.
    pub(crate) canvas: Option<CanvasInputs>,
}

/// The additional arrays of canvas models.
#[derive(Debug, Default)]
pub(crate) struct CanvasInputs {
    /// The slots that each row sees in layers with a window.
    pub(crate) windowed: Vec<Visible>,
    /// The rows that are denoised, ascending.
    pub(crate) denoised: Vec<u32>,
    /// The denoised rows that have a mean embedding.
    pub(crate) conditioned: Vec<u32>,
    /// The divisor of each scored row's logits.
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
    /// Replaces the content by some rows of `batch`.
    ///
    /// # Errors
    /// Describes the first index out of bounds or other invalid value.
    pub(crate) fn fill(
        &mut self,
        batch: &Batch,
        pass_rows: PassRows,
        bounds: &InputBounds,
    ) -> Result<(), String> {
        self.clear();
        self.pass_rows = pass_rows;
        self.canvas = bounds.window.map(|_| CanvasInputs::default());
        self.mask = bounds.mask;
        let words = set_words(bounds.vocab as u32);
        if !batch.allowed.len().is_multiple_of(words) {
            return Err(format!(
                "allowed sets of {} words, expected a multiple of {words}",
                batch.allowed.len()
            ));
        }
        let copied = batch.copies.iter().flat_map(|copy| [copy.source, copy.destination]);
        let mut pages = batch.pages.iter().copied().chain(copied);
        if let Some(page) = pages.find(|page| page.index() >= bounds.pages) {
            return Err(format!("page {} of {}", page.0, bounds.pages));
        }
        let mut end = 0;
        for segment in &batch.segments {
            if segment.rows.start != end {
                return Err(format!("segment of rows {:?} at row {end}", segment.rows));
            }
            end = segment.rows.end;
            self.push_segment(batch, segment, bounds)?;
        }
        if as_index(end) != batch.rows.len() {
            return Err(format!("segments end at row {end} of {}", batch.rows.len()));
        }
        Ok(())
    }

    /// The rows of the batch that it was filled with.
    pub(crate) fn pass_rows(&self) -> PassRows {
        self.pass_rows
    }

    /// The arrays for a backend of the batch that they were filled with, without mean embeddings.
    pub(crate) fn arrays<'a>(&'a self, batch: &'a Batch) -> BatchArrays<'a> {
        BatchArrays {
            tokens: &self.tokens,
            positions: &self.positions,
            slots: &self.slots,
            visible: &self.visible,
            segments: &self.segments,
            pages: &batch.pages,
            scored: &self.scored,
            scorers: &self.scorers,
            biases: &batch.biases,
            allowed: &batch.allowed,
            // They are made once, before any row is written.
            copies: if self.pass_rows == PassRows::Open { &[] } else { &batch.copies },
            canvas: self.canvas.as_ref().map(CanvasInputs::rows),
        }
    }

    fn clear(&mut self) {
        self.segments.clear();
        self.tokens.clear();
        self.positions.clear();
        self.slots.clear();
        self.visible.clear();
        self.adapted.clear();
        self.scored.clear();
        self.scorers.clear();
    }

    fn push_segment(
        &mut self,
        batch: &Batch,
        segment: &Segment,
        bounds: &InputBounds,
    ) -> Result<(), String> {
        let (start, end) = (as_index(segment.rows.start), as_index(segment.rows.end));
        let Some(rows) = batch.rows.get(start..end) else {
            return Err(format!("segment of rows {start}..{end} of {}", batch.rows.len()));
        };
        let (first, last) = (segment.pages.start as usize, segment.pages.end as usize);
        let Some(table) = batch.pages.get(first..last) else {
            return Err(format!("page table {first}..{last} of {}", batch.pages.len()));
        };
        let (begin, pass_rows) = (as_count(self.tokens.len()), self.pass_rows);
        for (row, index) in rows.iter().zip(start..).filter(|(row, _)| pass_rows.contains(row)) {
            self.push_row(row, table, bounds)
                .and_then(|()| match row.score.is_wanted() {
                    true => self.push_scorer(batch, row, bounds),
                    false => Ok(()),
                })
                .map_err(|problem| format!("row {index}: {problem}"))?;
        }
        let own = begin..as_count(self.tokens.len());
        self.push_canvas(rows, segment, bounds)?;
        if !own.is_empty() || pass_rows == PassRows::All {
            self.segments.push(Segment { rows: own, ..segment.clone() });
        }
        Ok(())
    }

    fn push_row(
        &mut self,
        row: &Row,
        table: &[PageId],
        bounds: &InputBounds,
    ) -> Result<(), String> {
        let slots = table.len() * bounds.page_size;
        let visible = Visible { beyond: row.beyond, ..Visible::prefix(row.visible_end.get()) };
        let (slot, reach) = (row.slot.index(), visible.reach());
        if row.token as usize >= bounds.tokens {
            return Err(format!("token {} of {}", row.token, bounds.tokens));
        }
        if row.position.index() >= bounds.positions {
            return Err(format!("position {} of {}", row.position, bounds.positions));
        }
        if slot >= slots || reach > slots {
            return Err(format!("slot {slot}, {reach} visible, of {slots} slots"));
        }
        let page = table[slot / bounds.page_size].index();
        self.tokens.push(row.token);
        self.positions.push(row.position.get());
        self.slots.push((page * bounds.page_size + slot % bounds.page_size) as u32);
        self.visible.push(visible);
        let is_adapted = match bounds.gate {
            Some(RowGate::Masks(mask)) => row.token == mask,
            Some(RowGate::OpenBlocks) => row.open,
            None => false,
        };
        if is_adapted {
            self.adapted.push(as_count(self.tokens.len() - 1));
        }
        Ok(())
    }

    /// Adds the canvas fields of a segment's rows.
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
            return Err(format!("logits divided by {scale}, expected a positive number"));
        }
        // The rows of a canvas see the window of its first one.
        let first = rows.iter().find(|row| row.denoise.is_some());
        let first = first.map_or(0, |row| row.slot.get());
        for (row, index) in rows.iter().zip(segment.rows.start..) {
            let slot = match row.denoise {
                Some(denoise) => {
                    canvas.denoised.push(index);
                    if denoise.conditioned {
                        canvas.conditioned.push(index);
                    }
                    first
                }
                None => row.slot.get(),
            };
            let visible = seen(slot, row.visible_end.get(), window);
            canvas.windowed.push(visible);
            if row.score.is_wanted() {
                canvas.scales.push(scale);
            }
        }
        Ok(())
    }

    /// Adds the scorer of the row that was pushed last, of the segment after those pushed.
    fn push_scorer(
        &mut self,
        batch: &Batch,
        row: &Row,
        bounds: &InputBounds,
    ) -> Result<(), String> {
        let range = row.biases.start as usize..row.biases.end as usize;
        let Some(biases) = batch.biases.get(range) else {
            return Err(format!("biases {:?} of {}", row.biases, batch.biases.len()));
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
        let sets = batch.allowed.len() / set_words(bounds.vocab as u32);
        let mut named = row.allowed.into_iter().chain(row.score.among());
        if let Some(set) = named.find(|&set| set as usize >= sets) {
            return Err(format!("allowed set {set} of {sets}"));
        }
        let (tops, most) = (row.score.tops(), bounds.vocab - 1);
        if tops > most {
            return Err(format!("{tops} most probable tokens of {most}"));
        }
        self.scored.push(self.tokens.len() as u32 - 1);
        self.scorers.push(ScorerRow {
            input: row.token,
            position: row.position.get(),
            biases: row.biases.clone(),
            allowed: row.allowed,
            tops: tops as u32,
            among: row.score.among(),
            segment: as_count(self.segments.len()),
        });
        Ok(())
    }
}

/// A single sequence on one page: row i has position i and slot i. Where blocks begin at the prompt's end,
/// all tokens are the prompt's.
pub(crate) fn alone(tokens: &[u32], attention: Attention) -> Batch {
    let count = tokens.len() as u32;
    let end = |row: u32| match attention {
        Attention::Full | Attention::BlocksAfterPrompt(_) => count,
        Attention::Blocks(length) => {
            let block = row / length.max(1) + 1;
            block.saturating_mul(length).min(count)
        }
        Attention::Causal | Attention::OpenBlock(_) | Attention::Canvas(_) => row + 1,
    };
    let rows = tokens.iter().zip(0..).map(|(token, row)| {
        Row::new(*token, Position::new(row), Slot::new(row), Slot::new(end(row)))
    });
    Batch {
        rows: rows.collect(),
        segments: vec![Segment { rows: 0..count, pages: 0..1, sampling: Sampling::GREEDY }],
        pages: vec![PageId(0)],
        ..Batch::default()
    }
}

/// The slots up to `end` that a row at a slot sees in layers with a window.
fn seen(slot: u32, end: u32, window: u32) -> Visible {
    Visible { begin: slot.saturating_add(1).saturating_sub(window), ..Visible::prefix(end) }
}
