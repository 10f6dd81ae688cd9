//! How much memory a model takes, counted while it is loaded or surveyed.

/// Bytes on the heap and in mappings of its own; mapped files, which the system takes back at
/// will, are none of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// What the loaded model holds: packed matrices, embedding table, norms, rotary angles.
    pub weights: u64,
    /// Most that it takes at a time while it is loaded: a matrix is there in f32 and packed.
    pub loading: u64,
}

impl Memory {
    /// Takes note of bytes that stay.
    pub(crate) fn hold(&mut self, bytes: usize) {
        self.weights = self.weights.saturating_add(bytes as u64);
        self.pass(0);
    }

    /// Takes note of bytes that go again.
    pub(crate) fn pass(&mut self, bytes: usize) {
        self.loading = self.loading.max(self.weights.saturating_add(bytes as u64));
    }
}

/// Bytes of `count` numbers.
pub(crate) fn floats(count: usize) -> usize {
    count.saturating_mul(size_of::<f32>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_again_counts_while_it_is_there() {
        let mut memory = Memory::default();
        memory.hold(10);
        memory.pass(100);
        memory.hold(5);
        memory.pass(7);
        let (weights, loading) = (15, 110);
        assert_eq!(memory, Memory { weights, loading });
        memory.hold(200);
        assert_eq!(memory.loading, 215);
        memory.pass(usize::MAX);
        assert_eq!(memory.loading, u64::MAX);
    }
}
