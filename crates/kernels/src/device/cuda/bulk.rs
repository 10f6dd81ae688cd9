//! Kernels whose operands bulk copies load: clusters and tensor maps. A card or driver that refuses one of them
//! runs the others.

use super::super::tensor_map::{BOX_INNER, BOX_ROWS, MapRows, TensorMap};
use super::super::{DeviceError, Kernel, Result, kernels, refuse};
use super::errors::failed;
use super::{Cuda, function};
use cudarc::driver::{result, sys};
use std::ffi::c_void;

impl Cuda {
    /// Adds the kernels, or the reason why they do not run.
    ///
    /// # Safety
    /// The module is loaded, and the context is current.
    pub(super) unsafe fn add_rings(&mut self) {
        // SAFETY: by the caller's promise.
        if let Err(DeviceError(reason)) = unsafe { self.try_rings() } {
            let is_ring = |name: &str| kernels().any(|kernel| kernel.bulk && kernel.name == name);
            self.functions.retain(|name, _| !is_ring(name));
            (self.limits.bulk, self.limits.ring) = (false, false);
            self.refusal = Some(reason);
        }
    }

    unsafe fn try_rings(&mut self) -> Result<()> {
        let clusters = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH;
        // SAFETY: the device exists.
        let clusters = unsafe { result::device::get_attribute(self.device, clusters) };
        if clusters.map_err(failed("clusters"))? == 0 {
            return refuse("the device has no clusters");
        }
        for kernel in kernels().filter(|kernel| kernel.bulk) {
            if !kernel.runs_on(self.limits) {
                return refuse(format!("{} needs more shared memory", kernel.name));
            }
            // SAFETY: by the caller's promise.
            let found = unsafe { function(self.module, kernel) }?;
            self.functions.insert(kernel.name, found);
            if kernel.name.contains("_pair_") {
                // SAFETY: by the caller's promise.
                let pairs = unsafe { pairs(found, kernel, self.limits.multiprocessors) }?;
                self.limits.pairs = self.limits.pairs.min(pairs);
            }
        }
        Ok(())
    }
}

/// Clusters of two blocks that run at a time, at most one block for each multiprocessor.
///
/// # Safety
/// The function is of the current context.
unsafe fn pairs(
    function: sys::CUfunction,
    kernel: Kernel,
    multiprocessors: usize,
) -> Result<usize> {
    let mut cluster: sys::CUlaunchAttribute = zeroed();
    cluster.id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    cluster.value.clusterDim.x = 2;
    cluster.value.clusterDim.y = 1;
    cluster.value.clusterDim.z = 1;
    let grid = [(multiprocessors / 2 * 2).max(2) as u32, 1, 1];
    let config = config(kernel, grid, std::ptr::null_mut(), &mut cluster);
    let mut count = 0;
    // SAFETY: by the caller's promise; the driver reads the configuration and writes one number.
    let asked = unsafe {
        sys::cuOccupancyMaxActiveClusters(&raw mut count, function, &raw const config).result()
    };
    asked.map_err(failed(kernel.name))?;
    match usize::try_from(count) {
        Ok(count) if count > 0 => Ok(count),
        _ => refuse(format!("no cluster of {} fits", kernel.name)),
    }
}

/// The configuration of a launch with one attribute, which must live as long.
pub(super) fn config(
    kernel: Kernel,
    grid: [u32; 3],
    stream: sys::CUstream,
    attribute: &mut sys::CUlaunchAttribute,
) -> sys::CUlaunchConfig {
    sys::CUlaunchConfig {
        gridDimX: grid[0],
        gridDimY: grid[1],
        gridDimZ: grid[2],
        blockDimX: kernel.threads,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: kernel.shared,
        hStream: stream,
        attrs: attribute,
        numAttrs: 1,
    }
}

/// A structure of the driver without values.
pub(super) fn zeroed() -> sys::CUlaunchAttribute {
    // SAFETY: it has numbers and addresses only, for which zeros are values.
    unsafe { std::mem::zeroed() }
}

/// The driver's description of rows, swizzled as `group_tile` of `cuda/groups_device.h` reads them.
pub(super) fn encode(rows: MapRows) -> Result<TensorMap> {
    let mut map = sys::CUtensorMap { opaque: [0; 16] };
    let sizes = [rows.inner as u64, rows.rows as u64];
    let strides = [2 * rows.inner as u64];
    let (copied, steps) = ([BOX_INNER as u32, BOX_ROWS as u32], [1; 2]);
    // SAFETY: the driver reads two numbers of each list, one of the strides, and writes the map.
    let made = unsafe {
        sys::cuTensorMapEncodeTiled(
            &raw mut map,
            sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            2,
            rows.address as *mut c_void,
            sizes.as_ptr(),
            strides.as_ptr(),
            copied.as_ptr(),
            steps.as_ptr(),
            sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    made.result().map_err(failed("tensor map"))?;
    Ok(TensorMap(map.opaque))
}
