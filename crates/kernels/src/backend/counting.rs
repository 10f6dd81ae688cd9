//! Storage that allocates nothing and adds the bytes that [`super::Cpu`] would allocate.

use super::{Numbers, RopeSpec, Storage, Stored, StoredVector, Table};
use crate::linear::Linear;
use candle_core::Result;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number of bytes.
#[derive(Debug, Default)]
pub(super) struct Bytes(AtomicU64);

impl Bytes {
    /// Adds `count` numbers of f32.
    pub(super) fn add_floats(&self, count: usize) {
        self.add(count.saturating_mul(size_of::<f32>()));
    }

    pub(super) fn add(&self, bytes: usize) {
        let more = |sum: u64| Some(sum.saturating_add(bytes as u64));
        // The function never returns `None`.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    pub(super) fn sum(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts weights instead of storing them.
#[derive(Debug, Default)]
pub struct Counting {
    bytes: Bytes,
}

impl Storage for Counting {
    type Table = ();
    type Vector = ();
    type Matrix = ();
    type RopeTable = ();
    type Grouped = ();

    fn table(&self, table: Table) -> Result<()> {
        self.bytes.add(table.bytes());
        Ok(())
    }

    fn vector(&self, vector: StoredVector<'_>) -> Result<()> {
        self.bytes.add_floats(vector.count);
        Ok(())
    }

    fn matrix(&self, matrix: Stored<'_>) -> Result<()> {
        let Stored { shape, numbers, dtype, epilogue, .. } = matrix;
        self.bytes.add(match numbers {
            Numbers::Floats(_) => Linear::bytes_of(shape, dtype, epilogue)?,
            Numbers::Blocks(blocks) => Linear::bytes_of_blocks(shape, blocks, epilogue)?,
        });
        Ok(())
    }

    fn rope_table(&self, spec: RopeSpec) -> Result<()> {
        let factors = spec.query_factors().len();
        self.bytes.add_floats(spec.width.saturating_mul(spec.positions).saturating_add(factors));
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.bytes.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Cpu, TableNumbers};
    use crate::blocks::BlockType;
    use crate::linear::Epilogue;
    use crate::simd::unit::WeightDtype;

    /// Stores one weight of each kind; without `reads` their numbers are not given.
    fn store(storage: &impl Storage, reads: bool, dtype: WeightDtype) -> u64 {
        let numbers_of = |count| vec![0.5; if reads { count } else { 0 }];
        let (rows, width) = (70, 64);
        let numbers = numbers_of(rows * width);
        let bias = numbers_of(rows);
        for epilogue in [Epilogue::None, Epilogue::SiluGate] {
            let matrix = Stored {
                shape: [rows, width],
                numbers: Numbers::Floats(&numbers),
                bias: Some(&bias),
                dtype,
                epilogue,
            };
            assert!(storage.matrix(matrix).is_ok());
        }
        let blocks = vec![0; if reads { rows * 36 } else { 0 }];
        let halves = numbers.iter().map(|x| half::bf16::from_f32(*x)).collect();
        for numbers in [
            TableNumbers::Floats(numbers.clone()),
            TableNumbers::Halves(halves),
            TableNumbers::Blocks(BlockType::Q4_0, blocks),
        ] {
            assert!(storage.table(Table { rows, width, numbers, factor: 1.0 }).is_ok());
        }
        let vector = StoredVector { count: 9, numbers: &numbers_of(9) };
        assert!(storage.vector(vector).is_ok());
        let spec = RopeSpec::plain(1e4, 8, 33);
        assert!(storage.rope_table(spec).is_ok());
        storage.bytes()
    }

    #[test]
    fn counted_bytes_are_those_of_stored_weights() {
        for dtype in WeightDtype::ALL {
            let counted = store(&Counting::default(), false, dtype);
            assert_eq!(counted, store(&Cpu::default(), true, dtype));
            assert!(counted > 4 * (70 * 64 + 9 + 8 * 33));
        }
    }

    #[test]
    fn a_matrix_that_cannot_be_stored_cannot_be_counted() {
        let matrix = Stored {
            shape: [7, 4],
            numbers: Numbers::Floats(&[]),
            bias: None,
            dtype: WeightDtype::F32,
            epilogue: Epilogue::SiluGate,
        };
        assert!(Counting::default().matrix(matrix).is_err());
    }
}
