//! Coordinates of a sequence as types, so that one kind is never taken for another.
//!
//! Four kinds of coordinates exist, each a `u32` counted from 0:
//!
//! | type | counts from | used for |
//! |---|---|---|
//! | [`Offset`] | the first generated position | canvas, lanes, candidates, commits |
//! | [`Place`] | the prompt's first token; the suffix of an infill request follows the prompt | rows of a forward |
//! | [`Position`] | the first token of the text | rotary embedding, sampling noise |
//! | [`Slot`] | the first slot of a page table | keys and values |
//!
//! The kinds do not mix. Only named functions convert, and only where the sequence is known that
//! gives the conversion its meaning:
//!
//! ```
//! use asynclane_decode::{Offset, Span};
//!
//! let lane = Span::at(Offset::new(4), 8);
//! assert_eq!(lane.end, Offset::new(12));
//! assert!(lane.contains(Offset::new(11)));
//! assert_eq!(lane.end.distance_from(lane.start), 8);
//! assert_eq!(format!("{:?}", lane.start.next()), "Offset(5)");
//! ```
//!
//! ```compile_fail,E0308
//! use asynclane_decode::{Offset, Slot};
//!
//! // A slot is no offset, even where their numbers agree.
//! let slot: Slot = Offset::new(3);
//! ```
//!
//! ```compile_fail,E0308
//! use asynclane_decode::{Offset, Place};
//!
//! // Kinds do not compare either.
//! assert!(Offset::new(3) < Place::new(4));
//! ```
//!
//! ```compile_fail,E0308
//! use asynclane_decode::{Offset, Place, Span};
//!
//! // A span has one kind.
//! let span = Span::new(Offset::new(3), Place::new(4));
//! ```

use core::fmt;
use core::ops::Range;

/// A coordinate: a `u32` that knows what it counts.
pub trait Coordinate: Copy + Ord + fmt::Debug {
    /// The coordinate with this number.
    fn new(number: u32) -> Self;

    /// The number of the coordinate.
    fn get(self) -> u32;
}

macro_rules! coordinate {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(u32);

        impl $name {
            /// The first one.
            pub const ZERO: Self = Self(0);

            /// The coordinate with this number.
            pub const fn new(number: u32) -> Self {
                Self(number)
            }

            /// The number of the coordinate.
            pub const fn get(self) -> u32 {
                self.0
            }

            /// The number as an index into a slice.
            pub const fn index(self) -> usize {
                as_index(self.0)
            }

            /// The coordinate `count` further right, at most `u32::MAX`.
            #[must_use]
            pub const fn plus(self, count: u32) -> Self {
                Self(self.0.saturating_add(count))
            }

            /// The coordinate right of this one.
            #[must_use]
            pub const fn next(self) -> Self {
                self.plus(1)
            }

            /// The coordinate `count` further left; `None` left of the first one.
            pub const fn minus(self, count: u32) -> Option<Self> {
                match self.0.checked_sub(count) {
                    Some(number) => Some(Self(number)),
                    None => None,
                }
            }

            /// The coordinate `count` further left, or the first one.
            #[must_use]
            pub const fn back(self, count: u32) -> Self {
                Self(self.0.saturating_sub(count))
            }

            /// The distance from `start`, which must not lie right of this.
            pub const fn distance_from(self, start: Self) -> u32 {
                debug_assert!(start.0 <= self.0, "the start lies right of the end");
                self.0.saturating_sub(start.0)
            }

            /// The distance from `start`; `None` if this lies left of it.
            pub const fn checked_distance_from(self, start: Self) -> Option<u32> {
                self.0.checked_sub(start.0)
            }

            /// The distance between two, whichever comes first.
            pub const fn abs_diff(self, other: Self) -> u32 {
                self.0.abs_diff(other.0)
            }

            /// The span from here up to `end`.
            pub const fn to(self, end: Self) -> Span<Self> {
                Span::new(self, end)
            }

            /// Number of the block of `length` coordinates that holds this one; `length >= 1`.
            pub const fn block(self, length: u32) -> u32 {
                self.0 / length
            }

            /// The distance from the start of its block of `length` coordinates; `length >= 1`.
            pub const fn in_block(self, length: u32) -> u32 {
                self.0 % length
            }

            /// First coordinate of the block of `length` that holds this one; `length >= 1`.
            #[must_use]
            pub const fn block_start(self, length: u32) -> Self {
                Self(self.0 - self.0 % length)
            }

            /// End of the block of `length` that holds this one, at most `u32::MAX`;
            /// `length >= 1`.
            #[must_use]
            pub const fn block_end(self, length: u32) -> Self {
                self.block_start(length).plus(length)
            }
        }

        impl Coordinate for $name {
            fn new(number: u32) -> Self {
                Self(number)
            }

            fn get(self) -> u32 {
                self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(out, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(out)
            }
        }
    };
}

