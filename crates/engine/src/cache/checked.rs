//! Rows that check guesses: the candidate of each guess depends on the text up to the guess before it.

use decode::{Place, Slot, Span, as_count};

use super::{ForwardPlan, PlanRow, Prediction, TokenSource, View};
use crate::layout::slot_of;

/// The guesses of a forward, on consecutive places.
#[derive(Clone, Copy, Debug)]
pub(super) struct CheckedGuesses {
    /// The place of the first guess.
    first: Place,
    /// k: their number.
    count: u32,
    /// Number of guesses with a row of their own: those that another row sees.
    shown: u32,
}

impl CheckedGuesses {
    /// The guesses of the next forward, if it checks any. Every guess has a row of its own.
    pub(super) fn of(view: &View<'_>) -> Option<Self> {
        let guesses = view.decoder.guesses_to_check();
        let first = guesses.first()?;
        let count = as_count(guesses.len());
        Some(Self { first: view.place(first.offset), count, shown: count })
    }

    /// The same guesses where no row sees the last one but those behind the guesses, of which there are
    /// none.
    pub(super) fn alone(self) -> Self {
        let shown = self.count - 1;
        Self { shown, ..self }
    }

    /// The place of the first guess.
    pub(super) fn start(&self) -> Place {
        self.first
    }

    /// The place after the guesses.
    pub(super) fn end(&self) -> Place {
        self.first.plus(self.count)
    }

    /// Adds the guesses' rows, each in the slot of its place, where its K/V are final if it is right, and
    /// the rows that check them: masks in the slots after, which see the tokens and guesses before
    /// their place and themselves.
    pub(super) fn push(&self, plan: &mut ForwardPlan) {
        let shown = self.first.to(self.first.plus(self.shown));
        push_guesses(shown, Prediction::None, plan);
        let checks = self.first.to(self.end()).iter();
        plan.rows.extend(checks.map(|place| PlanRow {
            slot: slot_of(place.plus(self.shown)),
            beyond: 1 << self.shown,
            ..PlanRow::at(place, place)
        }));
    }

    /// Adds masks behind the guesses, which see the text, the guesses and the masks before them.
    pub(super) fn push_masks(&self, masks: impl Iterator<Item = Place>, plan: &mut ForwardPlan) {
        let visible_end = slot_of(self.end());
        let own = slot_of(self.end().plus(self.count));
        let mut beyond = 0;
        for (place, slot) in masks.zip(own.to(Slot::new(u32::MAX)).iter()) {
            beyond |= 1 << slot.distance_from(visible_end);
            plan.rows.push(PlanRow { slot, visible_end, beyond, ..PlanRow::at(place, place) });
        }
    }
}

/// Adds, behind the rows of final tokens, guesses that are checked at the row before each, and the masks
/// of the window up to `end`. The row before the first open place checks the first guess. A mask that is
/// read at its own row begins with a row for those behind it alone: the last guess tells its token. A mask
/// that predicts the next position needs none for the window's last one.
pub(super) fn push_ahead(view: &View<'_>, end: Place, plan: &mut ForwardPlan) {
    let open = view.place(view.decoder.canvas().frontier());
    let before = open.back(1);
    if plan.rows.last().is_none_or(|row| row.place != before) {
        plan.rows.push(PlanRow::at(before, open));
    }
    if let Some(row) = plan.rows.last_mut() {
        row.prediction = Prediction::Next;
    }
    let guessed = CheckedGuesses::of(view).map_or(open, |checked| checked.end());
    push_guesses(open.to(guessed), Prediction::Next, plan);
    let masks = guessed.to(end.back(u32::from(view.shifted)));
    let seen = masks.iter().filter(|_| view.shifted || masks.len() > 1);
    plan.rows.extend(seen.map(|place| PlanRow {
        prediction: match place == guessed && !view.shifted {
            true => Prediction::None,
            false => Prediction::Trained,
        },
        ..PlanRow::at(place, place.next())
    }));
}

fn push_guesses(places: Span<Place>, prediction: Prediction, plan: &mut ForwardPlan) {
    plan.rows.extend(places.iter().map(|place| PlanRow {
        source: TokenSource::Guess,
        prediction,
        ..PlanRow::at(place, place.next())
    }));
}
