//! The canvas on a terminal, redrawn at every step.

use std::io::IsTerminal;

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::canvas::Canvas;
use super::lanes::Lanes;

/// Columns and rows of a terminal of unknown size.
const DEFAULT_SIZE: (usize, usize) = (80, 24);

/// Standard output if it is a terminal.
#[derive(Debug)]
pub struct Screen {
    picture: ProgressBar,
}

impl Screen {
    /// `None` if standard output is not a terminal, or if a trace is printed on standard error.
    pub fn new(trace: bool) -> Option<Self> {
        std::io::stdout().is_terminal().then(|| {
            let target = match trace {
                true => ProgressDrawTarget::hidden(),
                false => ProgressDrawTarget::stdout(),
            };
            let picture = ProgressBar::with_draw_target(None, target);
            let style = ProgressStyle::with_template("{msg}");
            Self { picture: picture.with_style(style.expect("the template is valid")) }
        })
    }

    /// Draws the end of the canvas, as much as fits.
    pub fn draw(&self, canvas: &Canvas<'_>, lanes: &Lanes) {
        let (columns, rows) = size();
        let lines = canvas.picture(|offset| lanes.role_at(offset), columns);
        let top = lines.len().saturating_sub(rows.saturating_sub(1).max(1));
        self.picture.set_message(lines[top..].join("\n"));
    }

    /// Clears the drawing.
    pub fn clear(self) {
        self.picture.finish_and_clear();
    }
}

fn size() -> (usize, usize) {
    match Term::stdout().size_checked() {
        Some((rows, columns)) if columns > 0 && rows > 0 => (columns.into(), rows.into()),
        _ => DEFAULT_SIZE,
    }
}
