//! Memory for packed weights and for encoded rows.

use memmap2::MmapMut;
use std::cell::Cell;
use std::ops::Range;

/// Words of a cache line.
const LINE: usize = 16;
/// Bytes of a huge page on most processors.
const HUGE: usize = 2 << 20;

/// Zeroed words, aligned to a cache line. Many words use huge pages if the system has them: a forward
/// pass reads all weights once, a product reads its rows at large distances, and small pages would
/// cause many page table walks.
pub(super) enum Words {
    /// On the heap.
    Lines(Vec<Line>),
    /// In an anonymous mapping: the first byte and the number of bytes.
    Map(MmapMut, Range<usize>),
}

/// The words of one cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line([u32; LINE]);

impl Words {
    /// Bytes that [`Self::zeros`] allocates.
    pub(super) fn bytes(count: usize) -> usize {
        match count * size_of::<u32>() {
            heap if heap < HUGE => heap.next_multiple_of(size_of::<Line>()),
            map => map,
        }
    }

    /// Allocates at least `count` words.
    pub(super) fn zeros(count: usize) -> Self {
        let bytes = count * size_of::<u32>();
        // Pages before and after the words are never touched, so they use no memory.
        let map = if bytes < HUGE { None } else { MmapMut::map_anon(bytes + HUGE).ok() };
        let Some(map) = map else {
            return Self::Lines(vec![Line([0; LINE]); count.div_ceil(LINE)]);
        };
        let start = map.as_ptr().align_offset(HUGE).min(HUGE);
        #[cfg(target_os = "linux")]
        {
            // Only complete huge pages, so that no memory beyond the words is used. If the system
            // refuses, small pages are used.
            let whole = bytes / HUGE * HUGE;
            let _ = map.advise_range(memmap2::Advice::HugePage, start, whole);
        }
        Self::Map(map, start..start + bytes)
    }
}

impl AsRef<[u32]> for Words {
    fn as_ref(&self) -> &[u32] {
        match self {
            // SAFETY: a line is sixteen words without padding.
            Self::Lines(lines) => unsafe {
                std::slice::from_raw_parts(lines.as_ptr().cast(), lines.len() * LINE)
            },
            // SAFETY: pages are aligned, and any bytes are words.
            Self::Map(map, bytes) => unsafe {
                let bytes = &map[bytes.clone()];
                std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size_of::<u32>())
            },
        }
    }
}

impl AsMut<[u32]> for Words {
    fn as_mut(&mut self) -> &mut [u32] {
        match self {
            // SAFETY: a line is sixteen words without padding.
            Self::Lines(lines) => unsafe {
                std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), lines.len() * LINE)
            },
            // SAFETY: pages are aligned, and any bytes are words.
            Self::Map(map, bytes) => unsafe {
                let bytes = &mut map[bytes.clone()];
                let len = bytes.len() / size_of::<u32>();
                std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), len)
            },
        }
    }
}

/// Words that a thread uses again and again, with whatever the use before has left in them.
pub(super) struct Scratch(Option<Words>);

thread_local! {
    /// Buffers for later use; the one used first is last.
    static SPARE: Cell<Vec<Words>> = const { Cell::new(Vec::new()) };
}

impl Words {
    /// At least `count` words for a while, with whatever the use before has left in them.
    pub(super) fn borrow(count: usize) -> Self {
        let mut spare = SPARE.take();
        let fits = spare.pop().filter(|words| words.as_ref().len() >= count);
        SPARE.set(spare);
        // Whole huge pages, so that slightly more words fit later.
        let new = || Self::zeros(count.next_multiple_of(HUGE / size_of::<u32>()));
        fits.unwrap_or_else(new)
    }

    /// Ends a use that [`Self::borrow`] began.
    pub(super) fn give_back(self) {
        let mut spare = SPARE.take();
        spare.push(self);
        SPARE.set(spare);
    }
}

impl Scratch {
    /// At least `count` words.
    pub(super) fn new(count: usize) -> Self {
        Self(Some(Words::borrow(count)))
    }
}

impl AsRef<[u32]> for Scratch {
    fn as_ref(&self) -> &[u32] {
        self.0.as_ref().map_or(&[], AsRef::as_ref)
    }
}

impl AsMut<[u32]> for Scratch {
    fn as_mut(&mut self) -> &mut [u32] {
        self.0.as_mut().map_or(&mut [], AsMut::as_mut)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(words) = self.0.take() {
            words.give_back();
        }
    }
}
