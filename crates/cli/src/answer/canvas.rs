//! The answer as cells: committed tokens as text, masks as shades.

use decode::{CommitKind, Effect, ForwardKind, Offset, Role, Span, as_count, as_index};
use engine::StepTrace;
use text::Tokenizer;

use crate::names::escaped;

/// The signs of masks.
const MASK: char = '░';
/// Terminal colours.
const DRAFT: &str = "\x1b[36m";
const PLAIN: &str = "\x1b[0m";

/// The canvas of one answer.
#[derive(Debug)]
pub struct Canvas<'a> {
    tokenizer: &'a Tokenizer,
    cells: Vec<Option<Cell>>,
    /// Offsets that remain; a stop token cuts the rest.
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    token: u32,
    state: CellState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CellState {
    Committed,
    Draft,
    /// Kept for the next forward pass over a canvas of noise.
    Kept,
}

impl Cell {
    fn is_committed(&self) -> bool {
        self.state != CellState::Kept
    }
}

impl<'a> Canvas<'a> {
    /// A canvas of `budget` masks.
    pub fn new(tokenizer: &'a Tokenizer, budget: u32) -> Self {
        let len = budget as usize;
        Self { tokenizer, cells: vec![None; len], len }
    }

    /// Applies one step.
    pub fn apply(&mut self, step: &StepTrace) {
        for cell in &mut self.cells {
            *cell = cell.filter(Cell::is_committed);
        }
        for draw in step.draws.iter().filter(|draw| draw.kept) {
            self.set(draw.offset, draw.token, CellState::Kept);
        }
        for effect in &step.effects {
            if let Effect::Commit(commit) = effect {
                let state = match commit.kind {
                    CommitKind::Draft => CellState::Draft,
                    CommitKind::Masked | CommitKind::Edit => CellState::Committed,
                };
                self.set(commit.offset, commit.token, state);
            }
        }
        // The last canvas of noise may reach beyond the budget until it is committed.
        self.len = self.cells.len().min(as_index(step.canvas));
    }

    fn set(&mut self, offset: Offset, token: u32, state: CellState) {
        if let Some(cell) = self.cells.get_mut(offset.index()) {
            *cell = Some(Cell { token, state });
        }
    }

    /// The text of these offsets, tokens that are kept on a canvas of noise included; masks are shades,
    /// line feeds are visible.
    pub fn text(&self, offsets: Span<Offset>) -> String {
        let offsets = offsets.clip(Offset::new(as_count(self.len)));
        let mut text = String::new();
        for cell in &self.cells[offsets.start.index()..offsets.end.index()] {
            match cell {
                Some(cell) => text.push_str(&self.tokenizer.token_text(cell.token)),
                None => text.push(MASK),
            }
        }
        escaped(&text.replace('\n', "⏎"), "")
    }

    /// One line about a step: its kind, lanes, rows and commits, of a canvas of noise the tokens that
    /// were kept, and the canvas up to its last token.
    pub fn step_line(&self, step: &StepTrace) -> String {
        let kind = match step.kind {
            ForwardKind::Prefill => "prefill",
            ForwardKind::Decode => "decode",
            ForwardKind::Refresh => "refresh",
        };
        let lanes: Vec<_> = step.lanes.iter().map(|lane| lane.0.to_string()).collect();
        let rows: usize = step.rows.iter().map(Vec::len).sum();
        let commits = step.effects.iter().filter(|e| matches!(e, Effect::Commit(_))).count();
        let kept = step.draws.iter().filter(|draw| draw.kept).count();
        let kept = match step.draws.len() {
            0 => String::new(),
            drawn => format!(" kept {kept:>3} of {drawn:>3}"),
        };
        let canvas = self.text(Span::first(as_count(self.end())));
        format!(
            "step {:>3} {kind:<7} lanes {:<7} rows {rows:>4} commits {commits:>3}{kept} | {canvas}",
            step.step,
            lanes.join(","),
        )
    }

    /// The canvas up to its last token, in lines of `columns` cells. Drafts, kept tokens and masks of
    /// lanes have colours; masks have a denser shade in refine lanes than in generate lanes.
    /// `role_at` tells the role of the lane of a mask.
    pub fn picture(&self, role_at: impl Fn(Offset) -> Option<Role>, columns: usize) -> Vec<String> {
        let mut lines = Lines { columns: columns.max(1), ..Lines::default() };
        for (offset, cell) in self.cells[..self.end()].iter().enumerate() {
            let (colour, text) = match cell {
                Some(cell) if cell.state != CellState::Committed => {
                    (DRAFT, self.tokenizer.token_text(cell.token))
                }
                Some(cell) => ("", self.tokenizer.token_text(cell.token)),
                None => {
                    let (colour, mask) = mask(role_at(Offset::new(as_count(offset))));
                    (colour, mask.to_string())
                }
            };
            for sign in escaped(&text, "\n\t").chars() {
                lines.push(colour, sign);
            }
        }
        lines.finish()
    }

    /// The committed text, without effect on a terminal.
    pub fn finished(&self) -> String {
        let tokens: Vec<u32> = self.cells[..self.len]
            .iter()
            .map_while(|cell| cell.filter(Cell::is_committed))
            .map(|cell| cell.token)
            .collect();
        escaped(&self.tokenizer.decode(&tokens, true), "\n\t")
    }

    /// The offset behind the last token.
    fn end(&self) -> usize {
        let last = self.cells[..self.len].iter().rposition(Option::is_some);
        last.map_or(0, |last| last + 1)
    }
}

/// Text in lines of a fixed width; writes a colour code where the colour changes.
#[derive(Debug, Default)]
struct Lines {
    columns: usize,
    whole: Vec<String>,
    line: String,
    used: usize,
    colour: &'static str,
}

impl Lines {
    fn push(&mut self, colour: &'static str, sign: char) {
        if sign == '\n' || self.used == self.columns {
            self.end_line();
        }
        if sign == '\n' {
            return;
        }
        if colour != self.colour {
            self.end_colour();
            self.line.push_str(colour);
            self.colour = colour;
        }
        self.line.push(sign);
        self.used += 1;
    }

    fn end_colour(&mut self) {
        if !self.colour.is_empty() {
            self.line.push_str(PLAIN);
        }
        self.colour = "";
    }

    fn end_line(&mut self) {
        self.end_colour();
        self.whole.push(std::mem::take(&mut self.line));
        self.used = 0;
    }

    fn finish(mut self) -> Vec<String> {
        self.end_line();
        self.whole
    }
}

/// Colour and sign of a mask in a lane of this role.
fn mask(role: Option<Role>) -> (&'static str, char) {
    match role {
        Some(Role::Refine) => ("\x1b[35m", '▓'),
        Some(Role::Generate) => ("\x1b[33m", MASK),
        None => ("\x1b[2m", MASK),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_of_the_width_and_colours_end_with_them() {
        let mut lines = Lines { columns: 3, ..Lines::default() };
        for (colour, sign) in [("", 'a'), (DRAFT, 'b'), (DRAFT, 'c'), (DRAFT, 'd'), ("", 'e')] {
            lines.push(colour, sign);
        }
        lines.push("", '\n');
        lines.push("", 'f');
        let draft = |text: &str| format!("{DRAFT}{text}{PLAIN}");
        let expected = [format!("a{}", draft("bc")), format!("{}e", draft("d")), "f".to_owned()];
        assert_eq!(lines.finish(), expected);
    }
}
