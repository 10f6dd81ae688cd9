//! Batches by hand: one sequence under one page table, decoded block after block.

use asynclane_sim::{SimConfig, SimExecutor};
use step::{
    Batch, BatchOutput, Candidate, ExecuteError, Executor, PageId, Position, Row, Sampling, Score,
    Segment, Slot, TokenId,
};

/// A configuration with small pages, so that sequences span several.
pub fn config() -> SimConfig {
    SimConfig { page_size: 4, pages: 256, seed: 7, ..SimConfig::default() }
}

pub fn executor() -> SimExecutor {
    SimExecutor::new(config()).unwrap()
}

/// A row at slot = position that wants a candidate.
pub fn row(token: TokenId, position: u32, visible_end: u32) -> Row {
    Row {
        score: Score::Candidate,
        ..Row::new(token, Position::new(position), Slot::new(position), Slot::new(visible_end))
    }
}

/// Rows of the tokens from `start` on, all seeing `[0, visible_end)`.
pub fn rows(tokens: &[TokenId], start: u32, visible_end: u32) -> Vec<Row> {
    (start..).zip(tokens).map(|(position, &token)| row(token, position, visible_end)).collect()
}

pub fn pages(ids: impl IntoIterator<Item = u32>) -> Vec<PageId> {
    ids.into_iter().map(PageId).collect()
}

/// Appends a segment to a batch.
pub fn push(batch: &mut Batch, rows: Vec<Row>, table: &[PageId]) {
    let first = (batch.rows.len() as u32, batch.pages.len() as u32);
    batch.rows.extend(rows);
    batch.pages.extend_from_slice(table);
    batch.segments.push(Segment {
        rows: first.0..batch.rows.len() as u32,
        pages: first.1..batch.pages.len() as u32,
        sampling: Sampling::GREEDY,
    });
}

/// A batch of one segment.
pub fn batch(rows: Vec<Row>, table: &[PageId]) -> Batch {
    let mut batch = Batch::default();
    push(&mut batch, rows, table);
    batch
}

pub fn run(executor: &mut SimExecutor, batch: &Batch) -> Result<Vec<Candidate>, ExecuteError> {
    let mut output = BatchOutput::default();
    executor.execute(batch, &mut output).map(|()| output.candidates)
}

/// One sequence, decoded block after block with a threshold of 0.9.
pub struct Decoder {
    pub canvas: Vec<TokenId>,
    pub forwards: u32,
    table: Vec<PageId>,
    prompt: u32,
    block: u32,
    mask: TokenId,
}

impl Decoder {
    pub fn new(prompt: &[TokenId], budget: u32, block: u32, table: Vec<PageId>) -> Self {
        let mut canvas = prompt.to_vec();
        canvas.extend(vec![config().mask; budget as usize]);
        let (prompt, mask) = (prompt.len() as u32, config().mask);
        Self { canvas, forwards: 0, table, prompt, block, mask }
    }

    /// The open block, `None` when all is filled or a stop token ends the filled prefix.
    pub fn open(&self) -> Option<(u32, u32)> {
        let generated = &self.canvas[self.prompt as usize..];
        let first = generated.iter().position(|&token| token == self.mask)?;
        if generated[..first].contains(&config().stop_token) {
            return None;
        }
        let start = self.prompt + first as u32 / self.block * self.block;
        Some((start, (start + self.block).min(self.canvas.len() as u32)))
    }

    /// Rows of the whole canvas, everything seeing everything, candidates for the open block.
    pub fn rows(&self) -> Vec<Row> {
        let (start, end) = self.open().unwrap_or((0, 0));
        let mut rows = rows(&self.canvas, 0, self.canvas.len() as u32);
        for row in &mut rows {
            if !(start..end).contains(&row.position.get()) || row.token != self.mask {
                row.score = Score::None;
            }
        }
        rows
    }

    pub fn push_to(&self, batch: &mut Batch) {
        push(batch, self.rows(), &self.table);
    }

    /// Commits what is confident, or the best.
    pub fn commit(&mut self, candidates: &[Candidate]) {
        self.forwards += 1;
        let scored = self.rows().into_iter().filter(|row| row.score == Score::Candidate);
        let proposals: Vec<_> = scored.zip(candidates).collect();
        assert_eq!(proposals.len(), candidates.len());
        let best = candidates.iter().map(|candidate| candidate.probability).fold(0.0, f64::max);
        for (row, candidate) in proposals {
            if candidate.probability >= best.min(0.9) {
                self.canvas[row.position.index()] = candidate.token;
            }
        }
    }

    /// Decodes to the end alone.
    pub fn finish(&mut self, executor: &mut SimExecutor) {
        while self.open().is_some() {
            let mut batch = Batch::default();
            self.push_to(&mut batch);
            self.commit(&run(executor, &batch).unwrap());
        }
    }

    /// Generated tokens up to the stop token.
    pub fn output(&self) -> &[TokenId] {
        let generated = &self.canvas[self.prompt as usize..];
        let stop = generated.iter().position(|&token| token == config().stop_token);
        &generated[..stop.map_or(generated.len(), |stop| stop + 1)]
    }
}
