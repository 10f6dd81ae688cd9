//! Access to candle's CPU storage as plain slices.

use candle_core::{CpuStorage, Layout, Result, bail};

/// The elements of a contiguous f32 tensor.
pub(crate) fn f32s<'a>(op: &str, storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    let (from, to) = contiguous(op, layout)?;
    match storage {
        CpuStorage::F32(data) => Ok(&data[from..to]),
        _ => bail!("{op}: expected f32"),
    }
}

/// The mutable elements of a contiguous f32 tensor.
pub(crate) fn f32s_mut<'a>(
    op: &str,
    storage: &'a mut CpuStorage,
    layout: &Layout,
) -> Result<&'a mut [f32]> {
    let (from, to) = contiguous(op, layout)?;
    match storage {
        CpuStorage::F32(data) => Ok(&mut data[from..to]),
        _ => bail!("{op}: expected f32"),
    }
}

fn contiguous(op: &str, layout: &Layout) -> Result<(usize, usize)> {
    match layout.contiguous_offsets() {
        Some(offsets) => Ok(offsets),
        None => bail!("{op}: expected a contiguous tensor"),
    }
}