coordinate! {
    /// A generated position, counted from the first one.
    Offset
}

coordinate! {
    /// A position of a sequence, counted from the prompt's first token. The suffix of an infill
    /// request has the places after the prompt's; generated positions follow.
    Place
}

coordinate! {
    /// A logical position: where a token stands in the finished text. Rotary embeddings and
    /// sampling noise depend on it.
    Position
}

coordinate! {
    /// An entry of a sequence's KV cache, in the order of its page table.
    Slot
}

/// A half-open range of coordinates of one kind: `start` belongs to it, `end` does not.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Span<T> {
    /// The first one.
    pub start: T,
    /// The first one after it.
    pub end: T,
}

impl<T> Span<T> {
    /// From `start` up to `end`; empty if `end` does not lie right of `start`.
    pub const fn new(start: T, end: T) -> Self {
        Self { start, end }
    }
}

impl<T: Coordinate> Span<T> {
    /// The span of `len` coordinates from `start` on, cut off at `u32::MAX`.
    pub fn at(start: T, len: u32) -> Self {
        Self::new(start, T::new(start.get().saturating_add(len)))
    }

    /// The first `len` coordinates.
    pub fn first(len: u32) -> Self {
        Self::new(T::new(0), T::new(len))
    }

    /// Number of coordinates.
    pub fn len(self) -> u32 {
        self.end.get().saturating_sub(self.start.get())
    }

    /// Returns true if it holds no coordinate.
    pub fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// Returns true if it holds the coordinate.
    pub fn contains(self, coordinate: T) -> bool {
        self.start <= coordinate && coordinate < self.end
    }

    /// The coordinates that both spans hold.
    #[must_use]
    pub fn intersect(self, other: Self) -> Self {
        Self::new(self.start.max(other.start), self.end.min(other.end))
    }

    /// The part left of `end`; both ends of the result are at most `end`.
    #[must_use]
    pub fn clip(self, end: T) -> Self {
        Self::new(self.start.min(end), self.end.min(end))
    }

    /// Its coordinates, left to right.
    pub fn iter(self) -> Coordinates<T> {
        (self.start.get()..self.end.get()).map(T::new)
    }
}

/// The coordinates of a [`Span`], left to right.
pub type Coordinates<T> = core::iter::Map<Range<u32>, fn(u32) -> T>;

impl<T: Coordinate> IntoIterator for Span<T> {
    type Item = T;
    type IntoIter = Coordinates<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T: Coordinate> fmt::Debug for Span<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}..{:?}", self.start, self.end)
    }
}

/// `number` as an index into a slice; lossless, because an address has 32 bits at least.
#[expect(clippy::as_conversions, reason = "`try_from` is not const")]
pub const fn as_index(number: u32) -> usize {
    const { assert!(usize::BITS >= u32::BITS, "addresses of 32 bits at least") };
    number as usize
}

/// The length of a slice as a number.
///
/// # Panics
/// From 2^32 entries on; a model's context is far shorter.
#[expect(clippy::as_conversions, reason = "`try_from` is not const")]
pub const fn as_count(len: usize) -> u32 {
    assert!(len <= as_index(u32::MAX), "fewer than 2^32 entries");
    len as u32
}
