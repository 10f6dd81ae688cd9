//! The coordinates of one sequence: every conversion from one kind into another.

use decode::{Offset, Place, Position, Slot, Span, as_count, as_index};

/// The order of prompt, suffix and generation: by place prompt, suffix, generation; by position
/// prompt, generation, suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Tokens of the prompt proper.
    prompt: u32,
    /// Tokens of the suffix.
    suffix: u32,
    /// L: offsets of the generation.
    budget: u32,
}

/// The text that stands at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenIndex {
    /// The prompt's token with this index.
    Prompt(usize),
    /// The suffix's token with this index.
    Suffix(usize),
    /// A generated offset.
    Generation(Offset),
}

/// The slot that holds the K/V of a place, unless a cache policy reorders rows.
pub(crate) const fn slot_of(place: Place) -> Slot {
    Slot::new(place.get())
}

impl Layout {
    /// The layout of a sequence with this many tokens of prompt and suffix, and this budget.
    pub(crate) fn new(prompt: usize, suffix: usize, budget: u32) -> Self {
        Self { prompt: as_count(prompt), suffix: as_count(suffix), budget }
    }

    /// P: tokens of prompt and suffix, all left of the generation by place.
    pub(crate) fn given(self) -> u32 {
        self.prompt + self.suffix
    }

    /// The place of the prompt's last token; none without a prompt.
    pub(crate) fn last_of_prompt(self) -> Option<Place> {
        Place::new(self.prompt).minus(1)
    }

    /// The first generated place.
    pub(crate) fn generation(self) -> Place {
        Place::new(self.given())
    }

    /// The place of a generated offset.
    pub(crate) fn place_of(self, offset: Offset) -> Place {
        self.generation().plus(offset.get())
    }

    /// The places of generated offsets.
    pub(crate) fn places_of(self, offsets: Span<Offset>) -> Span<Place> {
        self.place_of(offsets.start).to(self.place_of(offsets.end))
    }

    /// The generated offset at a place; none left of the generation.
    pub(crate) fn offset_of(self, place: Place) -> Option<Offset> {
        let distance = place.checked_distance_from(self.generation());
        distance.map(Offset::new)
    }

    /// The logical position of a place: that of the suffix lies after the whole budget.
    pub(crate) fn position_of(self, place: Place) -> Position {
        Position::new(match self.offset_of(place) {
            Some(offset) => self.prompt + offset.get(),
            None if place.get() < self.prompt => place.get(),
            None => place.get() + self.budget,
        })
    }

    /// The text that stands at a place.
    pub(crate) fn token_index(self, place: Place) -> TokenIndex {
        match self.offset_of(place) {
            Some(offset) => TokenIndex::Generation(offset),
            None if place.get() < self.prompt => TokenIndex::Prompt(place.index()),
            None => TokenIndex::Suffix(place.index() - as_index(self.prompt)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three tokens of prompt, two of suffix, a budget of four: by position the suffix is last.
    #[test]
    fn the_suffix_lies_left_by_place_and_right_by_position() {
        let layout = Layout { prompt: 3, suffix: 2, budget: 4 };
        let places = Span::<Place>::first(9);
        let positions: Vec<u32> =
            places.iter().map(|place| layout.position_of(place).get()).collect();
        assert_eq!(positions, [0, 1, 2, 7, 8, 3, 4, 5, 6]);
        assert_eq!(layout.place_of(Offset::ZERO), Place::new(5));
        assert_eq!(layout.offset_of(Place::new(4)), None);
        assert_eq!(layout.token_index(Place::new(2)), TokenIndex::Prompt(2));
        assert_eq!(layout.token_index(Place::new(4)), TokenIndex::Suffix(1));
        assert_eq!(layout.token_index(Place::new(6)), TokenIndex::Generation(Offset::new(1)));
    }
}
