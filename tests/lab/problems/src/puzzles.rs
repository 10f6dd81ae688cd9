//! Puzzles of symbols in a square: the third family of ParallelBench (arXiv 2510.04767 §4.1). A Latin
//! square has many solutions, a Sudoku has one.

use std::sync::LazyLock;

use super::wording::Wording;
use crate::rng::Rng;

/// Symbols of a square, row by row.
type Square = Vec<char>;

/// A square to be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Puzzle {
    /// Any Latin square of these symbols, three or four in alphabetical order.
    Latin(Vec<char>),
    /// The only Sudoku of the digits 1 to 4 with these clues; 0 is an open cell.
    Sudoku(Square),
}

const LATIN: &str = "Write any Latin square of the symbols ";
const LATIN_ASKED: &str = ": every symbol is once in every row and once in every column. \
                           Answer with the rows alone, one in a line, symbols separated by blanks.";
const SUDOKU: &str = "Solve this Sudoku of the digits 1 to 4, where 0 is an open cell:\n";
const SUDOKU_ASKED: &str =
    "\nAnswer with the rows alone, one in a line, digits separated by blanks.";
const DIGITS: [char; 4] = ['1', '2', '3', '4'];
const OPEN: char = '0';
/// All 288 Sudokus of four digits.
static SUDOKUS: LazyLock<Vec<Square>> = LazyLock::new(|| solutions(&[OPEN; 16], &DIGITS, true));

impl Puzzle {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        if rng.below(2) == 0 {
            let count = rng.between(3, 4);
            let mut letters: Vec<char> = ('A'..='Z').collect();
            let symbols =
                (0..count).map(|_| letters.remove(rng.below(letters.len() as u32) as usize));
            let mut symbols: Vec<char> = symbols.collect();
            symbols.sort_unstable();
            return Self::Latin(symbols);
        }
        let mut clues = SUDOKUS[rng.below(SUDOKUS.len() as u32) as usize].clone();
        let mut cells: Vec<usize> = (0..clues.len()).collect();
        let keep = rng.between(4, 8) as usize;
        while !cells.is_empty() && clues.iter().filter(|cell| **cell != OPEN).count() > keep {
            let cell = cells.remove(rng.below(cells.len() as u32) as usize);
            let clue = std::mem::replace(&mut clues[cell], OPEN);
            if solutions(&clues, &DIGITS, true).len() > 1 {
                clues[cell] = clue;
            }
        }
        Self::Sudoku(clues)
    }

    pub(crate) fn prompt(&self) -> String {
        match self {
            Self::Latin(symbols) => {
                let symbols: Vec<_> = symbols.iter().map(char::to_string).collect();
                format!("{LATIN}{}{LATIN_ASKED}", symbols.join(", "))
            }
            Self::Sudoku(clues) => format!("{SUDOKU}{}{SUDOKU_ASKED}", written(clues)),
        }
    }

    pub(crate) fn parse(prompt: &str) -> Option<Self> {
        if let Some(rest) = prompt.strip_prefix(LATIN) {
            let symbols = rest.strip_suffix(LATIN_ASKED)?.split(", ");
            let symbols: Option<Vec<char>> = symbols.map(|symbol| symbol.parse().ok()).collect();
            let symbols = symbols?;
            let sound = symbols.iter().all(char::is_ascii_uppercase)
                && symbols.is_sorted_by(|one, next| one < next)
                && (3..=4).contains(&symbols.len());
            return sound.then_some(Self::Latin(symbols));
        }
        let clues = prompt.strip_prefix(SUDOKU)?.strip_suffix(SUDOKU_ASKED)?;
        let clues = read(clues, 4)?;
        let known = clues
            .iter()
            .all(|cell| *cell == OPEN || DIGITS.contains(cell));
        (known && solutions(&clues, &DIGITS, true).len() == 1).then_some(Self::Sudoku(clues))
    }

    pub(crate) fn wording(&self) -> Wording {
        vec![
            self.squares()
                .iter()
                .map(|square| written(square))
                .collect(),
        ]
    }

    /// Whether the text ends with a right square.
    pub(crate) fn ends_right(&self, output: &str) -> bool {
        let rows = match self {
            Self::Latin(symbols) => symbols.len(),
            Self::Sudoku(_) => DIGITS.len(),
        };
        let lines: Vec<_> = output.trim_end().lines().collect();
        let last = &lines[lines.len().saturating_sub(rows)..];
        read(&last.join("\n"), rows).is_some_and(|square| self.squares().contains(&square))
    }

    /// Every right square: at most 576.
    fn squares(&self) -> Vec<Square> {
        match self {
            Self::Latin(symbols) => {
                let open = vec![OPEN; symbols.len() * symbols.len()];
                solutions(&open, symbols, false)
            }
            Self::Sudoku(clues) => solutions(clues, &DIGITS, true),
        }
    }
}

/// Every way to fill the open cells so that no row, no column and, if `boxes`, no box of four has a
/// symbol twice.
fn solutions(clues: &[char], symbols: &[char], boxes: bool) -> Vec<Square> {
    let mut found = Vec::new();
    fill(&mut clues.to_vec(), symbols, boxes, &mut found);
    found
}

fn fill(square: &mut Square, symbols: &[char], boxes: bool, found: &mut Vec<Square>) {
    let Some(cell) = square.iter().position(|symbol| *symbol == OPEN) else {
        return found.push(square.clone());
    };
    let side = symbols.len();
    let sees = |other: usize| {
        let (row, column) = (other / side, other % side);
        let same_box = row / 2 == cell / side / 2 && column / 2 == cell % side / 2;
        row == cell / side || column == cell % side || boxes && same_box
    };
    let seen: Vec<char> = (0..square.len())
        .filter(|other| sees(*other))
        .map(|other| square[other])
        .collect();
    for symbol in symbols.iter().filter(|symbol| !seen.contains(symbol)) {
        square[cell] = *symbol;
        fill(square, symbols, boxes, found);
    }
    square[cell] = OPEN;
}

fn written(square: &[char]) -> String {
    let side = square.len().isqrt();
    let rows = square.chunks(side).map(|row| {
        let row: Vec<_> = row.iter().map(char::to_string).collect();
        row.join(" ")
    });
    rows.collect::<Vec<_>>().join("\n")
}

/// A square of `side` lines of `side` symbols.
fn read(text: &str, side: usize) -> Option<Square> {
    let rows: Vec<&str> = text.lines().collect();
    let mut square = Vec::new();
    for row in &rows {
        let symbols = row.split_whitespace().map(|symbol| symbol.parse().ok());
        let symbols: Vec<char> = symbols.collect::<Option<_>>()?;
        if symbols.len() != side {
            return None;
        }
        square.extend(symbols);
    }
    (rows.len() == side).then_some(square)
}
