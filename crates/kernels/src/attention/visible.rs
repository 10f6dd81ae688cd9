//! The slots that a row attends to.

/// The slots `[begin, end)` of the row's segment, and slot `end + b` for every set bit `b` of
/// `beyond`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Visible {
    /// First slot of the range.
    pub begin: u32,
    /// End of the range.
    pub end: u32,
    /// Slots from `end` on.
    pub beyond: u64,
}

impl Visible {
    /// The slots `[0, end)`.
    pub const fn prefix(end: u32) -> Self {
        Self { begin: 0, end, beyond: 0 }
    }

    /// True if the row attends to a slot.
    pub const fn sees(&self, slot: u32) -> bool {
        if slot < self.end {
            return slot >= self.begin;
        }
        let bit = slot - self.end;
        bit < u64::BITS && self.beyond >> bit & 1 == 1
    }

    /// The first slot after all that the row sees, `end` at least.
    pub const fn reach(&self) -> usize {
        self.end as usize + (u64::BITS - self.beyond.leading_zeros()) as usize
    }

    /// Its numbers as the kernels of devices read them.
    pub(crate) const fn words(self) -> [u32; 4] {
        let Self { begin, end, beyond } = self;
        [begin, end, beyond as u32, (beyond >> 32) as u32]
    }

    /// True if the row sees all slots below [`Self::reach`].
    pub const fn is_prefix(&self) -> bool {
        self.begin == 0 && self.beyond == 0
    }
}
