//! Descriptions of rows in a device's memory for its bulk copies (`cuda/ring.cuh`).

use super::Device;
use std::sync::{Mutex, PoisonError};

/// Rows of a copy; `BOX` of the kernels.
pub const BOX_ROWS: usize = 32;
/// Elements of a row of a copy, 128 bytes.
pub(super) const BOX_INNER: usize = 64;

/// A description as the driver wrote it, `CUtensorMap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct TensorMap(pub [u64; 16]);

/// Rows in a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapRows {
    /// The address of the first one.
    pub address: u64,
    /// Number of rows.
    pub rows: usize,
    /// Elements of two bytes of a row: one number in bf16, or two in int8.
    pub inner: usize,
}

/// Why no bulk copies load operands, of the first refusal.
#[derive(Default)]
pub(super) struct Refusal(Mutex<Option<String>>);

impl Refusal {
    fn enter(&self, reason: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
    }

    fn reason(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Device {
    /// The description of rows, made once for their memory. `None` if the device has no bulk copies or the driver
    /// refuses: then other kernels load them.
    pub(super) fn tensor_map(&self, rows: MapRows) -> Option<TensorMap> {
        let MapRows { rows: count, inner, .. } = rows;
        if !self.limits.bulk || count == 0 || inner == 0 || !inner.is_multiple_of(BOX_INNER) {
            return None;
        }
        match self.driver.tensor_map(rows) {
            Ok(map) => Some(map),
            Err(error) => {
                self.refusal.enter(error.0);
                None
            }
        }
    }

    /// Why kernels that load operands by bulk copies do not run on a device that has them; `None` if they do or
    /// it has none.
    pub fn bulk_refusal(&self) -> Option<String> {
        self.driver.bulk_refusal().or_else(|| self.refusal.reason())
    }
}

/// A description that says what rows it is of, for drivers that run or list kernels on the host; `Map` of
/// `emulation/clusters.h`.
pub fn host_map(rows: MapRows) -> TensorMap {
    let MapRows { address, rows, inner } = rows;
    let mut words = [0; 16];
    let mark = 0x7061_6D20_726F_7364;
    words[..6].copy_from_slice(&[
        address,
        inner as u64,
        rows as u64,
        2 * inner as u64,
        BOX_ROWS as u64,
        mark,
    ]);
    TensorMap(words)
}
