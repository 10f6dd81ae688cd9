//! Embedding tables, in the number formats of files.

use crate::blocks::BlockType;
use crate::ggml::widened;
use candle_core::{DType, Device, Result, Tensor, bail};
use half::bf16;

/// A table of numbers to be stored.
pub struct Table {
    /// Number of rows.
    pub rows: usize,
    /// Numbers per row.
    pub width: usize,
    /// The numbers.
    pub numbers: TableNumbers,
    /// The factor of every number, in f32.
    pub factor: f32,
}

/// The numbers of a table, row-major; empty if weights are only counted.
#[derive(Clone)]
pub enum TableNumbers {
    /// In f32.
    Floats(Vec<f32>),
    /// In bf16.
    Halves(Vec<bf16>),
    /// In the blocks of a GGUF file.
    Blocks(BlockType, Vec<u8>),
}

impl Table {
    /// Bytes of the numbers, whether they are given or only counted.
    pub(super) fn bytes(&self) -> usize {
        let row = match self.numbers {
            TableNumbers::Floats(_) => self.width.checked_mul(size_of::<f32>()),
            TableNumbers::Halves(_) => self.width.checked_mul(size_of::<bf16>()),
            TableNumbers::Blocks(kind, _) => kind.row_bytes(self.width),
        };
        row.and_then(|row| row.checked_mul(self.rows)).unwrap_or(usize::MAX)
    }

    /// All numbers in f32, times the factor.
    pub(super) fn floats(self) -> Result<Vec<f32>> {
        let (shape, factor) = ([self.rows, self.width], self.factor);
        let mut numbers = match self.numbers {
            TableNumbers::Floats(numbers) => numbers,
            TableNumbers::Halves(numbers) => numbers.iter().map(|x| x.to_f32()).collect(),
            TableNumbers::Blocks(_, bytes) if bytes.is_empty() => Vec::new(),
            TableNumbers::Blocks(kind, bytes) => {
                widened(kind, &bytes, shape, &Device::Cpu)?.flatten_all()?.to_vec1()?
            }
        };
        if factor != 1.0 {
            numbers.iter_mut().for_each(|x| *x *= factor);
        }
        Ok(numbers)
    }
}

/// A table in its number format, whose rows are widened when they are read.
pub struct StoredTable {
    rows: StoredRows,
    factor: f32,
}

enum StoredRows {
    Numbers(Tensor),
    Blocks { kind: BlockType, bytes: Vec<u8>, row: usize, width: usize },
}

impl StoredTable {
    pub(super) fn new(table: Table) -> Result<Self> {
        let (shape, device) = ((table.rows, table.width), Device::Cpu);
        let rows = match table.numbers {
            TableNumbers::Floats(numbers) => {
                StoredRows::Numbers(Tensor::from_vec(numbers, shape, &device)?)
            }
            TableNumbers::Halves(numbers) => {
                StoredRows::Numbers(Tensor::from_vec(numbers, shape, &device)?)
            }
            TableNumbers::Blocks(kind, bytes) => match kind.row_bytes(table.width) {
                Some(row) if row.checked_mul(table.rows) == Some(bytes.len()) => {
                    StoredRows::Blocks { kind, bytes, row, width: table.width }
                }
                _ => bail!("{} bytes of {} for {shape:?}", bytes.len(), kind.name()),
            },
        };
        Ok(Self { rows, factor: table.factor })
    }

    /// The rows of these tokens, `[r, d]` in f32.
    ///
    /// # Errors
    /// If a token is beyond the table.
    pub(super) fn rows(&self, tokens: &[u32]) -> Result<Tensor> {
        let device = Device::Cpu;
        let rows = match &self.rows {
            StoredRows::Numbers(table) => {
                let tokens = Tensor::from_slice(tokens, tokens.len(), &device)?;
                table.index_select(&tokens, 0)?.to_dtype(DType::F32)?
            }
            StoredRows::Blocks { kind, bytes, row, width } => {
                let mut picked = Vec::with_capacity(tokens.len() * row);
                for token in tokens {
                    match bytes.chunks_exact(*row).nth(*token as usize) {
                        Some(row) => picked.extend_from_slice(row),
                        None => bail!("token {token} beyond the embedding table"),
                    }
                }
                widened(*kind, &picked, [tokens.len(), *width], &device)?
            }
        };
        match self.factor {
            1.0 => Ok(rows),
            factor => rows.broadcast_mul(&Tensor::new(&[factor], &device)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows are those of the whole table in f32, in every number format and under a factor.
    #[test]
    fn rows_are_widened_exactly() {
        let (rows, width) = (7, 256);
        let numbers: Vec<f32> = (0..rows * width).map(|i| (i as f32 * 0.37).sin()).collect();
        let halves = numbers.iter().map(|x| bf16::from_f32(*x)).collect();
        let kinds = BlockType::ALL.into_iter().chain([BlockType::AFFINE8, BlockType::F16]);
        let blocks = kinds.map(|kind| {
            let count = rows * kind.row_bytes(width).unwrap_or_default();
            // Every number of 16 bits is finite.
            let bytes = (0..count).map(|i| (i * 37 % 61) as u8).collect();
            TableNumbers::Blocks(kind, bytes)
        });
        let plain = [TableNumbers::Floats(numbers), TableNumbers::Halves(halves)];
        for numbers in plain.into_iter().chain(blocks) {
            for factor in [1.0, 53.07] {
                let table = || Table { rows, width, numbers: numbers.clone(), factor };
                let all = table().floats().expect("whole blocks");
                let stored = StoredTable::new(table()).expect("whole rows");
                let tokens = [6, 0, 3, 3];
                let found = stored.rows(&tokens).expect("tokens of the table");
                let wanted: Vec<&[f32]> =
                    tokens.iter().map(|token| &all[*token as usize * width..][..width]).collect();
                let found = found.flatten_all().and_then(|rows| rows.to_vec1::<f32>());
                assert_eq!(found.expect("numbers"), wanted.concat());
                assert!(stored.rows(&[7]).is_err());
                assert!(all.iter().all(|x| x.is_finite()) && all.iter().any(|x| *x != 0.0));
            }
        }
    }
}
