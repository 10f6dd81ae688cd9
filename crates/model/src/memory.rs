//! The memory that a model takes, counted while it is loaded or surveyed.

/// Bytes on the heap and in anonymous mappings. Mapped files are not counted, because the system
/// can reclaim their pages at any time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Bytes of the loaded model: packed matrices, embedding table, norms, rotary angles.
    pub weights: u64,
    /// Peak bytes while loading: a matrix exists in f32 and packed at the same time.
    pub loading: u64,
}

impl Memory {
    /// Sets the bytes of all stored weights, while `extra_bytes` further bytes are allocated.
    pub(crate) fn hold(&mut self, weights: u64, extra_bytes: usize) {
        self.weights = weights;
        self.use_briefly(extra_bytes);
    }

    /// Adds what was loaded after this: its weights are counted with these.
    pub(crate) fn follow(&mut self, later: Self) {
        self.weights = later.weights;
        self.loading = self.loading.max(later.loading);
    }

    /// Counts bytes that are freed during loading.
    pub(crate) fn use_briefly(&mut self, bytes: usize) {
        self.loading = self.loading.max(self.weights.saturating_add(bytes as u64));
    }
}

/// Bytes of `count` f32 numbers.
pub(crate) fn floats(count: usize) -> usize {
    count.saturating_mul(size_of::<f32>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_bytes_count_only_towards_the_peak() {
        let mut memory = Memory::default();
        memory.hold(10, 0);
        memory.use_briefly(100);
        memory.hold(15, 7);
        let (weights, loading) = (15, 110);
        assert_eq!(memory, Memory { weights, loading });
        memory.hold(215, 0);
        assert_eq!(memory.loading, 215);
        memory.use_briefly(usize::MAX);
        assert_eq!(memory.loading, u64::MAX);
    }
}
