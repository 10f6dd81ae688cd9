//! The number formats of keys and values, and the sizes of their pools.

use candle_core::DType;

/// The number format of keys and values in pages. Each slot is rounded on its own: its bytes depend on
/// no other slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum KvDtype {
    /// f32.
    #[default]
    F32,
    /// bf16, rounded to nearest even.
    Bf16,
    /// 8-bit integers with a scale in f32 for each slot and key/value head: the largest magnitude is
    /// 127.
    Int8,
}

impl KvDtype {
    /// All formats, the most exact first.
    pub const ALL: [Self; 3] = [Self::F32, Self::Bf16, Self::Int8];

    /// Its name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
        }
    }

    /// The format of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// The tensor type of pools, and the columns of a head of `c` numbers with its scale.
    pub(crate) fn stored(self, c: usize) -> (DType, usize) {
        match self {
            Self::F32 => (DType::F32, c),
            Self::Bf16 => (DType::BF16, c),
            Self::Int8 => (DType::U8, c + size_of::<f32>()),
        }
    }

    /// Bytes of the key, or of the value, of one slot in one head of `c` numbers.
    pub fn head_bytes(self, c: usize) -> usize {
        let (dtype, columns) = self.stored(c);
        columns.saturating_mul(dtype.size_in_bytes())
    }
}

/// The sizes of the pools of layers whose heads are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvSizes {
    /// The number format of keys and values.
    pub dtype: KvDtype,
    /// Number of layers.
    pub layers: usize,
    /// Key/value heads `g`.
    pub num_kv_heads: usize,
    /// Head width `c`.
    pub head_width: usize,
    /// Slots per page.
    pub page: usize,
    /// Number of pages.
    pub pages: usize,
}

impl KvSizes {
    /// Bytes of a slot, all layers together.
    pub fn slot_bytes(&self) -> usize {
        let head = self.dtype.head_bytes(self.head_width);
        let layer = self.num_kv_heads.saturating_mul(head);
        layer.saturating_mul(self.layers).saturating_mul(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for dtype in KvDtype::ALL {
            assert_eq!(KvDtype::named(dtype.name()), Some(dtype));
        }
        assert_eq!(KvDtype::named("int4"), None);
    }

    #[test]
    fn bytes_of_a_slot_contain_scales() {
        let bytes = KvDtype::ALL.map(|dtype| {
            let sizes =
                KvSizes { dtype, layers: 3, num_kv_heads: 2, head_width: 64, page: 16, pages: 5 };
            sizes.slot_bytes()
        });
        assert_eq!(bytes, [12 * 64 * 4, 12 * 64 * 2, 12 * 68]);
    }

    /// Bytes of memory that this process has.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    fn resident() -> usize {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        4096 * pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap()
    }

    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    #[test]
    fn pools_take_memory_when_they_are_written() {
        use crate::cache::Pool;
        for dtype in KvDtype::ALL {
            let sizes = KvSizes {
                dtype,
                layers: 1,
                num_kv_heads: 8,
                head_width: 128,
                page: 16,
                pages: 1 << 16,
            };
            let (before, pool) = (resident(), Pool::Keys.zeros(&sizes).unwrap());
            // Other tests take some of it.
            let (bytes, taken) = (sizes.slot_bytes() << 19, resident().saturating_sub(before));
            assert!(taken < bytes / 2, "{}: {taken} of {bytes}", dtype.name());
            assert_eq!(pool.dims()[0], sizes.pages);
        }
    }
}
