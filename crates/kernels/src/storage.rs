//! Access to candle's CPU storage as plain slices.

use candle_core::{CpuStorage, Layout, Result, bail};
use half::bf16;

/// A number type of CPU storage.
pub(crate) trait TensorNumber: Sized {
    /// Its name in errors.
    const NAME: &'static str;
    /// The numbers, if the storage has this type.
    fn of(storage: &CpuStorage) -> Option<&[Self]>;
    /// The same, mutable.
    fn of_mut(storage: &mut CpuStorage) -> Option<&mut [Self]>;
}

macro_rules! stored {
    ($number:ty, $variant:ident, $name:literal) => {
        impl TensorNumber for $number {
            const NAME: &'static str = $name;

            fn of(storage: &CpuStorage) -> Option<&[Self]> {
                match storage {
                    CpuStorage::$variant(numbers) => Some(numbers),
                    _ => None,
                }
            }

            fn of_mut(storage: &mut CpuStorage) -> Option<&mut [Self]> {
                match storage {
                    CpuStorage::$variant(numbers) => Some(numbers),
                    _ => None,
                }
            }
        }
    };
}

stored!(f32, F32, "f32");
stored!(bf16, BF16, "bf16");
stored!(u8, U8, "u8");

/// The elements of a contiguous tensor of one type.
pub(crate) fn numbers<'a, N: TensorNumber>(
    op: &str,
    storage: &'a CpuStorage,
    layout: &Layout,
) -> Result<&'a [N]> {
    let (start, end) = contiguous(op, layout)?;
    match N::of(storage) {
        Some(numbers) => Ok(&numbers[start..end]),
        None => bail!("{op}: expected {}", N::NAME),
    }
}

/// The mutable elements of a contiguous tensor of one type.
pub(crate) fn numbers_mut<'a, N: TensorNumber>(
    op: &str,
    storage: &'a mut CpuStorage,
    layout: &Layout,
) -> Result<&'a mut [N]> {
    let (start, end) = contiguous(op, layout)?;
    match N::of_mut(storage) {
        Some(numbers) => Ok(&mut numbers[start..end]),
        None => bail!("{op}: expected {}", N::NAME),
    }
}

fn contiguous(op: &str, layout: &Layout) -> Result<(usize, usize)> {
    match layout.contiguous_offsets() {
        Some(offsets) => Ok(offsets),
        None => bail!("{op}: expected a contiguous tensor"),
    }
}
