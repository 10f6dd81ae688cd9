//! Finds where a generate lane may fork: at the last valid delimiter of its known text
//! (AsyncLane §3.2).

use crate::canvas::Canvas;
use crate::coordinates::{Offset, Span};
use crate::token_class::TokenClasses;

/// The delimiter rule of a fork (AsyncLane §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundary {
    /// A full stop that is not a numeric period.
    Sentence(NumericPeriod),
    /// The end of a settled code line.
    Newline,
    /// As `Sentence`, but nowhere in code.
    Prose(NumericPeriod),
    /// Newline inside a code fence or after a code-shaped prompt, else sentence.
    Auto(NumericPeriod),
}

/// When a full stop after a digit ends a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumericPeriod {
    /// Once the next token is known and does not start with a digit.
    Next,
    /// Never (the paper's predicate read literally).
    Strict,
}

/// Finds delimiters in one sequence's canvas.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finder<'a> {
    pub(crate) canvas: &'a Canvas,
    pub(crate) classes: &'a TokenClasses,
    pub(crate) boundary: Boundary,
    /// True if the prompt looks like code; `Sentence` and `Newline` do not read it.
    pub(crate) code: bool,
}

impl Finder<'_> {
    /// The last valid delimiter of `range` left of its first stop token.
    pub(crate) fn last(&self, range: Span<Offset>) -> Option<Offset> {
        let range = range.clip(self.canvas.end());
        let stop = range.iter().find(|offset| self.canvas.is_stop_at(*offset));
        let before = range.start.to(stop.unwrap_or(range.end));
        before.iter().rev().find(|offset| self.is_valid(*offset))
    }

    /// Returns true if the token at `offset` is a valid delimiter.
    pub(crate) fn is_valid(&self, offset: Offset) -> bool {
        match self.boundary {
            Boundary::Sentence(numeric) => self.ends_sentence(offset, numeric),
            Boundary::Newline => self.ends_code_line(offset),
            Boundary::Prose(numeric) => {
                self.ends_sentence(offset, numeric) && !self.in_code(offset)
            }
            // `in_code` reads all the text before the offset: first rule out other tokens.
            Boundary::Auto(_) if !self.is_delimiter(offset) => false,
            Boundary::Auto(numeric) => {
                if self.in_code(offset) {
                    self.ends_code_line(offset)
                } else {
                    self.ends_sentence(offset, numeric)
                }
            }
        }
    }

    fn is_delimiter(&self, offset: Offset) -> bool {
        let token = self.canvas.get(offset);
        let class = token.map(|token| self.classes.get(token));
        class.is_some_and(|class| class.period || class.newline)
    }

    fn ends_sentence(&self, offset: Offset, numeric: NumericPeriod) -> bool {
        let Some(token) = self.canvas.get(offset) else {
            return false;
        };
        let class = self.classes.get(token);
        if !class.period {
            return false;
        }
        let left = offset.minus(1).and_then(|left| self.canvas.get(left));
        let bare = !class.digit_before_period;
        let after_digit = class.digit_before_period
            || (bare && left.is_some_and(|left| self.classes.get(left).ends_with_digit));
        if !after_digit {
            return true;
        }
        match numeric {
            NumericPeriod::Strict => false,
            NumericPeriod::Next => {
                let right = offset.next();
                if right >= self.canvas.end() || self.canvas.is_stop_at(right) {
                    return true;
                }
                let next = self.canvas.get(right);
                next.is_some_and(|token| !self.classes.get(token).starts_with_digit)
            }
        }
    }

    fn ends_code_line(&self, offset: Offset) -> bool {
        let Some(token) = self.canvas.get(offset) else {
            return false;
        };
        let class = self.classes.get(token);
        if !class.newline {
            return false;
        }
        // Text of the delimiter token before its line feed belongs to the line.
        let mut last_text = (!class.blank).then_some(class);
        for left in Offset::ZERO.to(offset).iter().rev() {
            let Some(token) = self.canvas.get(left) else {
                return false;
            };
            let class = self.classes.get(token);
            if class.newline {
                break;
            }
            if !class.blank && last_text.is_none() {
                last_text = Some(class);
            }
        }
        last_text.is_some_and(|class| !class.continues_line) && self.open_brackets(offset) == 0
    }

    /// Number of brackets that are open after `offset`. A closing bracket without an opening
    /// one is ignored: its opening bracket is still a mask.
    fn open_brackets(&self, offset: Offset) -> i32 {
        let read = Offset::ZERO.to(offset.next()).iter();
        let known = read.filter_map(|offset| self.canvas.get(offset));
        known.fold(0, |open, token| (open + i32::from(self.classes.get(token).brackets)).max(0))
    }

    /// Returns true if `offset` lies in code: inside a fence, or after a code-shaped prompt without one.
    fn in_code(&self, offset: Offset) -> bool {
        let read = Offset::ZERO.to(offset).iter();
        let known = read.filter_map(|offset| self.canvas.get(offset));
        let fences = known.filter(|token| self.classes.get(*token).fence).count();
        if fences > 0 { fences % 2 == 1 } else { self.code }
    }
}
