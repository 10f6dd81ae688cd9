//! The answer as a row of cells: committed tokens as text, masks as shades.

use std::io::Write;

use decode::{CommitKind, Effect, ForwardKind};
use engine::StepTrace;
use text::Tokenizer;

/// What a mask looks like.
const MASK: char = '░';

/// The canvas of one answer.
#[derive(Debug)]
pub struct Canvas<'a> {
    tokenizer: &'a Tokenizer,
    cells: Vec<Option<Cell>>,
    /// Offsets left: a stop token cuts the rest.
    len: usize,
    /// Rows of the terminal that the last drawing took.
    drawn: bool,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    token: u32,
    draft: bool,
}

impl<'a> Canvas<'a> {
    /// `budget` masks.
    pub fn new(tokenizer: &'a Tokenizer, budget: u32) -> Self {
        let len = budget as usize;
        Self {
            tokenizer,
            cells: vec![None; len],
            len,
            drawn: false,
        }
    }

    /// Follows one step.
    pub fn apply(&mut self, step: &StepTrace) {
        for effect in &step.effects {
            if let Effect::Commit {
                offset,
                token,
                kind,
                ..
            } = *effect
                && let Some(cell) = self.cells.get_mut(offset as usize)
            {
                *cell = Some(Cell {
                    token,
                    draft: kind == CommitKind::Draft,
                });
            }
        }
        self.len = step.canvas as usize;
    }

    /// The text of offsets `start..start + len`, masks as shades, line feeds visible.
    pub fn text(&self, start: u32, len: u32) -> String {
        let from = (start as usize).min(self.len);
        let to = (start as usize + len as usize).min(self.len);
        let mut text = String::new();
        for cell in &self.cells[from..to] {
            match cell {
                Some(cell) => text.push_str(&self.tokenizer.token_text(cell.token)),
                None => text.push(MASK),
            }
        }
        text.replace('\n', "⏎")
    }

    /// One line about a step: what it was, who took part, and the canvas behind the last
    /// committed token left out.
    pub fn step_line(&self, step: &StepTrace) -> String {
        let kind = match step.kind {
            ForwardKind::Prefill => "prefill",
            ForwardKind::Decode => "decode",
            ForwardKind::Refresh => "refresh",
        };
        let lanes: Vec<_> = step.lanes.iter().map(|lane| lane.0.to_string()).collect();
        let rows: usize = step.rows.iter().map(Vec::len).sum();
        let commits = step
            .effects
            .iter()
            .filter(|e| matches!(e, Effect::Commit { .. }))
            .count();
        let end = self.cells[..self.len]
            .iter()
            .rposition(Option::is_some)
            .map_or(0, |at| at + 1);
        let canvas = self.text(0, end as u32);
        format!(
            "step {:>3} {kind:<7} lanes {:<7} rows {rows:>4} commits {commits:>3} | {canvas}",
            step.step,
            lanes.join(","),
        )
    }

    /// Draws the canvas over the last drawing.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn redraw(&mut self, out: &mut impl Write) -> std::io::Result<()> {
        // Save the cursor once; later drawings return to it and clear what lies below.
        let start = if self.drawn { "\x1b[u\x1b[J" } else { "\x1b[s" };
        self.drawn = true;
        let end = self.cells[..self.len]
            .iter()
            .rposition(Option::is_some)
            .map_or(0, |at| at + 1);
        let mut text = String::new();
        for cell in &self.cells[..end] {
            match cell {
                Some(Cell { token, draft: true }) => {
                    text.push_str("\x1b[36m");
                    text.push_str(&self.tokenizer.token_text(*token));
                    text.push_str("\x1b[0m");
                }
                Some(cell) => text.push_str(&self.tokenizer.token_text(cell.token)),
                None => text.push(MASK),
            }
        }
        write!(out, "{start}{text}")?;
        out.flush()
    }

    /// Replaces the drawing by the final text.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn finish(&mut self, out: &mut impl Write) -> std::io::Result<()> {
        let tokens: Vec<u32> = self.cells[..self.len]
            .iter()
            .map_while(|cell| cell.map(|cell| cell.token))
            .collect();
        let text = self.tokenizer.decode(&tokens, true);
        let start = if self.drawn { "\x1b[u\x1b[J" } else { "" };
        writeln!(out, "{start}{text}")
    }
}
