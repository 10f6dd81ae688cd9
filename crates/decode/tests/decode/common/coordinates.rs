//! Coordinates from the plain numbers of a test.

use core::ops::Range;

use asynclane_decode::{Offset, Span};

/// The offset with this number.
pub fn at(number: u32) -> Offset {
    Offset::new(number)
}

/// The offsets with these numbers.
pub fn span(numbers: Range<u32>) -> Span<Offset> {
    Span::new(at(numbers.start), at(numbers.end))
}
