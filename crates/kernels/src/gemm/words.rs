//! Memory for packed weights.

use memmap2::MmapMut;

/// Words of a cache line.
const LINE: usize = 16;
/// Bytes of a huge page on most processors.
const HUGE: usize = 2 << 20;

/// Zeroed words, aligned to a cache line. Large matrices use huge pages if the system has them: a
/// forward pass reads all weights once, and small pages would cause many page table walks.
pub(super) enum Words {
    /// On the heap.
    Lines(Vec<Line>),
    /// In an anonymous mapping.
    Map(MmapMut),
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
        let map = if bytes < HUGE {
            None
        } else {
            MmapMut::map_anon(bytes).ok()
        };
        let Some(map) = map else {
            return Self::Lines(vec![Line([0; LINE]); count.div_ceil(LINE)]);
        };
        #[cfg(target_os = "linux")]
        {
            // Only complete huge pages, so that no memory beyond the words is used. If the system
            // refuses, small pages are used.
            let whole = bytes / HUGE * HUGE;
            let _ = map.advise_range(memmap2::Advice::HugePage, 0, whole);
        }
        Self::Map(map)
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
            Self::Map(map) => unsafe {
                std::slice::from_raw_parts(map.as_ptr().cast(), map.len() / size_of::<u32>())
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
            Self::Map(map) => unsafe {
                let len = map.len() / size_of::<u32>();
                std::slice::from_raw_parts_mut(map.as_mut_ptr().cast(), len)
            },
        }
    }
}
